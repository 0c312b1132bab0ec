"""The figure of the Speed tab: tokens per second of every model."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from gprune.analysis import speed as analysis
from gprune.analysis.speed import DENSE
from gprune.analysis.verdict import OURS, leading_pair, method_label
from gprune.app.ui import marks
from gprune.app.ui.chart_style import GREY, METHOD_COLORS, METHOD_SYMBOLS, label, style
from gprune.app.ui.panel import OF_BOTH, Panel, panel
from gprune.app.ui.text import escape, in_figure
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.study.settings import require_choice

ROW_PIXELS = 34
_EAGER = "eager"
"""decoding mode with filled marks; marks of captured or compiled steps are open"""


@panel("speed", "sx_speed", "Tokens per second", reads={"phase": "sx_phase"}, units=OF_BOTH)
def speed(run: Run, *, phase: str = next(iter(analysis.PHASES))) -> Panel:
    """Tokens per second of every model."""
    require_choice("phase", phase, tuple(analysis.PHASES))
    rows: list[Mapping[str, Any]] = list(run.load(stages.speed).rows)
    table, leading = analysis.speed_table(rows, phase), leading_pair(run.study)[0]
    return Panel(
        plot_rates(table, phase),
        "Medians over the repetitions with quartiles (not a 95% interval); higher is faster. Ratios are relative to "
        f"{reference_label(rows)}, with their interquartile range (IQR).",
        title=speed_headline(rows, method=leading),
        alt=speed_headline(rows, phase, leading),
        table=lambda: table,
        how="The dotted line is the dense model. Every other model alternates with it in each repetition, and ratios "
        "are computed within a repetition, so a machine that slows down affects both. If whiskers are wide, read "
        "the ratios, not the distances from the line.",
    )


def speed_headline(rows: list[Mapping[str, Any]], phase: str = "decode", method: str = OURS) -> str:
    """Return the speed of a method against the reference in a phase, and whether the two are within noise."""
    reference = reference_label(rows)
    ratio, spread = analysis.ratio_of(rows, method, phase)
    if pd.isna(ratio):
        # the method is not measured in this phase
        return f"Tokens per second against {reference}"
    verb = {"decode": "decodes", "prefill": "reads the prompt"}.get(phase, "answers")
    name, number = method_label(method), f"{ratio:.2f}× its speed (interquartile range {spread:.2f})"
    if analysis.within_noise(ratio, spread):
        return f"{name} {verb} as fast as {reference} within noise: {number}"
    return f"{name} {verb} {'faster' if ratio > 1 else 'slower'} than {reference}: {number}"


def reference_label(rows: list[Mapping[str, Any]]) -> str:
    """Return the name of the model that the ratios are relative to, which is measured first."""
    model = str(rows[0]["model"])
    return "the dense model" if model == analysis.DENSE else escape(label(model))


def plot_rates(table: pd.DataFrame, phase: str) -> go.Figure:
    """Plot median and quartiles of tokens per second; the dense model is a dotted line for each mode.

    `table` is ``analysis.speed.speed_table`` of one phase, in the order of the measurement.
    """
    figure, show_mode = go.Figure(), table["mode"].nunique() > 1
    names = [_row_name(model, mode, show_mode) for model, mode in zip(table["model"], table["mode"], strict=True)]
    hues = [METHOD_COLORS.get(model, GREY) for model in table["model"]]
    # a browser draws one trace of many marks faster than many traces; whiskers have the hue of their trace
    for hue in dict.fromkeys(hues):
        has_hue = [color == hue for color in hues]
        row_names = [name for name, is_member in zip(names, has_hue, strict=True) if is_member]
        _add_rate_marks(figure, table[has_hue], row_names, hue)
    for row in table[table["model"] == DENSE].to_dict("records"):
        dash = "dot" if row["mode"] == _EAGER else "dash"
        figure.add_vline(x=row["tokens/s"], line={"color": GREY, "dash": dash, "width": 1.5})
    style(
        figure,
        f"tokens/s, {phase}<br>median and quartiles",
        "",
        112 + ROW_PIXELS * len(table),
        margin={"l": 64, "r": 16, "t": 16, "b": 68},
    )
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=names[::-1], automargin=True)
    return figure.update_xaxes(range=[0, 1.08 * float(table[["tokens/s", "high"]].to_numpy().max())])


def _add_rate_marks(figure: go.Figure, table: pd.DataFrame, names: list[str], hue: str) -> None:
    """Add the marks of the models of one hue; those of captured or compiled decoding are open."""
    middle = table["tokens/s"]
    symbols = [METHOD_SYMBOLS.get(model, "circle") for model in table["model"]]
    symbols = [
        f"{symbol}-open" if mode != _EAGER and not symbol.endswith("-open") else symbol
        for mode, symbol in zip(table["mode"], symbols, strict=True)
    ]
    look = {"color": hue, "symbol": symbols, "size": 11, "line": {"width": 2}}
    hover = (
        "%{y}: %{x:,.4g} tokens/s, quartiles %{customdata[1]:,.4g} to %{customdata[2]:,.4g}, "
        "%{customdata[0]:.2f}× dense<extra></extra>"
    )
    hover_data, whiskers = table[["ratio", "low", "high"]], marks.error_bars(middle, table["low"], table["high"], 1.5)
    marks.add_points(figure, middle, names, look, hover, customdata=hover_data, error_x=whiskers, showlegend=False)


def _row_name(model: str, mode: str, show_mode: bool) -> str:
    name = in_figure(label(model))
    return f"{name}, {mode}" if show_mode else name
