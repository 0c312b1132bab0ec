"""Estimate memory and time of the stages that a run has to compute, and refuse a run that cannot fit.

Weights are estimated exactly, everything else within a factor of `SLACK`. A stage is refused only if it would not fit
with one sequence at a time even if its true need were smaller by that factor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gprune.models.sources import is_random
from gprune.pipeline.estimate.dimensions import WIDTHS, Dimensions, of_model
from gprune.pipeline.estimate.memory import OFFLOADED, Case, MemoryNeed, memory_need
from gprune.pipeline.eta import Stages, StageTimes, stage_times
from gprune.pipeline.record import Listener
from gprune.pipeline.stages import Graph, Results, StageId, execution_plan
from gprune.pipeline.stages.inputs import precision_of
from gprune.study import Study
from gprune.system import machine
from gprune.system.errors import GpruneError, ModelError, SettingsError
from gprune.system.machine import WEIGHTS_OF_A_GPU
from gprune.system.progress import Notice
from gprune.system.units import amount, duration

ESTIMATE = "estimate"
"""the stage name under which a run reports its estimate"""
SLACK = 1.3
"""factor within which the formulas are right"""
ANYWAY = "--anyway"
"""the option that starts a run that was refused"""

PROCESS_WITH_GPU, PROCESS_WITHOUT_GPU = 0.8 * 2**30, 0.6 * 2**30
"""host memory of a process before it loads a model, in bytes: libraries, tokenizer, kernels, texts"""
CARD_BASE = 0.6 * 2**30
"""GPU memory that the libraries use, in bytes"""
HEAP_SHARE, HEAP_LIMIT = 0.8, 0.4 * 2**30
"""malloc overhead of learning on a CPU, as a measured share of its allocations, and the maximum in bytes"""
LEARNING_BATCHES = ("sparsity.batch", "scales.batch", "recovery.batch")
"""batch settings of the learning stages, which allocate blocks of varying sizes"""


class TooLarge(SettingsError):  # noqa: N818  (raised before the start)
    """Raised if a run cannot fit on this machine."""


@dataclass(frozen=True, slots=True)
class StageNeed:
    """Memory and time of one stage."""

    identity: StageId
    title: str
    need: MemoryNeed
    seconds: float | None
    """None if no batches of the model were timed in this cache"""


@dataclass(frozen=True, slots=True)
class Capacity:
    """The memory of this machine, in bytes."""

    device: str
    """cpu, or the name of the GPU"""
    card: float
    """memory of one GPU; 0 on a CPU"""
    host: float
    """memory of the machine, without that of GPUs"""
    free: float
    """part of `host` that is free now"""
    gpus: int = 1
    """number of GPUs that the study may use"""

    @classmethod
    def of(cls, device: str) -> Capacity:
        """Return the memory for a study's device: auto, cpu, cuda or cuda:1."""
        (free, host), name, number = machine.memory(), machine.card(device), device.partition(":")[2]
        if not name:
            return cls("cpu", 0.0, host, free)
        # a device with a number, such as cuda:1, is a single GPU; otherwise the study may use all
        card = machine.card_memory(int(number) if number.isdecimal() else 0)
        return cls(name, card, host, free, 1 if number else len(machine.cards()))


@dataclass(frozen=True, slots=True)
class Forecast:
    """Memory and time of a run, with the sentences that report them before it starts."""

    case: Case
    precision: str
    """number type of the model"""
    capacity: Capacity
    stages: tuple[StageNeed, ...]
    """the stages without a result that need the model, in order"""
    seconds: float | None = None
    """seconds of all stages without a result; None if no batches of the model were timed in this cache"""

    def on_device(self, need: MemoryNeed, sequences: int) -> float:
        """Return the device memory of a stage in bytes with batches of `sequences`; on a CPU, its whole memory."""
        if self.case.gpu:
            return CARD_BASE + need.on_device(sequences)
        size = need.host + need.on_device(sequences)
        heap = min(HEAP_SHARE * (size - need.weights), HEAP_LIMIT) if need.setting in LEARNING_BATCHES else 0.0
        return PROCESS_WITHOUT_GPU + size + heap

    def on_host(self, need: MemoryNeed, sequences: int) -> float:
        """Return the host memory of a stage in bytes with batches of `sequences`; on a CPU, that of `on_device`."""
        return PROCESS_WITH_GPU + need.host if self.case.gpu else self.on_device(need, sequences)

    @property
    def summary(self) -> str:
        """Return a sentence with the highest peak and its stage, the memory of the machine, and the time."""
        memory = f"{amount(self.capacity.host)} of memory"
        if self.case.gpu:
            memory = f"{self.capacity.device} with {amount(self.capacity.card)}, and {memory}"
        if not self.stages:
            return f"no missing stage needs the model; there is {memory}"
        peaks = {stage.title: self.on_device(stage.need, stage.need.batch) for stage in self.stages}
        title = max(peaks, key=lambda name: peaks[name])
        time = "the time left shows after the first batch"
        if self.seconds is not None:
            time = f"about {duration(self.seconds, 1)}, as in earlier runs"
        return f"at most {amount(peaks[title])} ({title}, {self.precision}) of {memory}; {time}"

    @property
    def refusal(self) -> str:
        """Return the reason why the run cannot fit, with a remedy; empty if it fits."""
        # stages that cannot use offload come first, because they decide whether the run is possible at all
        ordered = sorted(self.stages, key=lambda stage: stage.identity.kind in OFFLOADED)
        return next((reason for stage in ordered if (reason := _explain_refusal(self, stage))), "")

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return warnings about the model and about memory that other programs use."""
        needed, free = max((self.on_host(s.need, s.need.batch) for s in self.stages), default=0.0), self.capacity.free
        shortage = (
            f"only {amount(free)} of this machine’s memory are free now, and the run takes about {amount(needed)}: "
            "close other programs, or set smaller batches"
        )
        return tuple(filter(None, (self.case.model.note, shortage if needed > free and not self.refusal else "")))

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the summary, the warnings and the refusal as lines to display, in this order."""
        warnings, refusal = (f"warning: {warning}" for warning in self.warnings), self.refusal
        return (self.summary, *warnings, *([f"cannot fit: {refusal}"] if refusal else []))


