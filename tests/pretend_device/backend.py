"""The pretend device as torch sees it: a kind of device with a module, `torch.pretend`, beside `torch.cuda`.

A process registers it once, when a test first asks for it. It answers that it is there only while `active` is
open, so that nothing else in the process finds a GPU.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch
from pretend_device import errors, graphs
from pretend_device.dispatch import Dispatch
from pretend_device.memory import BYTES, TOTAL
from pretend_device.tensors import NAME

from gprune.models import devices

_active: list[int] = []
"""devices that are there"""


class Stream:
    """Everything is done in the order in which it is asked for."""

    def wait_stream(self, other: Stream) -> None:
        pass


class Backend:
    """The functions of `torch.cuda` that this project uses."""

    CUDAGraph = graphs.Graph
    Stream = Stream

    def is_available(self) -> bool:
        return bool(_active)

    def device_count(self) -> int:
        return _active[-1] if _active else 0

    def is_initialized(self) -> bool:
        return True

    def current_device(self) -> int:
        return 0

    def _is_in_bad_fork(self) -> bool:
        return False

    def get_rng_state(self, *_: Any) -> torch.Tensor:
        return torch.get_rng_state()

    def synchronize(self, *_: Any) -> None:
        """Do nothing: every operation has finished, and random numbers and memory are those of the CPU."""

    manual_seed_all = set_rng_state = empty_cache = synchronize

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]

    def get_device_name(self, *_: Any) -> str:
        return "a pretend GPU"

    def device(self, *_: Any) -> AbstractContextManager[None]:
        return nullcontext()

    stream = device

    def current_stream(self, *_: Any) -> Stream:
        return Stream()

    def graph(self, graph: graphs.Graph) -> AbstractContextManager[None]:
        return graphs.capture(graph)

    def mem_get_info(self, *_: Any) -> tuple[int, int]:
        return BYTES.total - BYTES.used, BYTES.total

    def memory_allocated(self, *_: Any) -> int:
        return BYTES.used

    def max_memory_allocated(self, *_: Any) -> int:
        return BYTES.peak

    def reset_peak_memory_stats(self, *_: Any) -> None:
        BYTES.peak = BYTES.used


@functools.cache
def fault() -> str:
    """Register the device; return why this torch cannot have it, or an empty string."""
    try:
        from torch.utils import backend_registration

        backend_registration._setup_privateuseone_for_python_backend(
            NAME, backend_module=Backend(), device_guard=errors.guard()
        )
        with active():
            leaf = torch.ones(2, device=NAME).requires_grad_()
            (2 * leaf).sum().backward()
            assert leaf.grad.tolist() == [2.0, 2.0]
    except Exception as error:
        return f"torch {torch.__version__} cannot have a device that is written in Python ({error})"
    return ""


@contextmanager
def active(total: int = TOTAL, count: int = 1) -> Iterator[None]:
    """Make the device available, as the GPU of the project, while the context is open.

    Args:
        total: bytes of its memory.
        count: devices that are there; all share the memory.
    """
    lifted = torch._C._only_lift_cpu_tensors()
    _active.append(count)
    BYTES.total = total
    # numbers become tensors on the CPU first, where nothing has to be intercepted
    torch._C._set_only_lift_cpu_tensors(True)
    try:
        # gradients in this thread, so that it need not be known how many devices there are
        with mock.patch.object(devices, "GPU", NAME), torch.autograd.set_multithreading_enabled(False):
            # TF32 is a GPU's own; some CPUs would round in a way of theirs
            with mock.patch.object(torch, "set_float32_matmul_precision"), errors.reraise_pending(), Dispatch():
                yield
    finally:
        torch._C._set_only_lift_cpu_tensors(lifted)
        BYTES.total = TOTAL
        _active.pop()
