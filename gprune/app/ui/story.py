"""Sentences on the findings of a run, for the overview and the slides, from the results computed so far."""

import contextlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pandas as pd

from gprune import records
from gprune.analysis import comparison, thresholds, verdict
from gprune.analysis import drift as ranks
from gprune.analysis.comparison import DENSE, MethodResult, seed_groups
from gprune.analysis.formatting import percent
from gprune.analysis.verdict import OURS, Headline, Opponents
from gprune.app.ui import derived_cache, run_status
from gprune.app.ui.text import short_text
from gprune.data.texts.holdout import HoldoutStatus
from gprune.evaluation import protocol
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import MissingResultError, Run, all_runs, record
from gprune.pruning.experts import criteria
from gprune.records.experts import ExpertScores
from gprune.study.methods import EXPERT_CRITERIA, METHODS, of_masks
from gprune.system.errors import GpruneError

FINE = 200
"""number of histogram bins for curves of the drift distribution"""
_BINS = 5
"""number of drift bins in which decisions are compared"""


def holdout_statuses(run: Run) -> dict[str, HoldoutStatus]:
    """Return how each evaluation text of a run relates to its calibration texts."""
    return stages.holdout_statuses(run.graph, run.load)


def has_ended(run: Run) -> bool:
    """Return True if no process is working on a run."""
    return not run_status.is_live(run)


@lru_cache(32)
def seed_runs(run: Run) -> list[Run]:
    """Return a run, then those with equal methods and measurements that differ from it only in their seed.

    Raises StoreError if a result of the run is damaged.
    """
    runs, extent = [run], _extent(run)
    for other in _runs_by_seed(run).values():
        # a damaged result of another run leaves it out
        with contextlib.suppress(GpruneError):
            runs += [other] if other is not run and _extent(other) == extent else []
    return runs


def _extent(run: Run) -> tuple[set[str], set[tuple[str, str]]]:
    """Return the methods of a run, and its measured pairs of method and text."""
    return set(run.study.methods), {(item.method, item.text) for item in derived_cache.measurements(run)}


@lru_cache(32)
def method_results(run: Run) -> list[MethodResult]:
    """Return the results of every method of a run, joined with those of its `seed_runs`.

    Raises StoreError if a result of the run is damaged.
    """
    runs = seed_runs(run)
    cells = [item for other in runs for item in derived_cache.measurements(other)]
    left_out = comparison.unavailable(run.name, derived_cache.unavailable(run))
    return comparison.lines(comparison.rows(cells) + left_out, seed_groups({other.name: other.study for other in runs}))


def expected_results(runs: Sequence[Run], methods: Sequence[str] = ()) -> dict[str, list[tuple[str, str]]]:
    """Return the (run, method) pairs that a fair comparison needs, by text; empty `methods` stands for all."""
    by_text: dict[str, list[tuple[str, str]]] = {}
    for run in runs:
        for text in run.study.evaluation.texts if not run.stopped_early else ():
            by_text.setdefault(text, []).extend(
                (run.name, method) for method in run.study.methods if not methods or method in methods
            )
    return by_text


def _outcome(run: Run) -> Opponents | None:
    """Return the methods that the headline compares; None if the study measures no perplexity."""
    return verdict.headline_opponents(method_results(run), run.study, holdout_statuses(run))


@lru_cache(32)
def headline(run: Run) -> Headline:
    """Return the main result in one sentence: the cost of pruning, else the rank drift, else that nothing is measured.

    Raises StoreError if a result is damaged.
    """
    opponents = _outcome(run)
    if opponents is not None and (opponents.leading or opponents.base):
        return verdict.headline(opponents, holdout_statuses(run)[opponents.text], run.study, len(_runs_by_seed(run)))
    missing = _reason_unmeasured(run, opponents)
    if run.has(stages.main_drift):
        return Headline(verdict.drift_title(drift_distributions(run)), missing)
    return Headline("Nothing is measured yet" if not has_ended(run) else "Nothing was measured", missing)


