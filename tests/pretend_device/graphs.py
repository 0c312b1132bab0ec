"""A graph of the pretend device: the operations of a step, done repeated on the very tensors of its capture.

As with CUDA, tensors keep their addresses, so a step that shares_storage at anything but tensors repeats what it saw
when it was captured; and whatever waits for the device while a graph is captured is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from pretend_device import waits
from pretend_device.tensors import leaves

Step = tuple[Any, tuple[tuple, dict[str, Any]], list[torch.Tensor], bool]
"""An operation, its arguments, the tensors that it gave, and whether they only look at its arguments."""

_capturing: list[Graph] = []


class Graph:
    """Captured operations."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def replay(self) -> None:
        """Does them once more."""
        for operation, (args, kwargs), results, views in self.steps:
            if views:
                continue
            repeated = operation(*args, **kwargs)
            for old, new in zip(results, _tensors(repeated), strict=True):
                if old is not new:
                    old.copy_(new)


@contextmanager
def capture(graph: Graph) -> Iterator[None]:
    """Captures every operation on tensors of the device while the context is open."""
    _capturing.append(graph)
    try:
        with waits.forbidden():
            yield
    finally:
        _capturing.pop()


def record(operation: Any, arguments: tuple[tuple, dict[str, Any]], result: Any) -> None:
    """Notes an operation on CPU tensors for the graph that is being captured, if one is."""
    if not _capturing:
        return
    reference = {tensor.untyped_storage()._cdata for tensor in _tensors(arguments)}
    results = _tensors(result)
    shares_storage = all(tensor.untyped_storage()._cdata in reference for tensor in results)
    views = shares_storage and not operation._schema.is_mutable
    _capturing[-1].steps.append((operation, arguments, results, views))


def _tensors(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in leaves(values) if isinstance(leaf, torch.Tensor)]
