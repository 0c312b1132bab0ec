"""Answers: what did pruning cost on unseen text, in one sentence?

The overview's headline. Only what is measured is said; a difference whose 95 % interval holds 0 is
called too close to call, and methods of different budgets are not ranked. GPrune is held against its metric's
own method and against the best of all others, which is named where it wins or ties, as a control is.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gprune.analysis.comparison import DENSE
from gprune.analysis.decisions import BUDGET_TOLERANCE
from gprune.analysis.formatting import percent, signed
from gprune.analysis.paired_test import Measurement, difference, interval_in_percent
from gprune.evaluation.holdout import HoldoutStatus, first
from gprune.pipeline.stages.method_inputs import repair_label
from gprune.study import Study
from gprune.study.methods import METHODS

OURS, FLAP = "gprune", "flap"
_OWN_METHODS = {"twflap": "fang"}
"""methods that a metric comes from, where they are not called like it"""
_SHARES = {0.5: "Half", 0.25: "A quarter", 0.75: "Three quarters"}
_MANY = 10.0
"""a perplexity that rises by more than this is told as a multiple"""


@dataclass(frozen=True, slots=True)
class Headline:
    """One sentence, and the numbers behind it."""

    sentence: str
    detail: str = ""
    """the perplexities and their error, in a second sentence"""
    verdict: Literal["better", "worse", "close", "open"] = "open"
    """GPrune against the best other method; open where nothing can be said"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What two ways of pruning cost on one text."""

    standing: HoldoutStatus
    """the evaluation text, and what it is to the calibration texts"""
    dense: Measurement | None
    """the model before pruning"""
    ours: Measurement | None
    """GPrune"""
    base: Measurement | None
    """the metric's own method, or the best of the other baselines where that one is not measured"""
    control: Measurement | None = None
    """the best control that can be held against GPrune"""
    best: Measurement | None = None
    """the best method of all others that can be held against GPrune, where it is another one than `base`"""
    flap: Measurement | None = None
    """FLAP, where it is measured like GPrune and neither `base` nor `best`"""

    @property
    def text(self) -> str:
        """The evaluation text, as typed."""
        return self.standing.text

    @property
    def comparable(self) -> bool:
        """Whether both methods are there, finite, measured alike and of one budget."""
        return self.ours is not None and self.base is not None and comparable(self.ours, self.base)

    @property
    def rival(self) -> Measurement | None:
        """The best method beside GPrune that is no control."""
        return self.best or self.base

    @property
    def verdict(self) -> Literal["better", "worse", "close", "open"]:
        """GPrune against the best other method."""
        if not self.comparable or self.ours is None or self.rival is None:
            return "open"
        found = difference(self.ours, self.rival)
        if found.close:
            return "close"
        return "better" if found.nats < 0 else "worse"


def comparable(first: Measurement, second: Measurement) -> bool:
    """Whether two methods are finite, measured alike and of one budget."""
    if first.windows_read != second.windows_read:
        return False
    gap = abs(first.retention - second.retention)
    return bool(np.isfinite([first.perplexity, second.perplexity]).all()) and not gap > BUDGET_TOLERANCE


def outcome(measurements: list[Measurement], study: Study, standings: Mapping[str, HoldoutStatus]) -> Outcome | None:
    """What pruning costs on the first unseen text, or else on the text that comes nearest to one.

    `measurements` are all perplexities of the run; `standings` say what its evaluation texts are to its
    calibration texts. None where the study measures no perplexity.
    """
    text = first(standings, study)
    if not text:
        return None
    cells = {item.method: item for item in measurements if item.text == text}
    ours, base = cells.get(OURS), _opponent(cells, study)
    control, best = (best_of(ours, cells.values(), one) for one in (True, False))
    best = None if best is base else best
    flap = best_of(ours, [cell for cell in cells.values() if cell.method == FLAP])
    flap = None if flap in (base, best) else flap
    return Outcome(standings[text], cells.get(DENSE), ours, base, control, best, flap)


def own_method(metric: str) -> str:
    """The method that a metric comes from, which prunes by it alone."""
    return _OWN_METHODS.get(metric, metric)


def _opponent(cells: Mapping[str, Measurement], study: Study) -> Measurement | None:
    own = own_method(study.metric)
    if own in cells:
        return cells[own]
    # a method that is still to come must not be stood in for by another
    if own in study.methods:
        return None
    others = [cell for name, cell in cells.items() if name in METHODS and METHODS[name].baseline]
    return min(others, key=lambda cell: cell.perplexity, default=None)


