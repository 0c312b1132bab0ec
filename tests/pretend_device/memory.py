"""Count the bytes of the tensors on the pretend device, and limit them.

A storage counts once, however many tensors look at it, from the first of them to the last.
"""

from dataclasses import dataclass, field

import torch

TOTAL = 80 * 2**30


@dataclass
class MemoryUse:
    """The bytes of the device."""

    used: int = 0
    peak: int = 0
    total: int = TOTAL
    views: dict[int, tuple[int, int]] = field(default_factory=dict)
    """by storage: tensors that look at it, and its bytes"""


BYTES = MemoryUse()


class StorageHold:
    """A tensor's hold on its storage: it ends with the tensor."""

    __slots__ = ("address",)

    def __init__(self, inner: torch.Tensor) -> None:
        """Count the storage of a CPU tensor.

        Raises:
            OutOfMemoryError: the device has no room for it.
        """
        storage = inner.untyped_storage()
        self.address = storage._cdata
        views, size = BYTES.views.get(self.address, (0, storage.nbytes()))
        if not views and BYTES.used + size > BYTES.total:
            del self.address
            raise torch.OutOfMemoryError(
                f"the pretend device is out of memory. Tried to allocate {size / 2**20:.2f} MiB."
            )
        BYTES.views[self.address] = views + 1, size
        BYTES.used += 0 if views else size
        BYTES.peak = max(BYTES.peak, BYTES.used)

    def __del__(self) -> None:
        # nothing is left of the module when the process ends
        if hasattr(self, "address") and BYTES is not None:
            views, size = BYTES.views.pop(self.address)
            if views > 1:
                BYTES.views[self.address] = views - 1, size
            else:
                BYTES.used -= size
