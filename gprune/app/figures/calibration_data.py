"""Figures of the calibration texts: distances between them, and the evidence of each calibration card."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from gprune import records
from gprune.analysis import calibration as analysis
from gprune.analysis import calibration_report
from gprune.analysis.calibration_report import TextCard, figures, writing
from gprune.analysis.calibration_report.measuring import subset_metric, texts_of
from gprune.analysis.formatting import percent
from gprune.app.ui import marks, story
from gprune.app.ui.chart_style import label, style
from gprune.app.ui.derived_cache import RunResults
from gprune.app.ui.panel import OF_BOTH, Panel, panel
from gprune.app.ui.text import escape, names_in_figure
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run, record
from gprune.pruning.scoring import neuron_scorer
from gprune.records import Array
from gprune.store import Store
from gprune.study.settings import require_choice

RANKS, DRIFT, TOKENS = "correlation", "drift", "tokens"
MEASURES = {RANKS: "Rank correlation", TOKENS: "Token distance", DRIFT: "Rank drift"}
_CAPTIONS = {
    RANKS: "1: the neurons have the same order. The diagonal compares two halves of one text.",
    DRIFT: "0: same rank; 1: from first to last. The diagonal compares two halves of one text.",
    TOKENS: "0: same token frequencies; 1: no common token. The diagonal compares two halves of one text.",
}
_HOW = {
    RANKS: "Spearman correlation of the neurons' ranks, median over layers. Each half on the diagonal has half the "
    "sequences and shows the effect of sampling alone.",
    DRIFT: "Median rank drift of all neurons or experts. Each half on the diagonal has half the sequences.",
    TOKENS: "Jensen-Shannon distance (root of the divergence in bits) of the token frequencies. Small samples of one "
    "text differ by chance.",
}
_ROLE_BY_LETTER = {letter: role for role, letter in analysis.ROLES.items()}
_CELL_PIXELS = 78


@panel("texts", "cd_pairs", "How far apart are the texts?", reads={"measure": "cd_measure"}, units=OF_BOTH)
def texts(run: Run, *, measure: str = RANKS) -> Panel:
    """Distance between the calibration texts, by a measure."""
    require_choice("measure", measure, tuple(MEASURES))
    # ranks of experts are compared by their drift alone
    measure = DRIFT if run.study.prunes_experts and measure == RANKS else measure
    table = measure_pairs(run, measure)
    # drifts are far below 1, so their colour scale ends at the largest
    highest = float(np.nanmax(table.to_numpy())) if measure == DRIFT else 1.0
    finding = f"{MEASURES[measure]}: {analysis.finding(table)}"
    return Panel(
        plot_pairs(table, names_in_figure(run.study), highest),
        _CAPTIONS[measure],
        title=finding,
        alt=finding,
        table=lambda: table.reset_index(names="text"),
        how=_HOW[measure],
    )


@panel("text_noise", "cd_card_noise", "Effect of sampling on ranks", reads={"text": "cd_view", "share": "cd_share"})
def text_noise(run: Run, *, text: str = "A", share: float = calibration_report.DEFAULT_SHARE) -> Panel:
    """Effect of sampling alone on the ranks of a text, compared with its drift to the other texts.

    `share` is the sampling drift that is allowed, as a share of the drift to the nearest other text.
    """
    card = text_card(run, text)
    scores = f"Scores: {label(card.origin.metric)}."
    if card.origin.metric != run.study.metric:
        scores += " This run's own metric cannot score parts of a text."
    needed, nearest, title = card.recommended(share), card.nearest, ""
    if needed is not None and nearest is not None:
        title = f"With {needed:,} sequences, sampling drift is {percent(share)} of the drift to {escape(nearest.label)}"
    return Panel(
        figures.plot_sampling_drift(card, share),
        f"Where the dotted curve is below a dashed line, sampling drift is less than {percent(share)} of that drift.",
        title=title,
        table=lambda: writing.resampling_table(card),
        how=f"{writing.HOW} Points: mean and range over all draws. {scores}",
    )


@panel("text_overlap", "cd_card_overlap", "Does another text keep the same neurons?", reads={"text": "cd_view"})
def text_overlap(run: Run, *, text: str = "A") -> Panel:
    """Overlap of the neurons kept by the scores of a text with those kept by another text or another sample."""
    card = text_card(run, text)
    title = ""
    if card.others:
        lowest = min(card.others, key=lambda other: other.jaccard)
        changed = percent(lowest.changed, 1)
        title = f"With {escape(lowest.label)} instead, {changed} of the neuron decisions change"
    return Panel(
        figures.plot_overlap(card),
        "Compare each circle with chance (bar) and with another sample of the same text (diamond).",
        title=title,
        how=f"{writing.HOW} The Jaccard index is the number of neurons that both keep, divided by the number that "
        f"either keeps. {percent(card.origin.retention)} of the weights are kept.",
    )


def text_card(run: Run, letter: str) -> TextCard:
    """Return the card of a text.

    Raises SettingsError if the run has no such text, MissingResultError if its statistics are not computed yet.
    """
    require_choice("text", letter, tuple(analysis.ROLES[role] for role in texts_of(run.study)))
    roles = calibration_report.measurable(run.results)
    run.require(_ROLE_BY_LETTER[letter] in roles, stages.statistics, _ROLE_BY_LETTER[letter])
    keys = tuple(
        run.key(stage, role) for role in roles for stage in (stages.statistics, stages.tokens) if run.has(stage, role)
    )
    # everything that the cards depend on
    inputs = (run.root, run.name, run.study.metric, f"{run.study.retention}", *roles, run.key(stages.norms), *keys)
    return _measure_cards(RunResults(inputs, run))[letter]


@lru_cache(16)
def _measure_cards(inputs: RunResults) -> dict[str, TextCard]:
    run = inputs.run
    return calibration_report.measure(run.results, run.name, run.record.get("texts") or {})


def measure_pairs(run: Run, measure: str) -> pd.DataFrame:
    """Return a measure of every pair of texts and of the halves of each text; NaN if the run cannot measure it."""
    measures: dict[str, Callable[[], pd.DataFrame]] = {
        RANKS: lambda: _compare_ranks(run, RANKS),
        TOKENS: lambda: analysis.distances(run.require(load_tokens(run), stages.tokens)),
        DRIFT: lambda: _compare_ranks(run, DRIFT),
    }
    return measures[measure]()


def load_tokens(run: Run) -> dict[str, records.Tokens]:
    """Return the drawn tokens of each calibration text of the run, by letter."""
    roles = [role for role in texts_of(run.study) if run.has(stages.tokens, role)]
    return {analysis.ROLES[role]: run.load(stages.tokens, role) for role in roles}


def _compare_ranks(run: Run, measure: str) -> pd.DataFrame:
    """Return the rank correlation (RANKS) or rank drift (DRIFT) of every pair of texts and of the halves of each."""
    # (correlation, drift) of each pair of letters
    levels: dict[tuple[str, str], tuple[float, float]] = {}
    if run.study.prunes_experts:
        cross, _, *within = story.drift_distributions(run)
        pairs = zip((("A", "B"), ("A", "A"), ("B", "B")), (cross, *within), strict=True)
        return analysis.square({pair: curve.median for pair, curve in pairs})
    for first, second in combinations(texts_of(run.study), 2):
        letters = analysis.ROLES[first], analysis.ROLES[second]
        if run.has(stages.drift, first, second):
            levels |= _recorded_levels(run.root, run.key(stages.drift, first, second), *letters)
        elif run.has(stages.scores, first) and run.has(stages.scores, second):
            keys = [run.key(stages.scores, role) for role in (first, second)]
            levels[letters] = _levels_between(run.root, keys[0], keys[1])
    run.require(levels, stages.drift)
    for letter in {letter for pair in levels for letter in pair}:
        role = _ROLE_BY_LETTER[letter]
        if (letter, letter) not in levels and run.has(stages.statistics, role) and run.has(stages.norms):
            keys = [run.key(stages.statistics, role), run.key(stages.norms)]
            levels[letter, letter] = _levels_within(run.root, subset_metric(run.study), keys[0], keys[1])
    return analysis.square({pair: drift if measure == DRIFT else rho for pair, (rho, drift) in levels.items()})


@lru_cache(256)
def _recorded_levels(root: str, key: str, first: str, second: str) -> dict[tuple[str, str], tuple[float, float]]:
    """Return (correlation, drift) between two texts and between the halves of each, by pair of letters."""
    return analysis.recorded_rank_shifts(first, second, record(root, "drift", key, "RankDrift"))


@lru_cache(256)
def _levels_between(root: str, first: str, second: str) -> tuple[float, float]:
    """Return (correlation, drift) between two texts, from the keys of their scores."""
    scores = [record(root, "scores", key, "UnitScores").ffn for key in (first, second)]
    return analysis.correlation_and_drift(*scores)


@lru_cache(256)
def _levels_within(root: str, metric: str, statistics: str, norms: str) -> tuple[float, float]:
    """Return (correlation, drift) between the even and the odd shards of one text."""
    score, shard_sizes = part_scorer(root, metric, statistics, norms)
    return analysis.correlation_and_drift(score(range(0, len(shard_sizes), 2)), score(range(1, len(shard_sizes), 2)))


def part_scorer(root: str, metric: str, statistics: str, norms: str) -> tuple[analysis.Score, Array]:
    """Return a function that scores chosen shards of a text, and the number of sequences of each shard.

    Unlike other records, the statistics are not kept in memory: they take hundreds of megabytes for a 7B model, and
    the results that need them are cached.
    """
    store = Store(Path(root))
    moments = store.get("statistics", statistics, records.ActivationStatistics)
    weights = store.get("norms", norms, records.WeightNorms)
    return neuron_scorer(metric, moments, weights), moments.shard_samples


def plot_pairs(table: pd.DataFrame, names: Mapping[str, str], highest: float) -> go.Figure:
    """Plot a measure of every pair of texts as a heat map with numbers.

    Rows and columns of `table` are the letters of the texts; unknown values are NaN. `names` are the names of the
    texts by letter, escaped for figures. `highest` is the value with the brightest colour.
    """
    values = table.to_numpy(dtype=np.float64)
    titles = [names[letter] for letter in table.index]
    lowest = float(np.min(values, initial=0.0, where=~np.isnan(values)))
    figure = marks.heat_map(
        values, list(table.columns), list(table.index), "",
        text=[["" if np.isnan(value) else f"{value:.3f}" for value in row] for row in values],
        customdata=[[f"{first} and {second}" for second in titles] for first in titles],
        texttemplate="%{text}", textfont={"size": 15}, zmin=lowest, zmax=highest, xgap=2, ygap=2, showscale=False,
        hoverinfo=None, hovertemplate="%{customdata}: %{text}<extra></extra>", hoverongaps=False,
    )  # fmt: skip
    style(figure, "text", "text", 84 + _CELL_PIXELS * len(table))
    ticks = {"type": "category", "showgrid": False, "tickvals": list(table.index), "ticktext": titles}
    return figure.update_xaxes(**ticks).update_yaxes(**ticks, autorange="reversed")
