"""The figures of the page by name, each from a run."""

from __future__ import annotations

import plotly.graph_objects as go

from gprune import stages
from gprune.views.frame.loaders import Run
from gprune.views.frame.picture import picture
from gprune.views.jobs import charts

LOSSES = {
    "ce_primary": "cross-entropy on A",
    "ce_auxiliary": "cross-entropy on B",
    "distillation": "distillation from the dense model",
}


@picture("learning")
def learning(run: Run) -> go.Figure:
    """How the losses of the sparsity learning went."""
    return charts.losses(run.load(stages.learning).history, LOSSES)


@picture("learned_retention")
def learned_retention(run: Run) -> go.Figure:
    """How retention went while the sparsity was learned."""
    return charts.retention(run.load(stages.learning).history, "retention", run.study.retention)
