"""Figures of rank drift (Fig. 1a) and of module agreement (Fig. 1b)."""

from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from gprune import records
from gprune.analysis import ablation_effect
from gprune.analysis import agreement as agreement_analysis
from gprune.analysis import drift as rank_analysis
from gprune.analysis.ablation_effect import Explained
from gprune.analysis.verdict import agreement_title, drift_title
from gprune.app.ui import chart_style, derived_cache, marks, story
from gprune.app.ui.chart_style import GREY, METHOD_COLORS, PAIR, layer_axis, style
from gprune.app.ui.panel import NOTHING, Panel, Selection, index_or_middle, module_labels, panel
from gprune.app.ui.text import escape, in_figure, name_texts, names_in_figure, text_pair
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.pipeline.stages.rasa import COMPARISONS, CONTROL, FANG, SUBSTITUTION, SWAP, Comparison
from gprune.pruning.ranking import ranks as rank_neurons
from gprune.records import Array
from gprune.study import Study
from gprune.study.settings import require, require_choice

SURVIVAL, HISTOGRAM = "survival", "histogram"
SURVIVAL_BINS = 200
BINS, MOST_BINS = 50, 1000
"""default and maximum number of bins of the histogram"""
MOST_POINTS = 1500
"""number of neurons of a layer above which the scatter becomes a two-dimensional histogram"""
_JOINT_BINS, _LAYER_BINS = 48, 40
_LAYERS_HEIGHT, _JOINT_HEIGHT = 340, 440
_DRIFT_AXIS = "rank drift d (0 = rank unchanged, 1 = from first to last)"
_LINES = {
    rank_analysis.CROSS: {"color": PAIR, "dash": "solid", "width": 3},
    rank_analysis.HALVES: {"color": PAIR, "dash": "dash", "width": 2},
    rank_analysis.FLOOR_PRIMARY: {"color": GREY, "dash": "solid", "width": 2},
    rank_analysis.FLOOR_AUXILIARY: {"color": GREY, "dash": "dot", "width": 2},
}
_FORM_CAPTIONS = {
    SURVIVAL: "Share of {}s that shift by at least d. Shaded: the part above the resampling floor (grey).",
    HISTOGRAM: "Share of {}s by the size of their rank shift. Grey: the effect of resampling one text.",
}


@panel(
    "drift", "rd_histogram", "Rank drift of all neurons", reads={"form": "rd_form", "bins": "rd_bins", "log": "rd_log"}
)
def drift(run: Run, *, form: str = HISTOGRAM, bins: int = BINS, log: bool = False) -> Panel:
    """Share of neurons by the size of their rank shift, as a curve or as a histogram."""
    require(1 <= bins <= MOST_BINS, "bins", bins, f"1 to {MOST_BINS}")
    return distribution_panel(run, escape(run.study.metric), run.load(stages.drift).magnitude.size, form, bins, log)


def distribution_panel(
    run: Run, scores: str, units: int, form: str, bins: int, log: bool = False, criterion: str = ""
) -> Panel:
    """Return the panel of the rank drift of neurons, or of experts by a criterion.

    `scores` is the name of the scores, and `units` the number of units.
    """
    require_choice("form", form, (SURVIVAL, HISTOGRAM))
    curves = story.drift_distributions(run, bins if form == HISTOGRAM else SURVIVAL_BINS, criterion)
    # across texts, between halves of different texts, and resampling of each text
    cross, _, floor, _ = curves
    unit, (first, second) = run.study.unit, text_pair(run.study)
    name = "FFN neurons" if unit == "neuron" else "experts"
    figure = plot_histogram(curves, log, unit) if form == HISTOGRAM else plot_survival(curves, unit)
    figure.for_each_trace(lambda trace: trace.update(name=in_figure(name_texts(trace.name or "", run.study))))
    return Panel(
        figure,
        _FORM_CAPTIONS[form].format(unit),
        title=drift_title(curves),
        how=f"The drift d of {'a neuron' if unit == 'neuron' else 'an expert'} is the shift of its rank within the "
        f"layer when the importance scores ({scores}) come from {second} instead of {first}; {units:,} {name}. Grey: "
        f"two disjoint halves of one text, the effect of noise alone. Dashed: halves of {first} against halves of "
        f"{second}, as large as the grey ones."
        + (" ρ is the Spearman correlation, median over layers." if np.isfinite(cross.correlation) else ""),
        alt=f"median drift {cross.median:.3f} across texts, {floor.median:.3f} resampled",
        table=lambda: rank_analysis.distribution_table(curves, unit),
    )


