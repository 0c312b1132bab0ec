"""Figures of a job's run: the losses of sparsity learning and of recovery."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from gprune.app.ui.chart_style import GREY, METHOD_COLORS, METHOD_DASHES, TEXT_A, TEXT_B, label, style
from gprune.app.ui.panel import Panel, panel
from gprune.app.ui.text import escape, in_figure, name_texts
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import MissingResultError, Run
from gprune.records import Array
from gprune.study.methods import METHODS
from gprune.system.errors import MethodError

LOSSES = {
    "ce_primary": ("cross-entropy on A", TEXT_A),
    "ce_auxiliary": ("cross-entropy on B", TEXT_B),
    "distillation": ("distillation from the dense model", GREY),
}
"""label and colour of each loss"""


@panel("learning", "jobs_learning", "Sparsity learning")
def learning(run: Run) -> Panel:
    """Losses of the sparsity learning by step."""
    history = run.load(stages.learning)
    figure = go.Figure()
    for name, (title, color) in LOSSES.items():
        values, entry = _column(history.steps, history.columns, name), in_figure(name_texts(title, run.study))
        _add_steps(figure, values, entry, {"color": color})
    return Panel(
        style(figure, "step", "loss (nats/token)", 280),
        "Losses of the masked model on both texts, and its distance from the dense model.",
        table=lambda: pd.DataFrame(history.steps, columns=list(history.columns)),
    )


@panel("recovery_learning", "jobs_recovery", "Recovery of pruned models")
def recovery_losses(run: Run) -> Panel:
    """Loss of every method's recovery by step."""
    if not stages.recovers(run.study):
        raise MethodError("this run has no recovery: its recovery.kind is none")
    pruned = [name for name in run.study.methods if METHODS[name].decision != "none"]
    records = {name: record for name in pruned if (record := run.find(stages.recovered_weights, name)) is not None}
    if not records:
        raise MissingResultError("the recovery of any method")
    loss = "distillation" if run.study.recovery.distillation_weight else "cross_entropy"
    figure = go.Figure()
    for name, record in records.items():
        line = {"color": METHOD_COLORS.get(name, GREY), "dash": METHOD_DASHES[name]}
        _add_steps(figure, _column(record.steps, record.columns, loss), in_figure(label(name)), line)
    axis_title = {"distillation": "distance from the dense model", "cross_entropy": "cross-entropy"}[loss]
    return Panel(
        style(figure, "step", f"{axis_title} (nats/token)", 280),
        f"Loss on the sequences of each step. Trained by {escape(stages.recovery_label(run.graph))}.",
        alt="loss of every method's recovery over the steps",
        table=lambda: pd.concat(
            pd.DataFrame(record.steps, columns=list(record.columns)).assign(method=name)
            for name, record in records.items()
        ),
    )


def _column(steps: Array, columns: tuple[str, ...], name: str) -> Array:
    """Return the (steps,) values of a column, empty if there is no such column."""
    values: Array = steps[:, columns.index(name)] if name in columns else np.empty(0)
    return values


def _add_steps(figure: go.Figure, values: Array, name: str, line: Mapping[str, str]) -> None:
    """Add a line of (steps,) values over the steps, which count from 1; no line if there are no values."""
    if len(values):
        figure.add_scatter(x=np.arange(1, len(values) + 1), y=values, name=name, mode="lines", line=line)
