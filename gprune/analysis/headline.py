"""Answers: what did pruning cost on unseen text, in one sentence?

The overview's headline. Only what is measured is said; a difference whose 95 % interval holds 0 is
called too close to call, and methods of different budgets are not ranked. GPrune is held against its metric's
own method and against what `verdict.opponents` names: the best of all others, which is named where it wins or
ties, as a control is, and FLAP.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gprune.analysis.comparison import DENSE, Line
from gprune.analysis.decisions import BUDGET_TOLERANCE
from gprune.analysis.formatting import percent, signed
from gprune.analysis.paired_test import NOISE, WORSE, Measurement, difference, interval_in_percent
from gprune.analysis.verdict import OPEN, OURS, Opponents, is_comparable, is_same_budget, method_label, opponents
from gprune.evaluation.holdout import HoldoutStatus, first
from gprune.pipeline.stages.method_inputs import repair_label
from gprune.study import Study
from gprune.study.methods import METHODS
from gprune.system.units import listed

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
    verdict: str = OPEN
    """GPrune against the best other method; open where nothing can be said"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What two ways of pruning cost on one text: the lines of a run, with those of its other seeds."""

    standing: HoldoutStatus
    """the evaluation text, and what it is to the calibration texts"""
    dense: Line | None
    """the model before pruning"""
    base: Line | None
    """the metric's own method, or the best of the other baselines where that one is not measured"""
    opponents: Opponents | None
    """what GPrune is held against; None where it is not measured"""

    @property
    def text(self) -> str:
        """The evaluation text, as typed."""
        return self.standing.text

    @property
    def fair(self) -> Opponents | None:
        """What GPrune is held against; None where the base is not fair, or not all is measured."""
        known = self.opponents if self.opponents and self.base and not self.opponents.missing else None
        return known if known and self.base and is_comparable(known.ours, self.base, self.text) else None

    @property
    def named(self) -> list[Line]:
        """The lines that GPrune is held against in words, each once."""
        known = self.opponents
        lines = self.base, *((known.best, known.flap, known.without_bias) if known else ())
        return list({line.method: line for line in lines if line is not None}.values())


def outcome(lines: Sequence[Line], study: Study, standings: Mapping[str, HoldoutStatus]) -> Outcome | None:
    """What pruning costs on the first unseen text, or else on the text that comes nearest to one.

    `lines` are all methods of the run, with those of other seeds; `standings` say what its evaluation texts are
    to its calibration texts. None where the study measures no perplexity.
    """
    text = first(standings, study)
    if not text:
        return None
    measured, own = {line.method: line for line in lines if line.by_seed(text)}, own_method(study.metric)
    base = measured.get(own)
    # a method that is still to come must not be stood in for by another
    if base is None and own not in study.methods:
        others = [line for name, line in measured.items() if name in METHODS and METHODS[name].baseline]
        base = min(others, key=lambda line: line.loss(text), default=None)
    expected = {text: [(lines[0].name[0], method) for method in study.methods]} if lines else {}
    return Outcome(standings[text], measured.get(DENSE), base, opponents(lines, text, expected))


def own_method(metric: str) -> str:
    """The method that a metric comes from, which prunes by it alone."""
    return _OWN_METHODS.get(metric, metric)


def against_control(known: Opponents) -> str:
    """That the best control does as well as GPrune or better, in a sentence without its end; else empty."""
    if known.control is None or known.missing:
        return ""
    found = known.difference(known.control)
    if not found.close and found.nats < 0:
        return ""
    verb = "does as well" if found.close else "does better"
    change = f"{signed(0.0 - found.change / (1 + found.change), '.1%')} perplexity"
    return f"A control {verb}: {method_label(known.control.method)} ({change})"


def headline(found: Outcome, study: Study, complete: bool, seeds: int = 1) -> Headline:
    """The finding in one sentence; of a run that is not `complete`, what is missing is still to come.

    `seeds` counts the runs of the cache that differ from this one in their seed, itself among them.
    """
    if found.opponents is None and found.base is None:
        return Headline(_nothing(found, complete))
    share, detail = removed(found, study), _detail(found, seeds) + _repaired(study)
    if found.opponents is None or found.base is None:
        return Headline(f"{share} removed: {_alone(found, study, complete)}", detail)
    control = against_control(found.opponents)
    sentence = f"{share} removed: {_both(found, found.opponents, found.base)}"
    sentence += f"{_ending(found, found.opponents, found.base, complete)}{control and f'. {control}'}"
    return Headline(sentence, detail, OPEN if found.fair is None else found.fair.verdict)


def _repaired(study: Study) -> str:
    """That the study repairs every method alike, whatever it does by itself; empty where it does not."""
    label = repair_label(study)
    if not label:
        return ""
    if study.repair.kind == "auto":
        return " Every method has the repair that was chosen for it on held-out text, or none."
    instead = "" if study.repair.kind == "none" else ", in place of what it does by itself"
    return f" Every method has {label}{instead}."


