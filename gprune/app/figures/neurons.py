"""Figures of neurons: the map of a layer, and the ranks and scores of one neuron, module or layer."""

import contextlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from gprune import records
from gprune.analysis import calibration, inspection, whatif
from gprune.analysis.calibration_report.measuring import texts_of
from gprune.analysis.formatting import MODULES, format_count, percent
from gprune.analysis.inspection import LayerRanks
from gprune.app.ui import derived_cache, marks
from gprune.app.ui.chart_style import (
    GREY,
    MAGNITUDE,
    METHOD_COLORS,
    TEXT_A,
    TEXT_B,
    TEXT_LOOKS,
    control_label,
    label,
    style,
)
from gprune.app.ui.derived_cache import default_baseline
from gprune.app.ui.panel import KEYS, NOTHING, Panel, Selection, available_part, index_or_middle, module_labels, panel
from gprune.app.ui.text import escape, in_figure, name_texts, names_in_figure, short_text
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run, record
from gprune.pruning import neuron_embedding as analysis
from gprune.pruning import scoring
from gprune.pruning.neuron_embedding import BEHAVIOUR, PARAMETERS
from gprune.records import Array
from gprune.study.methods import METHODS, of_masks
from gprune.study.settings import require, require_choice
from gprune.system.errors import StoreError
from gprune.system.units import join_words

PCA, UMAP = "pca", "umap"
BASES = {BEHAVIOUR: "behaviour", PARAMETERS: "parameters"}
LAYOUTS = {PCA: "PCA", UMAP: "UMAP"}
MODULE, DRIFT, SCORE_A, SCORE_B = "module", "drift", "score_a", "score_b"
TEXT_MASKS, METHOD_MASKS = MASK_COLORINGS = ("texts", "methods")
"""colorings that show which of two masks keep a neuron"""
COLORINGS = {
    MODULE: "module",
    DRIFT: "rank drift",
    SCORE_A: "score on A",
    SCORE_B: "score on B",
    TEXT_MASKS: "kept by either text's scores",
    METHOD_MASKS: "kept by GPrune or a baseline",
}
"""what the colour of a neuron can stand for"""
MOST_POINTS = 12_000
"""maximum number of neurons in a chart; more would be slow to send to the browser"""
_CROWDED = 1500
"""number of points above which the marks are smaller"""
_SYMBOLS = (
    *("circle", "diamond-open", "cross", "square-open", "triangle-up"),
    *("hexagon-open", "star", "circle-open", "x", "triangle-down-open"),
)
"""symbols of modules, one for each use of the distinguishable hues"""
_BOTH = "#5B7F95"
"""hue of neurons that both masks keep"""
_CAPTIONS = {
    PCA: "Each point is a neuron. Nearby neurons are alike in the two directions in which the layer's neurons differ "
    "most.",
    UMAP: "Each point is a neuron. Neighbours are alike; axes and large distances have no meaning.",
}


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Neurons that are drawn with the same colour and symbol."""

    name: str
    color: str
    symbol: str
    members: Array
    """(neurons,) bool"""


@dataclass(frozen=True, slots=True, eq=False)
class Coloring:
    """Colours of the neurons of a layer: by group, or by one number per neuron."""

    groups: tuple[Group, ...] = ()
    values: Array | None = None
    """(neurons,) numbers if there are no groups, else None"""
    title: str = ""
    """name of the numbers"""


@dataclass(frozen=True, slots=True, eq=False)
class Plane:
    """Positions of a layer's neurons in a two-dimensional map."""

    points: Array
    """(neurons, 2)"""
    axes: tuple[str, str]
    """titles of the axes"""
    quality: str
    """sentence on how much of the neighbourhood or variance of the neurons the plane keeps"""


