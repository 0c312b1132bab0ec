"""Figures of the masks: pruning decisions (Fig. 3) and the atlas of every unit."""

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from gprune.analysis import ablation_effect, decisions, mask_map, whatif
from gprune.analysis.ablation_effect import MIN_CHANGED_SHARE, AblationEffect
from gprune.analysis.decisions import Bins
from gprune.analysis.formatting import format_signed, percent
from gprune.analysis.mask_map import Atlas
from gprune.analysis.scales import scale_histogram
from gprune.analysis.verdict import budget_shares, budget_title, own_method
from gprune.app.ui import derived_cache, marks
from gprune.app.ui.chart_style import (
    GREY,
    METHOD_COLORS,
    METHOD_DASHES,
    METHOD_LABELS,
    METHOD_SYMBOLS,
    PALE,
    SIGNS,
    family,
    label,
    layer_axis,
    style,
)
from gprune.app.ui.derived_cache import default_baseline
from gprune.app.ui.panel import NOTHING, Panel, Selection, panel
from gprune.app.ui.text import escape, in_figure, name_texts, names_in_figure, text_pair
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.pruning.ranking import module_means, standardize
from gprune.records import Array, LearnedScales, PruningMasks
from gprune.study.methods import of_masks
from gprune.study.settings import require, require_choice

BINS, MOST_BINS = 5, 10
"""default and maximum number of bins of the modules by drift"""
_MIN_JACCARD_GAP = 0.02
"""smallest difference of two overlaps that is reported as a difference"""
_PART_NAMES = {"BCM": "modules (BCM)", "RASA": "adaptation (RASA)", "MSL": "sparsity learning (MSL)"}
_MOST_LINES = 8
"""maximum number of lines that are distinguishable in one chart"""
NEURONS, GROUPS, SCALES = "neurons", "key/value groups", "learned scales"
UNITS = {NEURONS: "FFN neurons of each layer.", GROUPS: "Key/value groups, each with its query heads."}
"""caption of the figure for each kind of unit"""
_READS = {"base": "pd_base", "bins": "pd_bins"}
_DRIFT_AXIS = "modules by mean rank drift, most stable to most unstable"


@panel("retention", "pd_budget", "Retention by drift of the modules", reads=_READS)
def retention(run: Run, *, base: str = "", bins: int = BINS) -> Panel:
    """Share of neurons that GPrune and a baseline keep, by the drift of their module."""
    base = choose_base(run, base)
    result = bin_decisions(run, base, bins)
    return Panel(
        _plot_retention(result, base),
        budget_shares(result, label(base)),
        title=budget_title(result, label(base)),
        table=lambda: decisions.bin_table(result, label(base)),
        how=f"Modules are sorted by the mean rank drift of their neurons and split into {len(result.names)} bins with "
        "equally many modules. Retention is pooled over a bin's neurons.",
    )


@panel("overlap", "pd_jaccard", "Which neurons are chosen differently?", reads=_READS)
def overlap(run: Run, *, base: str = "", bins: int = BINS) -> Panel:
    """Overlap of the neurons that GPrune and a baseline keep, by the drift of their module."""
    base = choose_base(run, base)
    result = bin_decisions(run, base, bins)
    first, last = result.jaccard[[0, -1]]
    extent = f"goes from {first:.2f} in the most stable modules to {last:.2f} in the most unstable"
    if abs(last - first) < _MIN_JACCARD_GAP:
        extent = f"is about {(first + last) / 2:.2f} in both the most stable and the most unstable modules"
    return Panel(
        _plot_overlap(result, base),
        "Neurons kept by both methods divided by neurons kept by either. Values near the dashed line are chance.",
        title=f"Overlap with {label(base)} {extent}" if len(result.jaccard) > 1 else "",
        table=lambda: decisions.bin_table(result, label(base)),
        how="Dashed: the overlap of two independent choices of these sizes. Near it, the two methods chose unrelated "
        "neurons.",
    )


