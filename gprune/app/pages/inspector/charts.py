"""Figures of the Inspector: ranks with their whiskers, and histograms of scores."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from gprune.analysis.inspection import LayerRanks
from gprune.app.preview.histogram import Histogram
from gprune.app.ui import marks
from gprune.app.ui.chart_style import TEXT_A, TEXT_B, TEXT_C, style
from gprune.records import Array

COLORS = {"A": TEXT_A, "B": TEXT_B, "C": TEXT_C}
_SYMBOLS = {"A": "circle", "B": "square", "C": "diamond"}
BINS = 40
"""at most"""
MOST_ACTIVATION_BINS = 80
_LEAST = 1e-300
"""below it a score has no logarithm worth drawing"""


def rank_on_texts(standings: Mapping[str, LayerRanks], neuron: int, names: Mapping[str, str]) -> go.Figure:
    """The rank of one neuron on every text; whiskers are the range over halves of the text.

    `standings`, of the neuron's layer, and `names`, safe to draw, are by letter.
    """
    figure = go.Figure()
    for letter, found in standings.items():
        rank = float(found.rank[neuron])
        low, high = float(found.low[neuron]), float(found.high[neuron])
        place, color = f"{letter} ({names[letter]})", COLORS[letter]
        # a line of its own: on the whole text the rank may lie outside of all that halves give
        ends = {"marker": {"color": color, "symbol": "line-ns-open", "size": 12}, "mode": "lines+markers"}
        marks.guide(figure, [low, high], [place, place], {"color": color, "width": 2}, **ends)
        marker = {"color": color, "symbol": _SYMBOLS[letter], "size": 12}
        hover = f"rank {rank:.3f}, on halves {low:.3f} to {high:.3f}<extra>{letter}</extra>"
        marks.points(figure, [rank], [place], marker, hover, showlegend=False)
    style(figure, "rank within the layer (1 = most important)", "", 110 + 34 * len(standings))
    figure.update_xaxes(range=[-0.02, 1.02])
    return figure.update_yaxes(autorange="reversed", type="category", showgrid=False)


def score_histograms(scores: Mapping[str, Array], marked: Mapping[str, float]) -> go.Figure:
    """How the (units,) scores by letter are distributed on each text, in bins that they share.

    `marked` is the score of the selected neuron by letter, empty where none is.
    """
    everything = np.concatenate(list(scores.values()))
    log = bool((everything > _LEAST).all())
    # a module has few neurons, of which as many bins would show each alone
    bins = int(np.clip(2 * np.sqrt(len(everything) / len(scores)), 8, BINS))
    edges = np.histogram_bin_edges(np.log10(everything) if log else everything, bins=bins)
    middles = (edges[:-1] + edges[1:]) / 2
    figure = go.Figure()
    for letter, values in scores.items():
        counts, _ = np.histogram(np.log10(values) if log else values, bins=edges)
        line, shares = {"color": COLORS[letter], "width": 2, "shape": "hvh"}, 100.0 * counts
        marks.curve(figure, middles, shares / max(len(values), 1), letter, line, "%{x:.3g}: %{y:.1f} %")
    for letter, value in marked.items():
        line = {"color": COLORS[letter], "dash": "dot", "width": 1.5}
        figure.add_vline(x=float(np.log10(value)) if log else value, line=line)
    style(figure, "log10 of the score" if log else "score", "share of the neurons (%)", 280)
    return figure.update_yaxes(rangemode="tozero")


def binned(found: Mapping[str, Histogram]) -> pd.DataFrame:
    """Histograms by letter in bins that all share: from, to, and the number of tokens of each text."""
    power = max(one.power for one in found.values())
    while True:
        shown = {letter: one.widened(power) for letter, one in found.items()}
        first = min(one.first for one in shown.values())
        last = max(one.first + len(one.counts) for one in shown.values())
        if last - first <= MOST_ACTIVATION_BINS:
            break
        power += 1
    edges = np.ldexp(np.arange(first, last + 1.0), power)
    table = pd.DataFrame({"from": edges[:-1], "to": edges[1:]})
    for letter, one in shown.items():
        counts = np.zeros(last - first, dtype=np.int64)
        counts[one.first - first : one.first - first + len(one.counts)] = one.counts
        table[letter] = counts
    return table


def activations(table: pd.DataFrame, names: Mapping[str, str]) -> go.Figure:
    """How a neuron's activations are distributed on each text; `table` as `binned` gives it."""
    figure = go.Figure()
    middles = (table["from"] + table["to"]) / 2
    for letter in table.columns[2:]:
        counts = table[letter].to_numpy()
        # a logarithmic axis has no place for 0
        shares = np.where(counts > 0, 100.0 * counts / counts.sum(), np.nan)
        line, hover = {"color": COLORS[letter], "width": 2, "shape": "hvh"}, "%{x:.3g}: %{y:.3g} %"
        named, look = f"{letter} ({names[letter]})", {"symbol": _SYMBOLS[letter], "size": 4}
        marks.curve(figure, middles, shares, named, line, f"{hover}<extra>{letter}</extra>", **look)
    style(figure, "activation before down_proj (no unit)", "share of the tokens (%)", 300)
    return figure.update_yaxes(type="log")
