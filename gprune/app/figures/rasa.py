"""Figures of the RASA thresholds (section 3.2)."""

from collections.abc import Callable, Sequence
from typing import Any, ParamSpec

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from gprune.analysis import kept_units, thresholds, whatif
from gprune.analysis.formatting import percent
from gprune.analysis.kept_units import NEURONS, Overlap
from gprune.app.figures import retention_curve
from gprune.app.ui import chart_style, derived_cache, marks, story
from gprune.app.ui.chart_style import GREY, TEXT_A, TEXT_B, layer_axis, style
from gprune.app.ui.panel import Panel, PanelFunction, panel
from gprune.app.ui.text import plain
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.records import AdaptedScores, Array, ModuleStatistics
from gprune.study.settings import ReliabilitySettings, require_choice

P = ParamSpec("P")
RANGES = {"near": "0.80 to 0.95", "wide": "0 to 1"}
LEVELS = {"near": np.round(np.arange(0.80, 0.951, 0.01), 3), "wide": np.round(np.arange(0, 1.001, 0.05), 3)}
RULE: dict[str, Any] = {"drift_quantile": None, "score_quantile": None, "score_scale": "", "selection": ""}
"""options that set the thresholds; the run's own value where left out"""
_READS = {name: key for name, key in zip(RULE, ("rasa_qd", "rasa_qs", "rasa_scale", "rasa_selection"), strict=True)}
_RULES = {
    "drift_and_score": "A module in the shaded corner is at or above the drift line and at or below the score "
    "line. It is adapted: scored from the text with the smaller u. The lines are quantiles over the modules of "
    "all layers, so layers with small raw scores may fall below the score line as a whole.",
    "drift": "A module in the shaded region is at or above the drift line. It is adapted whatever its score, and "
    "scored from the text with the smaller u. The line is a quantile over the modules of all layers.",
    "none": "No module is adapted: every module keeps its scores from A, and no line applies.",
    "random": "As many random modules are adapted as the paper's rule would adapt; no line applies.",
}
_KEYS = (
    "Drag a line, or focus it (Tab) and press the arrow keys, Page Up, Page Down, Home or End. The counts follow "
    "while a line moves; the rest of the page updates on release."
)
_GROUPS = (
    (thresholds.KEPT, GREY, "circle", 0.45),
    (thresholds.FROM_PRIMARY, TEXT_A, "square", 0.9),
    (thresholds.FROM_AUXILIARY, TEXT_B, "diamond", 0.95),
)
_HOVER = (
    "layer %{customdata[0]:.0f}, module %{customdata[1]:.0f}, neurons: %{customdata[2]:.0f}<br>"
    "drift %{x:.3f}, mean score %{y:.4g}<br>"
    "u on A %{customdata[3]:.3f}, u on B %{customdata[4]:.3f}<extra></extra>"
)
SMALLEST, LARGEST, LARGEST_OF_MANY = 4.0, 16.0, 9.0
"""diameters in pixels: the least, the largest module's, and the same where there are many modules"""
MANY = 300
REMOVED, ADDED = "#E08214", "#8073AC"
"""hues of the purple-orange scale, which shows signs; seen on light and dark ground"""
_PAPER = {"paper, LLaMA2": (0.90, 0.90), "paper, Vicuna": (0.90, 0.85)}


def _rule_panel(
    name: str, card: str, heading: str, *, clicked: bool = False, **reads: str
) -> Callable[[Callable[P, Panel]], PanelFunction[P]]:
    return panel(name, card, heading, clicked=clicked, reads=_READS | reads, group=RULE)


@_rule_panel("modules", "rasa_scatter", "Modules by drift and score", log="rasa_log")
def modules(run: Run, *, log: bool = True, **values: Any) -> Panel:
    """Modules by drift and score, with the lines of a rule; without one the run's own."""
    rule = rule_of(run, **values)
    decision = derived_cache.preview(run, rule)
    statistics, adapted = decision
    counts, logarithmic = decision.counts, log and rule.score_scale == "raw"
    return Panel(
        scatter(statistics, adapted, logarithmic, rule.selection),
        "Each mark is a module, its size the number of neurons.",
        action="Click one to select it.",
        title=f"{counts.adapted} of {counts.modules} modules are adapted, {counts.from_auxiliary} of them "
        "re-scored from B"
        if counts.adapted
        else f"None of the {counts.modules} modules is adapted",
        how=_RULES[rule.selection]
        + (" Modules with a score of zero cannot be drawn on a log scale." if logarithmic else "")
        + (f" {_KEYS}" if rule.selection in ("drift", "drift_and_score") else "")
        + " In the table, u is the expected discrepancy of the local ranks between disjoint halves of a text; "
        "smaller is more stable.",
        table=lambda: thresholds.decision_table(statistics, adapted),
    )


