"""Memory and time of the stages that a run has to compute, before it starts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gprune.pipeline.estimate.dimensions import WIDTHS, Dimensions, of_model
from gprune.pipeline.estimate.memory import Case, MemoryNeed, memory_need
from gprune.pipeline.eta import StageTimes
from gprune.pipeline.stages import Stage, StageId, on_the_way
from gprune.study import Study
from gprune.system import machine
from gprune.system.errors import ModelError
from gprune.system.limits import WEIGHTS_OF_A_GPU

PROCESS = {True: 0.8 * 2**30, False: 0.6 * 2**30}
"""bytes of a process without a model, with and without a GPU: libraries, tokenizer, kernels, texts"""
CARD_BASE = 0.6 * 2**30
"""bytes that the libraries take on a GPU"""
HEAP, HEAP_MOST = 0.8, 0.4 * 2**30
"""share of what learning allocates on a CPU that malloc keeps besides (measured), and its most in bytes"""


@dataclass(frozen=True, slots=True)
class StageNeed:
    """Memory and time of one stage."""

    identity: StageId
    title: str
    need: MemoryNeed
    seconds: float | None
    """None where this cache has no seconds of the model"""


@dataclass(frozen=True, slots=True)
class Capacity:
    """The memory of this machine, in bytes."""

    device: str
    """cpu, or the name of the GPU"""
    gpu: bool
    card: float
    """memory of the GPU; 0 on a CPU"""
    host: float
    free: float
    """part of `host` that is free now"""
    addresses: float
    """limit of a process's address space (ulimit -v); 0 without one"""
    gpus: int = 1
    """GPUs that the study may use"""

    @classmethod
    def of(cls, device: str) -> Capacity:
        """Read the memory for a device as named in a study: auto, cpu, cuda or cuda:1."""
        free, host = machine.memory()
        number, count = device.partition(":")[2], len(machine.cards())
        index = int(number) if number.isdecimal() else 0
        gpu = device != "cpu" and machine.has_gpu() and index < count
        name = machine.cards()[index] if gpu else "cpu"
        card = float(machine.card_memory(index)) if gpu else 0.0
        gpus = 1 if number or not gpu else count
        return cls(name, gpu, card, float(host), float(free), float(machine.address_space()), gpus)


@dataclass(frozen=True, slots=True)
class Forecast:
    """Memory and time of a run."""

    model: Dimensions
    study: Study
    precision: str
    capacity: Capacity
    stages: tuple[StageNeed, ...]
    """those that need the model and have no result yet, in order"""
    seconds: float | None = None
    """of all stages without a result; None where this cache has no seconds of the model"""
    gpus: int = 1
    """GPUs that share the layers"""

    def on_device(self, need: MemoryNeed, sequences: int) -> float:
        """Return the bytes on the device with batches of this many sequences; on a CPU, all bytes."""
        if self.capacity.gpu:
            return CARD_BASE + need.on_device(sequences)
        size = need.host + need.on_device(sequences)
        heap = min(HEAP * (size - need.weights), HEAP_MOST) if need.learns else 0.0
        return PROCESS[False] + size + heap

    def on_host(self, need: MemoryNeed, sequences: int) -> float:
        """Return the bytes in the machine's memory with batches of this many sequences."""
        return PROCESS[True] + need.host if self.capacity.gpu else self.on_device(need, sequences)


def forecast(study: Study, precision: str, stages: Iterable[Stage[Any]], times: StageTimes) -> Forecast | None:
    """Estimate stages without results; None if the model is not on this machine, so that its sizes are unknown.

    `precision` is the number type that the study's `dtype` stands for on this machine.
    """
    try:
        model = of_model(study.model)
    except ModelError:
        return None
    capacity, stages = Capacity.of(study.device), tuple(stages)
    width = WIDTHS.get(precision, 4)
    gpus = count_gpus(model, width, capacity)
    case = Case(model, study, width, capacity.gpu, gpus)
    along = on_the_way(stages)
    needs = [
        StageNeed(stage.id, stage.title, need, times.of_stage(stage))
        for stage in stages
        if stage not in along and (need := memory_need(stage.id, case)) is not None
    ]
    return Forecast(model, study, precision, capacity, tuple(needs), times.total(stages), gpus)


def count_gpus(model: Dimensions, width: int, capacity: Capacity) -> int:
    """Return how many GPUs share the layers of a model whose numbers take `width` bytes each.

    As in `gprune.models.loading.load`: all of them if the first one is too small.
    """
    return capacity.gpus if model.parameters * width > WEIGHTS_OF_A_GPU * capacity.card else 1
