"""Figures of the overview: how ranks shift, how that compares with noise, and what pruning costs."""

from typing import Any

import numpy as np
import plotly.graph_objects as go

from gprune.analysis import comparison as analysis
from gprune.analysis import drift
from gprune.analysis.comparison import Cost
from gprune.analysis.formatting import format_signed
from gprune.analysis.verdict import OURS, leading_pair, missing_methods, rank_lines, winners
from gprune.app.ui import chart_style, marks, story
from gprune.app.ui.chart_style import GREY, METHOD_COLORS, METHOD_LABELS, METHOD_SYMBOLS, control_label, label, style
from gprune.app.ui.panel import NOTHING, OF_BOTH, Panel, Selection, panel
from gprune.app.ui.text import escape, from_figure, name_texts, names_in_figure, short_text, text_pair
from gprune.evaluation import protocol
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import MissingResultError, Run
from gprune.study.methods import EXPERT_CRITERIA

FIRST_SCREEN = 280
"""height in pixels of each figure of the first screen"""
MOST_ROWS = 9
"""maximum number of methods in a figure of the first screen"""
_TICK_WIDTH = 0.28
"""share of the axis that the label of a tick takes"""
_HEADROOM, _ABOVE_MARK, _NEXT_TO_MARK = 0.5, 13.0, 8.0
"""rows of room above the first mark; pixels from a mark up to a name above it, and to one next to it"""
_CHARACTER_PIXELS, _AXIS_PIXELS = 6.9, 270.0
"""width of a character of a name, and of the axis in a window of 1280 pixels"""
_NARROW = {"l": 52, "r": 8, "t": 28, "b": 44}


@panel("movers", "ov_slope", "Neurons that shift most")
def movers(run: Run, *, selected: Selection = NOTHING) -> Panel:
    """The neurons whose rank shifts most, in the selected layer or else in the one that drifts most."""
    neurons = story.find_movers(run, selected.layer, selected.neuron)
    count, higher = len(neurons.neurons), int((neurons.second > neurons.first).sum())
    (first, second), names = text_pair(run.study), names_in_figure(run.study)
    which = "the selected layer" if selected else "the layer whose neurons drift most (median)"
    return Panel(
        marks.plot_slopes(neurons, FIRST_SCREEN, selected.neuron, (names["A"], names["B"])),
        f"The {count} largest shifts of {neurons.width:,} neurons; the median shift is {neurons.median:.3f}.",
        action="Click a mark to select its neuron on every page.",
        title=f"Layer {neurons.layer}, selected" if selected else f"Layer {neurons.layer} shifts most",
        alt=f"of the {count} neurons that shift most in layer {neurons.layer}, {higher} rank higher on {second} "
        f"and {count - higher} higher on {first}",
        table=neurons.table,
        how=f"Each line is a neuron of layer {neurons.layer}, {which}. Left: its rank when importance is measured on "
        f"{first}; right: on {second}. These are the largest shifts of the layer, not typical ones; the next figure "
        "shows all neurons.",
    )


@panel("noise", "ov_survival", "More than noise?", units=OF_BOTH)
def noise(run: Run) -> Panel:
    """Drift between the texts, compared with the drift by sampling alone."""
    curves = story.drift_distributions(run)
    cross, floor = curves[0], drift.resampling_floor(curves)
    # a metric that reads no text gives both texts the same ranks
    ratio = cross.median / floor if floor > 0 else float("inf" if cross.median > 0 else "nan")
    (first, second), has_floor = text_pair(run.study), bool(np.isfinite(floor))
    stage, units = stages.main_drift(run.graph), f"{run.study.unit}s"
    metric = EXPERT_CRITERIA[stage.id.metric] if run.study.prunes_experts else label(run.study.metric)
    return Panel(
        _plot_survival(curves, names_in_figure(run.study), units),
        f"Median drift of {escape(metric)} scores: {cross.median:.3f} from {first} to {second}, "
        + (f"{floor:.3f} resampled. Shaded: above sampling noise." if has_floor else "unknown when resampled."),
        title=_noise_title(ratio, units) if has_floor else "Resampling noise is unknown",
        alt=f"median drift {cross.median:.3f} across texts" + (f", {floor:.3f} resampled" if has_floor else ""),
        table=lambda: drift.distribution_table(curves, run.study.unit),
        how=f"Share of the {units} of all layers whose rank shifts by at least d. Grey: the same between two halves "
        "of one text, the effect of noise alone. The Rank drift tab has details.",
    )


