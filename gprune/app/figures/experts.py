"""Figures of runs that prune experts: scores and drift, RASA, masks, and their dependence on the calibration text."""

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from gprune.analysis.drift import CROSS, FLOOR_AUXILIARY, FLOOR_PRIMARY
from gprune.analysis.formatting import percent
from gprune.analysis.thresholds import OUTCOMES
from gprune.app.figures.drift import BINS, HISTOGRAM, distribution_panel
from gprune.app.ui import marks, story
from gprune.app.ui.chart_style import BLUE, GREY, PAIR, PALE, TEXT_A, TEXT_B, label, style
from gprune.app.ui.panel import OF_EXPERTS, Panel, panel
from gprune.app.ui.text import escape, in_figure, name_texts, names_in_figure, text_pair
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.pruning.experts import criteria
from gprune.pruning.ranking import standardize
from gprune.records import Array
from gprune.records.experts import LEAST_TOKENS, ExpertMasks
from gprune.study.methods import EXPERT_CRITERIA
from gprune.study.settings import require_choice

FREQUENCY, SCORE_A, SCORE_B, DRIFT = "frequency", "score_a", "score_b", "drift"
QUANTITIES = {FREQUENCY: "Frequency on A", SCORE_A: "Score on A", SCORE_B: "Score on B", DRIFT: "Rank drift"}
"""quantities that the colour of an expert can stand for"""
UNITS = {
    "frequency": "share of tokens",
    "reap": "mean g·‖f(x)‖ of its tokens",
    "routed_norm": "mean g·‖f(x)‖ of all tokens",
    "man": "mean ‖f(x)‖ of its tokens",
}
"""units of the scores, by criterion; g is the router's weight, f(x) the output of the expert"""
_CRITERION = {"criterion": "xp_criterion"}
"""key of the criterion in the address"""
_COLD = f"Experts with fewer than {LEAST_TOKENS} tokens on a text have no rank."
_LOOKS = ((GREY, "circle"), (TEXT_A, "square"), (TEXT_B, "diamond"))
"""hue and symbol of each outcome of RASA"""
_ROW_PIXELS, _TITLE_PIXELS, _COLUMNS = 24, 36, 3
"""heights of a layer and of the title of a method, and number of methods side by side"""
_MOST_SEPARATED = 40
"""number of experts up to which cells have gaps"""


def criterion_labels(run: Run) -> dict[str, str]:
    """Return the labels of the criteria whose drift the study computes; first those that it adapts."""
    return {name: EXPERT_CRITERIA[name] for name in stages.criteria_of(run.graph)}


def _choose_criterion(run: Run, criterion: str) -> str:
    """Return a criterion of the study, by default the first. Raises SettingsError for another one."""
    names = tuple(criterion_labels(run))
    require_choice("criterion", criterion or names[0], names)
    return criterion or names[0]


def values_of(run: Run, criterion: str, quantity: str) -> Array:
    """Return a quantity of QUANTITIES as (layers, experts); NaN for the drift of an expert without rank."""
    if quantity == DRIFT:
        return run.load(stages.expert_rank_drift, criterion).magnitude
    if quantity == FREQUENCY:
        return criteria.score_experts("frequency", run.load(stages.expert_statistics)).values
    return run.load(stages.expert_scores, criterion, "primary" if quantity == SCORE_A else "auxiliary").values


def most_drifting_expert(run: Run, criterion: str) -> tuple[str, str]:
    """Return layer and index of the expert whose rank drifts most; the first expert if none has a rank."""
    drift = np.nan_to_num(values_of(run, criterion, DRIFT), nan=-1)
    mixture, expert = np.unravel_index(drift.argmax(), drift.shape)
    return list_layers(run)[mixture], str(expert)


