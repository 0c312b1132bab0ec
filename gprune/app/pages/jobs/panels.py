"""The figures of the page by name, each from a run."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from gprune.app.ui.chart_style import GREY, METHOD_COLORS, TEXT_A, TEXT_B, style
from gprune.app.ui.panel import Panel, panel
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.records import Array, LearningHistory

LOSSES = {
    "ce_primary": "cross-entropy on A",
    "ce_auxiliary": "cross-entropy on B",
    "distillation": "distillation from the dense model",
}
_CARD = "jobs_learning", "How the sparsity was learned"
_COLORS = {"ce_primary": TEXT_A, "ce_auxiliary": TEXT_B, "distillation": GREY}


@panel("learning", *_CARD)
def learning(run: Run) -> Panel:
    """How the losses of the sparsity learning went."""
    history = run.load(stages.learning).history
    return Panel(
        losses(history, LOSSES),
        "Losses of the masked model on both texts, and its distance from the dense one.",
        table=lambda: pd.DataFrame(history.steps, columns=list(history.columns)),
    )


@panel("learned_retention", *_CARD)
def learned_retention(run: Run) -> Panel:
    """How retention went while the sparsity was learned."""
    return Panel(
        retention(run.load(stages.learning).history, "retention", run.study.retention),
        "Retention, the kept fraction of the decoder's weights; the dashed line is the target.",
        alt="retention over the steps",
    )


def column(history: LearningHistory, name: str) -> Array | None:
    """(steps,) values of one column; None where the history has none of this name."""
    if name not in history.columns:
        return None
    values: Array = history.steps[:, history.columns.index(name)]
    return values


def losses(history: LearningHistory, names: dict[str, str]) -> go.Figure:
    """Losses over the steps."""
    figure = go.Figure()
    for name, title in names.items():
        values = column(history, name)
        if values is not None:
            figure.add_scatter(
                x=np.arange(1, len(values) + 1),
                y=values,
                name=title,
                mode="lines",
                line={"color": _COLORS[name]},
            )
    return style(figure, "step", "loss (nats per token)", 280)


def retention(history: LearningHistory, name: str, target: float) -> go.Figure:
    """Retention over the steps, against the target."""
    figure = go.Figure()
    values = column(history, name)
    if values is not None:
        figure.add_scatter(
            x=np.arange(1, len(values) + 1),
            y=values,
            name="retention",
            mode="lines",
            line={"color": METHOD_COLORS["gprune"]},
        )
    figure.add_hline(target, line={"color": GREY, "dash": "dash"}, annotation_text=f"target {target:g}")
    return style(figure, "step", "retention", 280)