def best_of(ours: Measurement | None, cells: Iterable[Measurement], control: bool = False) -> Measurement | None:
    """The best of the controls, or of all that prune otherwise, that was measured like GPrune."""
    known = [cell for cell in cells if cell.method in METHODS and cell.method not in (OURS, DENSE)]
    wanted = [cell for cell in known if METHODS[cell.method].control == control]
    fair = [cell for cell in wanted if ours is not None and comparable(ours, cell)]
    return min(fair, key=lambda cell: cell.perplexity, default=None)


def against_control(ours: Measurement, control: Measurement | None) -> str:
    """That the best control does as well as GPrune or better, in a sentence without its end; else empty."""
    if control is None:
        return ""
    found = difference(ours, control)
    if not found.close and found.nats < 0:
        return ""
    verb = "does as well" if found.close else "does better"
    change = f"{signed(0.0 - found.change / (1 + found.change), '.1%')} perplexity"
    return f"A control {verb}: {_name(control.method)} ({change})"


def headline(found: Outcome, study: Study, complete: bool, seeds: int = 1) -> Headline:
    """The finding in one sentence; of a run that is not `complete`, what is missing is still to come.

    `seeds` counts the runs of the cache that differ from this one in their seed, itself among them.
    """
    if found.ours is None and found.base is None:
        return Headline(_nothing(found, complete))
    share, detail = removed(found, study), _detail(found, seeds) + _repaired(study)
    if found.ours is None or found.base is None:
        return Headline(f"{share} removed: {_alone(found, study, complete)}", detail)
    control = against_control(found.ours, found.control)
    sentence = f"{share} removed: {_both(found)}{_ending(found)}{control and f'. {control}'}"
    return Headline(sentence, detail, found.verdict)


def _repaired(study: Study) -> str:
    """That the study repairs every method alike, whatever it does by itself; empty where it does not."""
    label = repair_label(study)
    if not label:
        return ""
    if study.repair.kind == "auto":
        return " Every method has the repair that was chosen for it on held-out text, or none."
    instead = ", after what it does by itself" if study.repair.base == "own" else ", in place of what it does by itself"
    instead = "" if study.repair.kind == "none" else instead
    return f" Every method has {label}{instead}."


def _nothing(found: Outcome, complete: bool) -> str:
    if found.dense is not None:
        # others of the study's texts may be measured already
        end = f"was measured on {found.text}" if complete else f"is measured on {found.text} yet"
        return f"No pruned model {end}"
    return "No perplexity was measured" if complete else "No perplexity is measured yet"


def removed(found: Outcome, study: Study) -> str:
    """How much of the decoder's weights was really removed, as the beginning of a sentence."""
    kept = [cell.retention for cell in (found.ours, found.base) if cell is not None]
    known = [value for value in kept if np.isfinite(value)]
    share = 1.0 - (known[0] if known else study.retention)
    named = next((name for value, name in _SHARES.items() if abs(share - value) < BUDGET_TOLERANCE), None)
    return f"{named or f'{100 * share:.3g} %'} of the weights"


def _name(method: str) -> str:
    """How a sentence calls a method."""
    return METHODS[method].label if method in METHODS else method


def _where(found: Outcome) -> str:
    standing = found.standing
    if standing.unseen:
        return "unseen text"
    if standing.other:
        return f"{found.text}, text of another corpus,"
    return f"{found.text} ({standing.brief})"


def _both(found: Outcome) -> str:
    ours, base, dense = found.ours, found.base, found.dense
    assert ours is not None and base is not None
    if dense is None:
        return f"on {_where(found)}, {_against(ours, base)}"
    theirs, own = _moved(base, dense), _moved(ours, dense)
    if theirs == own and theirs[1]:
        theirs, own = _moved(base, dense, 2), _moved(ours, dense, 2)
    start = f"{_name(base.method)}’s perplexity on {_where(found)} {' '.join(theirs)}"
    if theirs == own:
        return f"{start}, and so does GPrune’s"
    tail = own[1] if theirs[0] == own[0] else " ".join(own)
    return f"{start}, GPrune’s {tail}"


def _against(ours: Measurement, base: Measurement) -> str:
    change = difference(ours, base).change
    word = "lower" if change < 0 else "higher"
    return f"GPrune’s perplexity is {_percent(change, 0)} {word} than {_name(base.method)}’s"


