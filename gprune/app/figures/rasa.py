"""Figures of Tune: the RASA thresholds (section 3.2), and perplexity against retention, a curve for every method."""

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, ParamSpec

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from gprune.analysis import decisions, thresholds, whatif
from gprune.analysis.comparison import DENSE
from gprune.analysis.decisions import NEURONS, Overlap
from gprune.analysis.formatting import percent
from gprune.analysis.paired_test import Measurement
from gprune.app.preview import Answer
from gprune.app.ui import chart_style, derived_cache, marks, story
from gprune.app.ui.chart_style import (
    GREY,
    METHOD_COLORS,
    METHOD_DASHES,
    METHOD_SYMBOLS,
    TEXT_A,
    TEXT_B,
    control_label,
    label,
    layer_axis,
    log_ticks,
    style,
)
from gprune.app.ui.panel import Panel, PanelFunction, panel
from gprune.app.ui.text import escape, names_in_figure, text_pair
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.records import AdaptedScores, Array, ModuleStatistics
from gprune.study.methods import METHODS
from gprune.study.settings import ReliabilitySettings

P = ParamSpec("P")
RULE: dict[str, Any] = {"drift_quantile": None, "score_quantile": None, "score_scale": "", "selection": ""}
"""options that set the thresholds, with defaults that stand for the run's own values"""
_READS = {name: key for name, key in zip(RULE, ("rasa_qd", "rasa_qs", "rasa_scale", "rasa_selection"), strict=True)}
_RULES = {
    "drift_and_score": "A module in the shaded corner is at or above the drift line and at or below the score "
    "line. It is adapted: scored from the text with the smaller u. The lines are quantiles over the modules of "
    "all layers, so layers with small raw scores may fall below the score line as a whole.",
    "drift": "A module in the shaded region is at or above the drift line. It is adapted whatever its score, and "
    "scored from the text with the smaller u. The line is a quantile over the modules of all layers.",
    "none": "No module is adapted, and no line applies.",
    "random": "The rule adapts as many random modules as the paper's rule would; no line applies.",
}
_KEYS = (
    "Drag a line, or focus it (Tab) and press the arrow keys, Page Up, Page Down, Home or End. The counts follow "
    "while a line moves; the rest of the page updates on release."
)
_GROUPS = (
    (thresholds.UNCHANGED, GREY, "circle", 0.45),
    (thresholds.FROM_PRIMARY, TEXT_A, "square", 0.9),
    (thresholds.FROM_AUXILIARY, TEXT_B, "diamond", 0.95),
)
"""outcome of the rule for a module, with colour, symbol and opacity of its mark"""
_HOVER = (
    "layer %{{customdata[0]:.0f}}, module %{{customdata[1]:.0f}}, neurons: %{{customdata[2]:.0f}}<br>"
    "drift %{{x:.3f}}, mean score %{{y:.4g}}<br>"
    "u %{{customdata[3]:.3f}} on {A}, %{{customdata[4]:.3f}} on {B}<extra></extra>"
)
SMALLEST, LARGEST, LARGEST_OF_MANY = 4.0, 16.0, 9.0
"""diameters in pixels: the minimum, that of the largest module, and that of the largest of many modules"""
MANY = 300
"""number of modules above which the marks are smaller"""
REMOVED, ADDED = "#E08214", "#8073AC"
"""hues of the purple-orange scale for signs, visible on light and dark background"""
CurvePoint = tuple[str, float, Answer]
"""method, retention and losses; an answer without an identity is a measurement of the run"""
_RETENTION_TOLERANCE = 0.005
"""two retentions are treated as equal if they differ by less"""
_MARGIN = 1.15
"""factor by which the perplexity axis extends beyond the points"""


def _rule_panel(name: str, card: str, heading: str, **reads: str) -> Callable[[Callable[P, Panel]], PanelFunction[P]]:
    """Declare a figure that has the options of RULE; `reads` has the address keys of its other options."""
    return panel(name, card, heading, reads=_READS | reads, group=RULE)