@panel("layers_kept", "pd_layers", "Retention, layer by layer", reads={"unit": "pd_unit"})
def layers_kept(run: Run, *, unit: str = NEURONS, selected: Selection = NOTHING) -> Panel:
    """Share of each layer's neurons, or key/value groups, that every method keeps."""
    require_choice("unit", unit, tuple(UNITS))
    caption = UNITS[unit]
    masks = {method: mask for method, mask in run.masks().items() if method in METHOD_LABELS}
    run.require(masks, stages.masks)
    if len(masks) > _MOST_LINES:
        caption += " Click the name of a variant or control to draw it."
    return Panel(
        plot_by_layer(masks, unit, selected),
        caption,
        table=lambda: decisions.layer_table({label(method): mask for method, mask in masks.items()}),
    )


@panel("scales", "pd_layers", "Learned scales, layer by layer")
def scales(run: Run) -> Panel:
    """Histogram of the scales of GPrune's kept neurons by layer."""
    record = run.load(stages.scales, "gprune")
    low, high = np.quantile(record.ffn[record.ffn != 0], (0.25, 0.75))
    return Panel(
        _plot_scales(record),
        "Scales of the kept FFN neurons, learned after masks and repair while all weights are fixed.",
        title=f"Half of the kept neurons are scaled by {low:.3f} to {high:.3f}",
        how="A scale multiplies the neuron's column of down_proj. Right of the dashed line, a neuron counts more "
        "than in the dense model; left of it, less.",
    )


@panel("parts", "pd_acting", "What does each part of GPrune do?")
def parts(run: Run) -> Panel:
    """Share of the decisions that change if one part of GPrune is removed."""
    effect = derived_cache.ablation_effects(run)
    changed = effect.decisions_changed.items()
    idle = [f"{part} ({percent(share, 1)})" for part, share in changed if share < MIN_CHANGED_SHARE]
    return Panel(
        _plot_parts(effect),
        "Share of neuron decisions that change without a part. Do not credit a part left of the dashed line "
        f"({percent(MIN_CHANGED_SHARE)}) with a gain.",
        title=f"Few neuron decisions change without {' or '.join(idle)}" if idle else "",
        table=lambda: ablation_effect.effect_table(effect),
        how="Each part is removed alone, at the same retention. Without RASA, every module is scored from "
        f"{text_pair(run.study)[0]}. Without MSL, all thresholds keep their initial values. Without BCM, the neurons "
        "of a layer are ranked in one list.",
    )


def base_methods(run: Run) -> list[str]:
    """Return the names of the masks that can be compared with GPrune's."""
    return [name for name in run.mask_names if name != "gprune"]


def choose_base(run: Run, base: str) -> str:
    """Return the baseline; if `base` is empty, the method of the run's own metric.

    Raises SettingsError if the run has no such masks, MissingResultError if it has no masks of a baseline.
    """
    names = base_methods(run)
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
    """Plot the retention of neurons by drift bin (Fig. 3a)."""
    figure = go.Figure()
    for method, values in ((base, result.base), ("gprune", result.gprune)):
        marks.add_bars(
            figure, result.names, values, label(method), METHOD_COLORS[method], "%{x}: %{y:.1%} kept",
            # two digits: labels of neighbouring bars with more overlap in a narrow card
            text=[f"{100 * value:.0f}" for value in values], textposition="outside", cliponaxis=False,
        )  # fmt: skip
    style(figure, _DRIFT_AXIS, "retention of neurons", 380, barmode="group", bargap=0.25)
    top = min(1.08, 1.15 * max(result.gprune.max(), result.base.max(), 0.05))
    figure.update_yaxes(tickformat=".0%", range=[0, top])
    return figure.update_xaxes(type="category")


