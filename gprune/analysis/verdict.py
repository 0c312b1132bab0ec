"""Which methods are best, which are equal within noise, and what may not be claimed yet.

Headline, titles, stars, Pareto front, slides, report and the tables of `reproduce` take every claim about methods from
here. Differences are paired over windows, and over seeds where there are several. Methods within noise share a rank.
Nothing is claimed while a method or a text of the comparison is missing, or where the comparison is not fair.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

import numpy as np

from gprune.analysis.comparison import DENSE, Line, Row, change, texts
from gprune.analysis.decisions import BUDGET_TOLERANCE
from gprune.analysis.formatting import percent
from gprune.analysis.paired_test import BETTER, WORSE, Difference, difference, over_texts
from gprune.study.methods import METHODS

OURS, FLAP, FLAP_WITHOUT_BIAS = "gprune", "flap", "flap_no_bias"
BEST, SECOND = "★", "☆"
OPEN = "open"
"""the verdict where nothing may be claimed"""
FAR = 0.1
"""FLAP is far behind itself without its bias where its perplexity is higher by more than this share"""
COST_DIGITS = 3
"""decimals of a cost over the dense model's, wherever one is printed or compared"""
Name = TypeVar("Name")
Compare = Callable[[Name, Name], Difference]
"""returns how much worse its first name is than its second"""
Expected = Mapping[str, Collection[tuple[str, str]]]
"""by text the runs and methods that a comparison must have"""
_ANY: Expected = MappingProxyType({})


def judge(losses: Mapping[Name, float], compare: Compare[Name]) -> dict[Name, int]:
    """Rank names by their loss, from 1 for the lowest; those within noise of the first of a rank share it.

    A name without a finite loss has no rank.
    """
    ranks = dict[Name, int]()
    left = sorted((name for name in losses if math.isfinite(losses[name])), key=losses.__getitem__)
    while left:
        rank = 1 + max(ranks.values(), default=0)
        ranks |= {name: rank for name in left if name == left[0] or compare(name, left[0]).close}
        left = [name for name in left if name not in ranks]
    return ranks


def winners(ranks: Mapping[Name, int]) -> list[Name]:
    """Return the names of rank 1, the lowest loss first; none where there is nothing to be better than."""
    return [name for name, rank in ranks.items() if rank == 1] if len(ranks) > 1 else []


def stars(ranks: Mapping[Name, int]) -> dict[Name, str]:
    """Return the signs of the first two ranks; a name without a competitor has none."""
    signs = {1: BEST, 2: SECOND}
    return {name: signs[rank] for name, rank in ranks.items() if rank in signs} if len(ranks) > 1 else {}


def pareto_front(costs: Mapping[Name, float], losses: Mapping[Name, float], compare: Compare[Name]) -> set[Name]:
    """Return the names that are better, beyond noise, than each cheaper one of the front.

    Costs that agree to the printed digit are equal: of these the best counts, and what is within noise of it.
    """
    printed, front = {name: round(cost, COST_DIGITS) for name, cost in costs.items()}, list[Name]()
    for cost in sorted(set(printed.values())):
        ranks = judge({name: losses[name] for name in printed if printed[name] == cost}, compare)
        best = [name for name, rank in ranks.items() if rank == 1]
        if best and all(compare(best[0], name).verdict == BETTER for name in front):
            front += best
    return set(front)


def rank_lines(lines: Sequence[Line], names: Sequence[str], expected: Expected = _ANY) -> dict[tuple[str, str], int]:
    """Rank the pruned models on the mean over the texts `names`; empty where nothing may be claimed."""
    if obstacles([row for line in lines for row in line.rows]):
        return {}
    if any(missing_methods(lines, text, expected) for text in names):
        return {}
    pruned = {line.name: line for line in lines if line.method != DENSE and all(map(line.by_seed, names))}
    losses = {name: sum(map(line.loss, names)) for name, line in pruned.items()}
    return judge(losses, lambda first, second: compare_lines(pruned[first], pruned[second], names))


def compare_lines(first: Line, second: Line, names: Sequence[str]) -> Difference:
    """Return how much worse the first line is on the mean over some texts; as if independent where unpaired."""
    changes = {text: change(first, second, text) for text in names}
    known = {text: one for text, one in changes.items() if isinstance(one, Difference)}
    return over_texts([known.get(text) or difference(first.cell(text), second.cell(text)) for text in names])


def missing_methods(lines: Iterable[Line], text: str, expected: Expected) -> list[str]:
    """Return the methods of `expected` that have neither a perplexity on a text nor a reason for none."""
    known = {row.name for line in lines for row in line.rows if text in row.cells or row.reason}
    return list(dict.fromkeys(name[1] for name in expected.get(text, ()) if name[1] != DENSE and name not in known))