@panel(
    "neuron_map",
    "nm_map",
    "The neurons of a layer",
    clicked=True,
    reads={"layer": "layer", "basis": "nm_basis", "layout": "nm_layout", "colour": "nm_colour", "method": "nm_method"},
)
def neuron_map(
    run: Run,
    *,
    layer: int | None = None,
    basis: str = BEHAVIOUR,
    layout: str = "",
    colour: str = "",
    method: str = "",
    selected: Selection = NOTHING,
) -> Panel:
    """Plot the neurons of one layer in a plane, with similar neurons close together.

    The default layout is UMAP if a job has computed it, else PCA. The default colours show which masks keep a neuron,
    if the run has masks. `method` names the masks of a colouring by masks, by default those of the run's own metric.
    """
    layer = index_or_middle("layer", layer, run.load(stages.shape).layers)
    require_choice("basis", basis, tuple(BASES))
    layout, colour = layout or _default_layout(run, layer, basis), colour or default_coloring(run)
    require_choice("layout", layout, tuple(LAYOUTS))
    require_choice("colour", colour, tuple(COLORINGS))
    plane = load_plane(run, layer, basis, layout)
    coloring = color_neurons(run, layer, colour, method or default_masks(run, colour))
    if selected.layer != layer:
        selected = NOTHING
    count = len(plane.points)
    title, caption = f"Layer {layer} by {basis}: {escape(plane.quality)}", _CAPTIONS[layout]
    if colour in MASK_COLORINGS:
        title = _describe_difference(layer, colour, method, coloring)
        caption = f"{caption} {plane.quality[:1].upper()}{plane.quality[1:]}."
    neurons = analysis.select_neurons(count, MOST_POINTS, selected.neuron)
    return Panel(
        plot_plane(plane.points, plane.axes, coloring, neurons, module_labels(run, layer), selected),
        caption,
        action="Click one to select it, or use lasso or box to list several.",
        title=title,
        alt=plane.quality,
        table=lambda: neuron_table(run, layer, np.arange(count), plane.points),
        how=_explain_map(run, basis, layout),
    )


def _describe_difference(layer: int, colour: str, method: str, coloring: Coloring) -> str:
    share = percent(differing_share(coloring), 1)
    name = escape(label(method)) if method else "the run's masks"
    if colour == TEXT_MASKS:
        return f"In layer {layer}, {share} of the neurons of {name} depend on the calibration text"
    return f"In layer {layer}, GPrune and {name} decide {share} of the neurons differently"


def _explain_map(run: Run, basis: str, layout: str) -> str:
    if basis == PARAMETERS:
        points = (
            "A neuron is represented by the direction of its weights: its rows of gate and up and its column of down."
        )
    else:
        texts = join_words([escape(short_text(run.study, getattr(run.study, text))) for text in _measured_texts(run)])
        points = (
            f"A neuron is represented by its activation on {texts}: mean and standard deviation over tokens for every "
            "shard, standardised over the layer."
        )
    plane = (
        "PCA shows the two components of largest variance."
        if layout == PCA
        else f"UMAP uses at most {analysis.MOST_COMPONENTS} principal components, {analysis.NEIGHBOURS} neighbours, "
        f"minimum distance {analysis.MIN_DISTANCE} and seed {run.study.seed}; another seed gives another layout."
    )
    scores = "Score colours are ranks within the layer, from 0 (least important) to 1 (most important)."
    masks = "“Only … scores”: the method keeps the neuron with the scores of this text alone, at the same budget."
    return f"{points} {plane} {scores} {masks}"


def neuron_table(run: Run, layer: int, neurons: Array, points: Array | None = None) -> pd.DataFrame:
    """Return a table with one row per neuron: its results, and its position in the map if `points` are given."""
    scores = {letter: run.find(stages.scores, text) for letter, text in zip("AB", stages.PAIR, strict=True)}
    table = analysis.table(
        layer,
        neurons,
        run.find(stages.partition),
        run.find(stages.drift),
        {letter: record for letter, record in scores.items() if record is not None},
        {label(name): mask for name, mask in run.masks().items()},
    )
    return table if points is None else table.assign(x=points[neurons, 0], y=points[neurons, 1])


