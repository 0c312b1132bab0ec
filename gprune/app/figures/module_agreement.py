"""Figures of module agreement (Fig. 1b)."""

from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from gprune import records
from gprune.analysis import agreement as analysis
from gprune.analysis.formatting import percent
from gprune.analysis.verdict import agreement_title
from gprune.app.ui import marks
from gprune.app.ui.chart_style import GREY, METHOD_COLORS, layer_axis, style
from gprune.app.ui.panel import Panel, in_range, panel
from gprune.app.ui.text import plain
from gprune.app.ui.unit import NOTHING, Selection
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import AGREEMENT_TITLE, MissingResultError, Run
from gprune.pipeline.stages.comparisons import COMPARISONS, CONTROL, FANG, SUBSTITUTION, SWAP, Comparison
from gprune.pruning.modules.agreement import contingency, matched_overlap
from gprune.study.settings import require_choice

_MOST_MODULES = 24
"""modules of a confusion matrix that have a row of their own"""
MEASURES = {"ari": "Adjusted Rand Index", "overlap": "Matched overlap"}
_CAPTIONS = {
    "ari": "0 is what chance gives, 1 are identical modules; legend: mean ± standard deviation over layers.",
    "overlap": "Share of neurons that keep their module; legend: mean ± standard deviation over layers.",
}
_HOW = {
    "ari": "Adjusted Rand Index of two partitions of a layer: 0 is chance, 1 identical.",
    "overlap": "Share of neurons that keep their module after the best one-to-one matching of modules. It is "
    "not corrected for chance, which is higher where there are fewer modules.",
}
_CONTROLS = (
    "Dashed and hollow: controls. The same texts with another seed of k-means say how much of the agreement "
    "the shared seed makes; the start of the modularization alone says what its refinement adds."
)
_BLUE, _PURPLE = METHOD_COLORS["gprune"], METHOD_COLORS["fang"]
# comparisons of one kind share a hue, and differ in shade, marker and dash; controls are dashed and hollow
_LOOKS = {
    SUBSTITUTION: ((_BLUE, "#5BA3D9", "#2E5FA3"), ("circle", "square", "diamond"), ("solid",)),
    SWAP: ((_BLUE,), ("pentagon",), ("dashdot",)),
    FANG: ((_PURPLE,), ("triangle-up", "triangle-down", "star"), ("solid", "longdash", "dashdot")),
    CONTROL: ((_BLUE,), ("circle-open", "square-open", "diamond-open"), ("dash", "dot")),
}
"""colors, symbols and dashes of each kind"""
_PLOT_PIXELS, _LEGEND_LINE_PIXELS = 290, 21


@panel(
    "agreement",
    "ma_lines",
    "Agreement of the modules, layer by layer",
    reads={"measure": "ma_measure", "comparisons": "ma_pairs"},
)
def agreement(
    run: Run, *, measure: str = "ari", comparisons: tuple[str, ...] = (), selected: Selection = NOTHING
) -> Panel:
    """Agreement of the modules in every layer; without comparisons those of the paper."""
    record = run.agreement()
    require_choice("measure", measure, tuple(MEASURES))
    for name in comparisons:
        require_choice("comparisons", name, record.comparisons)
    chosen = comparisons or analysis.default_choice(record.comparisons, run.study.metric)
    names = [name for name in record.comparisons if name in chosen] or list(record.comparisons)
    texts = zip("ABC", (run.study.primary, run.study.auxiliary, run.study.substitute), strict=True)
    legend = ", ".join(f"{letter} = {plain(text)}" for letter, text in texts if text)
    return Panel(
        plot_agreement(record, measure, names, selected),
        _CAPTIONS[measure],
        title=agreement_title(record),
        table=lambda: analysis.layer_table(record),
        how=f"{_HOW[measure]} {legend}. {_CONTROLS}",
    )


@panel(
    "shared_neurons",
    "ma_confusion",
    "Which modules share their neurons?",
    reads={"comparison": "ma_pair", "layer": "layer"},
)
def shared_neurons(run: Run, *, comparison: str = "", layer: int | None = None) -> Panel:
    """Neurons that the modules of two partitions share, in the middle layer where none is named."""
    pairs = partition_pairs(run)
    if not pairs:
        raise MissingResultError(AGREEMENT_TITLE)
    name = comparison or next(iter(pairs))
    require_choice("comparison", name, tuple(pairs))
    first, second = pairs[name]
    layer = in_range("layer", layer, len(first.counts))
    labels = first.labels[layer], second.labels[layer]
    shared = analysis.confusion(contingency(*labels), _MOST_MODULES)
    names = COMPARISONS[name].first.label, COMPARISONS[name].second.label
    return Panel(
        plot_confusion(shared, *names),
        "A bright diagonal means that modules survive, a bright column that one module swallows others.",
        title=f"Layer {layer}: {percent(matched_overlap(*labels))} of the neurons keep their module, "
        f"{plain(COMPARISONS[name].title)}",
        table=lambda: pd.DataFrame(shared.counts, shared.rows, shared.columns).reset_index(names="module"),
        how=f"Each row is a module of {names[0]}; colour is the share of its neurons that is in a module of "
        f"{names[1]}. The {_MOST_MODULES} largest matches stand by themselves; +n gathers n others.",
    )


