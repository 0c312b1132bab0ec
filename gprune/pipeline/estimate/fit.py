"""Decide whether a run fits into this machine's memory: refuse what cannot fit, warn of smaller batches.

The formulas are right within a factor (`SLACK`), except for weights, which are exact. A stage is refused only
if it would not fit with one sequence at a time even if the formula were too large by that factor.
"""

from dataclasses import dataclass
from typing import Any

from gprune.models.shapes import is_random
from gprune.pipeline.estimate.dimensions import WIDTHS
from gprune.pipeline.estimate.forecast import Forecast, StageNeed
from gprune.pipeline.estimate.memory import OFFLOADED, Case, MemoryNeed, memory_need
from gprune.system.errors import SettingsError
from gprune.system.units import duration

SLACK = 1.3
"""factor within which the formulas are right"""
ANYWAY = "--anyway"
"""the option that starts a run that was refused"""


class TooLarge(SettingsError):  # noqa: N818  (raised before the start)
    """A run that cannot fit on this machine."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The sentences about a run's memory and time before it starts."""

    summary: str
    """the stage with the highest peak, the memory of the machine, and the time"""
    refusal: str
    """why the run cannot fit; empty if it can"""
    warnings: tuple[str, ...]
    """batches that will be halved, memory that other programs use, notes about the model"""

    @property
    def lines(self) -> tuple[str, ...]:
        """All sentences in order."""
        warnings = tuple(f"warning: {words}" for words in self.warnings)
        return (self.summary, *warnings, *((f"cannot fit: {self.refusal}",) if self.refusal else ()))


def judge(forecast: Forecast) -> Verdict:
    """Compare the memory of a run with that of the machine."""
    # stages that offload cannot help come first: they decide whether the run is possible at all
    ordered = sorted(forecast.stages, key=lambda stage: stage.identity.kind in OFFLOADED)
    refusals = [words for stage in ordered if (words := _refusal(forecast, stage))]
    warnings = [forecast.model.note] if forecast.model.note else []
    warnings += [words for stage in forecast.stages if (words := _halving(forecast, stage))]
    needed = max((forecast.on_host(stage.need, stage.need.batch) for stage in forecast.stages), default=0.0)
    if not refusals and needed > forecast.capacity.free:
        warnings.append(
            f"only {_gib(forecast.capacity.free)} of this machine’s memory are free now, and the run takes about "
            f"{_gib(needed)}: close what else uses it"
        )
    return Verdict(_summary(forecast), refusals[0] if refusals else "", tuple(dict.fromkeys(warnings)))


def _summary(forecast: Forecast) -> str:
    memory = f"{_gib(forecast.capacity.host)} of memory"
    if forecast.capacity.gpu:
        memory = f"{forecast.capacity.device} with {_gib(forecast.capacity.card)}, beside {memory}"
    if not forecast.stages:
        return f"nothing that needs the model is left to be made; there is {memory}"
    peak = max(forecast.stages, key=lambda stage: forecast.on_device(stage.need, stage.need.batch))
    time = "the time left shows after the first batch"
    if forecast.seconds is not None:
        time = f"about {duration(forecast.seconds, 1)}, as in earlier runs"
    most = _gib(forecast.on_device(peak.need, peak.need.batch))
    return f"at most {most} ({peak.title}, {forecast.precision}) of {memory}; {time}"


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
    """The memory that cannot hold a stage with one sequence: its name, the bytes needed and those available."""
    capacity, host = forecast.capacity, forecast.on_host(need, 1)
    limits = [
        ("this machine’s memory", host, capacity.host),
        ("addresses that a process may have (ulimit -v)", host, capacity.addresses),
    ]
    if capacity.gpu:
        limits.insert(0, (capacity.device, forecast.on_device(need, 1), capacity.card))
    for memory, needed, available in limits:
        exact = need.weights if memory == capacity.device or not capacity.gpu else 0.0
        if available and exact + (needed - exact) / SLACK > available:
            return memory, needed, available
    return None


def _remedy(forecast: Forecast, stage: StageNeed) -> str:
    study, options = forecast.study, dict[str, dict[str, Any]]()
    if stage.identity.kind in OFFLOADED and not study.offload and not is_random(study.model):
        options["switch offload on"] = {"offload": True}
    length = study.calibration.length
    while length > 16 and stage.need.setting in ("calibration.batch", "sparsity.batch", "recovery.batch"):
        length //= 2
        options[f"set calibration.length {length}"] = {"calibration.length": length}
    if study.evaluation.length > 128 and stage.need.setting == "evaluation.batch":
        options["set evaluation.preset 128"] = {"evaluation.preset": "128"}
    narrow = dict[str, dict[str, Any]]()
    if forecast.precision == "float32":
        narrow = {f"{words} and dtype bfloat16": changes for words, changes in options.items()}
        if _fits(forecast, stage, "bfloat16", {}):
            return "set dtype bfloat16"
    for precision, group in ((forecast.precision, options), ("bfloat16", narrow)):
        for words, changes in group.items():
            if _fits(forecast, stage, precision, changes):
                return words
    if stage.identity.kind == "checkpoint":
        return "stop before it with --until perplexity"
    larger = "use a GPU with more memory" if forecast.capacity.gpu else "use a machine with more memory"
    return f"choose a smaller model, or {larger}"


def _fits(forecast: Forecast, stage: StageNeed, precision: str, changes: dict[str, Any]) -> bool:
    study = forecast.study.with_settings(changes)
    case = Case(forecast.model, study, WIDTHS[precision], forecast.capacity.gpu, forecast.gpus)
    need = memory_need(stage.identity, case)
    return need is not None and _shortage(forecast, need) is None


def _halving(forecast: Forecast, stage: StageNeed) -> str:
    """The batch that a stage continues with; empty if the one that is set fits, or none does."""
    need, capacity = stage.need, forecast.capacity
    available, size = capacity.card if capacity.gpu else capacity.host, stage.need.batch
    while size and forecast.on_device(need, size) > available:
        size //= 2
    if not need.setting or not available or size in (0, need.batch):
        return ""
    needed = _gib(forecast.on_device(need, need.batch))
    words = f"{stage.title}: {need.setting} {need.batch} takes about {needed} of {_gib(available)}"
    if capacity.gpu:
        return f"{words}, so about {size} at a time will be left of it"
    # the system ends a process rather than refusing it memory
    return f"{words}, so the system may end the run: set {need.setting} to {size}"


def _gib(size: float) -> str:
    return f"{size / 2**30:,.1f} GiB"