def _measured_texts(run: Run) -> tuple[str, ...]:
    """Return the roles of the texts that have statistics. Raises MissingResultError if none has."""
    return run.require(stages.mapped_texts(run.graph, run.has_result), stages.statistics)


def plane_stage(run: Run, layer: int, basis: str, layout: str) -> stages.Stage | None:
    """Return the stage that computes a plane, or None if the app computes it directly.

    Raises MissingResultError if no text has statistics yet.
    """
    if layout == UMAP:
        return stages.neuron_map(run.graph, layer, basis, _measured_texts(run) if basis == BEHAVIOUR else ())
    return stages.components(run.graph, layer) if basis == PARAMETERS else None


def _default_layout(run: Run, layer: int, basis: str) -> str:
    stage = plane_stage(run, layer, basis, UMAP)
    return UMAP if stage is not None and run.has_result(stage) else PCA


def load_plane(run: Run, layer: int, basis: str, layout: str) -> Plane:
    """Return the positions of a layer's neurons in a plane, with titles of the axes and the quality of the map.

    Raises MissingResultError if the map or its inputs are not computed yet,
    NumericsError if all neurons are equal, SettingsError if there are too few for UMAP.
    """
    if layout == UMAP:
        analysis.require_enough_neurons(run.load(stages.shape).neurons)
        record = run.load(stages.neuron_map, layer, basis, _measured_texts(run) if basis == BEHAVIOUR else ())
        quality = (
            f"the map preserves {percent(float(record.kept.mean()))} of the {analysis.NEIGHBOURS} nearest neighbours "
            f"of a neuron, measured in at most {analysis.MOST_COMPONENTS} principal components"
        )
        return Plane(record.places, ("UMAP 1 (no unit)", "UMAP 2 (no unit)"), quality)
    if basis == PARAMETERS:
        components = run.load(stages.components, layer)
        points, shares = components.places, components.shares
    else:
        reduced = _behaviour(run.root, tuple(run.key(stages.statistics, text) for text in _measured_texts(run)), layer)
        points, shares = reduced.places, reduced.shares
    axes = [f"component {number + 1} ({percent(share)} of the variance)" for number, share in enumerate(shares[:2])]
    if points.shape[1] < 2:
        # the neurons differ in one component only
        points, axes = np.pad(points, ((0, 0), (0, 1))), [*axes, "no second component"]
    quality = f"the two components explain {percent(float(shares[:2].sum()))} of the variance"
    return Plane(points[:, :2], (axes[0], axes[1]), quality)


@lru_cache(64)
def _behaviour(root: str, keys: tuple[str, ...], layer: int) -> analysis.PrincipalCoordinates:
    """Return the principal components of a layer's activation statistics, whose `keys` are one per text."""
    kind = records.ActivationStatistics.__name__
    return analysis.behaviour([record(root, "statistics", key, kind) for key in keys], layer)


def mask_choices(run: Run, colour: str) -> list[str]:
    """Return the names of the masks that a colouring can use; only TEXT_MASKS can use those of GPrune."""
    return [name for name in run.mask_names if colour == TEXT_MASKS or name != "gprune"]


def default_masks(run: Run, colour: str) -> str:
    """Return the name of the masks of the run's own metric if a colouring compares masks, else an empty string.

    Raises MissingResultError if the run has no masks, and the coloring needs them.
    """
    if colour not in MASK_COLORINGS:
        return ""
    names = mask_choices(run, colour)
    run.require(names, stages.masks)
    return default_baseline(run, names)


def default_coloring(run: Run) -> str:
    """Return METHOD_MASKS if the run has masks of GPrune and a baseline, else MODULE if it has modules, else DRIFT."""
    if "gprune" in run.mask_names and len(run.mask_names) > 1:
        return METHOD_MASKS
    return MODULE if run.has(stages.partition) else DRIFT