@panel("drift_by_layer", "rd_layers", "Which layers drift?")
def drift_by_layer(run: Run, *, selected: Selection = NOTHING) -> Panel:
    """Share of each layer's neurons in each bin of rank drift."""
    key = run.key(stages.drift)
    table = derived_cache.drift_layers(run.root, key)
    layer = most_drifting_layer(run)
    median = table["median drift A|B"][layer]
    return Panel(
        plot_drift_by_layer(derived_cache.compute_drift_by_layer(run.root, key, _LAYER_BINS), selected),
        "Each row is a layer. Colour shows the share of the layer’s neurons in each bin of drift.",
        action="Click a row to select its layer.",
        title=f"Layer {layer} drifts most: median d {median:.3f}" if len(table) > 1 else "",
        table=table.copy,
    )


def most_drifting_layer(run: Run) -> int:
    """Return the layer with the largest median drift."""
    table = derived_cache.drift_layers(run.root, run.key(stages.drift))
    return int(table["median drift A|B"].to_numpy().argmax())


@panel("ranks", "rd_joint", "Ranks on both texts", reads={"layer": "layer"})
def ranks(run: Run, *, layer: int | None = None, selected: Selection = NOTHING) -> Panel:
    """Rank on A against rank on B in one layer, by default the one with the largest median drift."""
    primary, auxiliary = (run.load(stages.scores, role).ffn for role in stages.PAIR)
    layer = index_or_middle("layer", most_drifting_layer(run) if layer is None else layer, len(primary))
    rho, names = float(run.load(stages.drift).correlation[layer]), names_in_figure(run.study)
    (first, second), pair = text_pair(run.study), (names["A"], names["B"])
    return Panel(
        plot_joint(primary[layer], auxiliary[layer], layer, module_labels(run, layer), selected, pair),
        "Neurons on the dashed line have the same rank on both texts; 1 is the most important.",
        title=f"Ranks on {first} and {second} in layer {layer}: Spearman {rho:.2f}",
    )


def plot_survival(curves: list[rank_analysis.Distribution], unit: str = "neuron") -> go.Figure:
    """Plot the share of units that shift by d or more; the excess over the higher resampling floor is shaded."""
    figure, _ = marks.survival_curves(curves, _LINES, _legend_entry)
    style(figure, _DRIFT_AXIS, f"{unit}s that shift by d or more (%)", 420)
    figure.update_xaxes(range=[0, _axis_end(curves)])
    return figure.update_yaxes(range=[0, 101])


def _legend_entry(curve: rank_analysis.Distribution) -> str:
    correlation = f", ρ {curve.correlation:.2f}" if np.isfinite(curve.correlation) else ""
    return f"{curve.name}: median d {curve.median:.3f}{correlation}"


def _axis_end(curves: list[rank_analysis.Distribution]) -> float:
    # the axis ends with the last curve, so that the narrow peak of the resampling floor stays readable
    last = max(int(np.flatnonzero(curve.shares).max()) for curve in curves if curve.shares.any())
    # one bin beyond the right edge of the last one
    return min(1.0, (last + 2) / len(curves[0].shares))


def plot_histogram(curves: list[rank_analysis.Distribution], log: bool, unit: str = "neuron") -> go.Figure:
    """Plot histograms of the drift over each other: bars for drift across texts, steps for the other curves.

    If `log` is True, the axis of shares is logarithmic.
    """
    figure = go.Figure()
    edges = np.linspace(0.0, 1.0, len(curves[0].shares) + 1)
    for curve in curves:
        if curve.name != rank_analysis.CROSS:
            # a step curve repeats its last value to reach the right edge
            steps, line = np.append(curve.shares, curve.shares[-1]), _LINES[curve.name] | {"shape": "hv"}
            hover = f"d from %{{x:.3f}}: %{{y:.2f}}% of {unit}s<extra>{curve.name}</extra>"
            marks.add_curve(figure, edges, steps, _legend_entry(curve), line, hover)
            continue
        middle, hover = (edges[:-1] + edges[1:]) / 2, f"d ≈ %{{x:.3f}}: %{{y:.2f}}% of {unit}s<extra>A | B</extra>"
        marks.add_bars(figure, middle, curve.shares, _legend_entry(curve), PAIR, hover, width=edges[1], opacity=0.8)
    style(figure, _DRIFT_AXIS, f"share of {unit}s (%)", 420, bargap=0)
    figure.update_xaxes(range=[0, _axis_end(curves)])
    if log:
        shares = np.concatenate([curve.shares for curve in curves])
        positive = shares[shares > 0]
        figure.update_yaxes(rangemode="normal", **chart_style.log_ticks(float(positive.min()), float(positive.max())))
    return figure


