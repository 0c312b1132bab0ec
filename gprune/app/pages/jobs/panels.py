"""The figures of the page by name, each from a run."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from gprune.app.ui.chart_style import GREY, METHOD_COLORS, METHOD_DASHES, TEXT_A, TEXT_B, label, style
from gprune.app.ui.panel import Panel, panel
from gprune.app.ui.text import in_figure, plain
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import MissingResultError, Run
from gprune.records import Array, Learning
from gprune.study.methods import METHODS
from gprune.system.errors import MethodError

LOSSES = {
    "ce_primary": "cross-entropy on A",
    "ce_auxiliary": "cross-entropy on B",
    "distillation": "distillation from the dense model",
}
_CARD = "jobs_learning", "How the sparsity was learned"
_COLORS = {"ce_primary": TEXT_A, "ce_auxiliary": TEXT_B, "distillation": GREY}


@panel("learning", *_CARD)
def learning(run: Run) -> Panel:
    """Losses of the sparsity learning by step."""
    history = run.load(stages.learning)
    return Panel(
        losses(history, LOSSES),
        "Losses of the masked model on both texts, and its distance from the dense one.",
        table=lambda: pd.DataFrame(history.steps, columns=list(history.columns)),
    )


@panel("learned_retention", *_CARD)
def learned_retention(run: Run) -> Panel:
    """Retention during the sparsity learning by step."""
    return Panel(
        retention(run.load(stages.learning), "retention", run.study.retention),
        "Retention, the kept fraction of the decoder's weights; the dashed line is the target.",
        alt="retention over the steps",
    )


@panel("recovery_learning", "jobs_recovery", "How the pruned models were recovered")
def recovery(run: Run) -> Panel:
    """Loss of every method's recovery by step."""
    if not stages.recovers(run.study):
        raise MethodError("no method of this run was trained on: its recovery.kind is none")
    pruned = [name for name in run.study.methods if METHODS[name].decision != "none"]
    known = {name: one for name in pruned if (one := run.find(stages.recovered, name)) is not None}
    if not known:
        raise MissingResultError("the recovery of any method")
    loss = "distillation" if run.study.recovery.distillation_weight else "cross_entropy"
    figure = go.Figure()
    for name, one in known.items():
        values = one.steps[:, one.columns.index(loss)]
        line = {"color": METHOD_COLORS.get(name, GREY), "dash": METHOD_DASHES[name]}
        _over_steps(figure, values, in_figure(label(name)), line)
    words = {"distillation": "distance from the dense model", "cross_entropy": "cross-entropy"}[loss]
    return Panel(
        style(figure, "step", f"{words} (nats/token)", 280),
        f"Loss on each step’s sequences, {plain(stages.recovery_label(run.graph))}.",
        alt="loss of every method's recovery over the steps",
        table=lambda: pd.concat(
            pd.DataFrame(one.steps, columns=list(one.columns)).assign(method=name) for name, one in known.items()
        ),
    )


def column(history: Learning, name: str) -> Array | None:
    """(steps,) values of one column; None where the history has none of this name."""
    if name not in history.columns:
        return None
    values: Array = history.steps[:, history.columns.index(name)]
    return values


def _over_steps(figure: go.Figure, values: Array, name: str, line: dict[str, str]) -> None:
    """Draws (steps,) values, of which the first step is 1."""
    figure.add_scatter(x=np.arange(1, len(values) + 1), y=values, name=name, mode="lines", line=line)


def losses(history: Learning, names: dict[str, str]) -> go.Figure:
    """Losses over the steps."""
    figure = go.Figure()
    for name, title in names.items():
        values = column(history, name)
        if values is not None:
            _over_steps(figure, values, title, {"color": _COLORS[name]})
    return style(figure, "step", "loss (nats/token)", 280)


def retention(history: Learning, name: str, target: float) -> go.Figure:
    """Retention over the steps, against the target."""
    figure = go.Figure()
    values = column(history, name)
    if values is not None:
        _over_steps(figure, values, "retention", {"color": METHOD_COLORS["gprune"]})
    figure.add_hline(target, line={"color": GREY, "dash": "dash"}, annotation_text=f"target {target:g}")
    return style(figure, "step", "retention", 280)