def _nothing(found: Outcome, complete: bool) -> str:
    if found.dense is not None:
        # others of the study's texts may be measured already
        end = f"was measured on {found.text}" if complete else f"is measured on {found.text} yet"
        return f"No pruned model {end}"
    return "No perplexity was measured" if complete else "No perplexity is measured yet"


def removed(found: Outcome, study: Study) -> str:
    """How much of the decoder's weights was really removed, as the beginning of a sentence."""
    lines = [found.opponents.ours] if found.opponents else []
    kept = [line.cell(found.text).retention for line in [*lines, *([found.base] if found.base else [])]]
    share = 1.0 - next(filter(np.isfinite, kept), study.retention)
    named = next((name for value, name in _SHARES.items() if abs(share - value) < BUDGET_TOLERANCE), None)
    return f"{named or f'{100 * share:.3g} %'} of the weights"


def _where(found: Outcome) -> str:
    standing = found.standing
    if standing.unseen:
        return "unseen text"
    if standing.other:
        return f"{found.text}, text of another corpus,"
    return f"{found.text} ({standing.brief})"


def _both(found: Outcome, known: Opponents, base: Line) -> str:
    ours, theirs, name = known.ours.cell(found.text), base.cell(found.text), method_label(base.method)
    if found.dense is None:
        change = difference(ours, theirs).change
        word = "lower" if change < 0 else "higher"
        return f"on {_where(found)}, GPrune’s perplexity is {_percent(change, 0)} {word} than {name}’s"
    dense = found.dense.cell(found.text)
    other, own = _moved(theirs, dense), _moved(ours, dense)
    if other == own and other[1]:
        other, own = _moved(theirs, dense, 2), _moved(ours, dense, 2)
    start = f"{name}’s perplexity on {_where(found)} {' '.join(other)}"
    if base is known.flap and known.without_bias is not None:
        start += f" ({_after(other, _moved(known.without_bias.cell(found.text), dense))} without its bias)"
    return f"{start}, and so does GPrune’s" if other == own else f"{start}, GPrune’s {_after(other, own)}"


def _after(before: tuple[str, str], own: tuple[str, str]) -> str:
    """A change after another one, without its verb where that is the same."""
    return own[1] if before[0] == own[0] else " ".join(own)


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


def _ending(found: Outcome, known: Opponents, base: Line, complete: bool) -> str:
    if known.missing:
        return (
            f". No winner: not measured{'' if complete else ' yet'}: {listed(list(map(method_label, known.missing)))}"
        )
    if not is_same_budget(known.ours, base):
        kept = f"GPrune keeps {percent(known.ours.retention, 1)} and {method_label(base.method)}"
        return f". No winner: {kept} {percent(base.retention, 1)} of the weights"
    if found.fair is None or known.best is None:
        return ". They were not measured alike, so no winner is called"
    name, beside = method_label(known.best.method), "" if known.best is base else ", the best other method"
    if known.verdict == NOISE:
        return f". Too close to call between GPrune and {name}{beside}"
    change = _percent(known.difference(known.best).change, 0)
    return f". {name} does better: GPrune’s perplexity is {change} higher" if known.verdict == WORSE else ""


def _alone(found: Outcome, study: Study, complete: bool) -> str:
    line = found.opponents.ours if found.opponents is not None else found.base
    assert line is not None
    cell = line.cell(found.text)
    moved = " ".join(_moved(cell, found.dense.cell(found.text))).strip() if found.dense else ""
    start = f"{method_label(line.method)}’s perplexity on {_where(found)} {moved or f'is {cell.perplexity:,.1f}'}"
    missing = own_method(study.metric) if found.opponents is not None else OURS
    if missing not in study.methods:
        left_out = "GPrune is" if missing == OURS else "its metric’s own method is"
        return f"{start}; {left_out} not part of this run"
    return f"{start}; {method_label(missing)} {'was not measured' if complete else 'is not measured yet'}"


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
    known = found.opponents
    cells = [line.cell(found.text) for line in (found.dense, *found.named, known and known.ours) if line]
    values = ", ".join(f"{method_label(cell.method)} {cell.perplexity:,.1f}" for cell in cells)
    sentence = f"{found.text}, {cells[0].windows_read}: {values}.{_standing(found)}"
    if found.fair is None or known is None:
        return sentence
    changes = {line.method: known.difference(line) for line in found.named}
    first = changes[found.named[0].method]
    if not np.isfinite(first.margin):
        return f"{sentence} With one window the error of the difference is not known."
    told = [
        f"{'the best other method here, ' if line is known.best and line is not found.base else ''}"
        f"{method_label(line.method)}: {signed(change.change, '.1%')} {interval_in_percent(change, 1)}"
        for line, change in zip(found.named, changes.values(), strict=True)
        if np.isfinite(change.margin)
    ]
    count = f"one seed of {seeds} in this cache" if seeds > 1 else "one seed"
    count = f"{len(known.ours.seeds)} seeds" if len(known.ours.seeds) > 1 else count
    how = f"95 % interval, {'paired' if first.paired else 'windows differ'}; {count}"
    return f"{sentence} GPrune against {'; against '.join(told)} ({how})."