@panel(
    "expert_map",
    "xp_map",
    "Experts by layer",
    clicked=True,
    units=OF_EXPERTS,
    reads=_CRITERION | {"quantity": "xp_quantity"},
)
def expert_map(
    run: Run, *, criterion: str = "", quantity: str = DRIFT, _chosen: tuple[str, str] | None = None
) -> Panel:
    """A quantity of every expert, by layer, with a frame around the chosen layer and expert, if any."""
    criterion = _choose_criterion(run, criterion)
    require_choice("quantity", quantity, tuple(QUANTITIES))
    values, names, layers = values_of(run, criterion, quantity), names_in_figure(run.study), list_layers(run)
    unit = {DRIFT: "rank drift d (0 to 1)", FREQUENCY: UNITS["frequency"]}.get(quantity, UNITS[criterion])
    figure = marks.heat_map(values, list(range(values.shape[1])), layers, unit, **_gaps(values.shape[1]))
    rows, columns = np.indices(values.shape).reshape(2, -1)
    row_names, hover = np.array(layers)[rows], "layer %{y}, expert %{x}: %{customdata[3]:.4g}"
    marks.add_cells(figure, columns, row_names, row_names.astype(int), values.ravel(), hover, columns)
    if _chosen is not None:
        marks.add_outline(figure, int(_chosen[1]), layers.index(_chosen[0]))
    style(figure, "expert", "layer", max(_height(len(layers), 480) + 100, 300))
    figure.update_xaxes(range=[-0.5, values.shape[1] - 0.5])
    figure.update_yaxes(type="category", range=[-0.5, len(layers) - 0.5], showgrid=False)
    summary, (first, second) = run.load(stages.expert_rank_drift, criterion).summary, text_pair(run.study)
    floor = max(summary["resample_primary"], summary["resample_auxiliary"])
    title = f"{EXPERT_CRITERIA[criterion]} ranks shift by {summary['drift']:.3f} from {first} to {second}"
    title += f", by {floor:.3f} when resampled" if np.isfinite(floor) else ""
    blank = " Blank: no rank." if np.isnan(values).any() else ""
    of_criterion = f" by {EXPERT_CRITERIA[criterion]}" if quantity in (SCORE_A, SCORE_B, DRIFT) else ""
    return Panel(
        figure,
        f"{escape(name_texts(QUANTITIES[quantity], run.study))}{of_criterion}.{blank}",
        "Click an expert to choose it.",
        title=title if np.isfinite(summary["drift"]) else "No expert has a rank on both texts",
        how=f"Each row is a layer with a mixture, each cell an expert. The drift is the shift of its rank by "
        f"{EXPERT_CRITERIA[criterion]} within the layer, as a share of the longest shift. The title has the mean over "
        f"ranked experts, and the larger drift between two halves of {first} or of {second}, which have half the "
        f"tokens; between a half of {first} and one of {second} it is {summary['half']:.3f}. {_COLD}",
        table=lambda: expert_table(run, criterion),
        alt=f"{names['A']} and {names['B']}: {QUANTITIES[quantity]} of every expert",
    )


def expert_table(run: Run, criterion: str) -> pd.DataFrame:
    """Return a table with every quantity of every expert."""
    columns = {QUANTITIES[name]: values_of(run, criterion, name).ravel() for name in QUANTITIES}
    record = run.load(stages.expert_rank_drift, criterion)
    columns |= {"Tokens on A": record.tokens_primary.ravel(), "Tokens on B": record.tokens_auxiliary.ravel()}
    layers, experts = np.indices(record.signed.shape).reshape(2, -1)
    named = {name_texts(name, run.study): values for name, values in columns.items()}
    return pd.DataFrame({"layer": np.array(list_layers(run))[layers], "expert": experts} | named)


@panel(
    "expert_drift", "xp_drift", "Rank drift of all experts", units=OF_EXPERTS, reads=_CRITERION | {"form": "rd_form"}
)
def expert_drift(run: Run, *, criterion: str = "", form: str = HISTOGRAM) -> Panel:
    """Share of experts by the size of their rank shift, as a curve or as a histogram."""
    criterion = _choose_criterion(run, criterion)
    layers, experts = run.load(stages.expert_rank_drift, criterion).signed.shape
    # with a bin for every rank shift
    bins = min(BINS, experts)
    return distribution_panel(run, EXPERT_CRITERIA[criterion], layers * experts, form, bins, criterion=criterion)