def forecast(study: Study, precision: str, stages: Stages, times: StageTimes) -> Forecast | None:
    """Estimate the stages without results; return None if the model's sizes are unknown, such as for a missing model.

    `precision` is the number type to which the study's `dtype` resolves on this machine.
    """
    try:
        model = of_model(study.model)
    except (ModelError, LookupError, TypeError, ValueError, ArithmeticError):
        return None
    stages, capacity, number_bytes = tuple(stages), Capacity.of(study.device), WIDTHS.get(precision, 4)
    case = Case(model, study, number_bytes, capacity.device != "cpu", count_gpus(model, number_bytes, capacity))
    needs = tuple(
        StageNeed(stage.id, stage.title, need, times.of_stage(stage) if times.is_measured else None)
        for stage in stages
        if (need := memory_need(stage.id, case)) is not None
    )
    return Forecast(case, precision, capacity, needs, times.total(stages))


def estimate_missing(stages: Stages, results: Results, times: StageTimes | None = None) -> Forecast | None:
    """Estimate the stages of a run that have no result; return None if the model is not on this machine."""
    missing_stages, graph = [stage for stage in stages if not results.holds(stage)], results.graph
    return forecast(graph.study, graph.inputs.precision, missing_stages, times or stage_times(results))


def estimate_study(study: Study, records: Iterable[Mapping[str, Any]] = ()) -> Forecast | None:
    """Estimate a whole run of a study as if the cache were empty; return None if its model is missing or unusable.

    `records` are those of the cache's runs, latest first.
    """
    try:
        precision = precision_of(study)
        stages = execution_plan(Graph(study))
        return forecast(study, precision, stages, StageTimes.of(records, study, precision))
    except GpruneError:
        # the same error is reported when the run starts
        return None


def count_gpus(model: Dimensions, width: int, capacity: Capacity) -> int:
    """Return the number of GPUs that share the layers of a model with `width` bytes per number.

    As in `gprune.models.loading.load`, all GPUs share them if the first GPU is too small.
    """
    return capacity.gpus if model.parameters * width > WEIGHTS_OF_A_GPU * capacity.card else 1


def require_room(estimate: Forecast | None, listener: Listener, anyway: bool) -> None:
    """Report a run's estimate to its listener. Raises TooLarge if the run cannot fit, unless `anyway` is True."""
    if estimate is None or not estimate.stages:
        return
    refusal = estimate.refusal
    overruled = [f"started anyway: {refusal}"] if refusal and anyway else []
    for sentence in (estimate.summary, *estimate.warnings, *overruled):
        listener(ESTIMATE, 1, 1, Notice(sentence))
    if refusal and not anyway:
        raise TooLarge(refusal)


def _explain_refusal(forecast: Forecast, stage: StageNeed) -> str:
    """Return the reason why a stage does not fit with one sequence at a time; empty if it fits."""
    for memory, needed, available in _find_shortages(forecast, stage.need):
        smallest = " with a single sequence at a time" if stage.need.setting else ""
        return (
            f"{stage.title} takes about {amount(needed)}{smallest}, more than the {amount(available)} of {memory}: "
            f"{_suggest_remedy(forecast, stage)}, or start it with {ANYWAY}"
        )
    return ""


def _find_shortages(forecast: Forecast, need: MemoryNeed) -> Iterator[tuple[str, float, float]]:
    """Yield each memory that is too small for a stage with one sequence: its name, needed and available bytes."""
    capacity, on_host = forecast.capacity, forecast.on_host(need, 1)
    # name, needed and available bytes, and the part of the need that is exact
    limits = [("this machine’s memory", on_host, capacity.host, 0.0 if forecast.case.gpu else need.weights)]
    if forecast.case.gpu:
        limits.insert(0, (capacity.device, forecast.on_device(need, 1), capacity.card, need.weights))
    for memory, needed, available, exact in limits:
        # an unknown memory is 0 and refuses nothing
        if available and exact + (needed - exact) / SLACK > available:
            yield memory, needed, available


def _suggest_remedy(forecast: Forecast, stage: StageNeed) -> str:
    """Return the first change of settings with which the stage fits, or general advice if there is none."""
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
        if need is not None and not any(_find_shortages(forecast, need)):
            return remedy
    if stage.identity.kind == "checkpoint":
        return "stop before it with --until perplexity"
    return f"choose a smaller model, or use a {'GPU' if forecast.case.gpu else 'machine'} with more memory"