def plot_drift_by_layer(shares: Array, selected: Selection = NOTHING) -> go.Figure:
    """Plot the (layers, bins) percentages of each layer's neurons by rank drift as a heat map."""
    edges = np.linspace(0.0, 1.0, shares.shape[1] + 1)
    # up to the last bin with a neuron
    bins = int(np.flatnonzero(shares.sum(axis=0)).max()) + 1
    middle = ((edges[:-1] + edges[1:]) / 2)[:bins]
    figure = marks.heat_map(shares[:, :bins], middle, np.arange(len(shares)), "% of layer")
    row, column = (index.ravel() for index in np.indices((len(shares), bins)))
    hover = "layer %{y}, d ≈ %{x:.3f}: %{customdata[3]:.2f}% of the layer"
    marks.add_cells(figure, middle[column].astype(np.float32), row, row, shares[row, column], hover)
    style(figure, "rank drift d", "layer", _LAYERS_HEIGHT)
    layer_axis(figure, len(shares), "y")
    marks.add_layer_line(figure, selected, "y")
    return figure


def plot_joint(
    primary: Array, auxiliary: Array, layer: int, modules: Array | None = None, selected: Selection = NOTHING,
    texts: tuple[str, str] = ("A", "B"),
) -> go.Figure:  # fmt: skip
    """Plot the ranks of one layer on both texts: as points, or as counts in cells above MOST_POINTS neurons.

    `primary` and `auxiliary` are the (neurons,) scores on the two texts, `modules` the (neurons,) modules or None.
    `texts` are the names of the two texts.
    """
    highest = max(len(primary) - 1, 1)
    x, y = ((rank_neurons(scores) / highest).astype(np.float32) for scores in (primary, auxiliary))
    if len(primary) <= MOST_POINTS:
        figure = go.Figure()
        module = np.full(len(x), marks.NONE) if modules is None else modules
        suffix = "" if modules is None else ", module %{customdata[1]}"
        hover = f"neuron %{{customdata[2]}}{suffix}<br>rank %{{x:.3f}} on {texts[0]}, %{{y:.3f}} on {texts[1]}"
        hover += "<extra></extra>"
        data, look = marks.unit_data(layer, module, np.arange(len(x))), {"color": PAIR, "size": 6, "opacity": 0.8}
        marks.add_points(figure, x, y, look, hover, customdata=data, name="neurons", showlegend=False)
    else:
        figure = _plot_joint_counts(rank_analysis.joint_ranks(primary, auxiliary, _JOINT_BINS), texts)
    marks.add_guide(figure, [0, 1], [0, 1], {"color": GREY, "dash": "dash", "width": 1.5}, name="same rank")
    if selected.layer == layer:
        _mark_selected(figure, x, y, modules, selected)
    style(figure, f"rank on {texts[0]}", f"rank on {texts[1]}", _JOINT_HEIGHT)
    figure.update_xaxes(range=[-0.02, 1.02], constrain="domain")
    return figure.update_yaxes(range=[-0.02, 1.02], constrain="domain", scaleanchor="x", scaleratio=1)


def _mark_selected(figure: go.Figure, x: Array, y: Array, modules: Array | None, selected: Selection) -> None:
    if selected.neuron is not None:
        marks.add_ring(figure, x[selected.neuron], y[selected.neuron], f"neuron {selected.neuron}")
    elif selected.module is not None and modules is not None:
        members = modules == selected.module
        # a mark with a legend entry, to which the members are added
        marks.add_ring(figure, None, None, f"module {selected.module}")
        figure.data[-1].update(x=x[members], y=y[members], marker={"size": 9, "line": {"width": 1.5}})


