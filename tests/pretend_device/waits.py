"""Count how often the host waits for the device, by the kind of wait and by the line that waits.

A wait is an answer that the host needs before it can go on: a number, a copy to the host, a shape that
depends on values. A blocking copy to the device waits too, until the device has done what it was told
before; those are kept apart as uploads, since at the start of a batch nothing is left to wait for.
"""

import sys
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

aten = torch.ops.aten

UPLOAD = "upload"
BY_OPERATION = {
    aten._local_scalar_dense.default: "number",
    aten.nonzero.default: "nonzero",
    aten.masked_select.default: "nonzero",
    aten.equal.default: "equal",
    aten.bincount.default: "bincount",
    aten._unique2.default: "unique",
    aten.unique_dim.default: "unique",
    aten.unique_consecutive.default: "unique",
    aten.repeat_interleave.Tensor: "repeats",
    # LAPACK's word on whether it succeeded
    aten._linalg_eigh.default: "linear algebra",
    aten._linalg_svd.default: "linear algebra",
    aten._linalg_solve_ex.default: "linear algebra",
}
COPIES = {aten._to_copy.default, aten.copy_.default}
BY_INDEX = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}
_PROJECT = str(Path(__file__).resolve().parents[2] / "gprune")


class CaptureError(RuntimeError):
    """Error of CUDA when something waits while a graph is captured."""


@dataclass
class Waits:
    """Counts of the waits while `count_waits` was open."""

    kinds: Counter[str] = field(default_factory=Counter)
    places: Counter[str] = field(default_factory=Counter)
    """by the innermost line of the project, as calibration/accumulators.py:148"""

    @property
    def count(self) -> int:
        """Waits but for uploads."""
        return sum(number for kind, number in self.kinds.items() if kind != UPLOAD)

    @property
    def uploads(self) -> int:
        """Blocking copies to the device."""
        return self.kinds[UPLOAD]


_open: list[Waits] = []
_capturing: list[bool] = []
_pinned: set[int] = set()


@contextmanager
def count_waits() -> Iterator[Waits]:
    """Count the waits while the context is open."""
    waits = Waits()
    _open.append(waits)
    try:
        yield waits
    finally:
        _open.remove(waits)


def forget() -> None:
    """Reset the counts, after the preparation of a measurement."""
    for waits in _open:
        waits.kinds.clear()
        waits.places.clear()


@contextmanager
def forbidden() -> Iterator[None]:
    """Refuse to wait, as CUDA does while it captures a graph."""
    _capturing.append(True)
    try:
        yield
    finally:
        _capturing.pop()


def noted(kind: str) -> None:
    """Count one wait.

    Raises:
        CaptureError: a graph is being captured.
    """
    if _capturing:
        raise CaptureError(f"operation not permitted when stream is capturing ({kind})")
    if not _open:
        return
    source = f"{_innermost_line()} {kind}"
    for waits in _open:
        waits.kinds[kind] += 1
        waits.places[source] += 1


def note(operation: Any, args: tuple, kwargs: dict[str, Any], pretended: list[torch.Tensor]) -> None:
    """Counts the waits of one operation on tensors of the device, or to it."""
    kind = BY_OPERATION.get(operation)
    if kind:
        noted(kind)
    elif operation in COPIES:
        _note_copy(operation, args, kwargs, pretended)
    elif operation in BY_INDEX:
        _note_index(operation, args, pretended)


def pinned(tensor: torch.Tensor) -> bool:
    """Return True if a CPU tensor is in pinned memory."""
    return tensor.untyped_storage()._cdata in _pinned


def pin(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of a CPU tensor in pinned memory."""
    copied = tensor.clone()
    address = copied.untyped_storage()._cdata
    _pinned.add(address)
    weakref.finalize(copied, _pinned.discard, address)
    return copied


def _note_copy(operation: Any, args: tuple, kwargs: dict[str, Any], pretended: list[torch.Tensor]) -> None:
    """Copies between host and device; those that nobody waits for need pinned memory on the host."""
    if operation is aten.copy_.default:
        to, source = args[0], args[1]
        on_device, hosts = any(to is tensor for tensor in pretended), to
        non_blocking = len(args) > 2 and bool(args[2])
    else:
        source, hosts = args[0], None
        on_device = torch.device(kwargs.get("device") or source.device).type != "cpu"
        non_blocking = bool(kwargs.get("non_blocking"))
    from_device = any(source is tensor for tensor in pretended)
    if on_device == from_device or not source.numel():
        return
    host = source if on_device else hosts
    if non_blocking and host is not None and pinned(host):
        return
    noted(UPLOAD if on_device else "copy to host")


def _note_index(operation: Any, args: tuple, pretended: list[torch.Tensor]) -> None:
    """Masks are turned into places, which the host must count; a single value needs no places."""
    indices = [index for index in args[1] if index is not None]
    masks = [index for index in indices if index.dtype in (torch.bool, torch.uint8)]
    filled = operation is not aten.index.Tensor and args[2].numel() == 1
    if not filled and any(mask is tensor for mask in masks for tensor in pretended):
        noted("mask as index")
    if not all(any(index is tensor for tensor in pretended) for index in indices):
        noted(UPLOAD)


def _innermost_line() -> str:
    """The innermost line of the project that is at work."""
    frame: Any = sys._getframe(1)
    while frame is not None and not frame.f_code.co_filename.startswith(_PROJECT):
        frame = frame.f_back
    if frame is None:
        return "elsewhere"
    return f"{frame.f_code.co_filename[len(_PROJECT) + 1 :]}:{frame.f_lineno}"
