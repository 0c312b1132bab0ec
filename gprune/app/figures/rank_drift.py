"""Figures of rank drift (Fig. 1a)."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from gprune.analysis import drift as analysis
from gprune.analysis.verdict import drift_title
from gprune.app.ui import chart_style, derived_cache, marks
from gprune.app.ui.chart_style import GREY, PAIR, layer_axis, style
from gprune.app.ui.panel import Panel, in_range, panel
from gprune.app.ui.text import plain
from gprune.app.ui.unit import NOTHING, Selection, module_labels
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.pruning.ranking import ranks as rank_neurons
from gprune.records import Array
from gprune.study.settings import require, require_choice

SURVIVAL, HISTOGRAM = "survival", "histogram"
SURVIVAL_BINS = 200
BINS, MOST_BINS = 50, 1000
MOST_POINTS = 1500
"""neurons of a layer beyond which the scatter becomes a two-dimensional histogram"""
_JOINT_BINS = 48
_LAYERS_HEIGHT, _JOINT_HEIGHT = 340, 440
_DRIFT_AXIS = "rank drift d (0 = rank unchanged, 1 = from first to last)"
_LINES = {
    analysis.CROSS: {"color": PAIR, "dash": "solid", "width": 3},
    analysis.HALVES: {"color": PAIR, "dash": "dash", "width": 2},
    analysis.FLOOR_PRIMARY: {"color": GREY, "dash": "solid", "width": 2},
    analysis.FLOOR_AUXILIARY: {"color": GREY, "dash": "dot", "width": 2},
}
_CAPTIONS = {
    SURVIVAL: "How many neurons move by d or more; shaded is what lies above the re-sampling floor (grey).",
    HISTOGRAM: "Share of the neurons by how far their rank moves; grey is what re-sampling one text does.",
}


@panel(
    "drift", "rd_histogram", "Rank drift of all neurons", reads={"form": "rd_form", "bins": "rd_bins", "log": "rd_log"}
)
def drift(run: Run, *, form: str = SURVIVAL, bins: int = BINS, log: bool = False) -> Panel:
    """Share of neurons by how far their rank moves, as a curve or as a histogram."""
    require_choice("form", form, (SURVIVAL, HISTOGRAM))
    require(1 <= bins <= MOST_BINS, "bins", bins, f"1 to {MOST_BINS}")
    curves = derived_cache.drift_curves(run.root, run.key(stages.drift), bins if form == HISTOGRAM else SURVIVAL_BINS)
    cross, _, floor, _ = curves
    neurons = run.load(stages.drift).magnitude.size
    return Panel(
        plot_histogram(curves, log) if form == HISTOGRAM else plot_survival(curves),
        _CAPTIONS[form],
        title=drift_title(curves),
        how=f"The drift d of a neuron is how far its rank within the layer moves when the importance scores "
        f"({plain(run.study.metric)}) come from B = {plain(run.study.auxiliary)} instead of "
        f"A = {plain(run.study.primary)}; {neurons:,} FFN neurons. Grey: two disjoint halves of one text, "
        "what noise alone does. Dashed: halves of A against halves of B, equal in size to the grey ones. "
        "ρ is the Spearman correlation, median over layers.",
        alt=f"median drift {cross.median:.3f} across texts, {floor.median:.3f} re-sampled",
        table=lambda: analysis.distribution_table(curves),
    )


@panel("drift_by_layer", "rd_layers", "Which layers drift?")
def drift_by_layer(run: Run, *, selected: Selection = NOTHING) -> Panel:
    """Layer by drift bin: share of the layer's neurons."""
    key = run.key(stages.drift)
    table = derived_cache.drift_layers(run.root, key)
    layer = most_drifting_layer(run)
    median = table["median drift A|B"][layer]
    return Panel(
        plot_layers(derived_cache.drift_by_layer(run.root, key, 40), selected),
        "Each row is a layer; colour is the share of its neurons.",
        action="Click one to select it.",
        title=f"Layer {layer} drifts most: median d {median:.3f}" if len(table) > 1 else "",
        table=lambda: table,
    )


def most_drifting_layer(run: Run) -> int:
    """Return the layer with the largest median drift."""
    table = derived_cache.drift_layers(run.root, run.key(stages.drift))
    return int(table["median drift A|B"].to_numpy().argmax())