@_rule_panel("modules", "rasa_scatter", "Modules by drift and score", log="rasa_log")
def modules(run: Run, *, log: bool = True, **values: Any) -> Panel:
    """Modules by drift and score, with the thresholds of a rule, by default the run's own."""
    rule = rule_of(run, **values)
    decision = derived_cache.preview(run, rule)
    statistics, adapted = decision
    counts, logarithmic = decision.counts, log and rule.score_scale == "raw"
    return Panel(
        scatter(statistics, adapted, names_in_figure(run.study), logarithmic, rule.selection),
        "Each mark is a module; its size is the number of neurons.",
        action="Click one to select it.",
        title=f"{counts.adapted} of {counts.modules} modules are adapted, {counts.from_auxiliary} of them "
        f"re-scored from {text_pair(run.study)[1]}"
        if counts.adapted
        else f"None of the {counts.modules} modules is adapted",
        how=_RULES[rule.selection]
        + (" Modules with a score of zero cannot be drawn on a log scale." if logarithmic else "")
        + (f" {_KEYS}" if rule.selection in ("drift", "drift_and_score") else "")
        + " In the table, u is the expected discrepancy of the local ranks between disjoint halves of a text; "
        "smaller is more stable.",
        table=lambda: thresholds.decision_table(statistics, adapted),
    )


@_rule_panel("changes", "rasa_changes", "What changes?", retention="rasa_keep")
def changes(run: Run, *, retention: float | None = None, **values: Any) -> Panel:
    """Neurons of every layer that a rule, at the run's or another retention, decides differently from the run."""
    if retention is not None:
        # raises SettingsError if the value is not valid
        retention = run.study.with_settings({"retention": retention}).retention
    choice = adapted_choice(run, rule_of(run, **values), retention)
    flips = decisions.overlaps(run.load(stages.masks, "gprune"), derived_cache.masks_of(run, choice))
    title = decisions.flips_title(flips)
    return Panel(
        flips_by_layer(flips[NEURONS]),
        "Neurons kept or removed differently than in this run, by layer.",
        title=title,
        alt=title,
        how="Preview: the run's thresholds are shifted to meet the budget. A full run relearns them and may differ.",
        table=lambda: decisions.flip_table(flips),
    )


@_rule_panel(
    "retention_curve", "rasa_curve_card", "Perplexity against retention", text="rasa_curve_text", retention="rasa_keep"
)
def measured_curve(run: Run, *, text: str = "", retention: float | None = None, **values: Any) -> Panel:
    """Perplexity of every measured method against retention, on a text of the run, by default an unseen one."""
    text = text or story.headline_results(run)[0]
    points = measured_points(derived_cache.measurements(run), text)
    is_edited = rule_of(run, **values) != run.study.reliability
    retention = run.study.retention if retention is None else retention
    return curve_panel(points, retention, run.study.text_name(text), is_edited)


def curve_panel(points: Sequence[CurvePoint], retention: float, text: str, is_edited: bool) -> Panel:
    """Return the panel of perplexity on a text against retention, with measured and live points.

    `is_edited` is True if the rule differs from the run's own.
    """
    is_measured = any(method == "gprune" and not answer.identity for method, _, answer in points)
    note = " GPrune's measured point uses this run's own thresholds." if is_edited and is_measured else ""
    return Panel(
        plot_retention_curve(points, retention, is_edited),
        "Pale points are not measured on all windows yet. Bars are the 95% interval of the ratio to the dense model, "
        "paired over windows; a point with one window has no bar." + note,
        alt="perplexity of each method against retention",
        title=f"Perplexity on {escape(text)} against retention",
        how="The legend shows each method's perplexity at the slider's retention, interpolated between points on the "
        "log axis. When the slider is released, masks are recomputed for that retention.",
        table=lambda: curve_table(points, is_edited),
    )


def adapted_choice(run: Run, rule: ReliabilitySettings, retention: float | None = None) -> whatif.LabChoice:
    """Return the choice that applies a rule to GPrune, by default at the run's retention."""
    return whatif.LabChoice("gprune", run.study.retention if retention is None else retention, whatif.ADAPTED, rule)


