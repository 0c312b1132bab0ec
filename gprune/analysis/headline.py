"""Answers: what did pruning cost on unseen text, in one sentence?

The overview's headline. Only what is measured is said; a difference whose 95 % interval holds 0 is
called too close to call, and methods of different budgets are not ranked. GPrune is held against its metric's
own method and against what `verdict.opponents` names: the best of all others, which is named where it wins or
ties, as a control is, and FLAP.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gprune.analysis.comparison import Line
from gprune.analysis.decisions import BUDGET_TOLERANCE
from gprune.analysis.formatting import percent, signed
from gprune.analysis.paired_test import NOISE, WORSE, Measurement, difference, interval_in_percent
from gprune.analysis.tables import BASES
from gprune.analysis.verdict import FLAP, OPEN, OURS, Opponents, budget_gap, method_label, opponents
from gprune.evaluation.holdout import HoldoutStatus, first
from gprune.pipeline.stages.method_inputs import repair_label
from gprune.study import Study
from gprune.system.units import listed

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


def outcome(lines: Sequence[Line], study: Study, standings: Mapping[str, HoldoutStatus]) -> Opponents | None:
    """What pruning costs on the first unseen text, or else on the text that comes nearest to one.

    `lines` are all methods of the run, with those of other seeds; `standings` say what its evaluation texts are
    to its calibration texts. None where the study measures no perplexity.
    """
    text = first(standings, study)
    expected = {text: [(lines[0].name[0], method) for method in study.methods]} if lines else {}
    return opponents(lines, text, expected, own_method(study.metric)) if text else None


def own_method(metric: str) -> str:
    """The method that a metric comes from, which prunes by it alone."""
    return BASES.get(metric, (metric,))[0]


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


def headline(found: Opponents, standing: HoldoutStatus, study: Study, complete: bool, seeds: int = 1) -> Headline:
    """The finding in one sentence; of a run that is not `complete`, what is missing is still to come.

    `standing` says what the text is to the calibration texts. `seeds` counts the runs of the cache that differ from
    this one in their seed, itself among them.
    """
    cells = [line.cell(found.text) for line in (found.ours, found.base) if line is not None]
    if not cells:
        return Headline(_nothing(found, complete))
    share = 1.0 - next(filter(np.isfinite, (cell.retention for cell in cells)), study.retention)
    named = next((name for value, name in _SHARES.items() if abs(share - value) < BUDGET_TOLERANCE), None)
    start = f"{named or f'{100 * share:.3g} %'} of the weights removed:"
    detail = _detail(found, standing, seeds) + _repaired(study)
    if len(cells) < 2:
        return Headline(f"{start} {_alone(found, cells[0], _where(standing), study, complete)}", detail)
    control, (ours, base) = against_control(found), cells
    sentence = f"{start} {_both(found, ours, base, _where(standing))}{_ending(found, ours, base, complete)}"
    return Headline(f"{sentence}{control and f'. {control}'}", detail, found.verdict)


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


def _nothing(found: Opponents, complete: bool) -> str:
    if found.dense is not None:
        # others of the study's texts may be measured already
        end = f"was measured on {found.text}" if complete else f"is measured on {found.text} yet"
        return f"No pruned model {end}"
    return "No perplexity was measured" if complete else "No perplexity is measured yet"


def _where(standing: HoldoutStatus) -> str:
    if standing.unseen:
        return "unseen text"
    if standing.other:
        return f"{standing.text}, text of another corpus,"
    return f"{standing.text} ({standing.brief})"


def _both(found: Opponents, ours: Measurement, base: Measurement, where: str) -> str:
    name = method_label(base.method)
    if found.dense is None:
        change = difference(ours, base).change
        word = "lower" if change < 0 else "higher"
        return f"on {where}, GPrune’s perplexity is {_percent(change, 0)} {word} than {name}’s"
    dense = found.dense.cell(found.text)
    theirs, own = _moved(base, dense), _moved(ours, dense)
    if theirs == own and theirs[1]:
        theirs, own = _moved(base, dense, 2), _moved(ours, dense, 2)
    start = f"{name}’s perplexity on {where} {' '.join(theirs)}"
    if base.method == FLAP and found.without_bias is not None:
        start += f" ({_after(theirs, _moved(found.without_bias.cell(found.text), dense))} without its bias)"
    return f"{start}, and so does GPrune’s" if theirs == own else f"{start}, GPrune’s {_after(theirs, own)}"


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


def _ending(found: Opponents, ours: Measurement, base: Measurement, complete: bool) -> str:
    if found.missing:
        return (
            f". No winner: not measured{'' if complete else ' yet'}: {listed(list(map(method_label, found.missing)))}"
        )
    if budget_gap((ours.retention, base.retention)):
        kept = f"GPrune keeps {percent(ours.retention, 1)} and {method_label(base.method)} {percent(base.retention, 1)}"
        return f". No winner: {kept} of the weights"
    if not found.fair or found.best is None:
        return ". They were not measured alike, so no winner is called"
    name, beside = method_label(found.best.method), "" if found.best is found.base else ", the best other method"
    if found.verdict == NOISE:
        return f". Too close to call between GPrune and {name}{beside}"
    change = _percent(found.difference(found.best).change, 0)
    return f". {name} does better: GPrune’s perplexity is {change} higher" if found.verdict == WORSE else ""


def _alone(found: Opponents, cell: Measurement, where: str, study: Study, complete: bool) -> str:
    moved = " ".join(_moved(cell, found.dense.cell(found.text))).strip() if found.dense else ""
    start = f"{method_label(cell.method)}’s perplexity on {where} {moved or f'is {cell.perplexity:,.1f}'}"
    missing = own_method(study.metric) if cell.method == OURS else OURS
    if missing not in study.methods:
        left_out = "GPrune is" if missing == OURS else "its metric’s own method is"
        return f"{start}; {left_out} not part of this run"
    return f"{start}; {method_label(missing)} {'was not measured' if complete else 'is not measured yet'}"


def _standing(standing: HoldoutStatus) -> str:
    """What makes the text unseen, or why none is."""
    if standing.unseen:
        return f" Unseen: another corpus than A and B; {standing.measured}."
    if standing.other:
        return " Its overlap with A and B is not measured, so it is not called unseen: run the study again."
    verb = "is the" if standing.related else ""
    return f" No text of this run is unseen; this one {verb} {standing.brief}.".replace("  ", " ")


def _detail(found: Opponents, standing: HoldoutStatus, seeds: int) -> str:
    cells = [line.cell(found.text) for line in (found.dense, *found.named, found.ours) if line is not None]
    values = ", ".join(f"{method_label(cell.method)} {cell.perplexity:,.1f}" for cell in cells)
    sentence = f"{found.text}, {cells[0].windows_read}: {values}.{_standing(standing)}"
    if not found.fair or found.ours is None:
        return sentence
    changes = [found.difference(line) for line in found.named]
    if not np.isfinite(changes[0].margin):
        return f"{sentence} With one window the error of the difference is not known."
    told = [
        f"{'the best other method here, ' if line is found.best and line is not found.base else ''}"
        f"{method_label(line.method)}: {signed(change.change, '.1%')} {interval_in_percent(change, 1)}"
        for line, change in zip(found.named, changes, strict=True)
        if np.isfinite(change.margin)
    ]
    count = len(found.ours.seeds)
    over = f"{count} seeds" if count > 1 else f"one seed of {seeds} in this cache" if seeds > 1 else "one seed"
    how = f"95 % interval, {'paired' if changes[0].paired else 'windows differ'}; {over}"
    return f"{sentence} GPrune against {'; against '.join(told)} ({how})."