@panel("correlation", "rd_correlation", "How well do the ranks agree, layer by layer?")
def correlation(run: Run, *, selected: Selection = NOTHING) -> Panel:
    """Spearman correlation of the ranks in every layer."""
    table = derived_cache.drift_layers(run.root, run.key(stages.drift))
    return Panel(
        _plot_correlations(table, selected),
        "Spearman correlation of the ranks in each layer; grey is what re-sampling one text leaves.",
        table=lambda: table,
    )


@panel("ranks", "rd_joint", "Rank on A against rank on B", reads={"layer": "layer"})
def ranks(run: Run, *, layer: int | None = None, selected: Selection = NOTHING) -> Panel:
    """Rank on A against rank on B of one layer: that with the largest median drift where none is named."""
    primary, auxiliary = (run.load(stages.scores, role).ffn for role in stages.PAIR)
    layer = in_range("layer", most_drifting_layer(run) if layer is None else layer, len(primary))
    rho = float(run.load(stages.drift).correlation[layer])
    return Panel(
        plot_joint(primary[layer], auxiliary[layer], layer, module_labels(run, layer), selected),
        "On the dashed line a neuron has the same rank on both texts; 1 = most important.",
        title=f"Rank on A against rank on B in layer {layer}: Spearman {rho:.2f}",
    )


def plot_survival(curves: list[analysis.Distribution]) -> go.Figure:
    """Plot the share of neurons that move by d or more; the excess over the higher re-sampling floor is shaded."""
    figure, _ = marks.survival(curves, _LINES, _legend_entry)
    style(figure, _DRIFT_AXIS, "neurons that move by d or more (%)", 420)
    figure.update_xaxes(range=[0, _drift_end(curves)])
    return figure.update_yaxes(range=[0, 101])


def _legend_entry(curve: analysis.Distribution) -> str:
    return f"{curve.name}: median d {curve.median:.3f}, ρ {curve.correlation:.2f}"


def _drift_end(curves: list[analysis.Distribution]) -> float:
    # where the last curve has run out, so that the floor's narrow peak stays readable
    last = max(int(np.flatnonzero(curve.shares).max()) for curve in curves)
    return min(1.0, (last + 2) / len(curves[0].shares))


def plot_histogram(curves: list[analysis.Distribution], log: bool) -> go.Figure:
    """Plot histograms of the drift over each other: bars across texts, grey steps for the floors."""
    figure = go.Figure()
    edges = np.linspace(0.0, 1.0, len(curves[0].shares) + 1)
    for curve in curves:
        if curve.name != analysis.CROSS:
            steps, line = np.append(curve.shares, curve.shares[-1]), _LINES[curve.name] | {"shape": "hv"}
            hover = f"d from %{{x:.3f}}: %{{y:.2f}} % of neurons<extra>{curve.name}</extra>"
            marks.curve(figure, edges, steps, _legend_entry(curve), line, hover)
            continue
        middle, hover = (edges[:-1] + edges[1:]) / 2, "d ≈ %{x:.3f}: %{y:.2f} % of neurons<extra>A | B</extra>"
        marks.bars(figure, middle, curve.shares, _legend_entry(curve), PAIR, hover, width=edges[1], opacity=0.55)
    style(figure, _DRIFT_AXIS, "share of neurons (%)", 420, bargap=0)
    figure.update_xaxes(range=[0, _drift_end(curves)])
    if log:
        shares = np.concatenate([curve.shares for curve in curves])
        positive = shares[shares > 0]
        figure.update_yaxes(rangemode="normal", **chart_style.log_ticks(float(positive.min()), float(positive.max())))
    return figure


def _plot_correlations(table: pd.DataFrame, selected: Selection) -> go.Figure:
    figure = go.Figure()
    curves = (
        ("Spearman A|B", "A | B", {"color": PAIR}, "circle"),
        ("Spearman half A|half B", "half A | half B", {"color": PAIR, "dash": "dash"}, "diamond-open"),
        ("Spearman, A re-sampled", "A re-sampled", {"color": GREY}, "square"),
        ("Spearman, B re-sampled", "B re-sampled", {"color": GREY, "dash": "dot"}, "square-open"),
    )
    for column, name, line, symbol in curves:
        marks.curve(
            figure, table["layer"], table[column], name, line | {"width": 2}, "layer %{x}: %{y:.3f}",
            symbol=symbol, size=6, customdata=marks.layer_data(table["layer"]),
        )  # fmt: skip
    style(figure, "layer", "Spearman correlation of ranks", _LAYERS_HEIGHT)
    layer_axis(figure, len(table))
    marks.layer_line(figure, selected)
    return figure


