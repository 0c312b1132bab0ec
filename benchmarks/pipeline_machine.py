"""What a machine can do at most, and what a piece of work took there: for benchmarks/pipeline.py."""

import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from gprune.system.machine import peak_memory

_MATRIX = {"cpu": 2048, "cuda": 8192}
_COPIED_BYTES = {"cpu": 2**28, "cuda": 2**31}
_REPEATS = 5


@dataclass(frozen=True, slots=True)
class Device:
    """A device by its own measured rates."""

    place: torch.device
    rates: dict[torch.dtype, float]
    """floating point operations a second of a large matrix product, by number type"""
    bandwidth: float
    """bytes a second that a copy reads and writes"""

    def floor(self, operations: float, dtype: torch.dtype, moved: float = 0.0) -> float:
        """Seconds below which no program does some work: its products, or the bytes it has to move."""
        return max(operations / self.rates[dtype], moved / self.bandwidth)


@dataclass(frozen=True, slots=True)
class Taken:
    """What a piece of work took."""

    seconds: float
    memory: float
    """bytes at its peak: of the process on a CPU, of tensors on a GPU"""
    operations: float
    """floating point operations of its matrix products in torch"""


def measured_device(place: torch.device, *types: torch.dtype) -> Device:
    """Measures the matrix rate for some number types, and the bandwidth."""
    size = _MATRIX[place.type]
    rates = {}
    for dtype in types:
        one, other = (torch.randn(size, size, device=place).to(dtype) for _ in range(2))
        rates[dtype] = 2 * size**3 / fastest(lambda one=one, other=other: one @ other, place)  # type: ignore[misc]
    source = torch.zeros(_COPIED_BYTES[place.type] // 4, device=place)
    target = torch.empty_like(source)
    seconds = fastest(lambda: target.copy_(source), place)
    return Device(place, rates, 2 * _COPIED_BYTES[place.type] / seconds)


def fastest(work: Callable[[], object], place: torch.device) -> float:
    """The least seconds of a few repetitions."""
    return min(seconds_of(work, place) for _ in range(_REPEATS))


def seconds_of(work: Callable[[], object], place: torch.device) -> float:
    """Seconds of one call, the device's work included."""
    _wait(place)
    started = time.perf_counter()
    work()
    _wait(place)
    return time.perf_counter() - started


def taken(work: Callable[[], object], place: torch.device) -> Taken:
    """Time and peak memory of one call, and the operations of its matrix products.

    Counting costs a little time for every call into torch and none within, so that it is left on.
    """
    _forget_peak(place)
    counter = _Operations()
    with counter:
        seconds = seconds_of(work, place)
    return Taken(seconds, _peak(place), counter.total)


class _Operations(TorchDispatchMode):
    """Counts the floating point operations of matrix products, by torch's own formulas.

    torch's counter follows modules as well, and cannot do so where gradients of leaves are asked for.
    """

    def __init__(self) -> None:
        """Starts at none."""
        super().__init__()
        self.total = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs a call, and counts it if it is a product."""
        count = flop_registry.get(func._overloadpacket)
        if count is None and func._can_decompose():
            # where no gradients are kept, torch passes a linear layer on as one operation
            with self:
                found = func.decompose(*args, **(kwargs or {}))
            if found is not NotImplemented:
                return found
        found = func(*args, **(kwargs or {}))
        if count is not None:
            self.total += _operations(count, args, kwargs or {}, found)
        return found


def _operations(count: Any, args: Any, kwargs: Any, found: Any) -> float:
    """What torch's formula says of a call; that of torch 2.11 knows no queries that share keys."""
    try:
        return float(count(*args, **kwargs, out_val=found))
    except AssertionError:
        heads = args[0].shape[1]
        return float(count(*(_with_heads(one, heads) for one in args), **kwargs, out_val=found))


def _with_heads(one: Any, heads: int) -> Any:
    """The shape of (batch, heads, tokens, channels) as if each query had keys of its own; else as it is."""
    if not torch.is_tensor(one) or one.dim() != 4:
        return one
    return one.new_empty((len(one), heads, *one.shape[2:]), device="meta")


@dataclass(frozen=True, slots=True)
class Medians:
    """Of several turns."""

    seconds: float
    """by the clock"""
    processor: float
    """of the processor, in this process and those that it has waited for: other work hardly touches it"""


def interleaved(works: dict[str, Callable[[], object]], repeats: int, place: torch.device) -> dict[str, Medians]:
    """Median seconds of several pieces of work that take turns, so that a busy machine slows all alike."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    for turn in range(repeats + 1):
        for name, work in works.items():
            before = _processor()
            seconds = seconds_of(work, place)
            # the first turn warms up
            if turn:
                times[name].append((seconds, _processor() - before))
    return {
        name: Medians(*(statistics.median(part) for part in zip(*each, strict=True))) for name, each in times.items()
    }


def _processor() -> float:
    """Seconds that this process and those that it has waited for have computed."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(used.ru_utime + used.ru_stime for used in both)


def _wait(place: torch.device) -> None:
    if place.type == "cuda":
        torch.cuda.synchronize(place)


def _forget_peak(place: torch.device) -> None:
    if place.type == "cuda":
        torch.cuda.reset_peak_memory_stats(place)
    else:
        # what the system keeps of a process's largest size; without this the peak is that since its start
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _peak(place: torch.device) -> float:
    if place.type == "cuda":
        return float(torch.cuda.max_memory_allocated(place))
    return float(peak_memory())
