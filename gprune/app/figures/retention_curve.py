"""Perplexity against retention: a curve for every method, and what it reads at one retention."""

from collections.abc import Sequence
from operator import itemgetter

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from gprune.analysis.comparison import DENSE
from gprune.analysis.formatting import percent
from gprune.analysis.paired_test import Measurement
from gprune.app.preview import Answer
from gprune.app.ui.chart_style import (
    GREY,
    METHOD_COLORS,
    METHOD_DASHES,
    METHOD_SYMBOLS,
    called,
    label,
    log_ticks,
    style,
)
from gprune.study.methods import METHODS

CurvePoint = tuple[str, float, Answer]
"""method, retention and losses; an answer without an identity is a measurement of the run"""
_SAME = 0.005
"""retentions this near to each other are the same"""
_MARGIN = 1.15
"""factor of perplexity that is left free above and below"""


def measured_points(cells: Sequence[Measurement], text: str) -> list[CurvePoint]:
    """Return a run's measurements on a text as complete answers; empty without the dense model."""
    by_method = {cell.method: cell for cell in cells if cell.text == text and len(cell.losses)}
    dense = by_method.pop(DENSE, None)
    return [
        (name, cell.retention, Answer("", name, text, "complete", cell.losses, dense.losses))
        for name, cell in by_method.items()
        if dense is not None and np.isfinite(cell.retention) and len(cell.losses) == len(dense.losses)
    ]


def curve_table(points: Sequence[CurvePoint], moved: bool = False) -> pd.DataFrame:
    """Return the numbers of the curves, by method and retention, with the difference from the dense model.

    `moved` if the thresholds are not the run's own.
    """
    dense, rows = dense_perplexity(points), []
    for method, level, answer in sorted(points, key=itemgetter(1)):
        nats, margin = (answer.difference.nats, answer.difference.nats_margin) if answer.difference else (0.0, np.nan)
        row = {"method": label(method), "kept": level, "perplexity": dense * float(np.exp(nats))}
        row |= {"log-perplexity over dense": nats, "± (95% interval)": margin}
        row |= {"windows": answer.done, "of": answer.windows, "source": _source(method, answer, moved)}
        rows.append(row)
    return pd.DataFrame(rows)


def dense_perplexity(points: Sequence[CurvePoint]) -> float:
    """Return the dense model's perplexity over the most windows that are measured; NaN without a point."""
    most = max((answer for _, _, answer in points), key=lambda answer: answer.done, default=None)
    return most.base_perplexity if most is not None else float("nan")


def read_curve(points: pd.DataFrame, retention: float) -> str:
    """Return a method's perplexity at a retention in words, from its rows of `curve_table`.

    Between two points it is interpolated on the log axis; outside of them it is not known.
    """
    levels, values = points["kept"].to_numpy(), points["perplexity"].to_numpy()
    nearest = int(np.abs(levels - retention).argmin())
    if abs(levels[nearest] - retention) < _SAME:
        point = points.iloc[nearest]
        windows = "" if point["windows"] == point["of"] else f", {point['windows']} of {point['of']} windows"
        return f"{_figure(values[nearest])} ({point['source']}{windows})"
    value = _interpolate(points, retention)
    return "–" if value is None else f"≈ {_figure(value)} (interpolated)"


def describe_retention(points: Sequence[CurvePoint], retention: float, text: str) -> str:
    """Return a sentence on GPrune's perplexity at a retention, read off its curve among those of all points."""
    table = curve_table(points)
    value = _interpolate(table[table["method"] == label("gprune")], retention) if len(table) else None
    if value is None:
        return f"At {percent(retention)} retention, perplexity on {text} is not known."
    return (
        f"At {percent(retention)} retention, perplexity on {text} changes from {dense_perplexity(points):.1f} to "
        f"about {value:.1f} with GPrune."
    )


def _interpolate(points: pd.DataFrame, retention: float) -> float | None:
    """Return the perplexity of a method at a retention, along the log axis; None outside of its points."""
    levels = points["kept"]
    if not len(points) or not levels.min() <= retention <= levels.max():
        return None
    return float(np.exp(np.interp(retention, levels, np.log(points["perplexity"]))))


def plot_retention_curve(points: Sequence[CurvePoint], retention: float, moved: bool = False) -> go.Figure:
    """Return the curves of all methods, with a line at a retention and what each curve reads there."""
    table, dense, figure = curve_table(points, moved), dense_perplexity(points), go.Figure()
    for method in dict.fromkeys(name for name, _, _ in points):
        rows = table[table["method"] == label(method)]
        values, margin = rows["perplexity"], rows["± (95% interval)"].fillna(0.0)
        complete = rows["windows"] == rows["of"]
        figure.add_scatter(
            x=rows["kept"].tolist(),
            y=values,
            error_y={
                "array": values * np.expm1(margin),
                "arrayminus": -values * np.expm1(-margin),
                "thickness": 1,
                "width": 3,
            },
            mode="lines+markers",
            line={"color": METHOD_COLORS[method], "dash": METHOD_DASHES[method], "width": 2},
            marker={"size": 9, "symbol": [_symbol(method, whole) for whole in complete]},
            customdata=rows[["source", "windows", "of"]],
            hovertemplate="%{x:.1%} kept: perplexity %{y:.2f} (%{customdata[0]})<br>"
            "%{customdata[1]} of %{customdata[2]} windows<extra>" + called(method) + "</extra>",
            name=f"{called(method)} {read_curve(rows, retention)}",
        )
    style(figure, "decoder weights kept", "perplexity (log scale)")
    low, high = 1.0, 10.0
    if len(table):
        upper = table["perplexity"] * np.exp(table["± (95% interval)"].fillna(0.0))
        lower = table["perplexity"] ** 2 / upper
        low, high = float(min(lower.min(), dense)) / _MARGIN, float(max(upper.max(), dense)) * _MARGIN
        figure.add_hline(dense, line={"color": GREY, "dash": "dot"})
        words = {"text": f"dense {dense:.2f}", "showarrow": False, "xanchor": "left", "yanchor": "bottom"}
        # annotations of a log axis are placed by the exponent
        figure.add_annotation(x=0, y=float(np.log10(dense)), **words)
    figure.update_yaxes(range=[np.log10(low), np.log10(high)], **log_ticks(low, high))
    figure.update_xaxes(range=[0, 1.02], tickformat=".0%", dtick=0.1)
    return figure.add_vline(retention, line={"color": GREY, "width": 2})


def _symbol(method: str, is_complete: bool) -> str:
    """Symbol of a point, filled where it has all windows; forms of a method, open elsewhere, differ by their dash."""
    shape, dot, _ = METHOD_SYMBOLS[method].removesuffix("-open").partition("-dot")
    return f"{shape}{'' if is_complete else '-open'}{dot}"


def _source(method: str, answer: Answer, moved: bool) -> str:
    if moved and METHODS[method].decision == "learned":
        return "these thresholds" if answer.identity else "this run’s own thresholds"
    return "measured"


def _figure(value: float) -> str:
    return f"{value:.2f}" if value < 1000 else f"{value:.4g}"