@_rule_panel("quantiles", "rasa_grid", "How much is adapted under other quantiles?", clicked=True, span="rasa_range")
def quantiles(run: Run, *, span: str = "near", **values: Any) -> Panel:
    """Share of modules adapted under every pair of quantiles."""
    rule = rule_of(run, **values)
    require_choice("span", span, tuple(RANGES))
    statistics, adapted = derived_cache.preview(run, rule)
    counts = thresholds.grid(statistics, LEVELS[span], LEVELS[span])
    present = rule.drift_quantile, rule.score_quantile
    title = f"{percent(adapted.adapted.mean(), 1)} of the modules are adapted at {present[0]:.3f} / {present[1]:.3f}"
    return Panel(
        grid(LEVELS[span], counts, len(adapted.adapted), present),
        "Share of modules adapted. Ring: the present lines; stars: the paper's.",
        action="Click a cell to set both lines.",
        title=title,
        alt=title,
        table=lambda: grid_table(LEVELS[span], counts),
    )


@_rule_panel("changes", "rasa_changes", "What changes?", retention="rasa_keep")
def changes(run: Run, *, retention: float | None = None, **values: Any) -> Panel:
    """Neurons of every layer that a rule, at the run's or another retention, decides differently from the run."""
    run_masks, level = run.load(stages.masks, "gprune"), run.study.retention if retention is None else retention
    level = run.study.with_settings({"retention": level}).retention
    flips = kept_units.overlaps(
        run_masks, derived_cache.masks_of(run, adapted_choice(run, rule_of(run, **values), level))
    )
    title = kept_units.flips_title(flips)
    return Panel(
        flips_by_layer(flips[NEURONS]),
        "Neurons that change sides in each layer, against the masks of this run.",
        title=title,
        alt=title,
        how="Preview: the run's thresholds are shifted to meet the budget. A full run relearns them and may differ.",
        table=lambda: kept_units.flip_table(flips),
    )


@_rule_panel(
    "retention_curve", "rasa_curve_card", "Perplexity against retention", text="rasa_curve_text", retention="rasa_keep"
)
def measured_curve(run: Run, *, text: str = "", retention: float | None = None, **values: Any) -> Panel:
    """Perplexity of every measured method against retention, on a text of the run, by default an unseen one."""
    text = text or story.on_unseen(run)[0]
    points = retention_curve.measured_points(derived_cache.measurements(run), text)
    moved = rule_of(run, **values) != run.study.reliability
    level = run.study.retention if retention is None else retention
    return curve_panel(points, level, run.study.text_name(text), moved)


def curve_panel(points: Sequence[retention_curve.CurvePoint], retention: float, text: str, moved: bool) -> Panel:
    """Perplexity on a text against retention, of measured and live points; `moved` if the rule is not the run's."""
    is_measured = any(method == "gprune" and not answer.identity for method, _, answer in points)
    note = " GPrune's measured point uses this run's own thresholds." if moved and is_measured else ""
    return Panel(
        retention_curve.plot_retention_curve(points, retention, moved),
        "Hollow points still lack windows; bars are the 95% interval of the ratio to dense, paired over windows; "
        "a point with one window has none." + note,
        alt="perplexity of each method against retention",
        title=f"Perplexity on {plain(text)} against retention",
        how="The legend has each method's perplexity at the slider's retention. Between two points it is interpolated "
        "on the log axis. On release, every method decides its masks again at that retention.",
        table=lambda: retention_curve.curve_table(points, moved),
    )


