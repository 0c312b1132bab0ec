"""Figures of pruning decisions (Fig. 3)."""

import numpy as np
import plotly.graph_objects as go

from gprune.analysis import ablation_effect
from gprune.analysis import decisions as analysis
from gprune.analysis.ablation_effect import LEAST, AblationEffect, Explained
from gprune.analysis.decisions import Bins
from gprune.analysis.scales import scale_histogram
from gprune.analysis.verdict import budget_title, own_method
from gprune.app.ui import derived_cache, marks
from gprune.app.ui.chart_style import (
    GREY,
    METHOD_COLORS,
    METHOD_DASHES,
    METHOD_LABELS,
    METHOD_SYMBOLS,
    PALE,
    family,
    label,
    layer_axis,
    style,
)
from gprune.app.ui.masks import default_baseline
from gprune.app.ui.panel import Panel, panel
from gprune.app.ui.unit import NOTHING, Selection
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.records import LearnedScales, PruningMasks
from gprune.study.settings import require, require_choice

BINS, MOST_BINS = 5, 10
"""drift bins of the modules"""
_MOST_LINES = 8
"""lines that can be told apart in one chart"""
_READS = {"base": "pd_base", "bins": "pd_bins"}
_DRIFT_AXIS = "modules by mean rank drift, most stable to most unstable"


@panel("retention", "pd_budget", "Retention by drift of the modules", reads=_READS)
def retention(run: Run, *, base: str = "", bins: int = BINS) -> Panel:
    """Share of neurons kept by drift of the modules, GPrune's and a baseline's."""
    base = choose_base(run, base)
    result = bin_decisions(run, base, bins)
    return Panel(
        _plot_retention(result, base),
        analysis.total_sentence(result, label(base)),
        title=budget_title(result, label(base)),
        table=lambda: analysis.bin_table(result, label(base)),
        how=f"Modules are sorted by the mean rank drift of their neurons and cut into {len(result.names)} "
        "bins of equally many modules; retention is pooled over a bin's neurons.",
    )


@panel("overlap", "pd_jaccard", "Which neurons are chosen differently?", reads=_READS)
def overlap(run: Run, *, base: str = "", bins: int = BINS) -> Panel:
    """Overlap of the neurons kept with those of a baseline, by drift of the modules."""
    base = choose_base(run, base)
    result = bin_decisions(run, base, bins)
    title = (
        f"Overlap with {label(base)} goes from {result.jaccard[0]:.2f} in the most stable modules to "
        f"{result.jaccard[-1]:.2f} in the most unstable"
    )
    return Panel(
        _plot_overlap(result, base),
        "Neurons kept by both over neurons kept by either; near the dashed line, chance alone does it.",
        title=title if len(result.jaccard) > 1 else "",
        table=lambda: analysis.bin_table(result, label(base)),
        how="Dashed: what two independent choices of these sizes would share. Near it the two methods chose "
        "unrelated neurons.",
    )


@panel("shares", "pd_shares", "Who keeps the neurons?", reads=_READS)
def shares(run: Run, *, base: str = "", bins: int = BINS) -> Panel:
    """Division of a bin's neurons between GPrune and a baseline."""
    base = choose_base(run, base)
    result = bin_decisions(run, base, bins)
    return Panel(
        _plot_shares(result, base),
        "How the neurons of a bin divide between the two methods.",
        table=lambda: analysis.bin_table(result, label(base)),
    )


@panel("neurons_kept", "pd_neurons", "Neurons kept, layer by layer")
def neurons_kept(run: Run, *, selected: Selection = NOTHING) -> Panel:
    """Share of each layer's neurons that every method keeps."""
    return _by_layer(run, "neurons", "FFN neurons of each layer.", selected)


@panel("groups_kept", "pd_heads", "Attention kept, layer by layer")
def groups_kept(run: Run, *, selected: Selection = NOTHING) -> Panel:
    """Share of each layer's key/value groups that every method keeps."""
    return _by_layer(run, "key/value groups", "Key/value groups, each with its query heads.", selected)


def _by_layer(run: Run, unit: str, caption: str, selected: Selection) -> Panel:
    masks = {method: mask for method, mask in run.masks().items() if method in METHOD_LABELS}
    run.require(masks, stages.masks)
    if len(masks) > _MOST_LINES:
        caption += " Forms and controls are drawn when their name is clicked."
    return Panel(
        plot_by_layer(masks, unit, selected),
        caption,
        table=lambda: analysis.layer_table({label(method): mask for method, mask in masks.items()}),
    )


@panel("scales", "pd_scales", "Learned scales, layer by layer")
def scales(run: Run) -> Panel:
    """Histogram of the scales of GPrune's kept neurons by layer."""
    record = run.load(stages.scales, "gprune")
    low, high = np.quantile(record.ffn[record.ffn != 0], (0.25, 0.75))
    return Panel(
        _plot_scales(record),
        "Factors of the kept FFN neurons, learned after masks and repair with every weight fixed.",
        title=f"Half of the kept neurons are scaled by {low:.3f} to {high:.3f}",
        how="A factor multiplies the neuron's column of down_proj. Away from the dashed line the neuron counts more, "
        "or less, than in the dense model.",
    )


