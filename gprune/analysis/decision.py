"""Pareto-optimal pruned models by perplexity and cost.

A model is on the Pareto front if it is significantly better than each cheaper model on the front (see `verdict`). The
loss of a model is its difference from the dense model on the same windows. The cost is the number of parameters or the
time per token, relative to the dense model.
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
"""labels of the kinds of cost"""


@dataclass(frozen=True, slots=True)
class Option:
    """A pruned model with its loss and cost."""

    line: MethodResult
    loss: Difference
    """mean difference from the dense model over the texts"""
    cost: float
    """cost relative to the dense model, above 0"""
    front: bool
    """whether it is on the Pareto front"""

    @property
    def ratio(self) -> float:
        """Return the perplexity divided by that of the dense model."""
        return 1 + self.loss.change


def options(lines: Iterable[MethodResult], texts: list[str], costs: Mapping[tuple[str, str], float]) -> list[Option]:
    """Return the pruned models of known cost that are comparable with their dense model on all texts.

    `costs` are relative to the dense model, keyed by run and method. The result is sorted by cost, then by loss. If
    several runs have bitwise equal results, only the model of the first run is returned.
    """
    lines = list(lines)
    dense = [line for line in lines if line.method == DENSE]
    distinct: dict[tuple[object, ...], Option] = {}
    for line in lines:
        loss = _compare_with_dense(line, texts, dense) if line.method != DENSE else None
        if loss and line.name in costs:
            cost = costs[line.name]
            distinct.setdefault((line.method, line.retention, cost, loss), Option(line, loss, cost, False))
    ordered = sorted(distinct.values(), key=_sort_key)
    by_name = {option.line.name: option for option in ordered}
    front = pareto_front(
        {name: option.cost for name, option in by_name.items()},
        {name: option.loss.nats for name, option in by_name.items()},
        lambda first, second: compare_lines(by_name[first].line, by_name[second].line, texts),
    )
    return [replace(option, front=name in front) for name, option in by_name.items()]


def _compare_with_dense(line: MethodResult, texts: list[str], dense: list[MethodResult]) -> Difference | None:
    """Return the mean over texts of a line's loss minus that of its dense model.

    `dense` are all dense lines. Returns None if there is no comparable dense line for a text.
    """
    differences = []
    for text in texts:
        models = _dense_models(line, text)
        references = (dense_line for dense_line in dense if _dense_models(dense_line, text) == models)
        changes = (change(line, dense_line, text) for dense_line in references)
        gap = next((gap for gap in changes if isinstance(gap, Difference)), None)
        if gap is None or not np.isfinite(gap.nats):
            return None
        differences.append(gap)
    return over_texts(differences) if differences else None


def _dense_models(line: MethodResult, text: str) -> set[str]:
    """Return the fingerprints of the dense models of a line, one unless its runs differ."""
    return {cell.model for cell in line.by_seed(text).values()}


def _sort_key(option: Option) -> tuple[float, float]:
    """Return the cost and the loss, so that the better of two equally costly models is first."""
    return round(option.cost, COST_DIGITS), option.loss.nats


def cheapest(table: Iterable[Option], limit: float) -> Option | None:
    """Return the cheapest model with a perplexity ratio to the dense model of at most `limit`, or None."""
    return min((option for option in table if option.ratio <= limit), key=_sort_key, default=None)


def option_table(
    table: Iterable[Option],
    names: Mapping[tuple[str, str], str],
    cost: str,
    about: Mapping[tuple[str, str], Mapping[str, str]] = MappingProxyType({}),
) -> pd.DataFrame:
    """Return a table with one row per model.

    `names` are display names by run and method, `cost` is one of COSTS, and `about` has the cells of further columns by
    run and method.
    """
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
