"""Answers: what did pruning cost on text that no method was calibrated on, in one sentence?

The overview's headline. Only what is measured is said; a difference within two standard errors of itself
is called too close to call, and methods of different budgets are not ranked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gprune.analysis.comparison import DENSE
from gprune.analysis.decisions import BUDGET_TOLERANCE
from gprune.analysis.paired import Measurement, difference
from gprune.analysis.signs import percent, signed
from gprune.methods import METHODS
from gprune.study import Study

OURS = "gprune"
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
    """GPrune against the metric's own method; open where nothing can be said"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What two ways of pruning cost on one text."""

    text: str
    """the evaluation text"""
    held_out: bool
    """whether no method of the study was calibrated on it"""
    dense: Measurement | None
    """the model before pruning"""
    ours: Measurement | None
    """GPrune"""
    base: Measurement | None
    """the metric's own method, or the best of the others where that one is not measured"""

    @property
    def comparable(self) -> bool:
        """Whether both methods are there, finite, measured alike and of one budget."""
        if self.ours is None or self.base is None or self.ours.windows_read != self.base.windows_read:
            return False
        gap = abs(self.ours.retention - self.base.retention)
        return bool(np.isfinite([self.ours.perplexity, self.base.perplexity]).all()) and not (
            gap > BUDGET_TOLERANCE
        )

    @property
    def verdict(self) -> Literal["better", "worse", "close", "open"]:
        """GPrune against the other method."""
        if not self.comparable or self.ours is None or self.base is None:
            return "open"
        found = difference(self.ours, self.base)
        if found.close:
            return "close"
        return "better" if found.nats < 0 else "worse"


def held_out(study: Study, calibration: Mapping[str, str], evaluation: Mapping[str, str]) -> list[str]:
    """Evaluation texts that no method of a study was calibrated on.

    A text counts as calibrated on where it has the name of A or B, whatever part of it is read, or their
    content. The third text only takes part in the agreement of modules, and prunes nothing.

    Args:
        study: the study.
        calibration: content of the calibration texts, by role.
        evaluation: content of the evaluation texts, by name.

    Returns:
        Names, in the study's order.
    """
    places = {text.partition("#")[0] for text in (study.primary, study.auxiliary)}
    contents = {calibration.get(role) for role in ("primary", "auxiliary")} - {"", None}
    return [
        text
        for text in study.evaluation.texts
        if text.partition("#")[0] not in places and evaluation.get(text) not in contents
    ]


def outcome(measurements: list[Measurement], study: Study, apart: list[str]) -> Outcome | None:
    """What pruning costs on the first held-out text; without one, on A, which every method has read.

    Args:
        measurements: all perplexities of one run that are there.
        study: its study.
        apart: its held-out texts.

    Returns:
        None where the study measures no perplexity.
    """
    texts = study.evaluation.texts
    if not texts:
        return None
    text = apart[0] if apart else study.primary if study.primary in texts else texts[0]
    cells = {item.method: item for item in measurements if item.text == text}
    return Outcome(text, bool(apart), cells.get(DENSE), cells.get(OURS), _opponent(cells, study))


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
    others = [cell for name, cell in cells.items() if name not in (DENSE, OURS)]
    return min(others, key=lambda cell: cell.perplexity, default=None)


def headline(found: Outcome, study: Study, complete: bool) -> Headline:
    """The finding in one sentence.

    Args:
        found: what pruning costs.
        study: the study behind it.
        complete: whether the run has ended; before, what is missing is still to come.
    """
    if found.ours is None and found.base is None:
        return Headline(_nothing(found, complete))
    share = removed(found, study)
    if found.ours is None or found.base is None:
        return Headline(f"{share} removed: {_alone(found, study, complete)}", _detail(found))
    sentence = f"{share} removed: {_both(found)}{_ending(found)}"
    return Headline(sentence, _detail(found), found.verdict)


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


def _where(found: Outcome, one: bool) -> str:
    if not found.held_out:
        return f"the calibration text {found.text}"
    return f"text {'it was not' if one else 'neither was'} calibrated on"


def _both(found: Outcome) -> str:
    ours, base, dense = found.ours, found.base, found.dense
    assert ours is not None and base is not None
    if dense is None:
        return f"on {_where(found, False)}, {_against(ours, base)}"
    first, second = _moved(base, dense), _moved(ours, dense)
    if first == second and first[1]:
        first, second = _moved(base, dense, 2), _moved(ours, dense, 2)
    start = f"{_name(base.method)}’s perplexity on {_where(found, True)} {' '.join(first)}"
    if first == second:
        return f"{start}, and so does GPrune’s"
    tail = second[1] if first[0] == second[0] else " ".join(second)
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
    ours, base = found.ours, found.base
    assert ours is not None and base is not None
    if abs(ours.retention - base.retention) > BUDGET_TOLERANCE:
        kept = (
            f"GPrune keeps {percent(ours.retention, 1)} and {_name(base.method)} {percent(base.retention, 1)}"
        )
        return f". No winner: {kept} of the weights"
    return {
        "better": "",
        "worse": f". GPrune does worse than {_name(base.method)} here",
        "close": ". Too close to call",
        "open": ". They were not measured alike, so no winner is called",
    }[found.verdict]


def _alone(found: Outcome, study: Study, complete: bool) -> str:
    cell = found.ours or found.base
    assert cell is not None
    name = _name(cell.method)
    if found.dense is None:
        start = f"{name}’s perplexity on {_where(found, True)} is {cell.perplexity:,.1f}"
    else:
        start = f"{name}’s perplexity on {_where(found, True)} {' '.join(_moved(cell, found.dense)).strip()}"
    missing = own_method(study.metric) if found.ours is not None else OURS
    if missing not in study.methods:
        left_out = "GPrune is" if missing == OURS else "its metric’s own method is"
        return f"{start}; {left_out} not part of this run"
    return f"{start}; {_name(missing)} {'was not measured' if complete else 'is not measured yet'}"


def _detail(found: Outcome) -> str:
    cells = [cell for cell in (found.dense, found.base, found.ours) if cell is not None]
    values = ", ".join(f"{_name(cell.method)} {cell.perplexity:,.1f}" for cell in cells)
    apart = "" if found.held_out else " No text of this run was held out."
    sentence = f"{found.text}, {cells[0].windows_read}: {values}.{apart}"
    if not found.comparable or found.ours is None or found.base is None:
        return sentence
    change = difference(found.ours, found.base)
    if not np.isfinite(change.error):
        return f"{sentence} With one window the error of the difference is not known."
    how = "standard error, paired" if change.paired else "standard error, windows differ"
    return (
        f"{sentence} GPrune against {_name(found.base.method)}: {signed(change.change, '.1%')} ± "
        f"{percent(change.error, 1)} ({how})."
    )
