"""Memory and time of the stages that a run has to compute, and whether they fit, before it starts.

The formulas are right within a factor (`SLACK`), except for weights, which are exact. A stage is refused only
if it would not fit with one sequence at a time even if the formula were too large by that factor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gprune.models.sources import is_random
from gprune.pipeline.estimate.dimensions import WIDTHS, Dimensions, of_model
from gprune.pipeline.estimate.memory import OFFLOADED, Case, MemoryNeed, memory_need
from gprune.pipeline.eta import StageTimes, stage_times
from gprune.pipeline.record import Listener
from gprune.pipeline.stages import Graph, Results, Stage, StageId, execution_plan
from gprune.pipeline.stages.inputs import precision_of
from gprune.study import Study
from gprune.system import machine
from gprune.system.errors import GpruneError, ModelError, SettingsError
from gprune.system.machine import WEIGHTS_OF_A_GPU
from gprune.system.progress import Notice
from gprune.system.units import duration

ESTIMATE = "estimate"
"""the stage name under which a run reports its estimate"""
SLACK = 1.3
"""factor within which the formulas are right"""
ANYWAY = "--anyway"
"""the option that starts a run that was refused"""

PROCESS = {True: 0.8 * 2**30, False: 0.6 * 2**30}
"""bytes of a process without a model, with and without a GPU: libraries, tokenizer, kernels, texts"""
CARD_BASE = 0.6 * 2**30
"""bytes that the libraries take on a GPU"""
HEAP, HEAP_MOST = 0.8, 0.4 * 2**30
"""share of what learning allocates on a CPU that malloc keeps besides (measured), and its most in bytes"""
LEARNING_BATCHES = ("sparsity.batch", "scales.batch", "recovery.batch")
"""batches of stages that allocate blocks of many sizes again and again"""


class TooLarge(SettingsError):  # noqa: N818  (raised before the start)
    """A run that cannot fit on this machine."""


@dataclass(frozen=True, slots=True)
class StageNeed:
    """Memory and time of one stage."""

    identity: StageId
    title: str
    need: MemoryNeed
    seconds: float | None
    """None if this cache has no seconds of the model"""


@dataclass(frozen=True, slots=True)
class Capacity:
    """The memory of this machine, in bytes."""

    device: str
    """cpu, or the name of the GPU"""
    gpu: bool
    card: float
    """memory of the GPU; 0 on a CPU"""
    host: float
    """memory of the machine"""
    free: float
    """part of `host` that is free now"""
    gpus: int = 1
    """GPUs that the study may use"""

    @classmethod
    def of(cls, device: str) -> Capacity:
        """Read the memory for a device as named in a study: auto, cpu, cuda or cuda:1."""
        free, host = machine.memory()
        number, count = device.partition(":")[2], len(machine.cards())
        index = int(number) if number.isdecimal() else 0
        if device == "cpu" or not machine.has_gpu() or index >= count:
            return cls("cpu", False, 0.0, float(host), float(free))
        card = float(machine.card_memory(index))
        return cls(machine.cards()[index], True, card, float(host), float(free), 1 if number else count)


@dataclass(frozen=True, slots=True)
class Forecast:
    """Memory and time of a run."""

    case: Case
    precision: str
    """number type of the model"""
    capacity: Capacity
    stages: tuple[StageNeed, ...]
    """those that need the model and have no result yet, in order"""
    seconds: float | None = None
    """of all stages without a result, or None if this cache has no seconds of the model"""

    def on_device(self, need: MemoryNeed, sequences: int) -> float:
        """Return the bytes on the device with batches of this many sequences; on a CPU, all bytes."""
        if self.capacity.gpu:
            return CARD_BASE + need.on_device(sequences)
        size = need.host + need.on_device(sequences)
        heap = min(HEAP * (size - need.weights), HEAP_MOST) if need.setting in LEARNING_BATCHES else 0.0
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
    stages, capacity, width = tuple(stages), Capacity.of(study.device), WIDTHS.get(precision, 4)
    case = Case(model, study, width, capacity.gpu, count_gpus(model, width, capacity))
    needs = [
        StageNeed(stage.id, stage.title, need, times.of_stage(stage) if times.is_measured else None)
        for stage in stages
        if (need := memory_need(stage.id, case)) is not None
    ]
    return Forecast(case, precision, capacity, tuple(needs), times.total(stages))


def estimate_missing(
    stages: Iterable[Stage[Any]], results: Results, times: StageTimes | None = None
) -> Forecast | None:
    """Estimate the stages of a run that have no result; None if the model is not on this machine."""
    missing_stages = [stage for stage in stages if not results.holds(stage)]
    return forecast(results.graph.study, results.graph.inputs.precision, missing_stages, times or stage_times(results))


def estimate_study(study: Study, records: Iterable[Mapping[str, Any]] = ()) -> Forecast | None:
    """Estimate a whole run of a study, as if it had no results; None if its model is absent or unusable.

    `records` are those of a cache's runs, the latest first.
    """
    try:
        precision = precision_of(study)
        stages = execution_plan(Graph(study))
        return forecast(study, precision, stages, StageTimes.of(records, study, precision))
    except GpruneError:
        # the sentence appears when the run is started
        return None


def count_gpus(model: Dimensions, width: int, capacity: Capacity) -> int:
    """Return how many GPUs share the layers of a model whose numbers take `width` bytes each.

    As in `gprune.models.loading.load`: all of them if the first one is too small.
    """
    return capacity.gpus if model.parameters * width > WEIGHTS_OF_A_GPU * capacity.card else 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """The sentences about a run's memory and time before it starts."""

    summary: str
    """the stage with the highest peak, the memory of the machine, and the time"""
    refusal: str
    """why the run cannot fit; empty if it can"""
    warnings: tuple[str, ...]
    """memory that other programs use, notes about the model"""

    @property
    def lines(self) -> tuple[str, ...]:
        """Return all sentences in order."""
        warnings = tuple(f"warning: {warning}" for warning in self.warnings)
        return (self.summary, *warnings, *((f"cannot fit: {self.refusal}",) if self.refusal else ()))