def _noise_title(ratio: float, units: str) -> str:
    if np.isnan(ratio):
        return f"Half of all {units} do not shift"
    if ratio < 1.5:
        return "Little above sampling noise"
    return f"Median rank shift {ratio:.1f}× sampling noise" if ratio < 1000 else "All above sampling noise"


@panel("cost", "ov_cost", "What pruning costs", units=OF_BOTH)
def cost(run: Run) -> Panel:
    """Perplexity of every method on one text, if possible on one that is not a calibration text."""
    text, lines = story.headline_results(run)
    costs = analysis.costs(lines, text)
    if not costs:
        raise MissingResultError("the perplexity of the dense model")
    holdout = story.holdout_statuses(run)[text]
    expected, measured = story.expected_results([run]), story.method_results(run)
    missing = [] if story.has_ended(run) else missing_methods(measured, text, expected)
    note = f" Not measured yet: {escape(', '.join(map(label, missing)))}." if missing else ""
    best = [control_label(name[1]) for name in winners(rank_lines(measured, [text], expected))]
    title = f"{best[0]} costs least" if best else ""
    seeds = max(len(line.seeds) for line in lines)
    return Panel(
        plot_costs(costs, leading_pair(run.study)[0]),
        f"Perplexity on {escape(short_text(run.study, text))} ({escape(holdout.brief)}), "
        f"whiskers: 95% interval, paired over windows{f' and {seeds} seeds' if seeds > 1 else ''}.{note}",
        title=f"{' or '.join(best)}: too close to call" if len(best) > 1 else title,
        alt=", ".join(f"{label(item.method)} {format_signed(item.ratio - 1, '.0%')}" for item in costs),
        table=lambda: analysis.cost_table(costs, METHOD_LABELS),
        how="Perplexity measures how well a model predicts a text; lower is better. All methods read the same "
        "windows, so the whiskers show the error of the paired differences from the dense model. "
        f"{escape(name_texts(holdout.sentence, run.study))}. Protocol: "
        f"{escape('; '.join(protocol.lines(line.cell(text).stamp for line in lines)))}.",
    )


def _plot_survival(curves: list[drift.Distribution], texts: dict[str, str], units: str) -> go.Figure:
    lines = {
        drift.CROSS: {"color": chart_style.PAIR, "width": 3},
        drift.FLOOR_PRIMARY: {"color": GREY, "width": 2},
        drift.FLOOR_AUXILIARY: {"color": GREY, "width": 2, "dash": "dot"},
    }
    names = dict(zip(lines, ("across texts", f"{texts['A']} resampled", f"{texts['B']} resampled"), strict=True))
    figure, beyond = marks.survival_curves(curves, lines, lambda curve: names[curve.name])
    style(figure, "rank drift d", f"{units} that shift ≥ d (%)", FIRST_SCREEN, margin=_NARROW)
    # the legend fits above the falling curve
    legend = {"orientation": "v", "x": 1, "xanchor": "right", "y": 1, "yanchor": "top"}
    figure.update_layout(legend=legend | {"traceorder": "normal", "bgcolor": "rgba(0,0,0,0)"})
    # the axis ends where fewer than 0.5% of the units are left
    last = max(int(np.flatnonzero(values > 0.5).max()) for values in beyond.values() if (values > 0.5).any())
    figure.update_xaxes(range=[0, min(1.0, (last + 2) / len(curves[0].shares))])
    return figure.update_yaxes(range=[0, 101])


