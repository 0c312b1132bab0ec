"""Perplexity against retention, as far as it is known: what the chart draws and what its table says.

Points that still lack windows are seen on different ones. What they have in common is the dense model: each
stands at the dense perplexity, over the most windows that are known, times its own paired ratio to it.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from gprune.analysis.comparison import DENSE
from gprune.analysis.paired_test import Measurement
from gprune.app.pages.rasa.retention_line import Point, Series
from gprune.app.preview import Answer
from gprune.app.ui.chart_style import label

Known = tuple[str, float, Answer]
"""method, retention, and what is known of it"""


def measured(cells: Sequence[Measurement], text: str) -> list[Known]:
    """What a run has measured on a text, as answers that are whole; nothing without the dense model."""
    here = {cell.method: cell for cell in cells if cell.text == text and len(cell.losses)}
    dense = here.pop(DENSE, None)
    return [
        (name, cell.retention, Answer("", name, text, "complete", cell.losses, dense.losses))
        for name, cell in here.items()
        if dense is not None and np.isfinite(cell.retention) and len(cell.losses) == len(dense.losses)
    ]


def series(points: Sequence[Known]) -> list[Series]:
    """Perplexity of every method at every retention that is known."""
    dense = reference(points)
    return [
        Series(method, tuple(_point(level, answer, dense) for level, answer in own))
        for method in dict.fromkeys(name for name, _, _ in points)
        if (own := sorted(((at, answer) for name, at, answer in points if name == method), key=_by_level))
    ]


def reference(points: Sequence[Known]) -> float:
    """The dense model's perplexity over the most windows that are known; NaN without a point."""
    most = max((answer for _, _, answer in points), key=lambda answer: answer.done, default=None)
    return most.base_perplexity if most is not None else float("nan")


def table(points: Sequence[Known]) -> pd.DataFrame:
    """The numbers of the curve, with the difference from the dense model."""
    dense = reference(points)
    rows = [
        {
            "method": label(method),
            "kept": level,
            "perplexity": _level(answer, dense),
            "log-perplexity over dense": answer.difference.nats if answer.difference else np.nan,
            "standard error": answer.difference.nats_error if answer.difference else np.nan,
            "windows": answer.done,
        }
        for method, level, answer in points
    ]
    return pd.DataFrame(rows)


def _by_level(one: tuple[float, Answer]) -> float:
    return one[0]


def _point(level: float, answer: Answer, dense: float) -> Point:
    value, error = _level(answer, dense), _error(answer)
    return Point(
        level,
        value,
        value * float(np.exp(-error)),
        value * float(np.exp(error)),
        answer.progress == "complete",
        f"{answer.done} of {answer.windows} windows",
    )


def _level(answer: Answer, dense: float) -> float:
    found = answer.difference
    return dense * float(np.exp(found.nats)) if found else dense


def _error(answer: Answer) -> float:
    """One standard error of the paired log ratio; none while it is not known."""
    found = answer.difference
    return found.nats_error if found and np.isfinite(found.nats_error) else 0.0