def color_neurons(run: Run, layer: int, colour: str, masks_name: str) -> Coloring:
    """Return the colouring of a layer; `colour` is one of COLORINGS.

    TEXT_MASKS compares the masks that the method of `masks_name` decides from text A with those from text B.
    METHOD_MASKS compares GPrune's masks with the masks `masks_name`. The other colourings ignore it.
    Raises MissingResultError if the run lacks the result, MethodError if the method cannot decide
    without a new run.
    """
    if colour == MODULE:
        return Coloring(group_by_module(run.load(stages.partition).labels[layer]))
    if colour == DRIFT:
        return Coloring(values=run.load(stages.drift).magnitude[layer], title="rank drift d")
    if colour in (SCORE_A, SCORE_B):
        index = int(colour == SCORE_B)
        scores = run.load(stages.scores, stages.PAIR[index]).ffn[layer]
        return Coloring(values=analysis.normalized_ranks(scores), title=name_texts(f"rank on {'AB'[index]}", run.study))
    method = of_masks(masks_name).name
    if colour == TEXT_MASKS:
        texts = whatif.PRIMARY, whatif.AUXILIARY
        first, second = (derived_cache.masks_of_text(run, method, text).ffn[layer] for text in texts)
        names = (name_texts(f"only {letter}’s scores", run.study) for letter in "AB")
        labels = list(zip(names, (TEXT_A, TEXT_B), strict=True))
    else:
        first, second = (run.load(stages.masks, name).ffn[layer] for name in ("gprune", masks_name))
        # masks that are not named like a method have label and hue of the first method with these masks
        methods = "gprune", masks_name if masks_name in METHODS else method
        labels = [(f"kept only by {label(name)}", METHOD_COLORS[name]) for name in methods]
    return Coloring(
        (
            Group("kept by neither", GREY, "circle", ~first & ~second),
            Group("kept by both", _BOTH, "circle", first & second),
            Group(*labels[0], "diamond", first & ~second),
            Group(*labels[1], "square", ~first & second),
        )
    )


def group_by_module(labels: Array) -> tuple[Group, ...]:
    """Return a group for every module of (neurons,) `labels`; when the hues repeat, the symbol changes."""
    groups = []
    for module in range(int(labels.max()) + 1):
        cycle, hue = divmod(module, len(MODULES))
        symbol = _SYMBOLS[cycle % len(_SYMBOLS)]
        groups.append(Group(f"module {module}", MODULES[hue], symbol, labels == module))
    return tuple(groups)


def differing_share(coloring: Coloring) -> float:
    """Return the share of the layer's neurons that only one of the two masks of a colouring keeps."""
    # the groups are: kept by neither, by both, by the first mask only, by the second mask only
    return float(np.mean(coloring.groups[2].members | coloring.groups[3].members))


