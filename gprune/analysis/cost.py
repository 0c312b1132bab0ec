"""Perplexity of each method on one text relative to the dense model, with intervals from paired windows."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gprune.analysis.comparison import DENSE
from gprune.analysis.paired_test import Measurement, difference


@dataclass(frozen=True, slots=True)
class Cost:
    """One method on one text, against the dense model."""

    method: str
    perplexity: float
    ratio: float
    """perplexity divided by that of the dense model; infinite on overflow"""
    low: float
    """lower end of the 95% interval, on the scale of the mean loss"""
    high: float
    """upper end of the 95% interval"""
    paired: bool
    """whether both use the same windows"""
    error: float = 0.0
    """standard error of the mean loss, nats per token; 0 if unknown"""


def costs(cells: list[Measurement]) -> list[Cost]:
    """Return the cost of each pruned model on one text by rising perplexity; empty without the dense model."""
    dense = next((cell for cell in cells if cell.method == DENSE), None)
    if dense is None:
        return []
    return sorted((_cost(cell, dense) for cell in cells if cell.method != DENSE), key=lambda cost: cost.perplexity)


def _cost(cell: Measurement, dense: Measurement) -> Cost:
    if not np.isfinite(cell.perplexity):
        return Cost(cell.method, cell.perplexity, float("inf"), float("inf"), float("inf"), False)
    gap = difference(cell, dense)
    # there is no interval for one window
    half = gap.nats_margin if np.isfinite(gap.nats_margin) else 0.0
    error = gap.nats_error if np.isfinite(gap.nats_error) else 0.0
    ratio, low, high = (float(np.exp(gap.nats + offset)) for offset in (0.0, -half, half))
    return Cost(cell.method, cell.perplexity, ratio, low, high, gap.paired, error)


def cost_table(table: list[Cost], labels: Mapping[str, str]) -> pd.DataFrame:
    """Return the costs as a table with the display names of the methods."""
    return pd.DataFrame(
        {
            "method": [labels.get(cost.method, cost.method) for cost in table],
            "perplexity": [cost.perplexity for cost in table],
            "change against dense": [cost.ratio - 1 for cost in table],
            "two standard errors below": [cost.ratio * np.exp(-2 * cost.error) - 1 for cost in table],
            "two standard errors above": [cost.ratio * np.exp(2 * cost.error) - 1 for cost in table],
            "95% interval from": [cost.low - 1 for cost in table],
            "95% interval to": [cost.high - 1 for cost in table],
            "paired": [cost.paired for cost in table],
        }
    )
