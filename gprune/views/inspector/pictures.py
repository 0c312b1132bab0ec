"""The Inspector's measures and figures: everything is read from slices of one layer."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from gprune import records, scoring, stages
from gprune.analysis import calibration as analysis
from gprune.analysis import inspection
from gprune.analysis.inspection import Standing
from gprune.records import Array
from gprune.scoring.neurons import layer_scorer
from gprune.settings import require
from gprune.stages.inputs import roles as roles_of
from gprune.views.frame.loaders import MissingResultError, Run, record
from gprune.views.frame.picture import in_range, picture
from gprune.views.frame.text import in_figure, short
from gprune.views.inspector import charts


@picture("neuron_ranks")
def neuron_ranks(run: Run, *, layer: int | None = None, neuron: int = 0) -> go.Figure:
    """The rank of a neuron on every text, with what re-sampling does to it."""
    layers, neurons = run.load(stages.scores, "primary").ffn.shape
    layer, neuron = in_range("layer", layer, layers), in_range("neuron", neuron, neurons)
    return charts.rank_on_texts(standings(run, layer), neuron, drawn_names(run))


@picture("score_histograms")
def score_histograms(
    run: Run, *, layer: int | None = None, module: int | None = None, neuron: int | None = None
) -> go.Figure:
    """How the scores of a layer's neurons, or of a module's, are distributed on each text."""
    layers, neurons = run.load(stages.scores, "primary").ffn.shape
    layer = in_range("layer", layer, layers)
    members = np.ones(neurons, dtype=bool)
    if module is not None:
        partition = run.load(stages.partition)
        count = int(partition.counts[layer])
        require(0 <= module < count, "module", module, f"0 to {count - 1}")
        members = np.asarray(partition.labels[layer]) == module
    found = {letter: np.asarray(one.score)[members] for letter, one in standings(run, layer).items()}
    marked = {}
    if neuron is not None:
        neuron = in_range("neuron", neuron, neurons)
        marked = {letter: float(one.score[neuron]) for letter, one in standings(run, layer).items()}
    return charts.score_histograms(found, marked)


def standings(run: Run, layer: int) -> dict[str, Standing]:
    """How the neurons of a layer rank on every text that is scored, by letter.

    Raises:
        MissingResultError: no text is scored.
    """
    found = {}
    for role in roles_of(run.study):
        if role in analysis.ROLES and run.has(stages.scores, role):
            whole = not_parts(run) == "" and run.has(stages.statistics, role) and run.has(stages.norms)
            keys = (run.key(stages.statistics, role), run.key(stages.norms)) if whole else ("", "")
            own = run.key(stages.scores, role)
            found[analysis.ROLES[role]] = _standing(run.root, own, *keys, run.study.metric, layer)
    if not found:
        raise MissingResultError(stages.scores(run.graph, "primary").title)
    return found


def not_parts(run: Run) -> str:
    """Why halves of a text cannot be scored for a run; empty where they can."""
    if run.study.metric not in scoring.METRICS:
        return "Its metric cannot score parts of a text: no whiskers."
    if run.study.metric == "flap" and run.study.calibration.flap_variant == "released":
        # a half scored by the variance is no part of a rank by the recursion
        return "FLAP's released recursion cannot score parts of a text: no whiskers."
    return ""


# a layer at 7B takes 1.4 MB a text, and is drawn for every neuron of it
@st.cache_data(max_entries=24, show_spinner=False)
def _standing(root: str, scores: str, statistics: str, norms: str, metric: str, layer: int) -> Standing:
    score = record(root, "scores", scores, "UnitScores").ffn[layer]
    if not statistics:
        return inspection.standing(score, None, 0)
    measured: records.ActivationStatistics = record(root, "statistics", statistics, "ActivationStatistics")
    weights = record(root, "norms", norms, "WeightNorms")
    return inspection.standing(score, layer_scorer(metric, measured, weights, layer), measured.shards)


def profiles(run: Run, layer: int) -> Array:
    """(texts, neurons) ranks of a layer."""
    return np.stack([one.rank for one in standings(run, layer).values()])


def drawn_names(run: Run) -> dict[str, str]:
    """Short names of the texts by letter, safe to draw."""
    known = roles_of(run.study)
    return {
        analysis.ROLES[role]: in_figure(short(text)) for role, text in known.items() if role in analysis.ROLES
    }
