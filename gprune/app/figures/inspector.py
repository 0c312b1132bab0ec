"""Figures of the inspector: ranks with their whiskers, and histograms of scores and activations.

Everything is read from slices of one layer.
"""

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from gprune import records
from gprune.analysis import calibration, inspection
from gprune.analysis.calibration_report.measuring import texts_of
from gprune.analysis.formatting import counted
from gprune.analysis.inspection import LayerRanks
from gprune.app.preview.histogram import Histogram
from gprune.app.ui import marks
from gprune.app.ui.chart_style import TEXT_LOOKS, called, style
from gprune.app.ui.memo import memoized
from gprune.app.ui.panel import Panel, in_range, panel
from gprune.app.ui.text import names_in_figure
from gprune.app.ui.unit import KEYS, NOTHING, Selection, there
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run, record
from gprune.pruning import scoring
from gprune.records import Array
from gprune.study.settings import require
from gprune.system.errors import StoreError

PIN = "ins_pin"
"""address key of the pinned unit"""
_MOST_SCORE_BINS = 40
MOST_ACTIVATION_BINS = 80
_LEAST_SCORE = 1e-300
"""below it a score has no logarithm worth drawing"""


def read_pin(run: Run, text: str) -> Selection:
    """Return the pinned unit from the address: layer, module and neuron, `x` for none."""
    parts = text.split("-")
    if len(parts) != 3 or not all(part == "x" or (part.isdecimal() and len(part) < 9) for part in parts):
        return NOTHING
    pinned = Selection(*(None if part == "x" else int(part) for part in parts))
    unit, missing = there(run, pinned)
    return NOTHING if missing else unit


def most_drifting_neuron(run: Run) -> Selection:
    """Return the first neuron with the largest drift; nothing without drift."""
    with contextlib.suppress(StoreError):
        if run.has(stages.drift):
            drift = run.load(stages.drift).magnitude
            layer, neuron = np.unravel_index(int(np.argmax(drift)), drift.shape)
            return there(run, Selection(int(layer), None, int(neuron)))[0]
    return NOTHING


def _read_units(run: Run, values: Mapping[str, Any]) -> list[Selection]:
    """The pinned and the selected unit, or else the most drifting neuron."""
    selected = there(run, Selection(*(values.get(key) for key in KEYS)))[0]
    units = [unit for unit in dict.fromkeys((read_pin(run, values.get(PIN) or ""), selected)) if unit]
    return units or [unit for unit in (most_drifting_neuron(run),) if unit]


