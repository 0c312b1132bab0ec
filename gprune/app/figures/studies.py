"""Figures of reproduced tables: rows, gains by retention, and Figures 1 and 3 of the paper."""

from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from gprune.analysis.formatting import percent
from gprune.analysis.studies import Setting, is_perplexity
from gprune.app.figures.comparison import log_axis, order_rows
from gprune.app.ui import marks
from gprune.app.ui.chart_style import GREY, METHOD_COLORS, METHOD_SYMBOLS, family, label, style
from gprune.app.ui.text import in_figure

ROW_PIXELS = 30
BINS = {
    "figure-3a": {"retained, GPrune": "gprune", "retained, FLAP": "flap"},
    "figure-3b": {"Jaccard": "gprune", "Jaccard by chance": ""},
}
"""columns of Figures 3a and 3b with the method whose colour they have; a reference has none"""
_BEFORE, _AFTER = "base metric", "with GPrune"
_UNITS = {
    "rank correlation": "rank correlation of the importance scores (Spearman)",
    "ARI": "Adjusted Rand Index, mean over layers",
    "matched overlap": "matched overlap, mean over layers",
}
_STEP_DASHES = ("solid", "dot", "dash", "dashdot")


def axis_title(column: str) -> str:
    """Return the title of an axis, with unit and direction."""
    kind, sign, subject = column.partition(":")
    if is_perplexity(column):
        return f"perplexity on {in_figure(subject)} (log scale, lower is better)"
    if kind == "accuracy":
        what = f"accuracy on {in_figure(subject)}" if sign else "mean accuracy"
        return f"{what} (points, higher is better)"
    return _UNITS.get(column, in_figure(column))


def plot_rows(table: list[Setting], column: str) -> go.Figure:
    """Plot every setting as a dot with its spread; controls are open."""
    figure, names = go.Figure(), _number_equals([in_figure(setting.name) for setting in table])
    shown = [(s, name) for s, name in zip(table, names, strict=True) if np.isfinite(s.mean(column))]
    for setting, name in shown:
        spread = setting.spread(column)
        symbol = METHOD_SYMBOLS.get(setting.method.partition(":")[0], "circle")
        look = {"color": METHOD_COLORS.get(family(setting.method), GREY), "symbol": symbol, "size": 11}
        if setting.rows[0].control:
            look |= {"symbol": f"{symbol.removesuffix('-open')}-open", "line": {"width": 2}}
        error = {"type": "data", "array": [spread if np.isfinite(spread) else 0.0], "thickness": 1.5}
        more = {"name": name, "error_x": error, "showlegend": False}
        marks.points(figure, [setting.mean(column)], [name], look, "%{y}: %{x:.4g}<extra></extra>", **more)
    style(figure, axis_title(column), "", 100 + ROW_PIXELS * len(shown))
    if is_perplexity(column) and shown:
        figure.update_xaxes(**log_axis(setting.mean(column) for setting, _ in shown))
    return order_rows(figure, [name for _, name in shown])


def _number_equals(names: list[str]) -> list[str]:
    return [
        f"{name} ({names[: index + 1].count(name)})" if names.count(name) > 1 else name
        for index, name in enumerate(names)
    ]


def plot_slopes(gains: pd.DataFrame, column: str) -> go.Figure:
    """Plot each base metric beside GPrune on it, a panel a retention; rows of `tables.gain_by_retention`."""
    lines = gains[np.isfinite(gains[["before", "after"]].astype(float)).all(axis=1)]
    retentions = sorted(lines["retention"].unique(), reverse=True)
    titles = [f"keep {percent(retention)}" for retention in retentions]
    figure = make_subplots(
        1, max(len(retentions), 1), shared_yaxes=True, subplot_titles=titles, horizontal_spacing=0.03
    )
    named: set[str] = set()
    for line in lines.to_dict("records"):
        _add_slope(figure, line, str(line["base"]) not in named, retentions.index(line["retention"]) + 1)
        named.add(str(line["base"]))
    style(figure, "", "", 400, margin={"l": 64, "r": 16, "t": 72, "b": 40})
    figure.update_layout(legend={"y": 1.12})
    figure.update_xaxes(type="category", range=[-0.25, 1.25])
    figure.update_yaxes(title_text=axis_title(column), col=1)
    if is_perplexity(column) and len(lines):
        figure.update_yaxes(**log_axis(lines[["before", "after"]].to_numpy(dtype=float).ravel()))
    return figure


def _add_slope(figure: go.Figure, line: dict[Hashable, Any], legend: bool, panel: int) -> None:
    base, metric = str(line["base"]), str(line["method"]).partition(":")[2]
    name = (
        label(base) if metric in (base, "") else f"{label(base)} → {'twFLAP' if metric == 'twflap' else label(metric)}"
    )
    marks.curve(
        figure, [_BEFORE, _AFTER], [line["before"], line["after"]], name,
        {"color": METHOD_COLORS.get(base, GREY), "width": 2}, f"{name}, %{{x}}: %{{y:.2f}}<extra></extra>",
        symbol=[METHOD_SYMBOLS.get(base, "circle"), "circle"], size=10,
        legendgroup=base, showlegend=legend, row=1, col=panel,
    )  # fmt: skip


def plot_bins(table: list[Setting], curves: dict[str, str]) -> go.Figure:
    """Plot Figure 3a or 3b: measures of drift bins, from the most stable to the most unstable.

    `table` has one setting a bin; `curves` is one of BINS.
    """
    figure = go.Figure()
    for column, method in curves.items():
        color = METHOD_COLORS.get(method, GREY)
        marks.curve(
            figure, [in_figure(setting.name) for setting in table], [setting.mean(column) for setting in table],
            in_figure(column), {"color": color, "width": 2, "dash": "solid" if method else "dash"},
            "%{x}: %{y:.3f}", symbol=METHOD_SYMBOLS.get(method), size=9,
        )  # fmt: skip
    unit = "Jaccard of the kept neurons" if "Jaccard" in curves else "fraction of neurons kept"
    style(figure, "drift bin (modules from stable to unstable)", unit, 360)
    figure.update_xaxes(type="category")
    return figure.update_yaxes(range=[0, 1.02])


def plot_drift(histogram: pd.DataFrame) -> go.Figure:
    """Plot Figure 1a: share of neurons by rank drift, a step line each; grey where no text changes."""
    figure = go.Figure()
    middle = (histogram["drift from"] + histogram["drift to"]) / 2
    names = [name for name in histogram.columns if name not in ("drift from", "drift to")]
    for index, name in enumerate(names):
        title = in_figure(name.removesuffix(", % of neurons"))
        color = GREY if "resampled" in name else METHOD_COLORS["gprune"]
        line = {"color": color, "dash": _STEP_DASHES[index % len(_STEP_DASHES)], "shape": "hvh", "width": 2}
        marks.curve(figure, middle, histogram[name], title, line, "d ≈ %{x:.2f}: %{y:.2f}%")
    style(figure, "rank drift d (0 = rank unchanged, 1 = from first to last)", "share of neurons (%)", 360)
    present = histogram[names].to_numpy().max(axis=1) > 0.05
    return figure.update_xaxes(range=[0, float(histogram["drift to"][present].max()) if present.any() else 1.0])