@panel("parts", "pd_acting", "What does each part of GPrune do?")
def parts(run: Run) -> Panel:
    """Share of the decisions that would be others without a part of GPrune."""
    effect = derived_cache.acting(run)
    idle = [part for part, share in effect.decisions_changed.items() if share < LEAST]
    return Panel(
        _plot_parts(effect),
        "Share of the decisions on neurons that would be others without a part; left of the dashed line "
        "nothing should be credited to it.",
        title=f"{' and '.join(idle)} {'acts' if len(idle) == 1 else 'act'} on next to no decision" if idle else "",
        table=lambda: ablation_effect.effect_table(effect),
        how="Each part is taken away alone from the run's own decision, at the same retention, and all else "
        "stays: without RASA every module is scored from A, without MSL all thresholds are as they started, "
        "without BCM the neurons of a layer are ranked in one list.",
    )


@panel("explained", "pd_explained", "Do the modules explain the drift?")
def explained(run: Run) -> Panel:
    """Share of the drift's variance that lies between modules."""
    result = derived_cache.acting(run).drift_explained
    return Panel(
        _plot_explained(result),
        "Share of the variance of rank drift within layers that lies between modules: what knowing a "
        "neuron's module says of its drift.",
        title=f"The modules explain {100 * result.modules:.0f} % of the drift's variance, random ones "
        f"{100 * result.random:.0f} %",
        table=lambda: ablation_effect.explained_table(result),
        how="Random modules of the same sizes explain a little by chance. Where the initialization explains "
        "more than the modules, the refinement has given up part of what the split by drift had found.",
    )


def baselines(run: Run) -> list[str]:
    """Return the masks that GPrune's can be compared with."""
    return [name for name in run.masked if name != "gprune"]


def choose_base(run: Run, base: str) -> str:
    """Return the baseline, by default that of the run's own metric.

    Raises SettingsError where the run has no such masks, MissingResultError where it has none at all.
    """
    names = baselines(run)
    if not base:
        return default_baseline(run, run.require(names, stages.masks, own_method(run.study.metric)))
    if names:
        require_choice("base", base, tuple(names))
    return base


def bin_decisions(run: Run, base: str, bins: int) -> Bins:
    """Compare GPrune with a baseline by drift of the modules."""
    require(1 <= bins <= MOST_BINS, "bins", bins, f"1 to {MOST_BINS}")
    drift, partition = run.key(stages.drift), run.key(stages.partition)
    gprune, baseline = run.key(stages.masks), run.key(stages.masks, base)
    return derived_cache.decision_bins(run.root, drift, partition, gprune, baseline, bins)


def _plot_retention(result: Bins, base: str) -> go.Figure:
    """Fig. 3a."""
    figure = go.Figure()
    for method, values in ((base, result.base), ("gprune", result.ours)):
        marks.bars(
            figure, result.names, values, label(method), METHOD_COLORS[method], "%{x}: %{y:.3f} kept",
            # two digits: three of neighbouring bars touch where the card is narrow
            text=[f"{value:.2f}" for value in values], textposition="outside", cliponaxis=False,
        )  # fmt: skip
    style(figure, _DRIFT_AXIS, "retention of neurons", 380, barmode="group", bargap=0.25)
    figure.update_yaxes(range=[0, min(1.08, 1.15 * max(result.ours.max(), result.base.max(), 0.05))])
    return figure.update_xaxes(type="category")


def _plot_overlap(result: Bins, base: str) -> go.Figure:
    """Fig. 3b: Jaccard index of the kept neurons, over its chance level."""
    figure = go.Figure()
    name, line = "two independent masks of these retentions", {"color": GREY, "dash": "dash", "width": 2}
    hover = "%{x}: %{y:.3f} by chance<extra></extra>"
    marks.curve(figure, result.names, result.chance, name, line, hover, symbol="line-ew-open", size=12)
    marks.curve(
        figure, result.names, result.jaccard, f"GPrune and {label(base)}",
        {"color": METHOD_COLORS["gprune"], "width": 2}, "%{x}: Jaccard %{y:.3f}<extra></extra>",
        symbol=METHOD_SYMBOLS["gprune"], size=10, mode="lines+markers+text", cliponaxis=False,
        text=[f"{value:.3f}" for value in result.jaccard], textposition="top center",
    )  # fmt: skip
    style(figure, _DRIFT_AXIS, "Jaccard of the kept neurons", 380)
    figure.update_yaxes(range=[0, 1.08])
    return figure.update_xaxes(type="category")