@panel("module_counts", "ma_counts", "How many modules does each layer have?")
def module_counts(run: Run, *, selected: Selection = NOTHING) -> Panel:
    """Number of modules in each layer."""
    partition = run.load(stages.partition)
    smallest, largest = partition.counts.min(), partition.counts.max()
    per_layer = f"{smallest} to {largest}" if largest > smallest else f"{largest}"
    return Panel(
        _plot_counts(partition, selected),
        f"Grey: chosen by the silhouette; blue: after the split and the refinement (profile: "
        f"{plain(partition.profile)}).",
        title=f"{partition.modules} modules, {per_layer} a layer",
        table=lambda: pd.DataFrame(
            {
                "layer": np.arange(len(partition.counts)),
                "modules": partition.counts,
                "chosen by the silhouette": partition.initial_counts,
            }
        ),
    )


def partition_pairs(run: Run) -> dict[str, tuple[records.Partition, records.Partition]]:
    """Return the two partitions of every comparison that has both."""
    pairs = {name: partition_pair(run, name) for name in run.agreement().comparisons}
    return {name: pair for name, pair in pairs.items() if pair is not None}


def partition_pair(run: Run, name: str) -> tuple[records.Partition, records.Partition] | None:
    """Return the two partitions of a comparison; None where one is missing."""
    comparison = COMPARISONS[name]
    first, second = (stages.side(run.graph, side) for side in (comparison.first, comparison.second))
    return (run.read(first), run.read(second)) if run.there(first) and run.there(second) else None


def plot_agreement(
    record: records.Agreement, measure: str, chosen: Collection[str] | None = None, selected: Selection = NOTHING
) -> go.Figure:
    """Plot one line a comparison over the layers, with its mean in the legend.

    `measure` is `ari` or `overlap`; all comparisons are drawn where none are `chosen`.
    """
    figure, values = go.Figure(), getattr(record, measure)
    layers, positions = list(range(values.shape[1])), dict.fromkeys(_LOOKS, 0)
    for name, series in zip(record.comparisons, values, strict=True):
        comparison = COMPARISONS[name]
        # a comparison keeps its look whatever else is chosen
        look = _look(comparison, positions[comparison.kind])
        positions[comparison.kind] += 1
        if chosen is not None and name not in chosen:
            continue
        mean, deviation = analysis.spread(series)
        entry, hover = f"{comparison.title}: {mean:.2f} ± {deviation:.2f}", "layer %{x}: %{y:.3f}"
        box = f"{hover}<extra>{comparison.title}</extra>"
        marks.curve(figure, layers, series, entry, hover=box, customdata=marks.layer_data(layers), **look)
    # the long names of the legend stand below each other under the plot
    below = 58 + _LEGEND_LINE_PIXELS * len(figure.data)
    style(figure, "layer", f"{analysis.MEASURES[measure]} (1 = identical)", _PLOT_PIXELS + below + 16)
    layer_axis(figure, len(layers))
    legend = {"orientation": "v", "y": -52 / _PLOT_PIXELS, "yanchor": "top"}
    figure.update_layout(legend=legend, margin={"b": below}, showlegend=True)
    marks.layer_line(figure, selected)
    lowest = min([0.0, *(float(np.min(trace.y)) for trace in figure.data)])
    return figure.update_yaxes(range=[lowest - 0.03, 1.03])


def _look(comparison: Comparison, index: int) -> dict[str, Any]:
    """Line and marker of the comparison that comes `index`-th of its kind."""
    colors, symbols, dashes = _LOOKS[comparison.kind]
    if comparison.fang:
        colors = (_PURPLE,)
    return {
        "line": {"color": colors[index % len(colors)], "dash": dashes[index % len(dashes)], "width": 2},
        "symbol": symbols[index % len(symbols)],
    }


def plot_confusion(shared: analysis.Confusion, first: str, second: str) -> go.Figure:
    """Plot the shares of each module of `first`, a row each in matched order, in the modules of `second`."""
    hover = f"module %{{y}} of {first}, module %{{x}} of {second}: %{{z:.0f}} % of the row, neurons: "
    figure = marks.heat(
        100.0 * shared.shares.astype(np.float32), list(shared.columns), list(shared.rows), "share of row (%)",
        hoverinfo="all", hovertemplate=hover + "%{customdata}<extra></extra>",
        customdata=shared.counts.astype(np.int32), zmin=0, zmax=100,
    )  # fmt: skip
    across = f"module of {second}, in the order of the best match"
    style(figure, across, f"module of {first}", 140 + 17 * max(len(shared.rows), 8))
    # numbers are names here, not quantities
    figure.update_xaxes(type="category", showgrid=False, tickangle=0)
    figure.update_yaxes(type="category", autorange="reversed", showgrid=False)
    return figure.update_layout(margin={"l": 88})


def _plot_counts(partition: records.Partition, selected: Selection) -> go.Figure:
    figure = go.Figure()
    rows = (
        ("chosen by the silhouette", partition.initial_counts, GREY, "square-open"),
        ("in the end", partition.counts, METHOD_COLORS["gprune"], "circle"),
    )
    for name, values, color, symbol in rows:
        line, hover = {"color": color, "width": 2}, "layer %{x}, modules: %{y}"
        marks.curve(figure, np.arange(len(values)), values, name, line, hover, symbol=symbol, size=7)
    style(figure, "layer", "modules", 300)
    layer_axis(figure, len(partition.counts))
    marks.layer_line(figure, selected)
    return figure.update_yaxes(rangemode="tozero", tickformat="d")
