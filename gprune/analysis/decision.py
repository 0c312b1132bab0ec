"""Answers: which pruned models are worth taking, given what they lose and what they cost?

A model is on the Pareto front where it is better, beyond noise, than each cheaper one there (see `verdict`).
What it loses is its perplexity over the dense model's on the same windows; what it costs is its parameters, or
the time that a token takes.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import pandas as pd

from gprune.analysis.comparison import DENSE, Line, change
from gprune.analysis.generalization import against_dense
from gprune.analysis.paired_test import Difference, in_percent
from gprune.analysis.run_settings import seed_groups
from gprune.analysis.verdict import COST_DIGITS, compare_lines, pareto_front
from gprune.study import Study

PARAMETERS, TIME = "parameters", "time"
COSTS = {PARAMETERS: "parameters", TIME: "time a token"}
"""what a model can cost, in words"""


@dataclass(frozen=True, slots=True)
class Option:
    """One pruned model that can be taken."""

    line: Line
    loss: Difference
    """to the dense model; the mean over the texts"""
    cost: float
    """over the dense model's, above 0"""
    front: bool
    """whether it is on the Pareto front"""

    @property
    def ratio(self) -> float:
        """Its perplexity over the dense model's."""
        return 1 + self.loss.change


@dataclass(frozen=True, slots=True)
class Price:
    """A model whose layers may differ in their widths beside the same with equal ones."""

    free: Line
    equal: Line
    difference: Difference
    """of the equal one to the free one, paired over windows"""


def prices(lines: Iterable[Line], studies: Mapping[str, Study], text: str) -> list[Price]:
    """What equal widths cost on a text, of every method that was measured with both and is equal otherwise.

    `studies` are those of the lines' runs. Other alignments of the widths are no difference: blocks belong to
    equal widths. Seeds are those that both have.
    """
    loose = {"sparsity.widths": "free", "sparsity.alignment": 1}
    shared = seed_groups({run: study.with_settings(loose) for run, study in studies.items()})
    both: dict[tuple[str, str], dict[bool, Line]] = {}
    for line in lines:
        run = line.rows[0].run
        both.setdefault((shared[run][0], line.method), {})[studies[run].sparsity.equal] = line
    pairs = [(one[False], one[True]) for one in both.values() if len(one) == 2]
    found = [(free, equal, change(equal, free, text)) for free, equal in pairs if free.method != DENSE]
    return [Price(free, equal, one) for free, equal, one in found if isinstance(one, Difference)]


def price_table(found: Iterable[Price], called: Callable[[str], str], text: str) -> pd.DataFrame:
    """One row a method and retention; `called` names a method."""
    return pd.DataFrame(
        [
            {
                "method": called(one.free.method),
                "retention, free": one.free.retention,
                "retention, equal": one.equal.retention,
                "perplexity, free": one.free.mean(text),
                "perplexity, equal": one.equal.mean(text),
                "change": in_percent(one.difference),
            }
            for one in found
        ]
    )


def options(lines: Iterable[Line], texts: list[str], costs: Mapping[tuple[str, str], float]) -> list[Option]:
    """Every pruned line that was measured on all texts, beside its dense model, and whose cost is known.

    `costs` are over the dense model's, by the line's name. The cheapest stands first, of equals the better.
    What several runs have measured alike to the last bit is one model, of the first of them.
    """
    lines = list(lines)
    dense = [line for line in lines if line.method == DENSE]
    known = [(line, against_dense(line, texts, dense)) for line in lines if line.method != DENSE]
    found = [(line, loss, costs[line.name]) for line, loss in known if loss and line.name in costs]
    found = list({(one[0].method, one[0].retention, one[2], one[1]): one for one in reversed(found)}.values())
    found = sorted(found, key=lambda one: (round(one[2], COST_DIGITS), one[1].nats))
    by_name = {one[0].name: one for one in found}
    on_front = pareto_front(
        {name: cost for name, (_, _, cost) in by_name.items()},
        {name: loss.nats for name, (_, loss, _) in by_name.items()},
        lambda first, second: compare_lines(by_name[first][0], by_name[second][0], texts),
    )
    return [Option(*one, name in on_front) for name, one in by_name.items()]


def cheapest(found: Iterable[Option], most: float) -> Option | None:
    """The cheapest model whose perplexity is at most so many times the dense one's; None where none is."""
    fitting = [one for one in found if one.ratio <= most]
    return min(fitting, key=lambda one: (round(one.cost, COST_DIGITS), one.loss.nats), default=None)


def table(
    found: Iterable[Option],
    names: Mapping[tuple[str, str], str],
    cost: str,
    about: Mapping[tuple[str, str], Mapping[str, str]] = MappingProxyType({}),
) -> pd.DataFrame:
    """One row a model, the cheapest first; `cost` is one of COSTS, `about` has further columns by line."""
    return pd.DataFrame(
        [
            {
                "model": names[one.line.name],
                "retention": one.line.retention,
                f"{COSTS[cost]}, times dense": one.cost,
                "perplexity, times dense": one.ratio,
                "± perplexity": one.loss.margin,
                "on the front": one.front,
                **about.get(one.line.name, {}),
            }
            for one in found
        ]
    )