def rule_of(run: Run, **values: Any) -> ReliabilitySettings:
    """Return the run's rule with some values replaced. Raises SettingsError if a value is not valid."""
    settings = {f"reliability.{name}": value for name, value in values.items() if value not in (None, "")}
    return run.study.with_settings(settings).reliability if settings else run.study.reliability


def rule_options(run: Run, rule: ReliabilitySettings) -> dict[str, Any]:
    """Return the values of a rule that differ from the run's own."""
    default = run.study.reliability
    return {name: getattr(rule, name) for name in RULE if getattr(rule, name) != getattr(default, name)}


def scatter(
    statistics: ModuleStatistics, adapted: AdaptedScores, texts: Mapping[str, str], log: bool,
    selection: str = "drift_and_score",
) -> go.Figure:  # fmt: skip
    """Plot modules by drift and mean score, with the lines of the rule and the region that it adapts.

    `texts` are the names of the texts A and B by letter, escaped for figures.
    By `selection`, the region is the corner of both lines, everything right of the drift line, or empty.
    """
    figure = go.Figure()
    largest = LARGEST if len(statistics.size) <= MANY else LARGEST_OF_MANY
    # the area of a mark grows with the number of neurons
    diameters = largest * np.sqrt(statistics.size / statistics.size.max())
    size, group = np.maximum(diameters, SMALLEST).astype(np.float32), thresholds.groups(adapted)
    module = thresholds.labels_within_layer(statistics.layer)
    repeatability = statistics.u_primary, statistics.u_auxiliary
    details = np.column_stack([statistics.layer, module, statistics.size, *repeatability]).astype(np.float32)
    hover, axis = _HOVER.format_map(texts), f"mean score on {texts['A']}{' (log scale)' if log else ''}"
    for value, color, symbol, opacity in _GROUPS:
        name, chosen = thresholds.OUTCOMES[value], group == value
        x, y = (values[chosen].astype(np.float32) for values in (statistics.drift, statistics.score))
        look = {"color": color, "symbol": symbol, "opacity": opacity, "line": {"width": 0}}
        entry = f"{name} ({int(chosen.sum())})"
        marks.add_points(figure, x, y, look | {"size": size[chosen]}, hover, name=entry, customdata=details[chosen])
    style(figure, "mean within-module rank drift", axis, 480)
    low, high = _set_ranges(figure, statistics, log)
    _draw_thresholds(figure, adapted, log, selection, (low, high))
    return figure


def _set_ranges(figure: go.Figure, statistics: ModuleStatistics, log: bool) -> tuple[float, float]:
    """Set the range of both axes; return the lowest and highest score on the axis."""
    figure.update_xaxes(range=list(_pad_range(statistics.drift)))
    positive = statistics.score[statistics.score > 0]
    if not (log and positive.size):
        low, high = _pad_range(statistics.score)
        figure.update_yaxes(range=[low, high], type="log" if log else "linear", exponentformat="power")
        return (10.0**low, 10.0**high) if log else (low, high)
    low, high = _pad_range(np.log10(positive))
    figure.update_yaxes(range=[low, high], **chart_style.log_ticks(10.0**low, 10.0**high))
    return 10.0**low, 10.0**high


def _draw_thresholds(
    figure: go.Figure, adapted: AdaptedScores, log: bool, selection: str, scores: tuple[float, float]
) -> None:
    """Draw the lines of the rule and shade what it adapts; `scores` are the ends of the score axis."""
    x, y = adapted.drift_threshold, adapted.score_threshold
    if selection not in ("drift", "drift_and_score"):
        return
    has_score_line = selection == "drift_and_score"
    top = y if has_score_line else scores[1]
    if top > scores[0]:
        corners = {"x0": x, "x1": figure.layout.xaxis.range[1], "y0": scores[0], "y1": top}
        figure.add_shape(type="rect", **corners, fillcolor=TEXT_B, opacity=0.10, line_width=0, layer="below")
    line = {"color": GREY, "dash": "dash", "width": 2}
    note = {"showarrow": False, "xshift": 4, "yshift": -4, "xanchor": "left", "yanchor": "top"}
    figure.add_vline(x, line=line)
    figure.add_annotation(x=x, y=1, yref="paper", text=f"drift ≥ {x:.3f}", **note)
    if not has_score_line:
        return
    figure.add_hline(y, line=line)
    if y > 0 or not log:
        # annotations on a log axis are placed by exponent, shapes by value
        height = float(np.log10(y)) if log else y
        figure.add_annotation(x=0, xref="paper", y=height, text=f"score ≤ {y:.3g}", **note)


