"""The kind of GPU, and what only a GPU can do.

Other modules only ask whether a device is a GPU, so that every branch also runs on the pretend device of the tests.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

GPU = "cuda"
"""type of device that is not the CPU, as torch calls it"""


def is_gpu(device: torch.device | str) -> bool:
    """Return True if a device, or its name in a setting, is a GPU."""
    return str(device).partition(":")[0] == GPU


def count() -> int:
    """Return the number of GPUs that torch sees."""
    return _backend().device_count()


def default_device() -> torch.device:
    """Return a GPU if there is one, else the CPU."""
    return torch.device(GPU if _backend().is_available() else "cpu")


def name(device: torch.device | str) -> str:
    """Return the product name of a GPU."""
    return _backend().get_device_name(device)


def memory(device: torch.device) -> tuple[int, int]:
    """Return free and total bytes of a GPU's memory."""
    free, total = _backend().mem_get_info(device)
    return int(free), int(total)


def empty_cache() -> None:
    """Release the memory that torch caches on a GPU."""
    if _backend().is_available():
        _backend().empty_cache()


def synchronise(device: torch.device) -> None:
    """Wait until a GPU has finished its work."""
    if is_gpu(device):
        _backend().synchronize(device)


def as_current_device(device: torch.device) -> AbstractContextManager[Any]:
    """Make a GPU the current one, whose streams graphs are captured on."""
    return _backend().device(device) if is_gpu(device) else nullcontext()


def allocated_bytes(device: torch.device) -> int:
    """Return the bytes of this process's tensors on a GPU, and reset the peak."""
    _backend().reset_peak_memory_stats(device)
    return _backend().memory_allocated(device)


def peak_bytes(device: torch.device) -> int:
    """Return the most bytes of this process's tensors on a GPU since the last call of `allocated_bytes`."""
    return _backend().max_memory_allocated(device)


def run_on_side_stream(step: Callable[[], None]) -> None:
    """Run a function on a separate stream, so that its one-time initialization is not captured."""
    backend = _backend()
    stream = backend.Stream()
    stream.wait_stream(backend.current_stream())
    with backend.stream(stream):
        step()
    backend.current_stream().wait_stream(stream)


def capture_graph(step: Callable[[], None]) -> Any:
    """Return a graph whose `replay` repeats a call of a function.

    Raises RuntimeError if the function does what cannot be captured, such as waiting for the device.
    """
    backend = _backend()
    graph = backend.CUDAGraph()
    with backend.graph(graph):
        step()
    return graph


def preserve_random_state(device: torch.device) -> AbstractContextManager[Any]:
    """Restore the random states of the CPU, and of the device if it is a GPU, when the context ends."""
    return torch.random.fork_rng(devices=[device] if is_gpu(device) else [], device_type=GPU)


def random_states(device: torch.device) -> dict[str, torch.Tensor]:
    """Return the random states of the CPU, and of the device if it is a GPU, as bytes on the CPU."""
    states = {"cpu": torch.get_rng_state()}
    return states | {GPU: _backend().get_rng_state(device)} if is_gpu(device) else states


def set_random_states(device: torch.device, states: Mapping[str, torch.Tensor]) -> None:
    """Set the random states that are given; RuntimeError for values that are no such states."""
    if "cpu" in states:
        torch.set_rng_state(states["cpu"])
    if GPU in states and is_gpu(device):
        _backend().set_rng_state(states[GPU], device)


def _backend() -> Any:
    return getattr(torch, GPU)