def _plot_joint_counts(counts: Array, texts: tuple[str, str]) -> go.Figure:
    """Plot the (bins, bins) numbers of neurons by their ranks on both texts, coloured on a log scale."""
    middle = (np.arange(len(counts)) + 0.5) / len(counts)
    logs = np.where(counts > 0, np.log10(np.maximum(counts, 1)), np.nan).astype(np.float32)
    powers = np.arange(int(np.nanmax(logs)) + 1)
    hover = f"rank %{{x:.2f}} on {texts[0]}, %{{y:.2f}} on {texts[1]}, neurons: %{{customdata}}<extra></extra>"
    figure = marks.heat_map(
        logs, middle, middle, "neurons", name="neurons", customdata=counts.astype(np.int32), hoverinfo=None,
        hovertemplate=hover,
    )  # fmt: skip
    figure.data[0].colorbar.update(tickvals=powers, ticktext=[f"{10**power:,}" for power in powers])
    return figure


_HOW = "Adjusted Rand Index (ARI) of two partitions of a layer: 0 is agreement by chance, 1 is identical."
_CONTROLS = (
    "Dashed lines with hollow marks are controls. Another k-means seed on the same texts shows how much agreement "
    "the shared seed causes. The initialization alone shows what the refinement adds."
)
_BLUE, _PURPLE = METHOD_COLORS["gprune"], METHOD_COLORS["fang"]
# comparisons of one kind share a hue, and differ in shade, marker and dash; controls are dashed and hollow
_LOOKS = {
    SUBSTITUTION: ((_BLUE, "#5BA3D9", "#3D70B8"), ("circle", "square", "diamond"), ("solid",)),
    SWAP: ((_BLUE,), ("pentagon",), ("dashdot",)),
    FANG: ((_PURPLE,), ("triangle-up", "triangle-down", "star"), ("solid", "longdash", "dashdot")),
    CONTROL: ((_BLUE,), ("circle-open", "square-open", "diamond-open"), ("dash", "dot")),
}
"""colors, symbols and dashes of each kind"""
_PLOT_PIXELS, _LEGEND_LINE_PIXELS = 290, 21


@panel("agreement", "ma_lines", "Agreement of the modules, layer by layer", reads={"comparisons": "ma_pairs"})
def agreement(run: Run, *, comparisons: tuple[str, ...] = (), selected: Selection = NOTHING) -> Panel:
    """Agreement of the modules in every layer, by default for the comparisons of the paper."""
    record = run.agreement()
    for name in comparisons:
        require_choice("comparisons", name, record.comparisons)
    chosen = comparisons or agreement_analysis.default_choice(record.comparisons, run.study.metric)
    names = [name for name in record.comparisons if name in chosen] or list(record.comparisons)
    return Panel(
        plot_agreement(record, names, run.study, selected),
        "0 is agreement by chance, 1 is identical modules. The legend gives mean ± standard deviation over layers.",
        title=escape(name_texts(agreement_title(record), run.study)),
        table=lambda: agreement_analysis.agreement_by_layer(record),
        how=f"{_HOW} {_CONTROLS}",
    )


@panel("module_counts", "ma_counts", "How many modules does each layer have?")
def module_counts(run: Run, *, selected: Selection = NOTHING) -> Panel:
    """Number of modules in each layer."""
    partition = run.load(stages.partition)
    smallest, largest = partition.counts.min(), partition.counts.max()
    per_layer = f"{smallest} to {largest}" if largest > smallest else f"{largest}"
    return Panel(
        _plot_module_counts(partition, selected),
        f"Grey: chosen by the silhouette; blue: after the split and the refinement (profile: "
        f"{escape(partition.profile)}).",
        title=f"{partition.modules} modules, {per_layer} per layer",
        table=lambda: pd.DataFrame(
            {
                "layer": np.arange(len(partition.counts)),
                "modules": partition.counts,
                "chosen by the silhouette": partition.initial_counts,
            }
        ),
    )


@panel("explained", "ma_explained", "Do the modules explain the drift?")
def explained(run: Run) -> Panel:
    """Share of the drift's variance that lies between modules."""
    result = derived_cache.ablation_effects(run).drift_explained
    before = f"before refinement {100 * result.initialization:.0f}%, " if result.initialization is not None else ""
    return Panel(
        _plot_explained(result),
        "Share of the within-layer variance of rank drift that lies between modules: how well a neuron's module "
        "predicts its drift.",
        title=f"The modules explain {100 * result.modules:.0f}% of the drift’s variance ({before}random modules "
        f"{100 * result.random:.0f}%)",
        table=lambda: ablation_effect.explained_table(result),
        how="Random modules of the same sizes explain a little by chance. If the initialization explains more than "
        "the modules, the refinement loses part of what the split by drift separated.",
    )