def plot_costs(costs: list[Cost], leading: str = OURS) -> go.Figure:
    """Plot the perplexity of every method over the dense one's, the cheapest first, with paired 95% intervals.

    `leading` is the method that is always drawn, with a bold number.
    """
    figure, rows = go.Figure(), costs
    if len(costs) > MOST_ROWS:
        beyond = [cost for cost in costs[MOST_ROWS - 1 :] if cost.method == leading]
        rows = [*costs[: MOST_ROWS - len(beyond)], *beyond]
    # 1 is the dense model; the axis reaches at least 10% above it, and has a margin at both ends
    finite = [value for cost in rows for value in (cost.low, cost.high) if np.isfinite(value)] or [1.0]
    low, high = 0.96 * min(1.0, *finite), 1.08 * max(1.1, *finite)
    # set all at once, because Plotly checks all annotations whenever one is added
    figure.layout.annotations = [
        _add_cost(figure, cost, len(rows) - 1 - index, (low, high), cost.method == leading)
        for index, cost in enumerate(rows)
    ]
    figure.add_vline(1.0, line={"color": GREY, "dash": "dot", "width": 1.5})
    style(figure, "change of perplexity (log scale)", "", FIRST_SCREEN, margin=_NARROW | {"l": 14})
    axis = chart_style.log_ticks(low, high)
    # ticks whose labels would overlap are left out
    ticks: list[float] = []
    for value in axis["tickvals"]:
        if not ticks or value >= (high / low) ** _TICK_WIDTH * ticks[-1]:
            ticks.append(value)
    names = [f"{100 * (value - 1):+,.0f}%" if value != 1 else "dense" for value in ticks]
    axis |= {"tickvals": ticks, "tickangle": 0, "ticktext": names}
    figure.update_xaxes(**axis, range=[np.log10(low), np.log10(high)])
    return figure.update_yaxes(visible=False, range=[-0.5, len(rows) - 0.5 + _HEADROOM])


def _add_cost(figure: go.Figure, cost: Cost, row: int, axis: tuple[float, float], is_leading: bool) -> dict[str, Any]:
    """Add a method's mark with its interval; return the annotation that shows its name and change next to it.

    `axis` has the lowest and highest value of the axis.
    """
    name, finite = control_label(cost.method), np.isfinite(cost.ratio)
    value = f"{100 * (cost.ratio - 1):+,.0f}%" if finite else "not finite"
    text = f"{name}: <b>{value}</b>" if is_leading else f"{name}: {value}"
    annotation = {"y": row, "showarrow": False, "font": {"size": 13}} | _text_position(cost, text, axis)
    if not finite:
        return annotation
    color, symbol = METHOD_COLORS.get(cost.method, GREY), METHOD_SYMBOLS.get(cost.method, "circle")
    marker = {"color": color, "symbol": symbol, "size": 11}
    hover = (
        f"{name}: perplexity {cost.perplexity:,.2f}, %{{x:.3f}} times the dense model’s "
        f"({cost.low:.3f} to {cost.high:.3f})<extra></extra>"
    )
    interval = marks.error_bars(np.array([cost.ratio]), np.array([cost.low]), np.array([cost.high]), 2, width=5)
    marks.add_points(figure, [cost.ratio], [row], marker, hover, name=name, showlegend=False, error_x=interval)
    return annotation


def _text_position(cost: Cost, text: str, axis: tuple[float, float]) -> dict[str, Any]:
    """Return a label and its position: right or left of an interval, in two lines if necessary, else above.

    Positions on a log axis are exponents of ten.
    """
    if not np.isfinite(cost.ratio):
        return {"text": text, "x": 0, "xanchor": "left", "xshift": 3}
    left, right = np.log10(axis)
    decades = right - left
    spaces = [index for index, character in enumerate(text) if character == " "]
    middle = min(spaces, key=lambda index: abs(index - len(text) / 2))
    for lines_of_text in (text, f"{text[:middle]}<br>{text[middle + 1 :]}"):
        characters = max(len(from_figure(line)) for line in lines_of_text.split("<br>"))
        width = characters * _CHARACTER_PIXELS / _AXIS_PIXELS * decades
        low, high = float(np.log10(cost.low)), float(np.log10(cost.high))
        if high + width <= right:
            return {"text": lines_of_text, "x": high, "xanchor": "left", "xshift": _NEXT_TO_MARK}
        if low - width >= left:
            return {"text": lines_of_text, "x": low, "xanchor": "right", "xshift": -_NEXT_TO_MARK}
    x = float(np.log10(cost.ratio))
    anchor = "left" if x - left < decades / 2 else "right"
    return {"text": text, "x": x, "xanchor": anchor, "yshift": _ABOVE_MARK}