def plot_layers(shares: Array, selected: Selection = NOTHING) -> go.Figure:
    """Plot (layers, bins) shares of each layer's neurons as a heat map."""
    edges = np.linspace(0.0, 1.0, shares.shape[1] + 1)
    bins = int(np.flatnonzero(shares.sum(axis=0)).max()) + 1
    middle = ((edges[:-1] + edges[1:]) / 2)[:bins]
    figure = marks.heat(shares[:, :bins], middle, np.arange(len(shares)), "% of layer")
    row, column = (index.ravel() for index in np.indices((len(shares), bins)))
    hover = "layer %{y}, d ≈ %{x:.3f}: %{customdata[3]:.2f} % of the layer"
    marks.cells(figure, middle[column].astype(np.float32), row, row, shares[row, column], hover)
    style(figure, "rank drift d", "layer", _LAYERS_HEIGHT)
    layer_axis(figure, len(shares), "y")
    marks.layer_line(figure, selected, "y")
    return figure


def plot_joint(
    primary: Array, auxiliary: Array, layer: int, modules: Array | None = None, selected: Selection = NOTHING
) -> go.Figure:
    """Plot the ranks of one layer on A and B: points while they are few, else counts in cells.

    Scores, and `modules` where there are modules, are (neurons,).
    """
    top = max(len(primary) - 1, 1)
    x, y = ((rank_neurons(scores) / top).astype(np.float32) for scores in (primary, auxiliary))
    if len(primary) <= MOST_POINTS:
        figure = go.Figure()
        module = np.full(len(x), marks.NONE) if modules is None else modules
        suffix = "" if modules is None else ", module %{customdata[1]}"
        hover = f"neuron %{{customdata[2]}}{suffix}<br>rank %{{x:.3f}} on A, %{{y:.3f}} on B<extra></extra>"
        data, look = marks.identity(layer, module, np.arange(len(x))), {"color": PAIR, "size": 6, "opacity": 0.6}
        marks.points(figure, x, y, look, hover, customdata=data, name="neurons", showlegend=False)
    else:
        figure = _plot_counts(analysis.joint_ranks(primary, auxiliary, _JOINT_BINS))
    marks.guide(figure, [0, 1], [0, 1], {"color": GREY, "dash": "dash", "width": 1.5}, name="same rank")
    if selected.layer == layer:
        _mark_selected(figure, x, y, modules, selected)
    style(figure, f"rank on A in layer {layer} (1 = most important)", "rank on B", _JOINT_HEIGHT)
    figure.update_xaxes(range=[-0.02, 1.02], constrain="domain")
    return figure.update_yaxes(range=[-0.02, 1.02], constrain="domain", scaleanchor="x", scaleratio=1)


def _mark_selected(figure: go.Figure, x: Array, y: Array, modules: Array | None, selected: Selection) -> None:
    if selected.neuron is not None:
        marks.ring(figure, x[selected.neuron], y[selected.neuron], f"neuron {selected.neuron}")
    elif selected.module is not None and modules is not None:
        members = modules == selected.module
        marks.ring(figure, None, None, f"module {selected.module}")
        figure.data[-1].update(x=x[members], y=y[members], marker={"size": 9, "line": {"width": 1.5}})


def _plot_counts(counts: Array) -> go.Figure:
    middle = (np.arange(len(counts)) + 0.5) / len(counts)
    logs = np.where(counts > 0, np.log10(np.maximum(counts, 1)), np.nan).astype(np.float32)
    powers = np.arange(int(np.nanmax(logs)) + 1)
    hover = "rank %{x:.2f} on A, %{y:.2f} on B, neurons: %{customdata}<extra></extra>"
    figure = marks.heat(
        logs, middle, middle, "neurons", name="neurons", customdata=counts.astype(np.int32), hoverinfo=None,
        hovertemplate=hover,
    )  # fmt: skip
    figure.data[0].colorbar.update(tickvals=powers, ticktext=[f"{10**power:,}" for power in powers])
    return figure
