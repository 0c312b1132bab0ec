"""Measure the peak rates of a device and the time and memory of a function, for benchmarks/pipeline.py."""

import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from gprune.system.machine import peak_memory

_MATRIX_SIZE = {"cpu": 2048, "cuda": 8192}
_COPIED_BYTES = {"cpu": 2**28, "cuda": 2**31}
_REPEATS = 5
"""calls of which the fastest counts"""


@dataclass(frozen=True, slots=True)
class Device:
    """A device and its measured rates."""

    torch_device: torch.device
    rates: dict[torch.dtype, float]
    """floating point operations per second in a large matrix product"""
    bandwidth: float
    """bytes per second of a copy, counting both the bytes that it reads and those that it writes"""

    def floor(self, operations: float, dtype: torch.dtype, moved_bytes: float = 0.0) -> float:
        """Return the least seconds for a number of operations and bytes: the larger of the two times."""
        return max(operations / self.rates[dtype], moved_bytes / self.bandwidth)


@dataclass(frozen=True, slots=True)
class Usage:
    """Time, memory and operations of one call."""

    seconds: float
    memory: float
    """peak bytes: of the process on a CPU, of tensors on a GPU"""
    operations: float
    """floating point operations in matrix products of torch"""


def measure_device(device: torch.device, *dtypes: torch.dtype) -> Device:
    """Measure the rate of matrix products in some number types, and the bandwidth."""
    size = _MATRIX_SIZE[device.type]
    rates = {}
    for dtype in dtypes:
        first, second = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
        rates[dtype] = 2 * size**3 / least_seconds(partial(torch.matmul, first, second), device)
    # float32 values have four bytes
    source = torch.zeros(_COPIED_BYTES[device.type] // 4, device=device)
    target = torch.empty_like(source)
    seconds = least_seconds(lambda: target.copy_(source), device)
    return Device(device, rates, 2 * _COPIED_BYTES[device.type] / seconds)


def least_seconds(function: Callable[[], object], device: torch.device) -> float:
    """Return the least seconds of a few calls."""
    return min(call_seconds(function, device) for _ in range(_REPEATS))


def call_seconds(function: Callable[[], object], device: torch.device) -> float:
    """Return the seconds of one call, including the work that it queues on the device."""
    _synchronize(device)
    started = time.perf_counter()
    function()
    _synchronize(device)
    return time.perf_counter() - started


def measure_usage(function: Callable[[], object], device: torch.device) -> Usage:
    """Measure time, peak memory and matrix operations of one call.

    Counting operations adds a little time to every call into torch.
    """
    _reset_peak(device)
    counter = _OperationCounter()
    with counter:
        seconds = call_seconds(function, device)
    return Usage(seconds, _peak_bytes(device), counter.total)


class _OperationCounter(TorchDispatchMode):
    """Count the floating point operations of matrix products by torch's formulas.

    torch's own counter also tracks modules, which fails if gradients of leaf tensors are computed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.total = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        count = flop_registry.get(func._overloadpacket)
        if count is None and func._can_decompose():
            # without gradients, torch dispatches a linear layer as a single operation
            with self:
                result = func.decompose(*args, **(kwargs or {}))
            if result is not NotImplemented:
                return result
        result = func(*args, **(kwargs or {}))
        if count is not None:
            self.total += _count_operations(count, args, kwargs or {}, result)
        return result


def _count_operations(count: Any, args: Any, kwargs: Any, result: Any) -> float:
    """Return the floating point operations of a call by torch's formula for its operator."""
    try:
        return float(count(*args, **kwargs, out_val=result))
    except AssertionError:
        # the formula of torch 2.11 has no grouped-query attention: count as many key heads as query heads
        heads = args[0].shape[1]
        return float(count(*(_expand_heads(argument, heads) for argument in args), **kwargs, out_val=result))


def _expand_heads(argument: Any, heads: int) -> Any:
    """Return an empty tensor (batch, `heads`, tokens, channels) for a 4-D tensor; else the argument."""
    if not torch.is_tensor(argument) or argument.dim() != 4:
        return argument
    return argument.new_empty((len(argument), heads, *argument.shape[2:]), device="meta")


@dataclass(frozen=True, slots=True)
class Medians:
    """Medians over several calls."""

    seconds: float
    """wall-clock seconds"""
    cpu: float
    """CPU seconds of this process and its finished children; other work on the machine has little influence"""


def compare_calls(functions: dict[str, Callable[[], object]], repeats: int, device: torch.device) -> dict[str, Medians]:
    """Call functions in turn, so that other work on the machine slows all alike; return their medians."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in functions}
    for turn in range(repeats + 1):
        for name, function in functions.items():
            before = _cpu_seconds()
            seconds = call_seconds(function, device)
            # the first turn warms up
            if turn:
                times[name].append((seconds, _cpu_seconds() - before))
    return {
        name: Medians(*(statistics.median(values) for values in zip(*pairs, strict=True)))
        for name, pairs in times.items()
    }


def _cpu_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        # resets the peak of the resident memory that the kernel records from the start of the process
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _peak_bytes(device: torch.device) -> float:
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device))
    return float(peak_memory())