def _pad_range(values: Array) -> tuple[float, float]:
    """Return the range of the values with a margin of 4% on both sides; for a single value, a range around it."""
    low, high = float(np.min(values)), float(np.max(values))
    margin = 0.04 * (high - low) or max(abs(high), 1.0) * 0.04
    return low - margin, high + margin


def flips_by_layer(flips: Overlap) -> go.Figure:
    """Plot the neurons per layer that a rule adds, above zero, and removes, below zero."""
    figure = go.Figure()
    layers = np.arange(len(flips.both))
    for values, sign, name, color in (
        (flips.second, 1, "removed → kept", ADDED),
        (flips.first, -1, "kept → removed", REMOVED),
    ):
        hover = f"layer %{{x}}, neurons: %{{customdata:,}}<extra>{name}</extra>"
        entry = f"{name} ({int(values.sum()):,})"
        marks.add_bars(figure, layers, sign * values, entry, color, hover, customdata=values)
    style(figure, "layer", "neurons", 170, barmode="relative")
    layer_axis(figure, len(layers))
    highest = max(int(flips.first.max()), int(flips.second.max()))
    if highest < 5:
        # an automatic axis of small counts would have fractions
        figure.update_yaxes(dtick=1, range=[-max(highest, 1) - 0.2, max(highest, 1) + 0.2])
    return figure.add_hline(0, line={"color": GREY, "width": 1})


def measured_points(cells: Sequence[Measurement], text: str) -> list[CurvePoint]:
    """Return a run's measurements on a text as complete answers; empty if the dense model is not measured on it."""
    by_method = {cell.method: cell for cell in cells if cell.text == text and len(cell.losses)}
    dense = by_method.pop(DENSE, None)
    return [
        (name, cell.retention, Answer("", name, text, "complete", cell.losses, dense.losses))
        for name, cell in by_method.items()
        if dense is not None and np.isfinite(cell.retention) and len(cell.losses) == len(dense.losses)
    ]


def curve_table(points: Sequence[CurvePoint], is_edited: bool = False) -> pd.DataFrame:
    """Return the numbers of the curves, by method and retention, with the difference from the dense model.

    `is_edited` is True if the thresholds differ from the run's own.
    """
    dense, rows = dense_perplexity(points), []
    for method, retention, answer in sorted(points, key=itemgetter(1)):
        # without a measured window, the point is shown at the dense model's perplexity
        nats, margin = (answer.difference.nats, answer.difference.nats_margin) if answer.difference else (0.0, np.nan)
        # answers can cover different windows: paired differences from one dense perplexity keep them comparable
        row = {"method": label(method), "kept": retention, "perplexity": dense * float(np.exp(nats))}
        row |= {"log-perplexity over dense": nats, "± (95% interval)": margin}
        row |= {"windows": answer.done, "of": answer.windows, "source": _describe_source(method, answer, is_edited)}
        rows.append(row)
    return pd.DataFrame(rows)


def dense_perplexity(points: Sequence[CurvePoint]) -> float:
    """Return the dense model's perplexity from the answer with the most windows; NaN if there are no points."""
    longest = max((answer for _, _, answer in points), key=lambda answer: answer.done, default=None)
    return longest.base_perplexity if longest is not None else float("nan")


def read_curve(points: pd.DataFrame, retention: float) -> str:
    """Return a method's perplexity at a retention as text with its source, from its rows of `curve_table`.

    Between two points, the perplexity is interpolated on the log axis. Outside their range it is unknown (–).
    """
    retentions, values = points["kept"].to_numpy(), points["perplexity"].to_numpy()
    nearest = int(np.abs(retentions - retention).argmin())
    if abs(retentions[nearest] - retention) < _RETENTION_TOLERANCE:
        point = points.iloc[nearest]
        windows = "" if point["windows"] == point["of"] else f", {point['windows']} of {point['of']} windows"
        return f"{_format_value(values[nearest])} ({point['source']}{windows})"
    value = _interpolate(points, retention)
    return "–" if value is None else f"≈ {_format_value(value)} (interpolated)"