def _runs_by_seed(run: Run) -> dict[int, Run]:
    """Return a run and the runs that differ only in their seed, by seed; the run comes first."""
    by_seed = {run.study.seed: run}
    runs = all_runs(run.root)[0]
    groups = seed_groups({other.name: other.study for other in (run, *runs)})
    for other in runs:
        if groups[other.name][0] == groups[run.name][0]:
            by_seed.setdefault(other.study.seed, other)
    return by_seed


def compared_seeds(run: Run) -> tuple[int, ...]:
    """Return the seeds over which the headline compares methods. Raises StoreError if a result is damaged."""
    opponents = _outcome(run)
    return (
        tuple(sorted(opponents.leading.seeds))
        if opponents is not None and opponents.leading is not None and opponents.fair
        else ()
    )


def _reason_unmeasured(run: Run, opponents: Opponents | None) -> str:
    """Return a sentence on why a run has no perplexity of a pruned model; `opponents` is that of `_outcome`."""
    if run.stopped_early:
        return "This run does not prune or measure."
    if opponents is None:
        return "This study measures no perplexity."
    coming = "" if has_ended(run) else " The result appears here once it is measured."
    return f"{verdict.headline(opponents, holdout_statuses(run)[opponents.text], run.study).sentence}.{coming}"


def drift_distributions(run: Run, bins: int = FINE, criterion: str = "") -> list[ranks.Distribution]:
    """Return the histograms of rank drift: of neurons, or of experts by a criterion, by default the study's first.

    Raises MissingResultError if drift is not computed yet, or no expert has a rank.
    """
    stage = stages.expert_rank_drift(run.graph, criterion) if criterion else stages.main_drift(run.graph)
    curves = derived_cache.drift_curves(run.root, run.key(lambda _: stage), bins, stage.kind)
    if not np.isfinite(curves[0].median):
        raise MissingResultError("the rank of an expert on both texts")
    return curves


def find_movers(run: Run, layer: int | None, among: int | None) -> ranks.Movers:
    """Return the neurons that shift most in a layer, by default the one that drifts most; `among` is included."""
    first, second = (run.key(stages.scores, role) for role in stages.PAIR)
    return _movers(run.root, run.key(stages.drift), first, second, layer, among)


@lru_cache(64)
def _movers(
    root: str, drift: str, primary: str, auxiliary: str, layer: int | None, among: int | None = None
) -> ranks.Movers:
    drift_record = record(root, "drift", drift, records.RankDrift.__name__)
    scores = [record(root, "scores", key, records.UnitScores.__name__) for key in (primary, auxiliary)]
    chosen = ranks.least_stable_layer(drift_record) if layer is None else layer
    return ranks.movers(drift_record, scores[0], scores[1], chosen, among=among)


def drift_finding(run: Run) -> str:
    """Return a sentence on how far ranks shift."""
    return verdict.drift_finding(drift_distributions(run))


def agreement_finding(run: Run) -> str:
    """Return a sentence on whether the modules stay the same with another text."""
    comparisons = stages.agreements(run.graph).values()
    if not run.study.substitute and not any(map(run.has_result, comparisons)):
        return "This run has no third text, so its modules are not compared with those of another text."
    return verdict.agreement_finding(run.agreement())


@lru_cache(32)
def decision_differences(run: Run) -> pd.DataFrame:
    """Return by criterion the share of decisions on experts that differ between texts, their halves, and halves of A.

    Raises MissingResultError if the run has no statistics of experts.
    """
    shape, shards = run.load(stages.expert_shape), range(run.study.calibration.shards)
    statistics = [run.load(stages.expert_statistics, text) for text in stages.PAIR]

    def difference(first: ExpertScores, second: ExpertScores) -> float:
        masks = [criteria.allocate_experts("", shape, scores, run.study.retention) for scores in (first, second)]
        return float((masks[0].experts != masks[1].experts).mean())

    rows = []
    for name in stages.criteria_of(run.graph):
        pair = [criteria.score_experts(name, sums) for sums in statistics]
        halves = [criteria.score_halves(name, sums, shards[::2], shards[1::2]) for sums in statistics]
        compared = (pair, (halves[0][0], halves[1][0]), halves[0])
        rows.append([EXPERT_CRITERIA[name], *(difference(*scores) for scores in compared)])
    columns = ("A against B", "half of A against half of B", "two halves of A")
    return pd.DataFrame(rows, columns=["criterion", *columns])