def budget_gap(retentions: Iterable[float]) -> float:
    """Return the largest difference of some retentions where that is too much to compare them, else 0."""
    known = [kept for kept in retentions if math.isfinite(kept)]
    gap = max(known, default=0.0) - min(known, default=0.0)
    return gap if gap > BUDGET_TOLERANCE else 0.0


def obstacles(table: list[Row]) -> list[str]:
    """Return why no winner can be called: a sentence for each reason, none where the comparison is fair."""
    reasons = []
    if gap := budget_gap(row.retention for row in table if row.method != DENSE):
        reasons.append(
            f"the retentions differ by {percent(gap, 1)} of the decoder's weights, more than "
            f"{percent(BUDGET_TOLERANCE, 1)}: choose runs of the same retention"
        )
    models = {cell.model for row in table for cell in row.cells.values()}
    if len(models) > 1:
        reasons.append(f"{len(models)} different dense models are in the table: choose runs of one model")
    for text in texts(table):
        windows = {row.cells[text].windows_read for row in table if text in row.cells}
        if len(windows) > 1:
            reasons.append(f"{text} was measured in different ways ({'; '.join(sorted(windows))})")
    return reasons


def is_same_budget(first: Line, second: Line) -> bool:
    """Return True if two lines may be called better or worse; the dense model is a reference to all."""
    return DENSE in (first.method, second.method) or not budget_gap((first.retention, second.retention))


def is_comparable(first: Line | None, second: Line | None, text: str) -> bool:
    """Return True if two lines are there, finite on a text, measured alike and of one budget."""
    if first is None or second is None or not is_same_budget(first, second):
        return False
    alike = first.cell(text).windows_read == second.cell(text).windows_read
    return alike and bool(np.isfinite([first.loss(text), second.loss(text)]).all())


@dataclass(frozen=True, slots=True)
class Opponents:
    """GPrune on one text and what it is compared with; all but `dense` and `base` measured alike and of its budget."""

    text: str
    missing: list[str]
    """methods of the comparison that are not measured: until they are, nothing is claimed"""
    dense: Line | None
    ours: Line | None
    base: Line | None
    """the metric's own method, or the best of the other baselines where that one is no part of the comparison"""
    best: Line | None
    """the best other method that is no control"""
    control: Line | None
    """the best control"""
    flap: Line | None
    without_bias: Line | None
    """FLAP without its bias compensation, where FLAP is far behind it"""

    @property
    def named(self) -> list[Line]:
        """The lines that GPrune is held against in words, each once."""
        lines = self.base, self.best, self.flap, self.without_bias
        return list({line.method: line for line in lines if line is not None}.values())

    @property
    def fair(self) -> bool:
        """Whether the base may be held against GPrune, and everything is measured."""
        return bool(not self.missing and self.ours and self.base) and is_comparable(self.ours, self.base, self.text)

    @property
    def verdict(self) -> str:
        """GPrune against the best other method: BETTER, WORSE, NOISE or OPEN."""
        return self.difference(self.best).verdict if self.fair and self.best else OPEN

    def difference(self, other: Line) -> Difference:
        """Return how much worse GPrune is than another line."""
        assert self.ours is not None
        return compare_lines(self.ours, other, [self.text])


def opponents(lines: Sequence[Line], text: str, expected: Expected = _ANY, own: str = FLAP) -> Opponents:
    """Return what GPrune can be held against on a text; `own` is the method that its metric comes from."""
    measured = {line.method: line for line in lines if line.by_seed(text)}
    others = [line for name, line in measured.items() if name in METHODS and name not in (OURS, DENSE)]
    others.sort(key=lambda line: line.loss(text))
    base = measured.get(own)
    # a method that is still to come must not be stood in for by another
    if base is None and own not in (method for _, method in expected.get(text, ())):
        base = next((line for line in others if METHODS[line.method].baseline), None)
    ours = measured.get(OURS)
    fair = {line.method: line for line in others if is_comparable(ours, line, text)}
    best, control = (next((fair[one] for one in fair if METHODS[one].control == kind), None) for kind in (False, True))
    flap, bare = fair.get(FLAP), fair.get(FLAP_WITHOUT_BIAS)
    behind = compare_lines(flap, bare, [text]) if flap and bare else None
    if behind is None or behind.verdict != WORSE or behind.change <= FAR:
        bare = None
    missing = missing_methods(lines, text, expected)
    return Opponents(text, missing, measured.get(DENSE), ours, base, best, control, flap, bare)


def method_label(method: str) -> str:
    """Return what a sentence calls a method."""
    return METHODS[method].label if method in METHODS else method