def _read_neurons(run: Run, values: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    units = _read_units(run, values)
    return [{"layer": unit.layer, "neuron": unit.neuron} for unit in units if unit.neuron is not None]


def _read_groups(run: Run, values: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    units = _read_units(run, values)
    return [{"layer": unit.layer, "module": unit.module} for unit in units if unit.neuron is None]


@panel("neuron_ranks", "ins_unit", "One neuron on every text", reads=_read_neurons)
def neuron_ranks(run: Run, *, layer: int | None = None, neuron: int = 0) -> Panel:
    """The rank of a neuron on every text, with what re-sampling does to it."""
    layers, neurons = run.load(stages.scores, "primary").ffn.shape
    layer, neuron = in_range("layer", layer, layers), in_range("neuron", neuron, neurons)
    texts = layer_ranks(run, layer)
    finding = "rank " + ", ".join(f"{ranks.rank[neuron]:.2f} on {letter}" for letter, ranks in texts.items())
    return Panel(
        _plot_ranks(texts, neuron, names_in_figure(run.study)),
        _no_halves(run) or "Whiskers: the range of its rank over halves of that text alone.",
        title=f"Neuron {neuron} of layer {layer}: {finding}",
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
        how="Ranks run from 0 to 1 within the layer. A half is half of the shards, which are neighbours; "
        "every starting point is taken. A half is noisier than the text, so the whiskers are wide.",
    )


@panel("score_histograms", "ins_unit", "Scores of a layer or a module on every text", reads=_read_groups)
def score_histograms(
    run: Run, *, layer: int | None = None, module: int | None = None, neuron: int | None = None
) -> Panel:
    """Distribution of the scores of a layer's or a module's neurons on each text."""
    layers, neurons = run.load(stages.scores, "primary").ffn.shape
    layer = in_range("layer", layer, layers)
    if module is not None:
        count = int(run.load(stages.partition).counts[layer])
        require(0 <= module < count, "module", module, f"0 to {count - 1}")
    unit = Selection(layer, module)
    members, rows = members_of(run, unit)
    texts = layer_ranks(run, layer)
    selected = {}
    if neuron is not None:
        neuron = in_range("neuron", neuron, neurons)
        selected = {letter: float(ranks.score[neuron]) for letter, ranks in texts.items()}
    scores = {letter: np.asarray(ranks.score)[members] for letter, ranks in texts.items()}
    return Panel(
        _plot_scores(scores, selected),
        "Share of its neurons by score; the same bins on every text.",
        title=_describe_group(unit, int(members.sum()), rows),
        alt=f"scores of {unit.words}",
        table=lambda: members_table(run, unit, members),
    )


def _describe_group(unit: Selection, members: int, rows: pd.DataFrame | None) -> str:
    if unit.module is None:
        modules = "" if rows is None else f", {counted(len(rows), 'module')}"
        return f"Layer {unit.layer}: {counted(members, 'neuron')}{modules}"
    outcome = f", by RASA {rows['RASA'].iloc[0]}" if rows is not None and "RASA" in rows else ""
    return f"Module {unit.module} of layer {unit.layer}: {counted(members, 'neuron')}{outcome}"


def activations(run: Run, histograms: Mapping[str, Histogram], progress: str) -> Panel:
    """Return the panel of a neuron's activations on each text, once all are complete; `progress` is a sentence."""
    table = bin_activations(histograms)
    shares = (f"{100 * values.above(0.0):.0f} % on {letter}" for letter, values in histograms.items())
    return Panel(
        plot_activations(table, names_in_figure(run.study)),
        f"{progress}; every token counts once. The share is on a logarithmic axis.",
        title=f"Its activation is 0 or more at {', '.join(shares)} of the tokens",
        alt="histogram of the activations on each text",
        table=lambda: table,
        how="The activation is the neuron's input of down_proj in the dense model, as everywhere on this "
        "page. Bins are equally wide on all texts, 0 is an edge, and a bin without a token has no mark.",
    )


def members_of(run: Run, unit: Selection) -> tuple[Array, pd.DataFrame | None]:
    """Return (neurons,) bool of a module or a layer, and the rows of its modules where there are modules."""
    layer = unit.layer or 0
    table = _module_table(run, layer)
    if unit.module is None:
        return np.ones(run.load(stages.scores, "primary").ffn.shape[1], dtype=bool), table
    members = np.asarray(run.load(stages.partition).labels[layer]) == unit.module
    return members, table[table["module"] == unit.module] if table is not None else None


def kept_neurons(run: Run, layer: int) -> dict[str, Array]:
    """Return (neurons,) bool of a layer for GPrune and the run's metric alone, by their labels."""
    names = [name for name in ("gprune", run.study.metric) if name in run.masked]
    return {called(name): np.asarray(run.load(stages.masks, name).ffn[layer]) for name in names}


def _module_table(run: Run, layer: int) -> pd.DataFrame | None:
    if not run.has(stages.partition):
        return None
    statistics, adapted = run.find(stages.modules), run.find(stages.adapted)
    masks = {f"{name} keeps": mask for name, mask in kept_neurons(run, layer).items()}
    return inspection.module_table(run.load(stages.partition), layer, statistics, adapted, masks)


def members_table(run: Run, unit: Selection, members: Array) -> pd.DataFrame:
    """Return one row a neuron, the most important on A first."""
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
    """Return the ranks of a layer's neurons on every text that is scored, by letter; MissingResultError if none is."""
    texts = {}
    for role in texts_of(run.study):
        if run.has(stages.scores, role):
            keys = "", ""
            if not _no_halves(run) and run.has(stages.statistics, role) and run.has(stages.norms):
                keys = run.key(stages.statistics, role), run.key(stages.norms)
            scores = run.key(stages.scores, role)
            texts[calibration.ROLES[role]] = _rank_layer(run.root, scores, *keys, run.study.metric, layer)
    return run.require(texts, stages.scores, "primary")


def _no_halves(run: Run) -> str:
    if run.study.metric not in scoring.METRICS:
        return "Its metric cannot score parts of a text: no whiskers."
    if run.study.metric == "flap" and run.study.calibration.flap_variant == "released":
        # a half scored by the variance is no part of a rank by the recursion
        return "FLAP's released recursion cannot score parts of a text: no whiskers."
    return ""


# a layer at 7B takes 1.4 MB a text, and is drawn for every neuron of it
@memoized(24)
def _rank_layer(root: str, scores: str, statistics: str, norms: str, metric: str, layer: int) -> LayerRanks:
    score = record(root, "scores", scores, "UnitScores").ffn[layer]
    if not statistics:
        return inspection.standing(score, None, 0)
    moments: records.ActivationStatistics = record(root, "statistics", statistics, "ActivationStatistics")
    weights = record(root, "norms", norms, "WeightNorms")
    return inspection.standing(score, scoring.layer_scorer(metric, moments, weights, layer), moments.shards)


def _plot_ranks(texts: Mapping[str, LayerRanks], neuron: int, names: Mapping[str, str]) -> go.Figure:
    """Plot the rank of one neuron on every text; whiskers are the range over halves of the text."""
    figure = go.Figure()
    for letter, ranks in texts.items():
        rank, low, high = (float(values[neuron]) for values in (ranks.rank, ranks.low, ranks.high))
        row, (color, symbol) = f"{letter} ({names[letter]})", TEXT_LOOKS[letter]
        # a line of its own: on the whole text the rank may lie outside of all that halves give
        ends = {"marker": {"color": color, "symbol": "line-ns-open", "size": 12}, "mode": "lines+markers"}
        marks.guide(figure, [low, high], [row, row], {"color": color, "width": 2}, **ends)
        hover = f"rank {rank:.3f}, on halves {low:.3f} to {high:.3f}<extra>{letter}</extra>"
        marks.points(figure, [rank], [row], {"color": color, "symbol": symbol, "size": 12}, hover, showlegend=False)
    style(figure, "rank within the layer (1 = most important)", "", 110 + 34 * len(texts))
    figure.update_xaxes(range=[-0.02, 1.02])
    return figure.update_yaxes(autorange="reversed", type="category", showgrid=False)


def _plot_scores(scores: Mapping[str, Array], selected: Mapping[str, float]) -> go.Figure:
    """Plot histograms of the (units,) scores by letter; `selected` is the selected neuron's score by letter."""
    every = np.concatenate(list(scores.values()))
    log = bool((every > _LEAST_SCORE).all())
    # a module has few neurons, of which as many bins would show each alone
    bins = int(np.clip(2 * np.sqrt(len(every) / len(scores)), 8, _MOST_SCORE_BINS))
    edges = np.histogram_bin_edges(np.log10(every) if log else every, bins=bins)
    middles = (edges[:-1] + edges[1:]) / 2
    figure = go.Figure()
    for letter, values in scores.items():
        counts, _ = np.histogram(np.log10(values) if log else values, bins=edges)
        line = {"color": TEXT_LOOKS[letter][0], "width": 2, "shape": "hvh"}
        marks.curve(figure, middles, 100.0 * counts / max(len(values), 1), letter, line, "%{x:.3g}: %{y:.1f} %")
    for letter, value in selected.items():
        line = {"color": TEXT_LOOKS[letter][0], "dash": "dot", "width": 1.5}
        figure.add_vline(x=float(np.log10(value)) if log else value, line=line)
    style(figure, "log10 of the score" if log else "score", "share of the neurons (%)", 280)
    return figure.update_yaxes(rangemode="tozero")


def bin_activations(histograms: Mapping[str, Histogram]) -> pd.DataFrame:
    """Return histograms by letter in shared bins: from, to, and the number of tokens of each text."""
    power = max(histogram.power for histogram in histograms.values())
    while True:
        widened = {letter: histogram.widened(power) for letter, histogram in histograms.items()}
        first = min(histogram.first for histogram in widened.values())
        last = max(histogram.first + len(histogram.counts) for histogram in widened.values())
        if last - first <= MOST_ACTIVATION_BINS:
            break
        power += 1
    edges = np.ldexp(np.arange(first, last + 1.0), power)
    table = pd.DataFrame({"from": edges[:-1], "to": edges[1:]})
    for letter, histogram in widened.items():
        start = histogram.first - first
        table[letter] = np.pad(histogram.counts, (start, last - first - start - len(histogram.counts)))
    return table


def plot_activations(table: pd.DataFrame, names: Mapping[str, str]) -> go.Figure:
    """Plot the distribution of a neuron's activations on each text; `table` is from `bin_activations`."""
    figure = go.Figure()
    middles = (table["from"] + table["to"]) / 2
    for letter in table.columns[2:]:
        counts = table[letter].to_numpy()
        # a logarithmic axis has no place for 0
        shares = np.where(counts > 0, 100.0 * counts / counts.sum(), np.nan)
        color, symbol = TEXT_LOOKS[letter]
        marks.curve(
            figure, middles, shares, f"{letter} ({names[letter]})", {"color": color, "width": 2, "shape": "hvh"},
            f"%{{x:.3g}}: %{{y:.3g}} %<extra>{letter}</extra>", symbol=symbol, size=4,
        )  # fmt: skip
    style(figure, "activation before down_proj (no unit)", "share of the tokens (%)", 300)
    return figure.update_yaxes(type="log")