def describe_retention(points: Sequence[CurvePoint], retention: float, text: str) -> str:
    """Return a sentence on GPrune's perplexity at a retention, interpolated from the points of its curve."""
    table = curve_table(points)
    value = _interpolate(table[table["method"] == label("gprune")], retention) if len(table) else None
    if value is None:
        return f"At {percent(retention)} retention, perplexity on {text} is not known."
    return (
        f"At {percent(retention)} retention, perplexity on {text} changes from {dense_perplexity(points):.1f} to "
        f"about {value:.1f} with GPrune."
    )


def _interpolate(points: pd.DataFrame, retention: float) -> float | None:
    """Return a method's perplexity at a retention, interpolated on the log axis; None outside its points."""
    retentions = points["kept"]
    if not len(points) or not retentions.min() <= retention <= retentions.max():
        return None
    return float(np.exp(np.interp(retention, retentions, np.log(points["perplexity"]))))


def plot_retention_curve(points: Sequence[CurvePoint], retention: float, is_edited: bool = False) -> go.Figure:
    """Plot the curves of all methods, with a line at `retention` and each method's perplexity there in the legend."""
    table, dense, figure = curve_table(points, is_edited), dense_perplexity(points), go.Figure()
    for method in dict.fromkeys(name for name, _, _ in points):
        rows = table[table["method"] == label(method)]
        values, margin = rows["perplexity"], rows["± (95% interval)"].fillna(0.0)
        complete = rows["windows"] == rows["of"]
        figure.add_scatter(
            x=rows["kept"].tolist(),
            y=values,
            error_y=marks.error_bars(values, values * np.exp(-margin), values * np.exp(margin), 1, width=3),
            mode="lines+markers",
            line={"color": METHOD_COLORS[method], "dash": METHOD_DASHES[method], "width": 2},
            marker={"size": 9, "symbol": METHOD_SYMBOLS[method], "opacity": np.where(complete, 1.0, 0.4)},
            customdata=rows[["source", "windows", "of"]],
            hovertemplate="%{x:.1%} kept: perplexity %{y:.2f} (%{customdata[0]})<br>"
            "%{customdata[1]} of %{customdata[2]} windows<extra>" + control_label(method) + "</extra>",
            name=f"{control_label(method)} {read_curve(rows, retention)}",
        )
    style(figure, "decoder weights kept", "perplexity (log scale)")
    low, high = 1.0, 10.0
    if len(table):
        upper = table["perplexity"] * np.exp(table["± (95% interval)"].fillna(0.0))
        # intervals are symmetric on the log axis
        lower = table["perplexity"] ** 2 / upper
        low, high = float(min(lower.min(), dense)) / _MARGIN, float(max(upper.max(), dense)) * _MARGIN
        figure.add_hline(dense, line={"color": GREY, "dash": "dot"})
        annotation = {"text": f"dense {dense:.2f}", "showarrow": False, "xanchor": "left", "yanchor": "bottom"}
        # annotations of a log axis are placed by the exponent
        figure.add_annotation(x=0, y=float(np.log10(dense)), **annotation)
    figure.update_yaxes(range=[np.log10(low), np.log10(high)], **log_ticks(low, high))
    figure.update_xaxes(range=[0, 1.02], tickformat=".0%", tickangle=0)
    return figure.add_vline(retention, line={"color": GREY, "width": 2})


def _describe_source(method: str, answer: Answer, is_edited: bool) -> str:
    # an answer without an identity is a measurement of the run, which has its own thresholds
    if is_edited and METHODS[method].decision == "learned":
        return "these thresholds" if answer.identity else "this run’s own thresholds"
    return "measured"


def _format_value(value: float) -> str:
    return f"{value:.2f}" if value < 1000 else f"{value:.4g}"
