"""Masks of a run that pages compare."""

from collections.abc import Sequence

from gprune.analysis.decisions import BUDGET_TOLERANCE
from gprune.analysis.formatting import percent
from gprune.analysis.verdict import own_method
from gprune.app.ui.chart_style import label
from gprune.app.ui.text import plain
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run


def default_baseline(run: Run, names: Sequence[str]) -> str:
    """Return the masks of the run's own metric if they are among `names`, else the first."""
    method = own_method(run.study.metric)
    return method if method in names else names[0]


def budget_warning(run: Run, method: str, base: str) -> str:
    """Return a sentence if two masks keep different shares of the decoder's weights, else nothing."""
    first, second = (run.load(stages.masks, name).retention for name in (method, base))
    if abs(first - second) <= BUDGET_TOLERANCE:
        return ""
    return (
        f"The budgets differ: {plain(label(method))} keeps {percent(first, 2)} of the decoder's weights, "
        f"{plain(label(base))} {percent(second, 2)}. The differences are partly that."
    )