def partition_pair(run: Run, name: str) -> tuple[records.Partition, records.Partition] | None:
    """Return the two partitions of a comparison, or None if one is missing."""
    comparison = COMPARISONS[name]
    first, second = (stages.compared_partition(run.graph, side) for side in (comparison.first, comparison.second))
    return (run.read(first), run.read(second)) if run.has_result(first) and run.has_result(second) else None


def plot_agreement(
    record: records.Agreement, chosen: Collection[str], study: Study, selected: Selection = NOTHING
) -> go.Figure:
    """Plot the ARI of each comparison over the layers, its mean in the legend; `study` has the names of the texts."""
    figure = go.Figure()
    layers, counts = list(range(record.ari.shape[1])), dict.fromkeys(_LOOKS, 0)
    for name, series in zip(record.comparisons, record.ari, strict=True):
        comparison = COMPARISONS[name]
        # the look of a comparison does not depend on the other chosen comparisons
        look = _comparison_style(comparison, counts[comparison.kind])
        counts[comparison.kind] += 1
        if name not in chosen:
            continue
        mean, deviation = agreement_analysis.mean_std(series)
        title = in_figure(name_texts(comparison.title, study))
        entry, box = f"{title}: {mean:.2f} ± {deviation:.2f}", f"layer %{{x}}: %{{y:.3f}}<extra>{title}</extra>"
        marks.add_curve(figure, layers, series, entry, hover=box, customdata=marks.layer_data(layers), **look)
    # the long names of the legend are stacked below the tick labels and the title of the axis, which take 58 pixels
    below = 58 + _LEGEND_LINE_PIXELS * len(figure.data)
    style(figure, "layer", "Adjusted Rand Index (1 = identical)", _PLOT_PIXELS + below + 16)
    layer_axis(figure, len(layers))
    legend = {"orientation": "v", "y": -52 / _PLOT_PIXELS, "yanchor": "top"}
    figure.update_layout(legend=legend, margin={"b": below}, showlegend=True)
    marks.add_layer_line(figure, selected)
    lowest = min([0.0, *(float(np.min(trace.y)) for trace in figure.data)])
    return figure.update_yaxes(range=[lowest - 0.03, 1.03])


def _comparison_style(comparison: Comparison, index: int) -> dict[str, Any]:
    """Return the line and symbol of a comparison; `index` counts the earlier comparisons of its kind."""
    colors, symbols, dashes = _LOOKS[comparison.kind]
    if comparison.fang:
        colors = (_PURPLE,)
    return {
        "line": {"color": colors[index % len(colors)], "dash": dashes[index % len(dashes)], "width": 2},
        "symbol": symbols[index % len(symbols)],
    }


def _plot_module_counts(partition: records.Partition, selected: Selection) -> go.Figure:
    figure = go.Figure()
    rows = (
        ("chosen by the silhouette", partition.initial_counts, GREY, "square-open"),
        ("final", partition.counts, METHOD_COLORS["gprune"], "circle"),
    )
    for name, values, color, symbol in rows:
        line, hover = {"color": color, "width": 2}, "layer %{x}, modules: %{y}"
        marks.add_curve(figure, np.arange(len(values)), values, name, line, hover, symbol=symbol, size=7)
    style(figure, "layer", "modules", 300)
    layer_axis(figure, len(partition.counts))
    marks.add_layer_line(figure, selected)
    return figure.update_yaxes(rangemode="tozero", tickformat="d")


def _plot_explained(result: Explained) -> go.Figure:
    """Plot the share of the drift's variance between modules: of the run, before refinement, and random."""
    percents = {name: 100 * share for name, share in ablation_effect.shares_by_modules(result).items()}
    figure = go.Figure()
    marks.add_bars(
        figure, list(percents.values()), list(percents), "",
        [METHOD_COLORS["gprune"] if name == "modules of the run" else GREY for name in percents],
        "%{y}: %{x:.1f}% explained<extra></extra>", orientation="h", cliponaxis=False,
        text=[f"{share:.0f}%" for share in percents.values()], textposition="outside",
    )  # fmt: skip
    style(figure, "variance explained (%)", "", 260, bargap=0.4)
    figure.update_yaxes(type="category", autorange="reversed")
    # room for the number next to the longest bar
    return figure.update_xaxes(range=[0, min(112, 1.2 * max(percents.values(), default=1.0) + 1)])
