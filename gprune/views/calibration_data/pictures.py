"""How far apart the texts of a run are, and how many sequences are enough: measures and figures."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from gprune import records, stages
from gprune.analysis import calibration as analysis
from gprune.records import Array
from gprune.scoring.neurons import neuron_scorer
from gprune.settings import require_choice
from gprune.stages.inputs import roles as roles_of
from gprune.store import Store
from gprune.text_card.measuring import scored_by
from gprune.views.calibration_data import charts
from gprune.views.frame.loaders import MissingResultError, Run, record
from gprune.views.frame.picture import picture
from gprune.views.frame.text import in_figure, short

RANKS, DRIFT, TOKENS, MODULES, GROUPS = "correlation", "drift", "tokens", "modules", "groups"
MEASURES = {
    RANKS: "Rank correlation",
    TOKENS: "Token distance",
    DRIFT: "Rank drift",
    MODULES: "Module agreement (ARI)",
    GROUPS: "FANG's groups (ARI)",
}


@picture("texts")
def texts(run: Run, *, measure: str = RANKS) -> go.Figure:
    """How far apart the calibration texts are, by a measure."""
    require_choice("measure", measure, tuple(MEASURES))
    return matrix(run, measure, table_of(run, measure))


def matrix(run: Run, measure: str, table: pd.DataFrame) -> go.Figure:
    """The figure of a measure, from its numbers."""
    names = {letter: in_figure(short(name)) for letter, name in names_of(run).items()}
    highest = float(np.nanmax(table.to_numpy())) if measure == DRIFT else 1.0
    return charts.matrix(table, names, highest)


@picture("sequences")
def sequences(run: Run) -> go.Figure:
    """Rank correlation between disjoint parts of a text, by the number of their sequences."""
    return charts.stability(curves_of(run), run.study.calibration.samples)


def table_of(run: Run, measure: str) -> pd.DataFrame:
    """A measure of every pair of texts and within each; of no value where the run cannot give it."""
    measures: dict[str, Callable[[Run], pd.DataFrame]] = {
        RANKS: partial(_levels, index=0),
        TOKENS: _distances,
        DRIFT: partial(_levels, index=1),
        MODULES: lambda run: analysis.module_agreements(run.agreement()),
        GROUPS: lambda run: analysis.group_agreements(run.agreement()),
    }
    return measures[measure](run)


def curves_of(run: Run) -> list[analysis.Curve]:
    """How well parts of each text agree, by their size.

    Raises:
        MissingResultError: the run has no statistics, or no norms.
    """
    roles = [role for role in roles_of(run.study) if run.has(stages.statistics, role)]
    if not roles:
        raise MissingResultError(stages.statistics(run.graph).title)
    if not run.has(stages.norms):
        raise MissingResultError(stages.norms(run.graph).title)
    keys = tuple((analysis.ROLES[role], run.key(stages.statistics, role)) for role in roles)
    return _curves(run.root, scored_by(run.study), keys, run.key(stages.norms))


def tokens_of(run: Run) -> dict[str, records.Tokens]:
    """Calibration sets that are there, by letter."""
    roles = [role for role in roles_of(run.study) if run.has(stages.tokens, role)]
    return {analysis.ROLES[role]: run.load(stages.tokens, role) for role in roles}


def names_of(run: Run) -> dict[str, str]:
    """What the texts are called, by letter."""
    return {letter: getattr(run.study, role) for role, letter in analysis.ROLES.items()}


def _distances(run: Run) -> pd.DataFrame:
    texts = tokens_of(run)
    if not texts:
        raise MissingResultError(stages.tokens(run.graph).title)
    return analysis.distances(texts)


def _levels(run: Run, index: int) -> pd.DataFrame:
    """Rank correlation (index 0) or rank drift (index 1) of every pair of texts and within each."""
    found: dict[tuple[str, str], tuple[float, float]] = {}
    roles = {letter: role for role, letter in analysis.ROLES.items()}
    texts = roles_of(run.study)
    for first, second in combinations(analysis.ROLES.values(), 2):
        pair = roles[first], roles[second]
        if not set(pair) <= set(texts):
            continue
        if run.has(stages.drift, *pair):
            found |= _recorded(run.root, run.key(stages.drift, *pair), first, second)
        elif run.has(stages.scores, pair[0]) and run.has(stages.scores, pair[1]):
            both = [run.key(stages.scores, role) for role in pair]
            found[first, second] = _between(run.root, both[0], both[1])
    if not found:
        raise MissingResultError(stages.drift(run.graph).title)
    for letter in {letter for pair in found for letter in pair}:
        known = run.has(stages.statistics, roles[letter]) and run.has(stages.norms)
        if (letter, letter) not in found and known:
            keys = run.key(stages.statistics, roles[letter]), run.key(stages.norms)
            found[letter, letter] = _within(run.root, scored_by(run.study), *keys)
    return analysis.square({pair: values[index] for pair, values in found.items()})


@st.cache_data(max_entries=256, show_spinner=False)
def _recorded(root: str, key: str, first: str, second: str) -> dict[tuple[str, str], tuple[float, float]]:
    return analysis.recorded_levels(first, second, record(root, "drift", key, "RankDrift"))


@st.cache_data(max_entries=256, show_spinner=False)
def _between(root: str, first: str, second: str) -> tuple[float, float]:
    scores = [record(root, "scores", key, "UnitScores").ffn for key in (first, second)]
    return analysis.rank_levels(*scores)


@st.cache_data(max_entries=256, show_spinner=False)
def _within(root: str, metric: str, statistics: str, norms: str) -> tuple[float, float]:
    score, sizes = _scorer(root, metric, statistics, norms)
    return analysis.rank_levels(score(range(0, len(sizes), 2)), score(range(1, len(sizes), 2)))


def _scorer(root: str, metric: str, statistics: str, norms: str) -> tuple[analysis.Score, Array]:
    """What scores chosen shards of a text, and the sequences of each shard.

    The statistics are not shared like other records: they are read once for a result that is kept, and at
    7B they hold hundreds of megabytes.
    """
    store = Store(Path(root))
    moments = store.get("statistics", statistics, records.ActivationStatistics)
    weights = store.get("norms", norms, records.WeightNorms)
    return neuron_scorer(metric, moments, weights), moments.shard_samples


@st.cache_data(max_entries=64, show_spinner="Scoring parts of the texts …")
def _curves(
    root: str, metric: str, statistics: tuple[tuple[str, str], ...], norms: str
) -> list[analysis.Curve]:
    made = {letter: _scorer(root, metric, key, norms) for letter, key in statistics}
    scores = {letter: score for letter, (score, _) in made.items()}
    return analysis.stability(scores, {letter: sizes for letter, (_, sizes) in made.items()})