def adapted_choice(run: Run, rule: ReliabilitySettings, retention: float | None = None) -> whatif.LabChoice:
    """GPrune under a rule, at the run's own retention where none is named."""
    return whatif.LabChoice("gprune", run.study.retention if retention is None else retention, whatif.ADAPTED, rule)


def rule_of(run: Run, **values: Any) -> ReliabilitySettings:
    """Return the run's rule with some values replaced; SettingsError where a value is not valid."""
    changes = {f"reliability.{name}": value for name, value in values.items() if value not in (None, "")}
    return run.study.with_settings(changes).reliability if changes else run.study.reliability


def rule_options(run: Run, rule: ReliabilitySettings) -> dict[str, Any]:
    """Return the values of a rule that differ from the run's own."""
    default = run.study.reliability
    return {name: getattr(rule, name) for name in RULE if getattr(rule, name) != getattr(default, name)}


def scatter(
    statistics: ModuleStatistics, adapted: AdaptedScores, log: bool, selection: str = "drift_and_score"
) -> go.Figure:
    """Modules by drift and mean score, with the lines of the rule and the region that it adapts.

    That is the corner of both lines, all right of the drift line, or nothing, by `selection`.
    """
    figure = go.Figure()
    size, group = _diameters(statistics.size), thresholds.groups(adapted)
    module = thresholds.labels_within_layer(statistics.layer)
    details = np.column_stack(
        [statistics.layer, module, statistics.size, statistics.u_primary, statistics.u_auxiliary]
    ).astype(np.float32)
    for value, color, symbol, opacity in _GROUPS:
        name, chosen = thresholds.OUTCOMES[value], group == value
        x, y = (values[chosen].astype(np.float32) for values in (statistics.drift, statistics.score))
        look = {"color": color, "symbol": symbol, "opacity": opacity, "line": {"width": 0}}
        entry = f"{name} ({int(chosen.sum())})"
        marks.points(figure, x, y, look | {"size": size[chosen]}, _HOVER, name=entry, customdata=details[chosen])
    style(figure, "mean within-module rank drift", "mean primary score" + (" (log scale)" if log else ""), 480)
    low, high = _ranges(figure, statistics, log)
    _rule(figure, adapted, log, selection, (low, high))
    return figure


def _diameters(sizes: Array) -> Array:
    """(modules,) marker diameters; the area grows with the number of neurons."""
    largest = LARGEST if len(sizes) <= MANY else LARGEST_OF_MANY
    scaled = largest * np.sqrt(sizes / sizes.max())
    return np.maximum(scaled, SMALLEST).astype(np.float32)


def _ranges(figure: go.Figure, statistics: ModuleStatistics, log: bool) -> tuple[float, float]:
    """Set the range of both axes; return the lowest and highest score that is drawn."""
    figure.update_xaxes(range=list(_padded(statistics.drift)))
    positive = statistics.score[statistics.score > 0]
    if not (log and positive.size):
        low, high = _padded(statistics.score)
        figure.update_yaxes(range=[low, high], type="log" if log else "linear", exponentformat="power")
        return (10.0**low, 10.0**high) if log else (low, high)
    low, high = _padded(np.log10(positive))
    figure.update_yaxes(range=[low, high], **chart_style.log_ticks(10.0**low, 10.0**high))
    return 10.0**low, 10.0**high


def _rule(figure: go.Figure, adapted: AdaptedScores, log: bool, selection: str, scores: tuple[float, float]) -> None:
    """Draw the lines of the rule and shade what it adapts."""
    x, y = adapted.drift_threshold, adapted.score_threshold
    if selection not in ("drift", "drift_and_score"):
        return
    both = selection == "drift_and_score"
    top = y if both else scores[1]
    if top > scores[0]:
        figure.add_shape(
            type="rect",
            x0=x,
            x1=figure.layout.xaxis.range[1],
            y0=scores[0],
            y1=top,
            fillcolor=TEXT_B,
            opacity=0.10,
            line_width=0,
            layer="below",
        )
    line = {"color": GREY, "dash": "dash", "width": 2}
    note = {"showarrow": False, "xshift": 4, "yshift": -4, "xanchor": "left", "yanchor": "top"}
    figure.add_vline(x, line=line)
    figure.add_annotation(x=x, y=1, yref="paper", text=f"drift ≥ {x:.3f}", **note)
    if not both:
        return
    figure.add_hline(y, line=line)
    if y > 0 or not log:
        # annotations on a log axis are placed by exponent, shapes by value
        height = float(np.log10(y)) if log else y
        figure.add_annotation(x=0, xref="paper", y=height, text=f"score ≤ {y:.3g}", **note)