def plot_plane(
    points: Array,
    axes: tuple[str, str],
    coloring: Coloring,
    neurons: Array,
    labels: Array | None = None,
    selected: Selection = NOTHING,
) -> go.Figure:
    """Plot some `neurons` of a layer as points of a plane.

    `points` (neurons, 2), `coloring` and the modules `labels` (neurons,) describe all neurons of the layer. `axes` are
    the titles of the axes.
    """
    figure = go.Figure()
    size = 4 if len(neurons) > _CROWDED else 6
    if coloring.values is not None:
        title, values = in_figure(coloring.title), coloring.values[neurons].astype(np.float32)
        marker = {"color": values, "colorscale": MAGNITUDE, "size": size, "opacity": 0.85}
        # an outline, because the ends of the scale can have the colour of the page
        marker |= {"colorbar": marks.colorbar(title), "line": {"color": GREY, "width": 0.5}}
        hover = f"neuron %{{customdata}}: {title} %{{marker.color:.3f}}<extra></extra>"
        _add_neurons(figure, points, neurons, marker, hover, "neurons", legend=False)
    for group in coloring.groups:
        members = neurons[group.members[neurons]]
        marker = {"color": group.color, "symbol": group.symbol, "size": size, "opacity": 0.85}
        name = f"{in_figure(group.name)} ({int(group.members.sum()):,})"
        _add_neurons(figure, points, members, marker, "neuron %{customdata}<extra>%{fullData.name}</extra>", name)
    if selected.neuron is not None:
        x, y = points[selected.neuron]
        marks.add_ring(figure, float(x), float(y), f"neuron {selected.neuron}")
    elif selected.module is not None and labels is not None:
        members = labels == selected.module
        figure.add_scattergl(
            x=points[members, 0].astype(np.float32),
            y=points[members, 1].astype(np.float32),
            mode="markers",
            marker={"symbol": "circle-open", "size": 8, "color": marks.RING, "line": {"width": 1}},
            name=f"selected: module {selected.module}",
            hoverinfo="skip",
        )
    # clicks select a mark only while dragging pans the plane, not while dragging draws a region
    style(figure, *axes, 560, dragmode="pan")
    return figure.update_layout(legend={"itemsizing": "constant"})


def _add_neurons(
    figure: go.Figure, points: Array, neurons: Array, marker: dict[str, Any], hover: str, name: str, legend: bool = True
) -> None:
    # small types, because every neuron is sent to the browser
    integer = np.int16 if not len(neurons) or neurons.max() < 2**15 else np.int32
    figure.add_scattergl(
        x=points[neurons, 0].astype(np.float32),
        y=points[neurons, 1].astype(np.float32),
        customdata=neurons.astype(integer),
        mode="markers",
        marker=marker,
        name=name,
        showlegend=legend,
        hovertemplate=hover,
    )


_MOST_SCORE_BINS = 40
MOST_ACTIVATION_BINS = 80
_LEAST_SCORE = 1e-300
"""the scores are drawn on a log axis only if all of them are larger"""


def most_drifting_neuron(run: Run) -> Selection:
    """Return the first neuron with the largest drift, or an empty selection if the run has no drift."""
    with contextlib.suppress(StoreError):
        if run.has(stages.drift):
            drift = run.load(stages.drift).magnitude
            layer, neuron = np.unravel_index(int(np.argmax(drift)), drift.shape)
            return available_part(run, Selection(int(layer), None, int(neuron)))[0]
    return NOTHING


def _unit_in_address(run: Run, values: Mapping[str, Any]) -> Selection:
    """Return the unit that an address selects, by default the neuron with the highest drift."""
    selected = available_part(run, Selection(*(values.get(key) for key in KEYS)))[0]
    return selected or most_drifting_neuron(run)