def _plot_scales(record: LearnedScales) -> go.Figure:
    edges, neurons, _ = scale_histogram(record)
    percents = 100 * neurons / np.maximum(neurons.sum(axis=1, keepdims=True), 1)
    figure = marks.heat(
        percents, (edges[1:] + edges[:-1]) / 2, list(range(len(percents))), "% of the layer's kept neurons",
        hoverinfo=None, hovertemplate="layer %{y}, scale %{x:.3f}: %{z:.1f} %<extra></extra>",
    )  # fmt: skip
    figure.add_vline(1, line={"color": GREY, "dash": "dash"})
    style(figure, "learned scale of a kept neuron (1: unchanged)", "layer", 380)
    layer_axis(figure, len(percents), "y")
    return figure


def _plot_shares(result: Bins, base: str) -> go.Figure:
    figure = go.Figure()
    names = ("both", "only GPrune", f"only {label(base)}", "neither")
    colors = ("#5B7F95", METHOD_COLORS["gprune"], METHOD_COLORS[base], PALE)
    for name, values, color in zip(names, result.shares, colors, strict=True):
        marks.bars(figure, values, result.names, name, color, "%{y}: %{x:.1f} %", orientation="h")
    style(figure, "share of the bin's neurons (%)", "drift bin", 320, barmode="stack", bargap=0.25)
    figure.update_yaxes(type="category", autorange="reversed", title_standoff=8)
    figure.update_layout(legend={"traceorder": "normal"}, margin={"l": 92})
    return figure.update_xaxes(range=[0, 100])


def plot_by_layer(masks: dict[str, PruningMasks], unit: str, selected: Selection = NOTHING) -> go.Figure:
    """Plot the retained share of each layer's `neurons` or `key/value groups`, one line a method.

    Of more methods than can be told apart, forms and controls wait in the legend for a click.
    """
    figure, crowded = go.Figure(), len(masks) > _MOST_LINES
    for method, mask in masks.items():
        neurons, groups = analysis.layer_retention(mask)
        values = neurons if unit == "neurons" else groups
        line = {"color": METHOD_COLORS[method], "dash": METHOD_DASHES[method], "width": 2}
        marks.curve(
            figure, np.arange(len(values)), values, label(method), line, "layer %{x}: %{y:.3f} kept",
            symbol=METHOD_SYMBOLS[method], size=7, customdata=marks.layer_data(range(len(values))),
            visible="legendonly" if crowded and family(method) != method else True,
        )  # fmt: skip
    # the legend stands above in two columns, and may take half of the height
    style(figure, "layer", f"share of {unit} kept", 320 + (14 * len(masks) if crowded else 0))
    layer_axis(figure, len(next(iter(masks.values())).ffn))
    marks.layer_line(figure, selected)
    return figure.update_yaxes(range=[-0.03, 1.05])


def _plot_parts(effect: AblationEffect) -> go.Figure:
    """Share of the decisions that each part changes; a part that acts on next to none is hollow."""
    names, percents = list(effect.decisions_changed), [100 * share for share in effect.decisions_changed.values()]
    color, limit = METHOD_COLORS["gprune"], 100 * LEAST
    figure = go.Figure()
    colors = [color if share >= limit else "rgba(0,0,0,0)" for share in percents]
    hover = "without %{y}: %{x:.2f} % of the decisions change<extra></extra>"
    marks.bars(figure, percents, names, "", colors, hover, orientation="h", showlegend=False)
    figure.update_traces(marker_line={"color": color, "width": 2})
    # next to the line where the bar ends before it
    x, text = [max(share, limit) for share in percents], [f" {share:.1f} %" for share in percents]
    marks.guide(figure, x, names, {}, mode="text", cliponaxis=False, text=text, textposition="middle right")
    style(figure, "neurons decided otherwise without it (%)", "part of GPrune", 260, bargap=0.4)
    figure.add_vline(x=limit, line={"color": GREY, "dash": "dash", "width": 2})
    figure.update_yaxes(type="category", autorange="reversed")
    return figure.update_xaxes(range=[0, 1.2 * max(*percents, 2 * limit)])


def _plot_explained(result: Explained) -> go.Figure:
    """Share of the drift's variance between modules: the run's, those before refinement, random ones."""
    percents = {name: 100 * share for name, share in ablation_effect.kinds(result).items()}
    figure = go.Figure()
    marks.bars(
        figure, list(percents.values()), list(percents), "",
        [METHOD_COLORS["gprune"] if name == "modules of the run" else PALE for name in percents],
        "%{y}: %{x:.1f} % explained<extra></extra>", orientation="h", cliponaxis=False,
        text=[f"{share:.0f} %" for share in percents.values()], textposition="outside",
    )  # fmt: skip
    style(figure, "variance of rank drift explained (%)", "", 260, bargap=0.4)
    figure.update_yaxes(type="category", autorange="reversed")
    return figure.update_xaxes(range=[0, min(112, 1.2 * max(percents.values(), default=1.0) + 1)])