@panel("expert_drift_by_layer", "xp_layers", "Which layers drift?", units=OF_EXPERTS, reads=_CRITERION)
def expert_drift_by_layer(run: Run, *, criterion: str = "") -> Panel:
    """Mean rank drift of the ranked experts of every layer, and that of resampling each text."""
    criterion = _choose_criterion(run, criterion)
    record, (first, second) = run.load(stages.expert_rank_drift, criterion), text_pair(run.study)
    table = pd.DataFrame({"layer": list_layers(run)})
    curves = (record.magnitude, record.resample_primary, record.resample_auxiliary)
    for name, values in zip((CROSS, FLOOR_PRIMARY, FLOOR_AUXILIARY), curves, strict=True):
        ranked = np.isfinite(values)
        # NaN for a layer without ranked experts
        table[name] = np.where(ranked, values, 0).sum(axis=1) / np.where(ranked.any(axis=1), ranked.sum(axis=1), np.nan)
    figure = go.Figure()
    for name, color in zip(table.columns[1:], (PAIR, GREY, PALE), strict=True):
        series = in_figure(name_texts(name, run.study))
        marks.add_bars(figure, table["layer"], table[name], series, color, "layer %{x}: mean d %{y:.3f}")
    style(figure, "layer", "mean rank drift d", 340, barmode="group")
    figure.update_xaxes(type="category")
    return Panel(
        figure,
        "Mean over the ranked experts of a layer. Resampled: between two halves of one text.",
        title=f"Mean rank drift by layer: {table[CROSS].min():.3f} to {table[CROSS].max():.3f}"
        if np.isfinite(record.signed).any()
        else "No expert has a rank on both texts",
        how=f"Drift from {first} to {second} by {EXPERT_CRITERIA[criterion]}. Halves have half the tokens. {_COLD}",
        table=lambda: table.rename(columns=lambda name: name_texts(name, run.study)),
    )


@panel("expert_adaptation", "xp_adaptation", "Drift and score", units=OF_EXPERTS, reads=_CRITERION)
def adaptation(run: Run, *, criterion: str = "") -> Panel:
    """Drift of every expert against its score on A, with the thresholds of RASA if the run adapts the criterion."""
    criterion = _choose_criterion(run, criterion)
    record, settings = run.find(stages.adapted_experts, criterion), run.study.reliability
    drift, scores = (values_of(run, criterion, name) for name in (DRIFT, SCORE_A))
    is_standardized = record is not None and settings.score_scale == "standardized"
    scores = standardize(scores) if is_standardized else scores
    outcome = np.zeros(drift.shape, dtype=int) if record is None else record.adapted + record.from_auxiliary * 1
    indices: Any = np.indices(drift.shape)
    layers, experts = indices
    figure, layer_names = go.Figure(), np.array(list_layers(run))
    for value, (color, symbol) in enumerate(_LOOKS[: 1 if record is None else 3]):
        is_member = (outcome == value) & np.isfinite(drift)
        marks.add_points(
            figure, drift[is_member], scores[is_member], {"color": color, "symbol": symbol, "size": 9, "opacity": 0.8},
            "layer %{customdata[0]}, expert %{customdata[1]}: drift %{x:.3f}, score %{y:.4g}<extra></extra>",
            name=f"{OUTCOMES[value]} ({is_member.sum()})",
            customdata=np.stack([layer_names[layers[is_member]], experts[is_member]], axis=1),
        )  # fmt: skip
    unit = "SD from layer mean" if is_standardized else UNITS[criterion]
    style(figure, "rank drift d", f"score on {names_in_figure(run.study)['A']} ({unit})", 380)
    (first, second), name = text_pair(run.study), EXPERT_CRITERIA[criterion]
    if record is None:
        title, caption = f"This run does not adapt {name}", "Each point is an expert with a rank on both texts."
    else:
        line = {"color": GREY, "dash": "dash", "width": 2}
        if settings.selection in ("drift", "drift_and_score") and np.isfinite(record.drift_threshold):
            figure.add_vline(record.drift_threshold, line=line)
        if settings.selection == "drift_and_score" and np.isfinite(record.score_threshold):
            figure.add_hline(record.score_threshold, line=line)
        title = f"RASA adapts {record.adapted.sum()} of {drift.size} experts"
        title += f" and scores {record.from_auxiliary.sum()} of them on {second}"
        caption = (
            "Dashed: the thresholds. Adapted experts are right of and below them and shift more than by resampling."
        )
        if settings.selection != "drift_and_score":
            caption = f"The rule of this run selects by {settings.selection}. Dashed: its threshold, if it has one."
    return Panel(
        figure,
        caption,
        title=title,
        how="RASA with the expert as module: an expert is adapted if its drift and its score pass the thresholds, and "
        "if its drift exceeds that between halves of either text, which is the effect of resampling. An adapted "
        f"expert is scored on {second} if halves of {second} rank it more repeatably than halves of {first}. {_COLD}",
        table=lambda: expert_table(run, criterion).assign(decision=np.array(OUTCOMES)[outcome.ravel()]),
    )


def load_masks(run: Run) -> dict[str, ExpertMasks]:
    """Return the masks of the study's methods that exist, by method. Raises MissingResultError if there are none."""
    methods = [name for name in run.masks_of if run.has(stages.expert_masks, name)]
    run.require(methods, stages.expert_masks, next(iter(run.masks_of)))
    return {name: run.load(stages.expert_masks, name) for name in methods}


