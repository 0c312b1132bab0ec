"""The Pareto-optimal pruned models: perplexity against cost.

A model is on the Pareto front where it is better, beyond noise, than each cheaper one there (see `verdict`).
What it loses is its perplexity over the dense model's on the same windows; what it costs is its parameters, or
the time that a token takes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import pandas as pd

from gprune.analysis.comparison import DENSE, MethodResult, change
from gprune.analysis.paired_test import Difference, over_texts
from gprune.analysis.verdict import COST_DIGITS, compare_lines, pareto_front

PARAMETERS, TIME = "parameters", "time"
COSTS = {PARAMETERS: "parameters", TIME: "time per token"}
"""what a model can cost, in words"""


@dataclass(frozen=True, slots=True)
class Option:
    """One pruned model that can be taken."""

    line: MethodResult
    loss: Difference
    """to the dense model; the mean over the texts"""
    cost: float
    """over the dense model's, above 0"""
    front: bool
    """whether it is on the Pareto front"""

    @property
    def ratio(self) -> float:
        """Return its perplexity over the dense model's."""
        return 1 + self.loss.change


def options(lines: Iterable[MethodResult], texts: list[str], costs: Mapping[tuple[str, str], float]) -> list[Option]:
    """Return the pruned lines with a known cost that were measured on all texts, as was their dense model.

    `costs` are over the dense model's, by the line's name. The cheapest comes first, of equals the better.
    What several runs have measured alike to the last bit is one model, of the first of them.
    """
    lines = list(lines)
    dense = [line for line in lines if line.method == DENSE]
    distinct: dict[tuple[object, ...], Option] = {}
    for line in lines:
        loss = _against_dense(line, texts, dense) if line.method != DENSE else None
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


def _against_dense(line: MethodResult, texts: list[str], dense: list[MethodResult]) -> Difference | None:
    """Return a line's loss over its dense model's on the same windows, the mean over texts, or None if one lacks it."""
    differences = []
    for text in texts:
        references = (dense_line for dense_line in dense if _models(dense_line, text) == _models(line, text))
        changes = (change(line, dense_line, text) for dense_line in references)
        gap = next((gap for gap in changes if isinstance(gap, Difference)), None)
        if gap is None or not np.isfinite(gap.nats):
            return None
        differences.append(gap)
    return over_texts(differences) if differences else None


def _models(line: MethodResult, text: str) -> set[str]:
    return {cell.model for cell in line.by_seed(text).values()}


def _price(option: Option) -> tuple[float, float]:
    return round(option.cost, COST_DIGITS), option.loss.nats


def cheapest(table: Iterable[Option], limit: float) -> Option | None:
    """Return the cheapest model whose perplexity ratio to the dense one is at most a limit, or None."""
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