def _neuron_options(run: Run, values: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    """Return the options of the figure of one neuron, if an address selects a neuron."""
    unit = _unit_in_address(run, values)
    return [] if unit.neuron is None else [{"layer": unit.layer, "neuron": unit.neuron}]


def _group_options(run: Run, values: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    """Return the options of the figure of a module or layer, if an address selects one."""
    unit = _unit_in_address(run, values)
    return [{"layer": unit.layer, "module": unit.module}] if unit and unit.neuron is None else []


@panel("neuron_ranks", "ins_unit", "One neuron on every text", reads=_neuron_options)
def neuron_ranks(run: Run, *, layer: int | None = None, neuron: int = 0) -> Panel:
    """Plot the rank of a neuron on every text, with its range over halves of the text."""
    layers, neurons = run.load(stages.scores, "primary").ffn.shape
    layer, neuron = index_or_middle("layer", layer, layers), index_or_middle("neuron", neuron, neurons)
    texts = layer_ranks(run, layer)
    finding = "rank " + ", ".join(f"{ranks.rank[neuron]:.2f} on {letter}" for letter, ranks in texts.items())
    return Panel(
        _plot_ranks(texts, neuron, names_in_figure(run.study)),
        _explain_no_halves(run) or "Whiskers: the range of its rank over halves of that text alone.",
        title=f"Neuron {neuron} of layer {layer}: {escape(name_texts(finding, run.study))}",
        alt=finding,
        table=lambda: pd.DataFrame(
            [
                {
                    "text": letter,
                    "score": ranks.score[neuron],
                    "rank": ranks.rank[neuron],
                    "lowest on a half": ranks.low[neuron],
                    "highest on a half": ranks.high[neuron],
                }
                for letter, ranks in texts.items()
            ]
        ),
        how="Ranks run from 0 to 1 within the layer. Each half is a sequence of consecutive shards in cyclic order; "
        "every shard begins one. A half is noisier than the whole text, so the whiskers are wide.",
    )


@panel("score_histograms", "ins_unit", "Scores of a layer or a module on every text", reads=_group_options)
def score_histograms(run: Run, *, layer: int | None = None, module: int | None = None) -> Panel:
    """Plot the distribution of the scores of a layer's or a module's neurons on each text."""
    layer = index_or_middle("layer", layer, len(run.load(stages.scores, "primary").ffn))
    if module is not None:
        count = int(run.load(stages.partition).counts[layer])
        require(0 <= module < count, "module", module, f"0 to {count - 1}")
    unit = Selection(layer, module)
    members, rows = members_of(run, unit)
    scores = {letter: np.asarray(ranks.score)[members] for letter, ranks in layer_ranks(run, layer).items()}
    return Panel(
        _plot_scores(scores, names_in_figure(run.study)),
        "Share of neurons by score, with the same bins for every text.",
        title=_describe_group(unit, int(members.sum()), rows),
        alt=f"scores of {unit.words}",
        table=lambda: members_table(run, unit, members),
    )


def _describe_group(unit: Selection, members: int, rows: pd.DataFrame | None) -> str:
    if unit.module is None:
        modules = "" if rows is None else f", {format_count(len(rows), 'module')}"
        return f"Layer {unit.layer}: {format_count(members, 'neuron')}{modules}"
    outcome = f", by RASA {rows['RASA'].iloc[0]}" if rows is not None and "RASA" in rows else ""
    return f"Module {unit.module} of layer {unit.layer}: {format_count(members, 'neuron')}{outcome}"


def activation_panel(run: Run, values: Mapping[str, Array], progress: str) -> Panel:
    """Return the panel of a neuron's (tokens,) activations by letter of the text.

    `progress` says how many sequences are read, for the caption.
    """
    table = bin_activations(values)
    percents = (f"{100 * (activations >= 0).mean():.0f}% on {letter}" for letter, activations in values.items())
    shares = name_texts(", ".join(percents), run.study)
    return Panel(
        plot_activations(table, names_in_figure(run.study)),
        f"Share of tokens with an activation of 0 or more: {escape(shares)}. {progress}; every token counts once, "
        "and the axis of shares is logarithmic.",
        alt="histogram of the activations on each text",
        table=lambda: table,
        how="The activation is the neuron's input to down_proj in the dense model. Bins have the same width on all "
        "texts, with an edge at 0. Empty bins have no mark.",
    )


def members_of(run: Run, unit: Selection) -> tuple[Array, pd.DataFrame | None]:
    """Return (neurons,) bool, the members of a module or layer, and the table of its modules.

    The table is None if the run has no modules yet.
    """
    layer = unit.layer or 0
    table = _module_table(run, layer)
    if unit.module is None:
        return np.ones(run.load(stages.scores, "primary").ffn.shape[1], dtype=bool), table
    members = np.asarray(run.load(stages.partition).labels[layer]) == unit.module
    return members, table[table["module"] == unit.module] if table is not None else None


def kept_neurons(run: Run, layer: int) -> dict[str, Array]:
    """Return (neurons,) masks of a layer by label: of GPrune, and of the run's metric without GPrune."""
    names = [name for name in ("gprune", run.study.metric) if name in run.mask_names]
    return {control_label(name): np.asarray(run.load(stages.masks, name).ffn[layer]) for name in names}


def _module_table(run: Run, layer: int) -> pd.DataFrame | None:
    """Return a table with one row per module of a layer, or None if the run has no modules yet."""
    if not run.has(stages.partition):
        return None
    statistics, adapted = run.find(stages.modules), run.find(stages.adapted_scores)
    masks = {f"{name} keeps": mask for name, mask in kept_neurons(run, layer).items()}
    return inspection.module_table(run.load(stages.partition), layer, statistics, adapted, masks)


def members_table(run: Run, unit: Selection, members: Array) -> pd.DataFrame:
    """Return a table with one row per neuron, sorted by decreasing importance on A."""
    layer, neurons = unit.layer or 0, np.flatnonzero(members)
    table = pd.DataFrame({"layer": layer, "neuron": neurons})
    for letter, ranks in layer_ranks(run, layer).items():
        table[f"rank on {letter}"] = np.asarray(ranks.rank)[neurons]
    if run.has(stages.drift):
        table["drift"] = np.asarray(run.load(stages.drift).magnitude[layer])[neurons]
    for name, mask in kept_neurons(run, layer).items():
        table[name] = mask[neurons]
    return table.sort_values("rank on A", ascending=False, kind="stable").reset_index(drop=True)


def layer_ranks(run: Run, layer: int) -> dict[str, LayerRanks]:
    """Return the ranks of a layer's neurons on each scored text, by letter; MissingResultError if no text is scored."""
    texts = {}
    for role in texts_of(run.study):
        if run.has(stages.scores, role):
            # without keys, the halves are not ranked
            keys = "", ""
            if not _explain_no_halves(run) and run.has(stages.statistics, role) and run.has(stages.norms):
                keys = run.key(stages.statistics, role), run.key(stages.norms)
            scores = run.key(stages.scores, role)
            texts[calibration.ROLES[role]] = _rank_layer(run.root, scores, *keys, run.study.metric, layer)
    return run.require(texts, stages.scores, "primary")


def _explain_no_halves(run: Run) -> str:
    """Return the reason why halves of a text cannot be ranked; empty if they can."""
    if run.study.metric not in scoring.METRICS:
        return "No whiskers: the metric cannot score parts of a text."
    if run.study.metric == "flap" and run.study.calibration.flap_variant == "released":
        # halves can only be scored by the variance, which is not comparable with the recursion
        return "No whiskers: FLAP's released recursion cannot score parts of a text."
    return ""


# a layer of a 7B model takes 1.4 MB per text, and the page of each of its neurons needs it
@lru_cache(24)
def _rank_layer(root: str, scores: str, statistics: str, norms: str, metric: str, layer: int) -> LayerRanks:
    """Return the ranks of a layer on a text from the keys of its results; without `statistics`, halves are unranked."""
    score = record(root, "scores", scores, "UnitScores").ffn[layer]
    if not statistics:
        return inspection.rank_layer(score, None, 0)
    moments: records.ActivationStatistics = record(root, "statistics", statistics, "ActivationStatistics")
    weights = record(root, "norms", norms, "WeightNorms")
    return inspection.rank_layer(score, scoring.layer_scorer(metric, moments, weights, layer), moments.shards)


def _plot_ranks(texts: Mapping[str, LayerRanks], neuron: int, names: Mapping[str, str]) -> go.Figure:
    """Plot the rank of one neuron on every text; whiskers are the range over halves of the text."""
    figure = go.Figure()
    for letter, ranks in texts.items():
        rank, low, high = (float(values[neuron]) for values in (ranks.rank, ranks.low, ranks.high))
        row, (color, symbol) = names[letter], TEXT_LOOKS[letter]
        # a separate line: the rank on the whole text may lie outside the range over halves
        ends = {"marker": {"color": color, "symbol": "line-ns-open", "size": 12}, "mode": "lines+markers"}
        marks.add_guide(figure, [low, high], [row, row], {"color": color, "width": 2}, **ends)
        hover = f"rank {rank:.3f}, on halves {low:.3f} to {high:.3f}<extra>{row}</extra>"
        marks.add_points(figure, [rank], [row], {"color": color, "symbol": symbol, "size": 12}, hover, showlegend=False)
    style(figure, "rank (1 = most important)", "", 110 + 34 * len(texts))
    figure.update_xaxes(range=[-0.02, 1.02])
    return figure.update_yaxes(autorange="reversed", type="category", showgrid=False)


def _plot_scores(scores: Mapping[str, Array], names: Mapping[str, str]) -> go.Figure:
    """Plot histograms of the (neurons,) scores by letter of the text."""
    all_scores = np.concatenate(list(scores.values()))
    log = bool((all_scores > _LEAST_SCORE).all())
    # a module has few neurons, which many bins would show one by one
    bins = int(np.clip(2 * np.sqrt(len(all_scores) / len(scores)), 8, _MOST_SCORE_BINS))
    edges = np.histogram_bin_edges(np.log10(all_scores) if log else all_scores, bins=bins)
    middles = (edges[:-1] + edges[1:]) / 2
    figure = go.Figure()
    for letter, values in scores.items():
        counts, _ = np.histogram(np.log10(values) if log else values, bins=edges)
        line = {"color": TEXT_LOOKS[letter][0], "width": 2, "shape": "hvh"}
        shares = 100.0 * counts / max(len(values), 1)
        marks.add_curve(figure, middles, shares, names[letter], line, "%{x:.3g}: %{y:.1f}%")
    style(figure, "log10 of the score" if log else "score", "share of the neurons (%)", 280)
    return figure.update_yaxes(rangemode="tozero")


def bin_activations(values: Mapping[str, Array]) -> pd.DataFrame:
    """Return a histogram of activations: the edges of each bin, and its number of tokens in each text.

    `values` are keyed by the letter of the text. The width of a bin is a power of two, and 0 is an edge.
    """
    low, high = float(min(map(np.min, values.values()))), float(max(map(np.max, values.values())))
    # the exponent of a bin width that gives at most 64 bins on either side of 0
    power = math.frexp(max(abs(low), abs(high)) / 64)[1]
    while (last := _bin_index(high, power) + 1) - (first := _bin_index(low, power)) > MOST_ACTIVATION_BINS:
        power += 1
    edges = np.ldexp(np.arange(first, last + 1.0), power)
    table = pd.DataFrame({"from": edges[:-1], "to": edges[1:]})
    for letter, activations in values.items():
        table[letter] = np.histogram(activations, edges)[0]
    return table


def _bin_index(value: float, power: int) -> int:
    """Return the index of the bin of width 2**power that has the value; bin 0 begins at 0."""
    return math.floor(math.ldexp(value, -power))


def plot_activations(table: pd.DataFrame, names: Mapping[str, str]) -> go.Figure:
    """Plot the distribution of a neuron's activations on each text; `table` is from `bin_activations`."""
    figure = go.Figure()
    middles = (table["from"] + table["to"]) / 2
    for letter in table.columns[2:]:
        counts = table[letter].to_numpy()
        # a logarithmic axis cannot show 0
        shares = np.where(counts > 0, 100.0 * counts / counts.sum(), np.nan)
        color, symbol = TEXT_LOOKS[letter]
        marks.add_curve(
            figure, middles, shares, names[letter], {"color": color, "width": 2, "shape": "hvh"},
            "%{x:.3g}: %{y:.3g}%", symbol=symbol, size=4,
        )  # fmt: skip
    style(figure, "activation before down_proj (no unit)", "share of the tokens (%)", 300)
    return figure.update_yaxes(type="log")
