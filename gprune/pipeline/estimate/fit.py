"""Whether a run fits on this machine: refused is only what cannot fit, and what will be halved is said.

The formulas are right within a factor (`SLACK`), but for the weights, which are known. So a stage is refused
only where it would not fit even if the formula gave that much too much, with a single sequence at a time.
"""

from dataclasses import dataclass, replace

from gprune.models.shapes import is_random
from gprune.pipeline.estimate.dimensions import WIDTHS, Case, Need
from gprune.pipeline.estimate.forecast import Forecast, StageNeed
from gprune.pipeline.estimate.memory import OFFLOADED, need
from gprune.study import Study
from gprune.system.errors import SettingsError
from gprune.system.units import duration

SLACK = 1.3
"""factor within which the formulas are right"""
ANYWAY = "--anyway"
"""the option that starts a run nevertheless"""


class TooLarge(SettingsError):  # noqa: N818  (it is said before the start)
    """A run that cannot fit on this machine."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be said of a run before it starts."""

    summary: str
    """the stage that takes most, what there is, and how long it takes"""
    refusal: str
    """why it cannot fit, in one sentence; empty if it may"""
    warnings: tuple[str, ...]
    """what will be halved, or is scarce now"""

    @property
    def lines(self) -> tuple[str, ...]:
        """All of it, a sentence each."""
        warned = tuple(f"warning: {words}" for words in self.warnings)
        return (self.summary, *warned, *((f"cannot fit: {self.refusal}",) if self.refusal else ()))


def judged(found: Forecast) -> Verdict:
    """Holds what a run takes against what there is."""
    # what no offload helps comes first: it decides whether the run can be had at all
    ordered = sorted(found.stages, key=lambda one: one.identity.kind in OFFLOADED)
    refusals = [words for one in ordered if (words := _refusal(found, one))]
    warnings = [found.model.note] if found.model.note else []
    warnings += [words for one in found.stages if (words := _halving(found, one))]
    if not refusals:
        warnings += _scarce(found)
    return Verdict(summary(found), refusals[0] if refusals else "", tuple(dict.fromkeys(warnings)))


def summary(found: Forecast) -> str:
    """The stage that takes most, what there is, and how long all of it takes."""
    there = f"{_gib(found.capacity.host)} of memory"
    if found.capacity.gpu:
        there = f"{found.capacity.device} with {_gib(found.capacity.card)}, beside {there}"
    if not found.stages:
        return f"nothing that needs the model is left to be made; there is {there}"
    peak = max(found.stages, key=lambda one: found.on_device(one.need, one.need.asked))
    most = _gib(found.on_device(peak.need, peak.need.asked))
    untold = sum(one.seconds is None for one in found.stages)
    more = f", and {untold} stages of which nobody can tell" if untold else ""
    return (
        f"at most {most} ({peak.title}, {found.precision}) of {there}; about "
        f"{duration(found.seconds, 1)}{more}, at {found.rate.words}"
    )


def _refusal(found: Forecast, one: StageNeed) -> str:
    """Why a stage cannot fit, and what would help."""
    place = _missing(found, one.need)
    if place is None:
        return ""
    what, wanted, there = place
    smallest = " with a single sequence at a time" if one.need.setting else ""
    return (
        f"{one.title} takes about {_gib(wanted)}{smallest}, more than the {_gib(there)} of {what}: "
        f"{_remedy(found, one)}, or start it with {ANYWAY}"
    )


def _missing(found: Forecast, takes: Need) -> tuple[str, float, float] | None:
    """What cannot hold a stage with one sequence at a time: its name, the bytes wanted and those there."""
    capacity = found.capacity
    device, host = (on(takes, 1) for on in (found.on_device, found.on_host))
    places = [(capacity.device, device, capacity.card)] if capacity.gpu else []
    places.append(("this machine’s memory", host, capacity.host))
    if capacity.addresses:
        places.append(("addresses that a process may have (ulimit -v)", host, capacity.addresses))
    for what, wanted, there in places:
        # on a device weights are certain; in the machine's own memory all of it is reckoned
        sure = takes.weights if wanted == device else 0.0
        if there and sure + (wanted - sure) / SLACK > there:
            return what, wanted, there
    return None


def _remedy(found: Forecast, one: StageNeed) -> str:
    """The first setting that would make a stage fit, as a sentence goes on."""
    study = found.study
    tries: list[tuple[str, str, Study]] = []
    if found.precision == "float32":
        tries.append(("set dtype bfloat16", "bfloat16", study))
    if one.identity.kind in OFFLOADED and not study.offload and not is_random(study.model):
        tries.append(("switch offload on", found.precision, replace(study, offload=True)))
    shorter = study.calibration.length
    while shorter > 16 and one.need.setting in ("calibration.batch", "sparsity.batch", "recovery.batch"):
        shorter //= 2
        changed = replace(study, calibration=replace(study.calibration, length=shorter))
        tries.append((f"set calibration.length {shorter}", found.precision, changed))
    if study.evaluation.length > 128 and one.need.setting == "evaluation.batch":
        changed = replace(study, evaluation=replace(study.evaluation, preset="128"))
        tries.append(("set evaluation.preset 128", found.precision, changed))
    if found.precision == "float32":
        tries += [(f"{words} and dtype bfloat16", "bfloat16", changed) for words, _, changed in tries[1:]]
    fitting = (words for words, precision, changed in tries if _fits(found, one, precision, changed))
    if one.identity.kind == "checkpoint":
        return next(fitting, "stop before it with --until perplexity")
    larger = "use a GPU with more memory" if found.capacity.gpu else "use a machine with more memory"
    return next(fitting, f"choose a smaller model, or {larger}")


def _fits(found: Forecast, one: StageNeed, precision: str, study: Study) -> bool:
    """Whether a stage would fit under other settings."""
    takes = need(one.identity, Case(found.model, study, WIDTHS[precision], found.capacity.gpu, found.gpus))
    return takes is not None and _missing(found, takes) is None


def _halving(found: Forecast, one: StageNeed) -> str:
    """With how many sequences at a time a stage will go on; empty where those asked for fit."""
    takes, capacity = one.need, found.capacity
    there = capacity.card if capacity.gpu else capacity.host
    if not takes.setting or not there or found.on_device(takes, takes.asked) <= there:
        return ""
    size = takes.asked
    while size and found.on_device(takes, size) > there:
        size //= 2
    if not size:
        return ""
    wanted = _gib(found.on_device(takes, takes.asked))
    words = f"{one.title}: {takes.setting} {takes.asked} takes about {wanted} of {_gib(there)}"
    if capacity.gpu:
        return f"{words}, so about {size} at a time will be left of it"
    # the system ends a process rather than to refuse it memory
    return f"{words}, so the system may end the run: set {takes.setting} to {size}"


def _scarce(found: Forecast) -> list[str]:
    """That others use the memory now which the run will want."""
    free = found.capacity.free
    wanted = max((found.on_host(one.need, one.need.asked) for one in found.stages), default=0.0)
    if wanted <= free:
        return []
    return [
        f"only {_gib(free)} of this machine’s memory are free now, and the run takes about {_gib(wanted)}: "
        "close what else uses it"
    ]


def _gib(size: float) -> str:
    return f"{size / 2**30:,.1f} GiB"
