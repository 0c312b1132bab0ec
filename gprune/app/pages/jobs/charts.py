"""Figures of a run's learning history (section 3.3)."""

import numpy as np
import plotly.graph_objects as go

from gprune.app.ui.chart_style import GREY, METHOD_COLORS, TEXT_A, TEXT_B, style
from gprune.records import Array, LearningHistory

_COLORS = {"ce_primary": TEXT_A, "ce_auxiliary": TEXT_B, "distillation": GREY}


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
