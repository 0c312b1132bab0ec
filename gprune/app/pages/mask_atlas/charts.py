"""Figures of the mask atlas: layers by modules, and layers by key/value groups."""

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from gprune.analysis import mask_map as analysis
from gprune.analysis.mask_map import Atlas
from gprune.app.ui import marks
from gprune.app.ui.chart_style import METHOD_COLORS, PALE, SIGNS, label, layer_axis, style
from gprune.app.ui.text import in_figure
from gprune.app.ui.unit import NOTHING, Selection
from gprune.pruning.ranking import standardize
from gprune.records import Array, PruningMasks, UnitScores

CHANGE, DIFFERS = "change", "differs"
SHOWN = {CHANGE: "Change of retention", DIFFERS: "Share decided differently"}
"""what the colour of a module says"""
LEAST_RANGE = 0.02
"""the colours of changes reach at least so far: rounding is not drawn as a finding"""
_HOVER = (
    "layer %{customdata[0]:.0f}, module %{customdata[1]:.0f}, neurons: %{customdata[3]:.0f}<br>"
    "{first} keeps %{customdata[4]:.1%}, {second} %{customdata[5]:.1%}<br>"
    "%{customdata[6]:.1%} decided differently"
)


def modules(
    atlas: Atlas,
    column: Array,
    named: tuple[str, str],
    shown: str = CHANGE,
    order: str = analysis.BY_DRIFT,
    chosen: Selection = NOTHING,
) -> go.Figure:
    """Layers by modules: the change of retention between two masks, or what they decide differently (SHOWN).

    `column` is (modules,) the place of each module in its layer by `order`, one of `analysis.ORDERS`.
    """
    values = atlas.change if shown == CHANGE else atlas.differs
    cells = analysis.grid(atlas, values, column)
    look = {"hoverinfo": "skip", "hoverongaps": False, "xgap": 1, "ygap": 1} | _colours(atlas, shown)
    figure = go.Figure(go.Heatmap(z=cells.astype(np.float32), **look))
    hover = _HOVER.replace("{first}", in_figure(named[0])).replace("{second}", in_figure(named[1]))
    told = np.column_stack([atlas.size, atlas.first, atlas.second, atlas.differs])
    place = column.astype(np.int16), atlas.layer.astype(np.int16)
    marks.cells(figure, *place, atlas.layer, told, hover, atlas.module)
    axis = "modules of the layer, from stable to unstable (mean drift)" if order == analysis.BY_DRIFT else "module"
    style(figure, axis, "layer", _height(len(cells)))
    figure.update_xaxes(tickmode="linear", tick0=0, dtick=max(1, cells.shape[1] // 16), showgrid=False)
    figure.update_xaxes(range=[-0.5, cells.shape[1] - 0.5], showticklabels=order == analysis.BY_NUMBER)
    if order == analysis.BY_DRIFT:
        figure.update_xaxes(ticks="")
    layer_axis(figure, len(cells), "y", showgrid=False)
    _mark(figure, atlas, column, chosen)
    return figure


def _height(layers: int) -> int:
    """Pixels in which rows of layers can be told apart."""
    return max(320, 120 + 13 * layers)


def _colours(atlas: Atlas, shown: str) -> dict[str, object]:
    """Colours of the heat map: of changes, diverging around 0; of shares, from nothing to the largest."""
    if shown == DIFFERS:
        bar = marks.colorbar("share of neurons", tickformat=".0%")
        top = float(max(atlas.differs.max(), LEAST_RANGE))
        return {"colorscale": "Cividis", "zmin": 0.0, "zmax": top, "colorbar": bar}
    reach = float(max(np.abs(atlas.change).max(), LEAST_RANGE))
    bar = marks.colorbar("change of retention", tickformat="+.0%")
    return {"colorscale": SIGNS, "zmid": 0.0, "zmin": -reach, "zmax": reach, "colorbar": bar}


def _mark(figure: go.Figure, atlas: Atlas, column: Array, chosen: Selection) -> None:
    """Frames the selected module, or the row of the selected layer."""
    if chosen.module is None:
        marks.layer_line(figure, chosen, "y")
        return
    found = np.flatnonzero((atlas.layer == chosen.layer) & (atlas.module == chosen.module))
    for module in found:
        marks.outline(figure, float(column[module]), float(atlas.layer[module]))


def groups(
    masks: dict[str, PruningMasks],
    primary: UnitScores,
    auxiliary: UnitScores,
    chosen: Selection = NOTHING,
) -> go.Figure:
    """Layers by key/value groups: a panel for each method's mask, and one for the scores on each text."""
    scores = {f"score on {letter}": one for letter, one in (("A", primary), ("B", auxiliary))}
    titles = [*(f"{in_figure(label(method))} keeps" for method in masks), *scores]
    figure = make_subplots(1, len(titles), shared_yaxes=True, subplot_titles=titles, horizontal_spacing=0.03)
    layers, count = primary.heads.shape
    for number, (method, mask) in enumerate(masks.items(), start=1):
        kept = mask.heads.astype(np.int8)
        scale = [[0.0, PALE], [1.0, METHOD_COLORS[method]]]
        figure.add_heatmap(z=kept, colorscale=scale, zmin=0, zmax=1, showscale=False, row=1, col=number)
        hover = f"layer %{{y}}, group %{{x}}: {in_figure(label(method))} %{{customdata[3]:.0f}} (1 = kept)"
        _cells(figure, kept, hover, number)
    _scores(figure, scores, len(masks))
    figure.update_traces(hoverinfo="skip", xgap=1, ygap=1, selector={"type": "heatmap"})
    style(figure, "key/value group", "", _height(layers), margin={"l": 64, "r": 16, "t": 36, "b": 52})
    figure.update_xaxes(range=[-0.5, count - 0.5], tickformat="d", nticks=8, showgrid=False)
    layer_axis(figure, layers, "y", showgrid=False)
    figure.update_yaxes(title_text="layer", col=1)
    if chosen.layer is not None:
        ends = {"y0": chosen.layer - 0.5, "y1": chosen.layer + 0.5}
        figure.add_hrect(**ends, line={"color": marks.RING, "width": 2}, fillcolor="rgba(0,0,0,0)", col="all")
    return figure


def _scores(figure: go.Figure, scores: dict[str, UnitScores], before: int) -> None:
    """Draws the panels of the scores, in standard units of their layer, under one scale of colours."""
    standard = {name: standardize(one.heads) for name, one in scores.items()}
    reach = max(float(max(np.abs(one).max() for one in standard.values())), 1e-6)
    for number, (name, one) in enumerate(standard.items(), start=before + 1):
        figure.add_heatmap(z=one.astype(np.float32), coloraxis="coloraxis", row=1, col=number)
        told = np.column_stack([one.ravel(), scores[name].heads.ravel()])
        hover = (
            f"layer %{{y}}, group %{{x}}: %{{customdata[3]:.2f}} deviations from the layer's mean, {name} "
            "%{customdata[4]:.4g}"
        )
        _cells(figure, one, hover, number, told)
    scale = {"colorscale": SIGNS, "cmid": 0.0, "cmin": -reach, "cmax": reach}
    figure.update_layout(coloraxis=scale | {"colorbar": marks.colorbar("deviations from the layer's mean")})


def _cells(figure: go.Figure, values: Array, hover: str, panel: int, told: Array | None = None) -> None:
    """Lets the cells of a panel be clicked; a click selects the layer."""
    row, column = (part.ravel().astype(np.int16) for part in np.indices(values.shape))
    told = values.ravel() if told is None else told
    marks.cells(figure, column, row, row, told, hover, row=1, col=panel)