def _plot_overlap(result: Bins, base: str) -> go.Figure:
    """Plot the Jaccard index of the kept neurons by drift bin, with its chance level (Fig. 3b)."""
    figure = go.Figure()
    name, line = "two independent masks", {"color": GREY, "dash": "dash", "width": 2}
    hover = "%{x}: %{y:.3f} by chance<extra></extra>"
    marks.add_curve(figure, result.names, result.chance, name, line, hover, symbol="line-ew-open", size=12)
    marks.add_curve(
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
    figure = marks.heat_map(
        percents, (edges[1:] + edges[:-1]) / 2, list(range(len(percents))), "% of the layer's kept neurons",
        hoverinfo=None, hovertemplate="layer %{y}, scale %{x:.3f}: %{z:.1f}%<extra></extra>",
    )  # fmt: skip
    figure.add_vline(1, line={"color": GREY, "dash": "dash"})
    style(figure, "learned scale of a kept neuron (1: unchanged)", "layer", 380)
    layer_axis(figure, len(percents), "y")
    return figure


def plot_by_layer(masks: dict[str, PruningMasks], unit: str, selected: Selection = NOTHING) -> go.Figure:
    """Plot the retained share of each layer's `neurons` or `key/value groups`, one line per method.

    If there are too many methods to distinguish, variants and controls are hidden until their legend entry is clicked.
    """
    figure, crowded = go.Figure(), len(masks) > _MOST_LINES
    for method, mask in masks.items():
        neurons, groups = decisions.layer_retention(mask)
        values = neurons if unit == NEURONS else groups
        line = {"color": METHOD_COLORS[method], "dash": METHOD_DASHES[method], "width": 2}
        marks.add_curve(
            figure, np.arange(len(values)), values, label(method), line, "layer %{x}: %{y:.1%} kept",
            symbol=METHOD_SYMBOLS[method], size=7, customdata=marks.layer_data(range(len(values))),
            visible="legendonly" if crowded and family(method) != method else True,
        )  # fmt: skip
    # the legend above the plot has two columns, and may take half of the height
    style(figure, "layer", f"share of {unit} kept", 320 + (14 * len(masks) if crowded else 0))
    layer_axis(figure, len(next(iter(masks.values())).ffn))
    marks.add_layer_line(figure, selected)
    return figure.update_yaxes(range=[-0.03, 1.05], tickformat=".0%")


def _plot_parts(effect: AblationEffect) -> go.Figure:
    """Plot the share of decisions that each part changes; parts with almost no effect are hollow."""
    names, shares = [_PART_NAMES[part] for part in effect.decisions_changed], effect.decisions_changed.values()
    color, limit, percents = METHOD_COLORS["gprune"], 100 * MIN_CHANGED_SHARE, [100 * share for share in shares]
    figure = go.Figure()
    colors = [color if share >= limit else "rgba(0,0,0,0)" for share in percents]
    hover = "without %{y}: %{x:.2f}% of the decisions change<extra></extra>"
    marks.add_bars(figure, percents, names, "", colors, hover, orientation="h", showlegend=False)
    figure.update_traces(marker_line={"color": color, "width": 2})
    # the text is next to the bar, or next to the line if the bar is shorter
    x, text = [max(share, limit) for share in percents], [f" {share:.1f}%" for share in percents]
    marks.add_guide(figure, x, names, {}, mode="text", cliponaxis=False, text=text, textposition="middle right")
    style(figure, "neurons that change without it (%)", "part of GPrune", 260, bargap=0.4)
    figure.add_vline(x=limit, line={"color": GREY, "dash": "dash", "width": 2})
    figure.update_yaxes(type="category", autorange="reversed")
    return figure.update_xaxes(range=[0, 1.2 * max(*percents, 2 * limit)])


CHANGE, DIFFERS = "change", "differs"
COLORS = {CHANGE: "Change of retention", DIFFERS: "Share decided differently"}
"""values that the colour of a module can stand for"""
LEAST_RANGE = 0.02
"""minimum end of the colour scale, so that rounding is not drawn as a finding"""
_ATLAS_READS = {"method": "atlas_method", "base": "atlas_base", "shown": "atlas_shown"}
_LEARNED = (
    "The thresholds that the run learned on both texts are shifted together to the same budget, so each module keeps "
    "the same number of neurons with either text. Learning from one text alone needs a new run. Key/value groups are "
    "always scored on A."
)
_DECIDED = "The method's rule is applied twice at the same budget: to the scores on A alone and to those on B alone."
_TEXT_CAPTIONS = {
    CHANGE: "Purple: the method keeps more of a module with the scores on B, at the same budget.",
    DIFFERS: "Colour: the share of a module's neurons that the method keeps with the scores of only one text.",
}
_HOVER = (
    "layer %{customdata[0]:.0f}, module %{customdata[1]:.0f}, neurons: %{customdata[3]:.0f}<br>"
    "{first} keeps %{customdata[4]:.1%}, {second} %{customdata[5]:.1%}<br>"
    "%{customdata[6]:.1%} decided differently"
)


@panel("atlas", "atlas_methods", "Differences between two methods", reads=_ATLAS_READS)
def atlas(run: Run, *, method: str = "", base: str = "", shown: str = CHANGE, selected: Selection = NOTHING) -> Panel:
    """Change of retention of every module from one method to another."""
    method, base = choose_masks(run, method, base)
    first, second = label(method), label(base)
    partition = run.load(stages.partition)
    changes = mask_map.compare_modules(partition, *(run.load(stages.masks, name) for name in (method, base)))
    require_choice("shown", shown, tuple(COLORS))
    finding = _describe_changes(changes, first, second)
    return Panel(
        plot_modules(changes, _load_columns(run), (first, second), shown, selected),
        f"Each row is a layer, each cell a module: purple if {escape(first)} keeps more, orange if less.",
        action="Click one to select it.",
        title=finding,
        alt=finding,
        table=lambda: mask_map.atlas_table(changes, first, second, _mean_drift(run)),
        how="The change of retention is the share of a module's neurons that the first method keeps minus the share "
        "that the second keeps. Equal shares can be different neurons: the colour “Share decided differently” "
        "counts every neuron that only one of them keeps.",
    )


def _describe_changes(changes: Atlas, first: str, second: str) -> str:
    module = changes.largest
    if not np.abs(changes.change).max():
        return f"{escape(first)} and {escape(second)} keep the same share of every module"
    more = int((changes.change > 0).sum())
    return (
        f"{escape(first)} keeps more than {escape(second)} in {more} of {len(changes.change)} modules; most "
        f"different: layer {changes.layer[module]}, module {changes.module[module]} "
        f"({format_signed(100 * changes.change[module], '.0f')} points)"
    )


@panel(
    "atlas_texts",
    "atlas_texts",
    "Which units depend on the calibration text?",
    reads={"method": "atlas_method", "shown": "atlas_shown"},
)
def atlas_texts(run: Run, *, method: str = "", shown: str = CHANGE, selected: Selection = NOTHING) -> Panel:
    """Change of each module's retention if one method used the scores of text B instead of A.

    If both texts keep the same number of neurons in every module, the colour is the share decided differently.
    """
    method, study = choose_masks(run, method, "")[0], run.study
    # the masks of one method, by the text whose scores decide
    names = name_texts("score on B", study), name_texts("score on A", study)
    changes, learned = compare_texts(run, method), of_masks(method).decision == "learned"
    require_choice("shown", shown, tuple(COLORS))
    note = ""
    if shown == CHANGE and not np.abs(changes.change).max():
        shown = DIFFERS
        note = "Both texts keep the same number of neurons in every module, so retention does not change. "
    share = f"{percent(changes.neurons, 1)} of the neurons"
    groups = "" if learned else f" and {percent(changes.groups, 1)} of the key/value groups"
    return Panel(
        plot_modules(changes, _load_columns(run), names, shown, selected),
        note + escape(name_texts(_TEXT_CAPTIONS[shown], study)),
        action="Click one to select it.",
        title=f"{share}{groups} of {escape(label(method))} depend on the calibration text",
        alt=f"{share} depend on the calibration text",
        table=lambda: mask_map.atlas_table(changes, *names, _mean_drift(run)),
        how=f"{escape(name_texts(_LEARNED if learned else _DECIDED, study))} Another sample "
        "of one text also changes some decisions; the calibration card on the Texts page shows how many.",
    )


@panel(
    "atlas_groups",
    "atlas_groups",
    "Which key/value groups are kept?",
    reads={"method": "atlas_method", "base": "atlas_base"},
)
def atlas_groups(run: Run, *, method: str = "", base: str = "", selected: Selection = NOTHING) -> Panel:
    """Key/value groups that two methods keep, and their scores on A and B."""
    masks = {name: run.load(stages.masks, name) for name in choose_masks(run, method, base)}
    primary, auxiliary = (run.load(stages.scores, text) for text in stages.PAIR)
    first, *rest = (mask.heads for mask in masks.values())
    names, agreement = (
        names_in_figure(run.study),
        f"; they agree on {percent(np.mean(first == rest[0]))}" if rest else "",
    )
    scores = {f"score on {names['A']}": primary.heads, f"score on {names['B']}": auxiliary.heads}
    counts = " and ".join(f"{escape(label(name))} keeps {int(mask.heads.sum())}" for name, mask in masks.items())
    return Panel(
        _plot_groups(masks, scores, selected),
        "Coloured groups are kept, grey ones removed. In the columns of scores, purple is above the layer mean.",
        action="Click a row to select the layer.",
        title=f"Of {first.size:,} key/value groups {counts}{agreement}",
        alt=f"{counts}{agreement}",
        table=lambda: mask_map.group_table({label(name): mask for name, mask in masks.items()}, primary, auxiliary),
        how=f"A group is a key/value head with its query heads. Scores are by {escape(label(primary.metric))}, in "
        "standard deviations from the layer mean. A small model has few groups per layer, so each one affects "
        "the result strongly.",
    )


def mask_labels(run: Run) -> dict[str, str]:
    """Return the label of each of the run's masks by name; raise MissingResultError if there are none."""
    return run.require({name: label(name) for name in run.mask_names}, stages.masks)


def choose_masks(run: Run, method: str, base: str) -> tuple[str, str]:
    """Return the names of two masks to compare, by default the first of the run and those of its own metric.

    Both names are the same if the run has masks of only one method. Raises SettingsError if the run lacks the named
    masks, MissingResultError if it has no masks.
    """
    names = list(mask_labels(run))
    first = method or names[0]
    require_choice("method", first, tuple(names))
    baselines = [name for name in names if name != first]
    if not baselines:
        return first, first
    second = base if base and base != first else default_baseline(run, baselines)
    require_choice("base", second, tuple(baselines))
    return first, second


def compare_texts(run: Run, method: str) -> Atlas:
    """Compare the masks of a method by B's scores alone with those by A's alone, module by module.

    Raises MethodError if the method cannot decide without a new run.
    """
    name = of_masks(method).name
    masks = [derived_cache.masks_of_text(run, name, text) for text in (whatif.AUXILIARY, whatif.PRIMARY)]
    return mask_map.compare_modules(run.load(stages.partition), masks[0], masks[1])


def _load_columns(run: Run) -> Array:
    """Return the (modules,) columns of the modules in the atlas; see `mask_map.module_columns`."""
    return mask_map.module_columns(run.load(stages.partition), run.load(stages.drift).magnitude)


def _mean_drift(run: Run) -> Array | None:
    """Return the (modules,) mean rank drift, or None if the drift is not computed yet."""
    if not run.has(stages.drift):
        return None
    partition, drift = run.load(stages.partition), run.load(stages.drift).magnitude
    means: Array = module_means(drift.ravel(), partition.global_labels.ravel(), partition.modules)
    return means


def plot_modules(
    atlas: Atlas, column: Array, names: tuple[str, str], shown: str = CHANGE, selected: Selection = NOTHING
) -> go.Figure:
    """Plot the modules of each layer in a row, coloured by `shown`, one of COLORS.

    `column` is (modules,), the column of each module; modules that drift least come first. `names` are the labels of
    the two masks that `atlas` compares.
    """
    grid = mask_map.arrange_grid(atlas, 100 * atlas.change if shown == CHANGE else atlas.differs, column)
    look = {"hoverinfo": "skip", "hoverongaps": False, "xgap": 1, "ygap": 1} | _color_scale(atlas, shown)
    figure = go.Figure(go.Heatmap(z=grid.astype(np.float32), **look))
    hover = _HOVER.replace("{first}", in_figure(names[0])).replace("{second}", in_figure(names[1]))
    values = np.column_stack([atlas.size, atlas.first, atlas.second, atlas.differs])
    x, y = column.astype(np.int16), atlas.layer.astype(np.int16)
    marks.add_cells(figure, x, y, atlas.layer, values, hover, atlas.module)
    layers, columns = grid.shape
    style(figure, "modules of the layer, from stable to unstable (mean drift)", "layer", _figure_height(layers))
    figure.update_xaxes(range=[-0.5, columns - 0.5], showticklabels=False, ticks="", showgrid=False)
    layer_axis(figure, layers, "y", showgrid=False)
    if selected.module is None:
        marks.add_layer_line(figure, selected, "y")
        return figure
    for module in np.flatnonzero((atlas.layer == selected.layer) & (atlas.module == selected.module)):
        marks.add_outline(figure, float(column[module]), float(atlas.layer[module]))
    return figure


def _figure_height(layers: int) -> int:
    """Return the height of a figure with one row per layer, in pixels."""
    return max(320, 120 + 13 * layers)


def _color_scale(atlas: Atlas, shown: str) -> dict[str, object]:
    """Return the colour range of the heat map: symmetric around 0 for changes, from 0 for shares."""
    if shown == DIFFERS:
        bar = marks.colorbar("share of neurons", tickformat=".0%")
        top = float(max(atlas.differs.max(), LEAST_RANGE))
        return {"colorscale": "Cividis", "zmin": 0.0, "zmax": top, "colorbar": bar}
    reach = 100 * float(max(np.abs(atlas.change).max(), LEAST_RANGE))
    bar = marks.colorbar("change of retention (points)")
    return {"colorscale": SIGNS, "zmid": 0.0, "zmin": -reach, "zmax": reach, "colorbar": bar}


def _plot_groups(masks: dict[str, PruningMasks], scores: dict[str, Array], selected: Selection) -> go.Figure:
    """Plot layers by key/value groups: a panel for each method's mask, and one for the scores on each text."""
    titles = [*(f"{in_figure(label(method))} keeps" for method in masks), *scores]
    figure = make_subplots(1, len(titles), shared_yaxes=True, subplot_titles=titles, horizontal_spacing=0.03)
    layers, groups = next(iter(scores.values())).shape
    for column, (method, mask) in enumerate(masks.items(), start=1):
        kept_groups = mask.heads.astype(np.int8)
        scale = [[0.0, PALE], [1.0, METHOD_COLORS[method]]]
        figure.add_heatmap(z=kept_groups, colorscale=scale, zmin=0, zmax=1, showscale=False, row=1, col=column)
        hover = f"layer %{{y}}, group %{{x}}: {in_figure(label(method))} %{{customdata[3]:.0f}} (1 = kept)"
        _add_group_cells(figure, kept_groups.shape, kept_groups.ravel(), hover, column)
    # all panels of scores share one colour scale, in standard deviations within a layer; it may not be empty
    standardized = {name: standardize(values) for name, values in scores.items()}
    reach = max(float(max(np.abs(values).max() for values in standardized.values())), 1e-6)
    for column, (name, values) in enumerate(standardized.items(), start=len(masks) + 1):
        figure.add_heatmap(z=values.astype(np.float32), coloraxis="coloraxis", row=1, col=column)
        hover = f"layer %{{y}}, group %{{x}}: %{{customdata[3]:.2f}} SD from layer mean, {name} %{{customdata[4]:.4g}}"
        data = np.column_stack([values.ravel(), scores[name].ravel()])
        _add_group_cells(figure, values.shape, data, hover, column)
    bar = marks.colorbar("score (SD from layer mean)")
    coloraxis = {"colorscale": SIGNS, "cmid": 0.0, "cmin": -reach, "cmax": reach, "colorbar": bar}
    figure.update_layout(coloraxis=coloraxis)
    figure.update_traces(hoverinfo="skip", xgap=1, ygap=1, selector={"type": "heatmap"})
    style(figure, "key/value group", "", _figure_height(layers), margin={"l": 64, "r": 16, "t": 36, "b": 52})
    figure.update_xaxes(range=[-0.5, groups - 0.5], tickformat="d", nticks=8, showgrid=False)
    layer_axis(figure, layers, "y", showgrid=False)
    figure.update_yaxes(title_text="layer", col=1)
    if selected.layer is not None:
        ends = {"y0": selected.layer - 0.5, "y1": selected.layer + 0.5}
        figure.add_hrect(**ends, line={"color": marks.RING, "width": 2}, fillcolor="rgba(0,0,0,0)", col="all")
    return figure


def _add_group_cells(figure: go.Figure, shape: tuple[int, ...], data: Array, hover: str, column: int) -> None:
    layer, group = (index.ravel().astype(np.int16) for index in np.indices(shape))
    marks.add_cells(figure, group, layer, layer, data, hover, row=1, col=column)