def dependence_finding(run: Run) -> str:
    """Return a sentence on the criterion whose decisions on experts differ most between A and B."""
    table = decision_differences(run)
    criterion, texts, _, halves = table.loc[table["A against B"].idxmax()]
    return (
        f"{criterion}: {percent(texts)} of the decisions differ between the texts, {percent(halves)} between halves of "
        f"{short_text(run.study, run.study.primary)}"
    )


def adapted_finding(run: Run) -> str:
    """Return a sentence on how many modules RASA adapts. Raises MissingResultError if it has not run yet."""
    counts = thresholds.count(run.load(stages.modules), run.load(stages.adapted_scores))
    return verdict.adaptation_finding(counts)


def budget_finding(run: Run) -> str:
    """Return sentences on the retentions of GPrune and its main baseline in modules of different drift.

    Raises MissingResultError if the run has no masks of GPrune.
    """
    # raises MissingResultError if GPrune has no masks
    run.key(stages.masks, OURS)
    other = main_baseline(run)
    if other is None:
        return "This run has no other pruned model to compare with GPrune."
    first, second = (run.key(stages.masks, name) for name in (OURS, other))
    bins = derived_cache.decision_bins(run.root, run.key(stages.drift), run.key(stages.partition), first, second, _BINS)
    return verdict.budget_finding(bins, METHODS[other].label)


def main_baseline(run: Run) -> str | None:
    """Return the masks to compare GPrune with: those of the metric's method, else of a baseline or any other method."""
    masked = (name for name in run.mask_names if name != OURS)
    ordered = sorted(masked, key=lambda name: not of_masks(name).baseline)
    own_masks = METHODS[verdict.own_method(run.study.metric)].masks
    # an unfinished run may still compute them
    coming = set() if has_ended(run) else {METHODS[name].masks for name in run.study.methods}
    return own_masks if own_masks in ordered or own_masks in coming else next(iter(ordered), None)


def comparison_finding(run: Run) -> str:
    """Return sentences on how the leading method compares with the best baseline and control on every text."""
    return _comparison(run, run.study.evaluation.texts)


def unseen_finding(run: Run) -> str:
    """Return sentences on how the leading method compares with others on the headline's text, if possible unseen."""
    text, _ = headline_results(run)
    return _comparison(run, (text,), f" on {short_text(run.study, text)}")


def _comparison(run: Run, texts: Sequence[str], where: str = "") -> str:
    """Return sentences on the comparison on some texts; raise MissingResultError, with `where`, without values."""
    results, pair = method_results(run), verdict.leading_pair(run.study)
    if not any(result.by_seed(text) for result in results if result.method == pair[0] for text in texts):
        raise MissingResultError(f"the perplexity of {verdict.method_label(pair[0])}{where}")
    return verdict.comparison_finding(results, texts, holdout_statuses(run), expected_results([run]), pair)


def continuation_finding(run: Run) -> str:
    """Return a sentence on the continuations of the models. Raises MissingResultError if no masks exist."""
    run.require(run.methods_with_masks, stages.masks)
    return "The dense model and the pruned models continue the same prompt."


def retention_finding(run: Run) -> str:
    """Return a sentence on how much GPrune, or else the first method, raises perplexity on the headline's text."""
    text, lines = headline_results(run)
    by_name = {line.method: line for line in lines}
    dense = by_name.get(DENSE)
    pruned = by_name.get(OURS) or next(line for line in lines if line.method != DENSE)
    if dense is None:
        raise MissingResultError("the perplexity of the dense model")
    return verdict.retention_finding(pruned, dense, text)


def headline_results(run: Run) -> tuple[str, list[MethodResult]]:
    """Return the text of the headline, an unseen one if possible, and the results of every method measured on it.

    Raises MissingResultError if no pruned model is measured on it.
    """
    text = protocol.leading_text(holdout_statuses(run), run.study)
    lines = [line for line in method_results(run) if line.by_seed(text)]
    if not any(line.method != DENSE for line in lines):
        raise MissingResultError(f"the perplexity of any pruned model{text and f' on {short_text(run.study, text)}'}")
    return text, lines
