"""The figures of the page by name, each from a run."""

import pandas as pd

from gprune.app.pages.jobs import charts
from gprune.app.ui.panel import Panel, panel
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run

LOSSES = {
    "ce_primary": "cross-entropy on A",
    "ce_auxiliary": "cross-entropy on B",
    "distillation": "distillation from the dense model",
}
_CARD = "jobs_learning", "How the sparsity was learned"


@panel("learning", *_CARD)
def learning(run: Run) -> Panel:
    """How the losses of the sparsity learning went."""
    history = run.load(stages.learning).history
    return Panel(
        charts.losses(history, LOSSES),
        "Losses of the masked model on both texts, and its distance from the dense one.",
        table=lambda: pd.DataFrame(history.steps, columns=list(history.columns)),
    )


@panel("learned_retention", *_CARD)
def learned_retention(run: Run) -> Panel:
    """How retention went while the sparsity was learned."""
    return Panel(
        charts.retention(run.load(stages.learning).history, "retention", run.study.retention),
        "Retention, the kept fraction of the decoder's weights; the dashed line is the target.",
        alt="retention over the steps",
    )