def _moved(cell: Measurement, dense: Measurement, more: int = 0) -> tuple[str, str]:
    """Verb and amount of a change of perplexity against the dense model; the amount may be empty."""
    change = difference(cell, dense).change
    if not np.isfinite(change):
        return "grows beyond all measure", ""
    if change > _MANY:
        return "rises to", f"{1 + change:,.{more}f} times that of the dense model"
    amount = _percent(change, more)
    if not float(amount.split()[0].replace(",", "")):
        return "stays that of the dense model", ""
    return ("rises" if change > 0 else "falls"), amount


def _percent(change: float, more: int) -> str:
    """The size of a change, with more decimals where it is small."""
    digits = (0 if abs(change) >= 0.0995 else 1) + more
    return f"{abs(100 * change):,.{digits}f} %"


def _ending(found: Outcome) -> str:
    ours, base, rival = found.ours, found.base, found.rival
    assert ours is not None and base is not None and rival is not None
    if abs(ours.retention - base.retention) > BUDGET_TOLERANCE:
        kept = f"GPrune keeps {percent(ours.retention, 1)} and {_name(base.method)} {percent(base.retention, 1)}"
        return f". No winner: {kept} of the weights"
    name, change = _name(rival.method), difference(ours, rival)
    beside = "" if rival is base else ", the best other method"
    return {
        "better": "",
        "worse": f". {name} does better: GPrune’s perplexity is {_percent(change.change, 0)} higher",
        "close": f". Too close to call between GPrune and {name}{beside}",
        "open": ". They were not measured alike, so no winner is called",
    }[found.verdict]


def _alone(found: Outcome, study: Study, complete: bool) -> str:
    cell = found.ours or found.base
    assert cell is not None
    name = _name(cell.method)
    if found.dense is None:
        start = f"{name}’s perplexity on {_where(found)} is {cell.perplexity:,.1f}"
    else:
        start = f"{name}’s perplexity on {_where(found)} {' '.join(_moved(cell, found.dense)).strip()}"
    missing = own_method(study.metric) if found.ours is not None else OURS
    if missing not in study.methods:
        left_out = "GPrune is" if missing == OURS else "its metric’s own method is"
        return f"{start}; {left_out} not part of this run"
    return f"{start}; {_name(missing)} {'was not measured' if complete else 'is not measured yet'}"


def _standing(found: Outcome) -> str:
    """What makes the text unseen, or why none is."""
    standing = found.standing
    if standing.unseen:
        return f" Unseen: another corpus than A and B; {standing.measured}."
    if standing.other:
        return " Its overlap with A and B is not measured, so it is not called unseen: run the study again."
    verb = "is the" if standing.related else ""
    return f" No text of this run is unseen; this one {verb} {standing.brief}.".replace("  ", " ")


def _detail(found: Outcome, seeds: int) -> str:
    every = (found.dense, found.base, found.best, found.flap, found.ours)
    cells = [cell for cell in every if cell is not None]
    values = ", ".join(f"{_name(cell.method)} {cell.perplexity:,.1f}" for cell in cells)
    sentence = f"{found.text}, {cells[0].windows_read}: {values}.{_standing(found)}"
    if not found.comparable or found.ours is None or found.base is None:
        return sentence
    if not np.isfinite(difference(found.ours, found.base).margin):
        return f"{sentence} With one window the error of the difference is not known."
    told = [f"{_name(found.base.method)}: {_size(found.ours, found.base)}"]
    if found.best is not None and np.isfinite(difference(found.ours, found.best).margin):
        told.append(f"the best other method here, {_name(found.best.method)}: {_size(found.ours, found.best)}")
    if found.flap is not None and np.isfinite(difference(found.ours, found.flap).margin):
        told.append(f"{_name(FLAP)}: {_size(found.ours, found.flap)}")
    paired = difference(found.ours, found.base).paired
    how = f"95 % interval, {'paired' if paired else 'windows differ'}; one seed"
    how += f" of {seeds} in this cache" if seeds > 1 else ""
    return f"{sentence} GPrune against {'; against '.join(told)} ({how})."


def _size(ours: Measurement, other: Measurement) -> str:
    change = difference(ours, other)
    return f"{signed(change.change, '.1%')} {interval_in_percent(change, 1)}"
