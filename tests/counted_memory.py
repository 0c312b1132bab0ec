"""A machine whose memory is counted, and refused above a limit: every tensor that is made, while it lives."""

import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gprune.models.decoder import Decoder


class CountedMemory(TorchDispatchMode):
    """Counts the bytes of tensors that are made inside, and raises what a GPU raises above a limit."""

    def __init__(self, limit=None):
        super().__init__()
        self.limit, self.live, self.peak, self.refused = limit, 0, 0, 0
        self._known = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        # without a graph, whole functions arrive here, and what they make inside would not be seen
        with self:
            parts = func.decompose(*args, **kwargs)
        if parts is not NotImplemented:
            return parts
        before = {_storage(tree_leave)._cdata for tree_leave in tree_leaves((args, kwargs)) if _counts(tree_leave)}
        created = func(*args, **kwargs)
        for tensor in filter(_counts, tree_leaves(created)):
            storage = _storage(tensor)
            if storage._cdata not in before and storage._cdata not in self._known:
                self._take(storage)
        return created

    def _take(self, storage):
        key, size = storage._cdata, storage.nbytes()
        self._known.add(key)
        weakref.finalize(storage, self._give_back, key, size)
        self.live += size
        if self.limit is not None and self.live > self.limit:
            self.refused += 1
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size / 2**30:.2f} GiB.")
        self.peak = max(self.peak, self.live)

    def _give_back(self, key, size):
        self._known.discard(key)
        self.live -= size


def _counts(value):
    return isinstance(value, torch.Tensor) and value.layout == torch.strided


def _storage(tensor):
    return tensor.untyped_storage()


def hold_sequences(monkeypatch, count):
    """Let decoders run so many sequences at a time: a number, or a list whose only item may change."""
    true = Decoder.hidden_states

    def refuse(self, ids):
        if len(ids) > (count[0] if isinstance(count, list) else count):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return true(self, ids)

    monkeypatch.setattr(Decoder, "hidden_states", refuse)


def shorter(run, share):
    """What some work gives where memory is short, and how often it was refused.

    Args:
        run: the work.
        share: of the memory that it takes where there is enough.
    """
    with CountedMemory() as counts:
        run()
    with CountedMemory(int(counts.peak * share)) as short:
        result = run()
    return result, short.refused
