"""What is done when memory runs out: the same work with fewer sequences at a time.

A stage hands its work over as a function of the sequences that go through the model at a time. Whenever
memory runs out, their number is halved and the same work is tried again, so that neither the results nor
their keys depend on the memory of a machine. What is handed over must therefore leave nothing half done: it
prepares first, and commits what it has prepared in ways that need no memory.
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
"""Tensors of what was measured so far, each with what it becomes by a batch."""

# what torch says without a class of its own: its allocators for the CPU, cuBLAS, and CUDA itself
_OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "ALLOC_FAILED", "CUDA error: out of memory")
_ASKED = re.compile(r"allocate ([0-9.]+) ?([KMGT]iB|bytes)")


def out_of_memory(error: BaseException) -> bool:
    """Whether an error of torch, or of Python itself, says that memory ran out."""
    known = isinstance(error, (torch.OutOfMemoryError, MemoryError))
    return known or (isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY))


def commit(pending: Pending) -> None:
    """Takes over what a batch has changed; this needs no memory, so it happens whole."""
    for there, becomes in pending:
        there.copy_(becomes)


@dataclass(slots=True)
class Sequences:
    """How many sequences go through a model at a time: as asked for, and fewer once memory has run out."""

    size: int
    """sequences at a time; it only falls"""
    length: int
    """tokens of a sequence"""
    setting: str
    """name of the setting that asks for as many"""
    remedy: str
    """what to do where not even one fits, as a sentence ends"""
    device: torch.device
    """where the model is"""
    on_progress: Progress
    """told whenever the number is halved"""
    kind: type[GpruneError] = SettingsError
    """what is raised where not even one fits"""

    def fitting(self, run: Callable[[int], T], most: int, done: int = 0, total: int = 1) -> T:
        """Does some work with as many of `most` sequences at a time as memory allows.

        `run` takes their number and leaves nothing half done when it fails; its result is given back. `done`
        of `total` steps of the stage are for the listener. Raises the GpruneError asked for where memory runs
        out with a single sequence.
        """
        while True:
            count = min(self.size, most)
            try:
                return run(count)
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error):
                    raise
                if count == 1:
                    what = f"{self.setting}: memory ran out with a single sequence of {self.length:,} tokens"
                    raise self.kind(f"{what} ({sizes(error, self.device)}): {self.remedy}") from error
            # only now, when the frames of the attempt have gone with all that they held
            self._halve(count, done, total)

    def over(self, total: int, run: Callable[[slice], None], standing: tuple[int, int] | None = None) -> None:
        """Goes through so many sequences a batch at a time; see `fitting`.

        `standing` is finished steps of the stage and steps in all, where these are not the sequences.
        """
        start = 0

        def batch(count: int) -> int:
            run(slice(start, start + count))
            return count

        while start < total:
            start += self.fitting(batch, total - start, *(standing or (start, total)))

    def _halve(self, count: int, done: int, total: int) -> None:
        release()
        self.size = count // 2
        words = f"memory ran out with {count} sequences of {self.length:,} tokens at a time ({self.setting}): "
        self.on_progress(
            done, total, Notice(f"{words}going on with {self.size}, which takes longer and changes no result")
        )


def release() -> None:
    """Gives back what nothing holds any more."""
    gc.collect()
    devices.give_back()


def device_memory(device: torch.device) -> tuple[int, int]:
    """Bytes of a device's memory that are free, and in all; on a CPU what this process may have."""
    if devices.is_gpu(device):
        return devices.memory(device)
    (free, whole), left = machine.memory(), machine.addresses_left()
    return (free, whole) if left is None else (min(free, left), min(whole, machine.address_space()))


def sizes(error: BaseException, device: torch.device) -> str:
    """How much was asked for when memory ran out, where that is told, and how much there is, as a remark."""
    free, whole = device_memory(device)
    there = f"{free / 2**30:,.1f} of {whole / 2**30:,.1f} GiB are free on {device}"
    found = _ASKED.search(str(error))
    if found is None:
        return there
    number, unit = found.groups()
    asked = f"{float(number) / 2**20:,.1f} MiB" if unit == "bytes" else f"{number} {unit}"
    return f"{asked} more were asked for, {there}"
