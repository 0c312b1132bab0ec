"""How many bytes the tensors of the pretend device hold, and at most how many they may.

A storage counts once, however many tensors look at it, from the first of them to the last.
"""

from dataclasses import dataclass, field

import torch

TOTAL = 80 * 2**30


@dataclass
class Held:
    """The bytes of the device."""

    now: int = 0
    peak: int = 0
    total: int = TOTAL
    views: dict[int, tuple[int, int]] = field(default_factory=dict)
    """by storage: tensors that look at it, and its bytes"""


BYTES = Held()


class Hold:
    """A tensor's hold on its storage: it ends with the tensor."""

    __slots__ = ("place",)

    def __init__(self, inner: torch.Tensor) -> None:
        """Counts the storage of a CPU tensor.

        Raises:
            OutOfMemoryError: the device has no room for it.
        """
        storage = inner.untyped_storage()
        self.place = storage._cdata
        views, size = BYTES.views.get(self.place, (0, storage.nbytes()))
        if not views and BYTES.now + size > BYTES.total:
            del self.place
            raise torch.OutOfMemoryError(
                f"the pretend device is out of memory. Tried to allocate {size / 2**20:.2f} MiB."
            )
        BYTES.views[self.place] = views + 1, size
        BYTES.now += 0 if views else size
        BYTES.peak = max(BYTES.peak, BYTES.now)

    def __del__(self) -> None:
        # nothing is left of the module when the process ends
        if hasattr(self, "place") and BYTES is not None:
            views, size = BYTES.views.pop(self.place)
            if views > 1:
                BYTES.views[self.place] = views - 1, size
            else:
                BYTES.now -= size
