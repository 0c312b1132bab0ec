"""What every stage of a run will take that is still to be made: bytes and seconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gprune.pipeline.estimate.dimensions import WIDTHS, Case, Dimensions, Need, of_model
from gprune.pipeline.estimate.libraries import ASSUMED
from gprune.pipeline.estimate.memory import need
from gprune.pipeline.estimate.operations import Rate, operations, rate
from gprune.pipeline.stages import Stage, StageId, on_the_way
from gprune.study import Study
from gprune.system import machine
from gprune.system.errors import ModelError
from gprune.system.limits import WEIGHTS_OF_A_GPU

BESIDE = 0.13 * 2**30
"""bytes that come to the libraries with the first model: tokenizer, kernels and the texts that are read"""
CUDA_BASE = 0.7 * 2**30
"""bytes that a process takes at least whose libraries use a GPU"""
HEAP_MOST = 0.4 * 2**30
"""bytes that malloc keeps at most between blocks that are in use: it takes large ones from the system by
themselves"""
CARD_BASE = 0.6 * 2**30
"""bytes that the libraries take on a GPU"""


@dataclass(frozen=True, slots=True)
class StageNeed:
    """What one stage takes."""

    identity: StageId
    """which stage"""
    title: str
    """what it does, in words"""
    need: Need
    """its memory"""
    seconds: float | None
    """its time; None where nobody can tell before"""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What there is."""

    device: str
    """what it is called: cpu, or the name of a card"""
    gpu: bool
    card: float
    """bytes of the GPU; 0 on a CPU"""
    host: float
    """bytes of the machine's memory"""
    free: float
    """bytes of these that are free now"""
    addresses: float
    """bytes of addresses that a process may have; 0 where they are not limited"""
    gpus: int = 1
    """GPUs that the study may use"""

    @classmethod
    def of(cls, device: str) -> Capacity:
        """Of this machine; `device` is auto, cpu, cuda or cuda:1, as in a study."""
        free, whole = machine.memory()
        gpu = device != "cpu" and machine.has_gpu()
        number, count = device.partition(":")[2], len(machine.cards())
        index = int(number) if number.isdecimal() else 0
        known = gpu and index < count
        name = machine.cards()[index] if known else "cpu"
        card = float(machine.card_memory(index)) if known else 0.0
        gpus = 1 if number or not known else count
        return cls(name, known, card, float(whole), float(free), float(machine.address_space()), gpus)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a run takes, stage by stage."""

    model: Dimensions
    study: Study
    precision: str
    capacity: Capacity
    rate: Rate
    stages: tuple[StageNeed, ...]
    """those that are to be made, in their order"""
    gpus: int = 1
    """over which the layers lie"""
    libraries: float = ASSUMED
    """bytes of a process that has loaded them and holds no model"""

    @property
    def seconds(self) -> float:
        """Of all stages of which somebody can tell."""
        return sum(one.seconds or 0.0 for one in self.stages)

    def on_device(self, one: Need, sequences: int) -> float:
        """Bytes on each device with so many sequences at a time; on a CPU all that there is."""
        if self.capacity.gpu:
            return CARD_BASE + one.device(sequences)
        wanted = one.host + one.device(sequences)
        heap = min(one.churn * (wanted - one.weights), HEAP_MOST)
        return self.libraries + BESIDE + wanted + heap

    def on_host(self, one: Need, sequences: int) -> float:
        """Bytes in the machine's memory."""
        if not self.capacity.gpu:
            return self.on_device(one, sequences)
        return max(self.libraries + BESIDE, CUDA_BASE) + one.host


def forecast(
    study: Study,
    precision: str,
    stages: Iterable[Stage[Any]],
    records: Iterable[Mapping[str, Any]],
    last_time: Mapping[str, float | None] | None = None,
) -> Forecast | None:
    """What a run takes; None where its model is not on this machine, so that its sizes are not known.

    `precision` is resolved on this machine; `stages` are those to be made, in order; `records` of the cache's
    runs, the latest first, tell how fast this machine is; `last_time` has the seconds that stages took when
    this cache last saw them, by name.
    """
    try:
        model = of_model(study.model)
    except ModelError:
        return None
    capacity = Capacity.of(study.device)
    width = WIDTHS.get(precision, 4)
    gpus = count_gpus(model, width, capacity)
    case = Case(model, study, width, capacity.gpu, gpus)
    pace = rate(records, capacity.gpu, precision)
    known, found, stages = last_time or {}, [], tuple(stages)
    beside = on_the_way(stages)
    for stage in stages:
        takes = need(stage.id, replace(case, together=1 + len(beside.intersection(stage.joined))))
        # what another stage makes on the way is in that one's memory and time
        if takes is None or stage in beside:
            continue
        work = operations(stage.id, model, study)
        seconds = known.get(stage.name)
        if seconds is None and work is not None:
            seconds = work / pace.operations
        found.append(StageNeed(stage.id, stage.title, takes, seconds))
    return Forecast(model, study, precision, capacity, pace, tuple(found), gpus)


def count_gpus(model: Dimensions, width: int, capacity: Capacity) -> int:
    """Return over how many GPUs the layers of a model lie, whose numbers take `width` bytes each.

    As `gprune.models.loading.load` decides: over all of them where the first one is too small.
    """
    return capacity.gpus if model.parameters * width > WEIGHTS_OF_A_GPU * capacity.card else 1
