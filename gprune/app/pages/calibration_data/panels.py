"""How far apart the texts of a run are, and how many sequences are enough: measures and figures."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gprune import records
from gprune.analysis import calibration as analysis
from gprune.analysis import calibration_report
from gprune.analysis.calibration_report import TextCard, figures, writing
from gprune.analysis.calibration_report.measuring import scored_by, texts_of
from gprune.analysis.formatting import percent
from gprune.app.pages.calibration_data import charts
from gprune.app.ui.chart_style import label
from gprune.app.ui.memo import memoized
from gprune.app.ui.panel import Panel, panel
from gprune.app.ui.text import in_figure, plain, short
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run, record
from gprune.pipeline.stages.comparisons import FANG, SUBSTITUTION
from gprune.pruning.scoring import neuron_scorer
from gprune.records import Array
from gprune.store import Store
from gprune.study.settings import require_choice

RANKS, DRIFT, TOKENS, MODULES, GROUPS = "correlation", "drift", "tokens", "modules", "groups"
MEASURES = {
    RANKS: "Rank correlation",
    TOKENS: "Token distance",
    DRIFT: "Rank drift",
    MODULES: "Module agreement (ARI)",
    GROUPS: "FANG's groups (ARI)",
}
_CAPTIONS = {
    RANKS: "1 is the same order of the neurons; on the diagonal two halves of one text.",
    DRIFT: "0 is the same rank, 1 from first to last; on the diagonal two halves of one text.",
    TOKENS: "0 is the same token frequencies, 1 no common token; on the diagonal two halves of one text.",
    MODULES: "1 is the same modules with the one text in the place of the other, 0 chance.",
    GROUPS: "1 is the same groups of the one text alone and of the other alone, 0 chance.",
}
_HOW = {
    RANKS: "Spearman correlation of the neurons' ranks, median over layers. The halves on the diagonal have "
    "half the sequences each: what sampling alone leaves.",
    DRIFT: "Median rank drift of all neurons. The halves on the diagonal have half the sequences each.",
    TOKENS: "Jensen-Shannon distance (root of the divergence in bits) of how often each token occurs. Small "
    "samples of one text are apart by chance.",
    MODULES: "Mean Adjusted Rand Index over layers of the modules before and after the one text takes the "
    "place of the other, the third staying.",
    GROUPS: "Mean Adjusted Rand Index over layers of FANG's groups of the two texts.",
}


@panel("texts", "cd_pairs", "How far apart are the texts?", reads={"measure": "cd_measure"})
def texts(run: Run, *, measure: str = RANKS) -> Panel:
    """How far apart the calibration texts are, by a measure."""
    require_choice("measure", measure, tuple(MEASURES))
    table, names = table_of(run, measure), names_of(run)
    drawn = {letter: in_figure(short(name)) for letter, name in names.items()}
    highest = float(np.nanmax(table.to_numpy())) if measure == DRIFT else 1.0
    finding = f"{MEASURES[measure]}: {analysis.finding(table)}" if measured(table) else ""
    legend = ", ".join(f"{letter} = {plain(short(names[letter]))}" for letter in table.index)
    return Panel(
        charts.matrix(table, drawn, highest),
        _CAPTIONS[measure],
        title=finding,
        alt=finding,
        table=lambda: table.reset_index(names="text"),
        how=f"{_HOW[measure]} {legend}.",
    )


@panel("sequences", "cd_size", "How many sequences are enough?")
def sequences(run: Run) -> Panel:
    """Rank correlation between disjoint parts of a text, by the number of their sequences."""
    curves, metric = curves_of(run), scored_by(run.study)
    other = "" if metric == run.study.metric else " This run's own metric cannot score parts of a text."
    return Panel(
        charts.stability(curves, run.study.calibration.samples),
        "Where a solid line is flat and far above the dashed one, more sequences change little.",
        title=analysis.sampling_title(curves),
        table=lambda: analysis.stability_table(curves),
        how="Spearman correlation of the ranks (median over layers) from two disjoint parts of a text of so "
        "many sequences each, mean and range over the draws; dashed: a part of A against a part of B. |D| is "
        "what this run draws of each text; the dotted ends are expected there by the formula of Spearman and "
        f"Brown. Scores: {label(metric)}, no further pass of the model.{other}",
    )


def _card_asked(run: Run, values: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    """The text whose card is open."""
    view = values.get("cd_view")
    return [{"text": view} if view in analysis.ROLES.values() else {}]


def _noise_asked(run: Run, values: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    share = {"share": values["cd_share"]} if values.get("cd_share") else {}
    return [one | share for one in _card_asked(run, values)]


@panel("text_noise", "cd_card_noise", "What sampling alone does to ranks", reads=_noise_asked)
def text_noise(run: Run, *, text: str = "A", share: float = calibration_report.DEFAULT_SHARE) -> Panel:
    """What sampling alone does to the ranks of a text, beside its drift to the others."""
    found = _asked(run, text)
    scored = f"Scores: {label(found.origin.metric)}."
    if found.origin.metric != run.study.metric:
        scored += " This run's own cannot score parts of a text."
    return Panel(
        figures.noise(found, share),
        "Where the dotted line falls below a dashed one, sampling is a small part of that drift.",
        title=_noise_title(found, share),
        table=lambda: writing.numbers(found, share),
        how=f"{writing.HOW} Points: mean and range over all draws. {scored}",
    )


def _noise_title(found: TextCard, share: float) -> str:
    needed, near = found.recommended(share), found.nearest
    if needed is None or near is None:
        return ""
    return f"{needed:,} sequences bring sampling to {percent(share)} of the drift to {near.letter}"


@panel("text_overlap", "cd_card_overlap", "The same neurons with another text?", reads=_card_asked)
def text_overlap(run: Run, *, text: str = "A") -> Panel:
    """How many of the neurons kept by a text another text and another sample of it keep as well."""
    found = _asked(run, text)
    title = ""
    if found.others:
        lowest = min(found.others, key=lambda other: other.jaccard)
        changed = percent(lowest.changed, 1)
        title = f"With {lowest.letter} in its place {changed} of the neurons are decided differently"
    return Panel(
        figures.overlap(found),
        "From what chance leaves in common to what another sample of the same text leaves.",
        title=title,
        how=f"{writing.HOW} The Jaccard index is what both keep among what either keeps. "
        f"{percent(found.origin.retention)} of the weights are kept.",
    )


def _asked(run: Run, text: str) -> TextCard:
    require_choice("text", text, tuple(analysis.ROLES[role] for role in texts_of(run.study)))
    return card_of_text(run, text)


def card_of_text(run: Run, letter: str) -> TextCard:
    """The card of a text; MissingResultError where its statistics are not there."""
    role = {value: key for key, value in analysis.ROLES.items()}[letter]
    there = calibration_report.measurable(run.results)
    run.require(role in there, stages.statistics, role)
    keys = tuple(
        run.key(kind, one) for one in there for kind in (stages.statistics, stages.tokens) if run.has(kind, one)
    )
    study = run.study
    asked = (study.metric, f"{study.retention}", *there, run.key(stages.norms), *keys)
    return _cards(run.root, run.name, asked, run)[letter]


@memoized(16)
def _cards(root: str, name: str, asked: tuple[str, ...], _run: Run) -> dict[str, TextCard]:
    described = _run.record.get("texts") or {}
    return calibration_report.measure(_run.results, name, described)


def measured(table: pd.DataFrame) -> bool:
    """Whether a measure has any value."""
    return not table.empty and bool(np.isfinite(table.to_numpy()).any())


def table_of(run: Run, measure: str) -> pd.DataFrame:
    """A measure of every pair of texts and within each; of no value where the run cannot give it."""
    measures: dict[str, Callable[[Run], pd.DataFrame]] = {
        RANKS: partial(_levels, index=0),
        TOKENS: lambda run: analysis.distances(run.require(tokens_of(run), stages.tokens)),
        DRIFT: partial(_levels, index=1),
        MODULES: lambda run: analysis.agreements(run.agreement(), SUBSTITUTION),
        GROUPS: lambda run: analysis.agreements(run.agreement(), FANG),
    }
    return measures[measure](run)


def curves_of(run: Run) -> list[analysis.Curve]:
    """How well parts of each text agree, by their size; MissingResultError without statistics or norms."""
    known = [role for role in texts_of(run.study) if run.has(stages.statistics, role)]
    run.require(known, stages.statistics)
    norms = run.key(stages.norms)
    keys = tuple((analysis.ROLES[role], run.key(stages.statistics, role)) for role in known)
    return _curves(run.root, scored_by(run.study), keys, norms)


def tokens_of(run: Run) -> dict[str, records.Tokens]:
    """Calibration sets that are there, by letter."""
    known = [role for role in texts_of(run.study) if run.has(stages.tokens, role)]
    return {analysis.ROLES[role]: run.load(stages.tokens, role) for role in known}


def names_of(run: Run) -> dict[str, str]:
    """What the texts are called, by letter."""
    return {letter: getattr(run.study, role) for role, letter in analysis.ROLES.items()}


def _levels(run: Run, index: int) -> pd.DataFrame:
    """Rank correlation (index 0) or rank drift (index 1) of every pair of texts and within each."""
    found: dict[tuple[str, str], tuple[float, float]] = {}
    by_letter = {letter: role for role, letter in analysis.ROLES.items()}
    texts = texts_of(run.study)
    for first, second in combinations(analysis.ROLES.values(), 2):
        pair = by_letter[first], by_letter[second]
        if not set(pair) <= set(texts):
            continue
        if run.has(stages.drift, *pair):
            found |= _recorded(run.root, run.key(stages.drift, *pair), first, second)
        elif run.has(stages.scores, pair[0]) and run.has(stages.scores, pair[1]):
            both = [run.key(stages.scores, role) for role in pair]
            found[first, second] = _between(run.root, both[0], both[1])
    run.require(found, stages.drift)
    for letter in {letter for pair in found for letter in pair}:
        known = run.has(stages.statistics, by_letter[letter]) and run.has(stages.norms)
        if (letter, letter) not in found and known:
            keys = run.key(stages.statistics, by_letter[letter]), run.key(stages.norms)
            found[letter, letter] = _within(run.root, scored_by(run.study), *keys)
    return analysis.square({pair: values[index] for pair, values in found.items()})


@memoized(256)
def _recorded(root: str, key: str, first: str, second: str) -> dict[tuple[str, str], tuple[float, float]]:
    return analysis.recorded_levels(first, second, record(root, "drift", key, "RankDrift"))


@memoized(256)
def _between(root: str, first: str, second: str) -> tuple[float, float]:
    scores = [record(root, "scores", key, "UnitScores").ffn for key in (first, second)]
    return analysis.rank_levels(*scores)


@memoized(256)
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


@memoized(64)
def _curves(root: str, metric: str, statistics: tuple[tuple[str, str], ...], norms: str) -> list[analysis.Curve]:
    made = {letter: _scorer(root, metric, key, norms) for letter, key in statistics}
    scores = {letter: score for letter, (score, _) in made.items()}
    return analysis.stability(scores, {letter: sizes for letter, (_, sizes) in made.items()})
