"""Repeat work with half as many sequences at a time when memory runs out.

A stage passes its work as a function of the sequences that go through the model at a time, so that neither the
results nor their keys depend on the memory of a machine. The function must leave nothing half done: it prepares
first, and then commits in ways that need no memory.
"""

import gc
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch

from gprune.models import devices
from gprune.system import machine
from gprune.system.errors import GpruneError, SettingsError
from gprune.system.progress import Notice, Progress

T = TypeVar("T")
MACHINE = torch.device("cpu")
Pending = list[tuple[torch.Tensor, torch.Tensor]]
"""tensors of the measurements so far, each with its new values after a batch"""

# messages of torch's CPU allocators, cuBLAS and CUDA, which raise plain RuntimeErrors
_OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "ALLOC_FAILED", "CUDA error: out of memory")
_REQUESTED = re.compile(r"allocate ([0-9.]+) ?([KMGT]iB|bytes)")


def out_of_memory(error: BaseException) -> bool:
    """Return True if an error of torch or Python says that memory ran out."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(phrase in str(error) for phrase in _OUT_OF_MEMORY)


def commit(pending: Pending) -> None:
    """Store the values of a batch; this needs no memory and cannot end halfway."""
    for tensor, values in pending:
        tensor.copy_(values)


@dataclass(slots=True)
class AdaptiveBatches:
    """The sequences that go through a model at a time, fewer once memory has run out."""

    size: int
    """sequences at a time; it only decreases"""
    length: int
    """tokens of a sequence"""
    setting: str
    """name of the setting with the number to start with"""
    remedy: str
    """end of the sentence for when a single sequence does not fit"""
    device: torch.device
    """device of the model"""
    on_progress: Progress
    """called whenever the number is halved"""
    kind: type[GpruneError] = SettingsError
    """error for when a single sequence does not fit"""

    def fitting(self, run: Callable[[int], T], limit: int, finished: int = 0, total: int = 1) -> T:
        """Run work with as many of `limit` sequences at a time as memory allows, and return its result.

        `run` takes their number and leaves nothing half done when it fails. `finished` of `total` steps of the stage
        are for the listener. Raises `kind` where memory runs out with a single sequence.
        """
        while True:
            count = min(self.size, limit)
            try:
                return run(count)
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error):
                    raise
                if count == 1:
                    problem = f"{self.setting}: memory ran out with a single sequence of {self.length:,} tokens"
                    raise self.kind(f"{problem} ({describe_memory(error, self.device)}): {self.remedy}") from error
            # halve outside the except block, when the frames of the attempt have released their tensors
            self._halve(count, finished, total)

    def run_batches(self, total: int, run: Callable[[slice], None], progress: tuple[int, int] | None = None) -> None:
        """Process `total` sequences batch by batch; see `fitting`.

        `progress` is finished steps of the stage and steps in all, where these are not the sequences.
        """
        start = 0

        def batch(count: int) -> int:
            run(slice(start, start + count))
            return count

        while start < total:
            start += self.fitting(batch, total - start, *(progress or (start, total)))

    def _halve(self, count: int, finished: int, total: int) -> None:
        release_memory()
        self.size = count // 2
        problem = f"memory ran out with {count} sequences of {self.length:,} tokens at a time ({self.setting}): "
        self.on_progress(
            finished, total, Notice(f"{problem}going on with {self.size}, which takes longer and changes no result")
        )


def release_memory() -> None:
    """Release unreferenced memory."""
    gc.collect()
    devices.empty_cache()


def device_memory(device: torch.device) -> tuple[int, int]:
    """Return free and total bytes of a device's memory; on a CPU those of the machine."""
    return devices.memory(device) if devices.is_gpu(device) else machine.memory()


def describe_memory(error: BaseException, device: torch.device) -> str:
    """Return the requested memory, if the error names it, and the free memory, in words."""
    free, total = device_memory(device)
    available = f"{free / 2**30:,.1f} of {total / 2**30:,.1f} GiB are free on {device}"
    match = _REQUESTED.search(str(error))
    if match is None:
        return available
    number, unit = match.groups()
    requested = f"{float(number) / 2**20:,.1f} MiB" if unit == "bytes" else f"{number} {unit}"
    return f"{requested} more were asked for, {available}"