def require_room(estimate: Forecast | None, listener: Listener, anyway: bool) -> None:
    """Report a run's estimate to its listener; TooLarge if it cannot fit on this machine and not `anyway`."""
    if estimate is None or not estimate.stages:
        return
    verdict = judge(estimate)
    for sentence in (verdict.summary, *verdict.warnings):
        listener(ESTIMATE, 1, 1, Notice(sentence))
    if verdict.refusal:
        if not anyway:
            raise TooLarge(verdict.refusal)
        listener(ESTIMATE, 1, 1, Notice(f"started anyway: {verdict.refusal}"))


def judge(forecast: Forecast) -> Verdict:
    """Compare the memory of a run with that of the machine."""
    # stages that offload cannot help come first: they decide whether the run is possible at all
    ordered = sorted(forecast.stages, key=lambda stage: stage.identity.kind in OFFLOADED)
    refusal = next((reason for stage in ordered if (reason := _refusal(forecast, stage))), "")
    needed, free = max((forecast.on_host(s.need, s.need.batch) for s in ordered), default=0.0), forecast.capacity.free
    warnings = [forecast.case.model.note] if forecast.case.model.note else []
    if not refusal and needed > free:
        warnings.append(
            f"only {_gib(free)} of this machine’s memory are free now, and the run takes about {_gib(needed)}: "
            "close what else uses it, or set smaller batches"
        )
    return Verdict(_summary(forecast), refusal, tuple(warnings))


def _summary(forecast: Forecast) -> str:
    memory = f"{_gib(forecast.capacity.host)} of memory"
    if forecast.capacity.gpu:
        memory = f"{forecast.capacity.device} with {_gib(forecast.capacity.card)}, beside {memory}"
    if not forecast.stages:
        return f"nothing that needs the model is left to be made; there is {memory}"
    peaks = {stage.title: forecast.on_device(stage.need, stage.need.batch) for stage in forecast.stages}
    title = max(peaks, key=lambda name: peaks[name])
    time = "the time left shows after the first batch"
    if forecast.seconds is not None:
        time = f"about {duration(forecast.seconds, 1)}, as in earlier runs"
    return f"at most {_gib(peaks[title])} ({title}, {forecast.precision}) of {memory}; {time}"


def _refusal(forecast: Forecast, stage: StageNeed) -> str:
    shortage = _shortage(forecast, stage.need)
    if shortage is None:
        return ""
    memory, needed, available = shortage
    smallest = " with a single sequence at a time" if stage.need.setting else ""
    return (
        f"{stage.title} takes about {_gib(needed)}{smallest}, more than the {_gib(available)} of {memory}: "
        f"{_remedy(forecast, stage)}, or start it with {ANYWAY}"
    )


def _shortage(forecast: Forecast, need: MemoryNeed) -> tuple[str, float, float] | None:
    """Return the memory that cannot hold a stage with one sequence: its name, needed and available bytes."""
    capacity = forecast.capacity
    limits = [
        ("this machine’s memory", forecast.on_host(need, 1), capacity.host, 0.0 if capacity.gpu else need.weights)
    ]
    if capacity.gpu:
        limits.insert(0, (capacity.device, forecast.on_device(need, 1), capacity.card, need.weights))
    for memory, needed, available, exact in limits:
        if available and exact + (needed - exact) / SLACK > available:
            return memory, needed, available
    return None


def _remedy(forecast: Forecast, stage: StageNeed) -> str:
    case, changes = forecast.case, dict[str, dict[str, Any]]()
    if forecast.precision == "float32":
        changes["set dtype bfloat16"] = {"dtype": "bfloat16"}
    if stage.identity.kind in OFFLOADED and not case.study.offload and not is_random(case.study.model):
        changes["switch offload on"] = {"offload": True}
    length = case.study.calibration.length // 2
    while length >= 8 and stage.need.setting in ("calibration.batch", "sparsity.batch", "recovery.batch"):
        changes[f"set calibration.length {length}"] = {"calibration.length": length}
        length //= 2
    for remedy, settings in changes.items():
        width = WIDTHS[settings.get("dtype", forecast.precision)]
        need = memory_need(stage.identity, replace(case, study=case.study.with_settings(settings), width=width))
        if need is not None and _shortage(forecast, need) is None:
            return remedy
    if stage.identity.kind == "checkpoint":
        return "stop before it with --until perplexity"
    return f"choose a smaller model, or use a {'GPU' if forecast.capacity.gpu else 'machine'} with more memory"


def _gib(size: float) -> str:
    return f"{size / 2**30:,.1f} GiB"