def _padded(values: Array) -> tuple[float, float]:
    """Range of the values with a margin of 4% on both sides; of one value, a range around it."""
    low, high = float(np.min(values)), float(np.max(values))
    margin = 0.04 * (high - low) or max(abs(high), 1.0) * 0.04
    return low - margin, high + margin


def flips_by_layer(flips: Overlap) -> go.Figure:
    """Neurons that change sides in each layer: those removed below zero, those added above."""
    figure = go.Figure()
    layers = np.arange(len(flips.both))
    for values, sign, name, color in (
        (flips.second, 1, "removed → kept", ADDED),
        (flips.first, -1, "kept → removed", REMOVED),
    ):
        hover = f"layer %{{x}}, neurons: %{{customdata:,}}<extra>{name}</extra>"
        entry = f"{name} ({int(values.sum()):,})"
        marks.bars(figure, layers, sign * values, entry, color, hover, customdata=values)
    style(figure, "layer", "neurons", 170, barmode="relative")
    layer_axis(figure, len(layers))
    highest = max(int(flips.first.max()), int(flips.second.max()))
    if highest < 5:
        figure.update_yaxes(dtick=1, range=[-max(highest, 1) - 0.2, max(highest, 1) + 0.2])
    return figure.add_hline(0, line={"color": GREY, "width": 1})


def grid(levels: Array, counts: Array, modules: int, present: tuple[float, float]) -> go.Figure:
    """Share of modules adapted, drift quantile across and score quantile up; a click finds both.

    `levels` are (levels,) quantiles of both axes, `counts` (levels, levels) modules adapted of `modules`, by
    drift quantile and score quantile; `present` are those of the lines.
    """
    share = 100.0 * counts.T / modules
    bar = {"title": {"text": "% adapted"}, "thickness": 12}
    figure = marks.heat(np.round(share, 3), levels, levels, "", colorbar=bar)
    drift, score = (axis.ravel() for axis in np.meshgrid(levels, levels))
    data = np.column_stack([drift, score, counts.T.ravel()])
    unseen = {"symbol": "square", "size": 16, "opacity": 0}
    hover = "γ_drift %{x:.3f}, γ_score %{y:.3f}, modules: %{customdata[2]}<extra>click to set</extra>"
    marks.points(figure, drift, score, unseen, hover, customdata=data, showlegend=False)
    edge = 0.5 * float(levels[1] - levels[0])
    for (name, (x, y)), symbol in zip(_PAPER.items(), ("star", "star-diamond"), strict=True):
        _spot(figure, (x, y), name, {"symbol": symbol, "size": 13, "color": chart_style.ORANGE})
    if all(levels[0] - edge <= level <= levels[-1] + edge for level in present):
        _spot(figure, present, "present lines", {"symbol": "circle-open", "size": 18, "color": marks.RING})
    style(figure, "γ_drift", "γ_score", 380)
    for update in (figure.update_xaxes, figure.update_yaxes):
        update(range=[levels[0] - edge, levels[-1] + edge], tickformat=".2f")
    return figure


def _spot(figure: go.Figure, at: tuple[float, float], name: str, marker: dict[str, object]) -> None:
    line = {"width": 2, "color": None if marker["symbol"] == "circle-open" else "white"}
    hover = f"{name}: γ_drift %{{x:.3f}}, γ_score %{{y:.3f}}<extra></extra>"
    marks.points(figure, [at[0]], [at[1]], marker | {"line": line}, hover, name=name, customdata=[[*at, 0]])


def grid_table(levels: Array, counts: Array) -> pd.DataFrame:
    """Modules adapted, one row a drift quantile and one column a score quantile."""
    columns = {f"γ_score {level:.2f}": counts[:, column] for column, level in enumerate(levels)}
    return pd.DataFrame({"γ_drift": levels} | columns)
