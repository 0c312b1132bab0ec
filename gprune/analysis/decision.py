"""The Pareto-optimal pruned models: perplexity against cost.

A model is on the Pareto front where it is better, beyond noise, than each cheaper one there (see `verdict`).
What it loses is its perplexity over the dense model's on the same windows; what it costs is its parameters, or
the time that a token takes.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
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
    """Return the cost of equal widths on a text, of every method that was measured with both and is equal otherwise.

    `studies` are those of the lines' runs. Other alignments of the widths are no difference: blocks belong to
    equal widths. Seeds are those that both have.
    """
    loose = {"sparsity.widths": "free", "sparsity.alignment": 1}
    groups = seed_groups({run: study.with_settings(loose) for run, study in studies.items()})
    pairs: dict[tuple[str, str], dict[bool, Line]] = {}
    for line in lines:
        run = line.rows[0].run
        if line.method != DENSE:
            pairs.setdefault((groups[run][0], line.method), {})[studies[run].sparsity.equal] = line
    changes = [
        (pair[False], pair[True], change(pair[True], pair[False], text))
        for pair in pairs.values()
        if pair.keys() == {False, True}
    ]
    return [Price(free, equal, gap) for free, equal, gap in changes if isinstance(gap, Difference)]


def price_table(table: Iterable[Price], label: Callable[[str], str], text: str) -> pd.DataFrame:
    """Return one row a method and retention; `label` names a method."""
    return pd.DataFrame(
        [
            {
                "method": label(price.free.method),
                "retention, free": price.free.retention,
                "retention, equal": price.equal.retention,
                "perplexity, free": price.free.mean(text),
                "perplexity, equal": price.equal.mean(text),
                "change": in_percent(price.difference),
            }
            for price in table
        ]
    )


def options(lines: Iterable[Line], texts: list[str], costs: Mapping[tuple[str, str], float]) -> list[Option]:
    """Return every pruned line that was measured on all texts, beside its dense model, and whose cost is known.

    `costs` are over the dense model's, by the line's name. The cheapest stands first, of equals the better.
    What several runs have measured alike to the last bit is one model, of the first of them.
    """
    lines = list(lines)
    dense = [line for line in lines if line.method == DENSE]
    distinct: dict[tuple[object, ...], Option] = {}
    for line in lines:
        loss = against_dense(line, texts, dense) if line.method != DENSE else None
        if loss and line.name in costs:
            cost = costs[line.name]
            distinct.setdefault((line.method, line.retention, cost, loss), Option(line, loss, cost, False))
    ordered = sorted(distinct.values(), key=_price)
    by_name = {option.line.name: option for option in ordered}
    front = pareto_front(
        {name: option.cost for name, option in by_name.items()},
        {name: option.loss.nats for name, option in by_name.items()},
        lambda first, second: compare_lines(by_name[first].line, by_name[second].line, texts),
    )
    return [replace(option, front=name in front) for name, option in by_name.items()]


def _price(option: Option) -> tuple[float, float]:
    return round(option.cost, COST_DIGITS), option.loss.nats


def cheapest(table: Iterable[Option], limit: float) -> Option | None:
    """Return the cheapest model whose perplexity is at most so many times the dense one's; None where none is."""
    return min((option for option in table if option.ratio <= limit), key=_price, default=None)


def option_table(
    table: Iterable[Option],
    names: Mapping[tuple[str, str], str],
    cost: str,
    about: Mapping[tuple[str, str], Mapping[str, str]] = MappingProxyType({}),
) -> pd.DataFrame:
    """Return one row a model, the cheapest first; `cost` is one of COSTS, `about` has further columns by line."""
    return pd.DataFrame(
        [
            {
                "model": names[option.line.name],
                "retention": option.line.retention,
                f"{COSTS[cost]}, times dense": option.cost,
                "perplexity, times dense": option.ratio,
                "± perplexity": option.loss.margin,
                "on the front": option.front,
                **about.get(option.line.name, {}),
            }
            for option in table
        ]
    )
