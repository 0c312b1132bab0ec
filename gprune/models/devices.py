"""Answers: what is a GPU here, and how is it asked for what only a GPU has?

The one module that names a kind of GPU. Whatever else depends on the device only asks whether it is the CPU,
so that every branch can be run on another kind of device: tests bring one of their own.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

GPU = "cuda"
"""the kind of device that is not the CPU, as torch calls it"""


def is_gpu(device: torch.device | str) -> bool:
    """Whether a device, or what a setting calls one, is a GPU."""
    return str(device).partition(":")[0] == GPU


def count() -> int:
    """GPUs that torch sees."""
    return _backend().device_count()


def choose(index: int) -> None:
    """Makes a GPU the one that this process means where it names none."""
    _backend().set_device(index)


def automatic() -> torch.device:
    """A GPU where there is one, else the CPU."""
    return torch.device(GPU if _backend().is_available() else "cpu")


def name(device: torch.device | str) -> str:
    """What the maker calls a GPU."""
    return _backend().get_device_name(device)


def memory(device: torch.device) -> tuple[int, int]:
    """Bytes of a GPU's memory that are free, and in all."""
    free, whole = _backend().mem_get_info(device)
    return int(free), int(whole)


def give_back() -> None:
    """Lets go of memory that torch keeps for later; without a GPU there is none."""
    if _backend().is_available():
        _backend().empty_cache()


def synchronise(device: torch.device) -> None:
    """Waits until a device has nothing left to do; a CPU never has."""
    if is_gpu(device):
        _backend().synchronize(device)


def current(device: torch.device) -> AbstractContextManager[Any]:
    """Makes a GPU the current one, whose streams graphs are captured on."""
    return _backend().device(device) if is_gpu(device) else nullcontext()


def allocated(device: torch.device) -> int:
    """Bytes that tensors of this process hold on a GPU; the peak starts anew from here."""
    _backend().reset_peak_memory_stats(device)
    return _backend().memory_allocated(device)


def peak(device: torch.device) -> int:
    """The most bytes that tensors of this process have held on a GPU since `allocated` was asked."""
    return _backend().max_memory_allocated(device)


def aside(step: Callable[[], None]) -> None:
    """Runs a function on a stream of its own: what it does for the first time only must not be captured."""
    backend = _backend()
    stream = backend.Stream()
    stream.wait_stream(backend.current_stream())
    with backend.stream(stream):
        step()
    backend.current_stream().wait_stream(stream)


def captured(step: Callable[[], None]) -> Any:
    """A graph whose `replay` does what a call of a function does.

    Raises RuntimeError where the function does what cannot be captured, as waiting for the device.
    """
    backend = _backend()
    graph = backend.CUDAGraph()
    with backend.graph(graph):
        step()
    return graph


def kept_random(device: torch.device) -> AbstractContextManager[Any]:
    """Leaves the random numbers of the CPU, and of a GPU that is meant, as they were."""
    return torch.random.fork_rng(devices=[device] if is_gpu(device) else [], device_type=GPU)


def random_states(device: torch.device) -> dict[str, torch.Tensor]:
    """Where the random numbers of the CPU stand, and those of a GPU that is meant; bytes, on the CPU."""
    states = {"cpu": torch.get_rng_state()}
    return states | {GPU: _backend().get_rng_state(device)} if is_gpu(device) else states


def set_random_states(device: torch.device, states: Mapping[str, torch.Tensor]) -> None:
    """Lets the random numbers go on from where they stood; what is not named stays as it is.

    Raises RuntimeError where they are no such states.
    """
    if "cpu" in states:
        torch.set_rng_state(states["cpu"])
    if GPU in states and is_gpu(device):
        _backend().set_rng_state(states[GPU], device)


def _backend() -> Any:
    """The module of torch that speaks for this kind of GPU."""
    return getattr(torch, GPU)