@panel("expert_masks", "xp_masks", "Removed experts", units=OF_EXPERTS)
def removed_experts(run: Run) -> Panel:
    """Experts that every method keeps, by layer."""
    masks, layers = load_masks(run), list_layers(run)
    rows, count = -(-len(masks) // _COLUMNS), next(iter(masks.values())).count
    height = rows * (_height(len(layers), 240) + _TITLE_PIXELS)
    figure = make_subplots(
        rows, _COLUMNS, subplot_titles=[in_figure(label(name)) for name in masks], shared_xaxes=True,
        shared_yaxes=True, vertical_spacing=_TITLE_PIXELS / height, horizontal_spacing=0.04,
    )  # fmt: skip
    for index, record in enumerate(masks.values()):
        figure.add_heatmap(
            z=record.experts.astype(np.int8), y=layers, colorscale=[[0.0, PALE], [1.0, BLUE]], zmin=0, zmax=1,
            showscale=False, hovertemplate="layer %{y}, expert %{x}: %{z} (1 = kept)<extra></extra>",
            **_gaps(record.experts.shape[1]), row=index // _COLUMNS + 1, col=index % _COLUMNS + 1,
        )  # fmt: skip
    style(figure, "", "", height + 84, margin={"l": 64, "r": 16, "t": 32, "b": 52})
    figure.update_xaxes(showgrid=False).update_yaxes(type="category", showgrid=False)
    figure.update_xaxes(title_text="expert", row=rows)
    figure.update_yaxes(title_text="layer", col=1)
    total = next(iter(masks.values())).experts.shape[1]
    return Panel(
        figure,
        "Blue: kept. Grey: removed.",
        title=f"Every method keeps {count} of {total} experts in each layer",
        how="A stock model has the same number of experts in every layer. Methods differ in the experts that they "
        "keep. “Auxiliary” scores on the second text, “average” on the mean of both scores, and “adapted” with RASA.",
        table=lambda: _mask_table(masks, layers),
    )


def _mask_table(masks: dict[str, ExpertMasks], layer_names: list[str]) -> pd.DataFrame:
    layers, experts = np.indices(next(iter(masks.values())).experts.shape).reshape(2, -1)
    kept = {label(name): record.experts.ravel().astype(int) for name, record in masks.items()}
    return pd.DataFrame({"layer": np.array(layer_names)[layers], "expert": experts} | kept)


@panel("expert_dependence", "xp_texts", "Decisions that depend on the text", units=OF_EXPERTS)
def text_dependence(run: Run) -> Panel:
    """Share of the experts that a criterion keeps with the scores of only one of two texts, or of two halves."""
    table = story.decision_differences(run).rename(columns=lambda name: name_texts(name, run.study))
    first, second = text_pair(run.study)
    figure = go.Figure()
    for column, color in zip(table.columns[1:], (PAIR, marks.EXCESS, GREY), strict=True):
        text = [percent(share) for share in table[column]]
        hover = "%{x}: %{y:.1%} decided differently"
        marks.add_bars(
            figure,
            table["criterion"],
            table[column],
            in_figure(column),
            color,
            hover,
            text=text,
            textposition="outside",
        )
    style(figure, "criterion", "decisions that differ", 340, barmode="group")
    figure.update_xaxes(type="category").update_yaxes(tickformat=".0%")
    shape = run.load(stages.expert_shape)
    share = shape.kept_experts(run.study.retention) / shape.experts
    return Panel(
        figure,
        f"Share of experts that are kept with the scores of only one text, if {percent(share)} are kept.",
        title=escape(story.dependence_finding(run)),
        how=f"The criterion's rule is applied to the scores on {first} and to those on {second}. Halves have half "
        f"the tokens: compare the halves of {first} and {second} with the two halves of {first}, which show the "
        f"effect of resampling. Two independent selections of this size would differ in "
        f"{percent(2 * share * (1 - share))} of the decisions.",
        table=lambda: table,
    )


def list_layers(run: Run) -> list[str]:
    """Return the numbers of the layers that have a mixture."""
    return [str(layer) for layer in run.load(stages.expert_shape).layers]


def _height(layers: int, most: int) -> int:
    """Return the height of the cells of a heat map in pixels, at most `most`."""
    return min(_ROW_PIXELS * layers, most)


def _gaps(experts: int) -> dict[str, int]:
    """Return the gaps between cells, none if the cells are narrow."""
    return dict.fromkeys(("xgap", "ygap"), int(experts <= _MOST_SEPARATED))
