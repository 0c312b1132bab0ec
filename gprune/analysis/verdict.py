"""Rank methods, handle ties within noise, and build the sentences about results.

The headline, titles, stars, Pareto front, slides, report and the tables of `reproduce` use these functions for all
statements about methods. Differences are paired over windows, and over seeds if there are several. Methods within noise
share a rank. There is no winner while a method or a text of the comparison is missing, or if the comparison is not
fair.

A sentence starts with the finding, followed by its numbers. The code of a sentence has at most three branches.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeVar

import numpy as np

from gprune.analysis import agreement as modules
from gprune.analysis.ablation_effect import MIN_CHANGED_SHARE, AblationEffect
from gprune.analysis.claims import BASES, CLAIMS, HOLDS
from gprune.analysis.comparison import DENSE, MethodResult, Row, loss_difference, texts
from gprune.analysis.decisions import BUDGET_TOLERANCE, Bins, bin_changes, pooled_retention
from gprune.analysis.drift import Distribution, resampling_floor
from gprune.analysis.formatting import format_signed, percent
from gprune.analysis.paired_test import BETTER, INTERVAL, NOISE, WORSE, Difference, interval_in_percent, over_texts
from gprune.analysis.thresholds import Counts
from gprune.data.texts.corpus_relation import PART, SAME
from gprune.data.texts.holdout import HoldoutStatus
from gprune.evaluation import protocol
from gprune.pipeline.stages.results import repair_label
from gprune.records import Agreement, PruningMasks
from gprune.records.experts import ExpertMasks
from gprune.study import Study
from gprune.study.methods import ALL_METHODS, EXPERT_METHODS
from gprune.system.units import join_words

OURS, FLAP, FLAP_WITHOUT_BIAS = "gprune", "flap", "flap_no_bias"
BEST, SECOND = "★", "☆"
OPEN = "open"
"""verdict if there is no winner"""
_MAX_BIAS_HARM = 0.1
"""relative increase of perplexity by FLAP's bias above which FLAP without bias is reported too"""
_BIAS = (
    " FLAP's bias replaces removed units by their means on the calibration text. It hurts on texts with other means."
)
RETENTION_OF_EXPERTS = "For experts, retention is the kept share of the parameters of experts and routers."
_MAX_PERCENT = 10.0
"""relative increase of perplexity above which the increase is written as a multiple and not in percent"""
COST_DIGITS = 3
"""decimals of a relative cost for display and comparison"""
_MIN_ARI_GAP = 0.02
"""smallest difference of two ARIs that is reported as a difference"""
SMALL_RATIO = 1.5
"""ratio of the drift between texts to the resampling drift below which a text shifts ranks "only slightly more\""""
PAPER_SAMPLES = 2048
"""sequences of each calibration text in section 4"""
_PAPER_SOURCES = ("main table", "ablation")
_PAPER_CLAIMS = tuple(claim.sentence for claim in CLAIMS if claim.source in _PAPER_SOURCES and not claim.where)
Name = TypeVar("Name")
Compare = Callable[[Name, Name], Difference]
"""(first, second) -> loss of the first minus that of the second"""
Expected = Mapping[str, Collection[tuple[str, str]]]
"""(run, method) pairs that a comparison requires, by text"""
_NOTHING: Expected = MappingProxyType({})


def judge(losses: Mapping[Name, float], compare: Compare[Name]) -> dict[Name, int]:
    """Rank names by loss, from 1 for the lowest loss.

    All names within noise of the best unranked name share its rank. Names without a finite loss have no rank.
    """
    ranks = dict[Name, int]()
    unranked = sorted((name for name in losses if math.isfinite(losses[name])), key=losses.__getitem__)
    while unranked:
        rank = 1 + max(ranks.values(), default=0)
        ranks |= {name: rank for name in unranked if name == unranked[0] or compare(name, unranked[0]).close}
        unranked = [name for name in unranked if name not in ranks]
    return ranks


def winners(ranks: Mapping[Name, int]) -> list[Name]:
    """Return the names of rank 1 in ascending order of loss; none if only one name is ranked."""
    return [name for name, rank in ranks.items() if rank == 1] if len(ranks) > 1 else []


def stars(ranks: Mapping[Name, int]) -> dict[Name, str]:
    """Return the star symbols of the names of ranks 1 and 2; none if only one name is ranked."""
    symbols = {1: BEST, 2: SECOND}
    return {name: symbols[rank] for name, rank in ranks.items() if rank in symbols} if len(ranks) > 1 else {}


def pareto_front(costs: Mapping[Name, float], losses: Mapping[Name, float], compare: Compare[Name]) -> set[Name]:
    """Return the names that are significantly better than each cheaper name on the front.

    Costs that are equal after rounding to COST_DIGITS count as equal; of these only rank 1 can be on the front.
    """
    rounded, front = {name: round(cost, COST_DIGITS) for name, cost in costs.items()}, list[Name]()
    for cost in sorted(set(rounded.values())):
        ranks = judge({name: losses[name] for name in rounded if rounded[name] == cost}, compare)
        best = [name for name, rank in ranks.items() if rank == 1]
        if best and all(compare(best[0], name).verdict == BETTER for name in front):
            front += best
    return set(front)


def rank_lines(
    lines: Sequence[MethodResult], text_names: Sequence[str], expected: Expected = _NOTHING
) -> dict[tuple[str, str], int]:
    """Rank the pruned models by the mean loss over some texts; empty if the comparison is not fair or not complete.

    Models that are not measured on all of these texts are not ranked.
    """
    if obstacles([row for line in lines for row in line.rows]):
        return {}
    if any(missing_methods(lines, text, expected) for text in text_names):
        return {}
    pruned = {line.name: line for line in lines if line.method != DENSE and all(map(line.by_seed, text_names))}
    losses = {name: sum(map(line.loss, text_names)) for name, line in pruned.items()}
    return judge(losses, lambda first, second: compare_lines(pruned[first], pruned[second], text_names))


def compare_lines(first: MethodResult, second: MethodResult, text_names: Sequence[str]) -> Difference:
    """Return the loss of the first line minus that of the second, as the mean over some texts.

    On a text whose measurements cannot be paired, the errors are added in quadrature as if independent.
    """
    return over_texts([loss_difference(first, second, text) for text in text_names])


def missing_methods(lines: Iterable[MethodResult], text: str, expected: Expected) -> list[str]:
    """Return the methods of `expected` that have neither a perplexity on a text nor a reason why it is missing."""
    available = {row.name for line in lines for row in line.rows if text in row.cells or row.reason}
    return list(dict.fromkeys(name[1] for name in expected.get(text, ()) if name[1] != DENSE and name not in available))


def budget_gap(retentions: Iterable[float]) -> float:
    """Return the largest difference between retentions if it exceeds BUDGET_TOLERANCE, else 0."""
    finite = [retention for retention in retentions if math.isfinite(retention)]
    gap = max(finite, default=0.0) - min(finite, default=0.0)
    return gap if gap > BUDGET_TOLERANCE else 0.0


def obstacles(table: list[Row]) -> list[str]:
    """Return the reasons why a comparison of rows is not fair, as one clause each; empty if it is fair."""
    reasons = []
    if gap := budget_gap(row.retention for row in table if row.method != DENSE):
        reasons.append(
            f"the retentions differ by {percent(gap, 1)}, more than {percent(BUDGET_TOLERANCE, 1)}: "
            "choose runs with the same retention"
        )
    models = {cell.model for row in table for cell in row.cells.values()}
    if len(models) > 1:
        reasons.append(f"the table has {len(models)} different dense models: choose runs of one model")
    for text in texts(table):
        windows = {row.cells[text].window_label for row in table if text in row.cells}
        if len(windows) > 1:
            reasons.append(f"{text} was measured in different ways ({'; '.join(sorted(windows))})")
    return reasons


def is_same_budget(first: MethodResult, second: MethodResult) -> bool:
    """Return True if two lines have comparable retentions, or if one of them is the dense model."""
    return DENSE in (first.method, second.method) or not budget_gap((first.retention, second.retention))


def is_comparable(first: MethodResult | None, second: MethodResult | None, text: str) -> bool:
    """Return True if two lines exist, are finite on a text, and have the same dense model, windows and budget."""
    if first is None or second is None or not is_same_budget(first, second):
        return False
    cells = first.cell(text), second.cell(text)
    is_same_setting = len({(cell.model, cell.window_label) for cell in cells}) == 1
    return is_same_setting and bool(np.isfinite([first.loss(text), second.loss(text)]).all())


@dataclass(frozen=True, slots=True)
class Opponents:
    """GPrune, or the method that leads a study of experts, and the methods to compare it with on one text.

    All methods except `dense` and `base` are comparable with `leading`. A field is None if there is no such method.
    """

    text: str
    missing: list[str]
    """methods of the comparison that are not measured yet; there is no winner until they are"""
    dense: MethodResult | None
    leading: MethodResult | None
    base: MethodResult | None
    """the baseline of its metric, or the best baseline if that one is not part of the comparison"""
    best: MethodResult | None
    """the best other method that is not a control"""
    control: MethodResult | None
    """the best control"""
    flap: MethodResult | None
    without_bias: MethodResult | None
    """FLAP without bias compensation, if it is much better than FLAP"""
    leading_name: str = OURS
    """identifier of the leading method, also if `leading` is None"""

    @property
    def name(self) -> str:
        """Return the display name of the leading method."""
        return method_label(self.leading_name)

    @property
    def rivals(self) -> list[MethodResult]:
        """Return the lines that sentences compare the leading method with, without duplicates."""
        lines = self.base, self.best, self.flap, self.without_bias
        return list({line.method: line for line in lines if line is not None}.values())

    @property
    def fair(self) -> bool:
        """Return True if `base` is comparable with the leading method and no method is missing."""
        is_complete = bool(not self.missing and self.leading and self.base)
        return is_complete and is_comparable(self.leading, self.base, self.text)

    @property
    def verdict(self) -> str:
        """Return the leading method's result relative to the best other method: BETTER, WORSE, NOISE or OPEN."""
        return self.difference(self.best).verdict if self.fair and self.best else OPEN

    def difference(self, other: MethodResult) -> Difference:
        """Return the loss of the leading method minus that of another line."""
        assert self.leading is not None
        return compare_lines(self.leading, other, [self.text])


def opponents(
    lines: Sequence[MethodResult],
    text: str,
    expected: Expected = _NOTHING,
    leading_name: str = OURS,
    metric_method: str = FLAP,
) -> Opponents:
    """Select the lines to compare a leading method with on a text; `metric_method` is the baseline of its metric."""
    lines_by_method = {line.method: line for line in lines if line.by_seed(text)}
    rivals = [
        line for name, line in lines_by_method.items() if name in ALL_METHODS and name not in (leading_name, DENSE)
    ]
    rivals.sort(key=lambda line: line.loss(text))
    base = lines_by_method.get(metric_method)
    # another method must not replace the expected one while its result is missing
    if base is None and metric_method not in (method for _, method in expected.get(text, ())):
        base = next((line for line in rivals if ALL_METHODS[line.method].baseline), None)
    leading = lines_by_method.get(leading_name)
    fair = {line.method: line for line in rivals if is_comparable(leading, line, text)}
    best, control = (
        next((line for name, line in fair.items() if ALL_METHODS[name].control == kind), None) for kind in (False, True)
    )
    flap, without_bias = fair.get(FLAP), fair.get(FLAP_WITHOUT_BIAS)
    bias_harm = compare_lines(flap, without_bias, [text]) if flap and without_bias else None
    if bias_harm is None or bias_harm.verdict != WORSE or bias_harm.change <= _MAX_BIAS_HARM:
        without_bias = None
    missing = missing_methods(lines, text, expected)
    dense = lines_by_method.get(DENSE)
    return Opponents(text, missing, dense, leading, base, best, control, flap, without_bias, leading_name)


def method_label(method: str) -> str:
    """Return the display name of a method for a sentence, without a comma."""
    return ALL_METHODS[method].label.replace(", no ", " without ") if method in ALL_METHODS else method


def own_method(metric: str) -> str:
    """Return the baseline with which GPrune on a base metric is compared: the method of the metric, FANG for twFLAP."""
    return BASES.get(metric, (metric,))[0]


def leading_pair(study: Study) -> tuple[str, str]:
    """Return the leading method of a study and the baseline of its metric.

    For experts, the leading method is the first that adapts its scores, or else the first that reads a text. Its
    baseline is the same criterion with scores on A; if that is the leading method, the next method that is no control,
    or an empty string.
    """
    if not study.prunes_experts:
        return OURS, own_method(study.metric)
    methods = [EXPERT_METHODS[name] for name in study.methods if name in EXPERT_METHODS]
    methods.sort(key=lambda method: (method.scoring != "adapted", method.control))
    return methods[0].name, methods[0].form_of or next((m.name for m in methods[1:] if not m.control), "")


# the cost of pruning


@dataclass(frozen=True, slots=True)
class Headline:
    """The result of a run in one sentence, and its numbers."""

    sentence: str
    detail: str = ""
    """further sentences with the perplexities and the intervals of the differences"""
    verdict: str = OPEN
    """result of the leading method relative to the best other method, or OPEN"""


def headline_opponents(
    lines: Sequence[MethodResult], study: Study, statuses: Mapping[str, HoldoutStatus]
) -> Opponents | None:
    """Select the lines that the headline compares; see `leading_pair`.

    The text is the first unseen one, or else the one least related to the calibration texts. `lines` are all methods of
    the run, with the rows of other seeds; `statuses` has the relation of each evaluation text to the calibration texts.
    Returns None if the study measures no perplexity.
    """
    text = protocol.leading_text(statuses, study)
    expected = {text: [(lines[0].name[0], method) for method in study.methods]} if lines else {}
    return opponents(lines, text, expected, *leading_pair(study)) if text else None


def headline(result: Opponents, status: HoldoutStatus, study: Study, seeds: int = 1) -> Headline:
    """Describe the result of a run in one sentence.

    `status` is the relation of the text to the calibration texts. `seeds` is the number of runs in the cache that
    differ only in their seed, including this one.
    """
    without_bias = result.without_bias if result.base is result.flap else None
    lines = [line for line in (result.leading, result.base, without_bias) if line is not None]
    if not lines:
        return Headline(f"No pruned model is measured on {result.text}")
    retention = next(filter(np.isfinite, (line.retention for line in lines)), study.retention)
    phrases = [f"{_describe_increase(line, result)} with {method_label(line.method)}" for line in lines]
    # "rises 41% with GPrune and 316% with FLAP": the verb is not repeated
    verb = phrases[0].split(" ")[0]
    phrases[1:] = [phrase.removeprefix(f"{verb} ") for phrase in phrases[1:]]
    text = "unseen text" if status.unseen else f"{result.text} ({status.brief})"
    sentence = f"At {percent(retention)} retention, perplexity on {text} {join_words(phrases)}"
    conclusion = "" if result.verdict == BETTER else against_best(result)
    sentences = filter(None, (sentence, conclusion, against_control(result)))
    detail = _describe_detail(result, status, seeds) + _describe_repair(study) + (_BIAS if without_bias else "")
    detail += f" {RETENTION_OF_EXPERTS}" if study.prunes_experts else ""
    return Headline(". ".join(sentences), detail, result.verdict)


def _describe_increase(line: MethodResult, result: Opponents) -> str:
    """Describe the change from the dense model as `rises 41%`, or without a dense model the perplexity as `is 45.2`."""
    change = compare_lines(line, result.dense, [result.text]).change if result.dense else math.nan
    if not math.isfinite(change):
        perplexity = line.perplexity(result.text)
        return f"is {perplexity:,.1f}" if math.isfinite(perplexity) else "is not finite"
    if change > _MAX_PERCENT:
        return f"rises {1 + change:,.0f}-fold"
    # one decimal below 10%
    return f"{'rises' if change >= 0 else 'falls'} {percent(abs(change), 0 if abs(change) >= 0.0995 else 1)}"


def why_no_winner(result: Opponents) -> str:
    """Return the reason why there is no winner on a text; empty if the comparison is fair."""
    if result.missing:
        return f"not measured: {join_words(list(map(method_label, result.missing)))}"
    if not (result.leading and result.base):
        return f"{'a baseline' if result.leading else result.name} is not part of this run"
    if gap := budget_gap((result.leading.retention, result.base.retention)):
        names = join_words([result.name, method_label(result.base.method)])
        return f"the retentions of {names} differ by {percent(gap, 1)}"
    return "" if result.fair and result.best else "the methods were measured in different ways"


def against_best(result: Opponents) -> str:
    """Compare the leading method with the best other one on one text, in a sentence without a full stop."""
    if reason := why_no_winner(result):
        return f"No winner: {reason}"
    assert result.best is not None
    change, name = result.difference(result.best).change, method_label(result.best.method)
    if result.verdict == NOISE:
        return f"{result.name} and {name} are within noise ({format_signed(change, '.1%')})"
    direction = "lower" if change < 0 else "higher"
    return f"{result.name} has a {percent(abs(change), 1)} {direction} perplexity than {name}"


def compare_runs(first: MethodResult, second: MethodResult, text: str, names: Sequence[str], text_name: str) -> str:
    """Compare the models of two runs on a text, in one sentence; `names` are their labels."""
    values = f"{first.mean(text):,.1f} and {second.mean(text):,.1f} on {text_name}"
    if not is_comparable(first, second, text):
        reason = "their dense models, retentions or windows differ"
        return f"No winner between {join_words(names)}: {reason} (perplexity {values})."
    gap = compare_lines(first, second, [text])
    detail = f"{format_signed(gap.change, '.1%')} {interval_in_percent(gap, 1)}".strip()
    if gap.close:
        return f"{join_words(names)} are within noise ({detail}; perplexity {values})."
    direction = "lower" if gap.change < 0 else "higher"
    return f"{names[0]} has a {direction} perplexity than {names[1]} ({detail}; {values})."


def against_control(result: Opponents) -> str:
    """Return a sentence without a full stop if the best control is at least as good as the leading method, or ""."""
    if result.control is None or result.missing:
        return ""
    gap = result.difference(result.control)
    if gap.verdict == BETTER:
        return ""
    # the change to the control, from the opposite one; `0.0 -` avoids a negative zero
    change = format_signed(0.0 - gap.change / (1 + gap.change), ".1%")
    verb = "does as well" if gap.close else "does better"
    return f"A control {verb}: {method_label(result.control.method)} ({change} perplexity)"


def _describe_detail(result: Opponents, status: HoldoutStatus, seeds: int) -> str:
    """Return the sentences with perplexities and, if the comparison is fair, the intervals of the differences."""
    lines = [line for line in (result.dense, *result.rivals, result.leading) if line is not None]
    values = ", ".join(f"{method_label(line.method)} {line.perplexity(result.text):,.1f}" for line in lines)
    windows, count = lines[0].cell(result.text).window_label, max(len(line.seeds) for line in lines)
    over = f"{windows} (geometric mean of {count} seeds)" if count > 1 else windows
    detail = f"{status.sentence}. Perplexity over {over}: {values}."
    if not result.fair or result.leading is None:
        return detail
    changes = {method_label(line.method): result.difference(line) for line in result.rivals}
    intervals = [
        f"{name} {format_signed(change.change, '.1%')} {interval_in_percent(change, 1)}"
        for name, change in changes.items()
        if math.isfinite(change.margin)
    ]
    over = f"{count} seeds" if count > 1 else f"one seed of {seeds} in this cache" if seeds > 1 else "one seed"
    paired = "paired" if next(iter(changes.values())).paired else "windows differ"
    caption = f"{INTERVAL}, {paired}; {over}"
    return f"{detail} {result.name} against {'; '.join(intervals)} ({caption})." if intervals else detail


def _describe_repair(study: Study) -> str:
    """Return a sentence on the repair that a study applies to every method; empty if there is none."""
    label = repair_label(study)
    if not label:
        return ""
    if study.repair.kind == "auto":
        return " Every method has the repair chosen for it on held-out text, or none."
    return f" Every method has {label}{', after its own repair' if study.repair.base == 'own' else ''}."


def comparison_finding(
    lines: Sequence[MethodResult],
    names: Iterable[str],
    statuses: Mapping[str, HoldoutStatus],
    expected: Expected = _NOTHING,
    pair: tuple[str, str] = (OURS, FLAP),
) -> str:
    """Compare the leading method with the best other one on each of some texts, and report controls that are as good.

    `lines` are all methods of a run. `statuses` has the relation of each evaluation text to the calibration texts.
    `expected` are the methods that the comparison requires, `pair` is that of `leading_pair`.
    """
    results = [result for text in names if (result := opponents(lines, text, expected, *pair)).leading is not None]
    sentences = [
        f"On {result.text} ({statuses[result.text].brief}): {sentence}."
        for result in results
        for sentence in (against_best(result), against_control(result))
        if sentence
    ]
    return " ".join(sentences)


def retention_finding(pruned: MethodResult, dense: MethodResult, text: str) -> str:
    """Describe the change of perplexity from the dense model to a pruned one, on one text."""
    return (
        f"At {percent(pruned.retention)} retention, perplexity on {text} changes from {dense.perplexity(text):.1f} to "
        f"{pruned.perplexity(text):.1f} with {ALL_METHODS[pruned.method].label}."
    )


# results of the steps of a run


def drift_title(curves: Sequence[Distribution]) -> str:
    """Compare the rank shift by another text with that by resampling; `curves` is from `drift.distributions`."""
    cross, floor = curves[0], resampling_floor(curves)
    # NaN if no text has two halves in which experts have ranks
    if not floor > 0:
        return f"Changing the calibration text shifts ranks by {percent(cross.median, 1)} of the ranking (median)"
    if cross.median < SMALL_RATIO * floor:
        return "Changing the calibration text shifts ranks only slightly more than resampling it does"
    return f"Changing the calibration text shifts ranks {cross.median / floor:.1f}× more than resampling it"


def drift_finding(curves: Sequence[Distribution]) -> str:
    """Return `drift_title`, then median shifts and rank correlations between the texts and between halves of one text.

    `curves` is from `drift.distributions`: between the texts first, and the halves of each text third and fourth.
    """
    cross, floor = curves[0], resampling_floor(curves)
    if not math.isfinite(floor):
        return f"{drift_title(curves)}."
    finding = (
        f"{drift_title(curves)}. The median shift is {percent(cross.median, 1)} of the ranking between the texts "
        f"and {percent(floor, 1)} between halves of one text."
    )
    if not math.isfinite(cross.correlation):
        return finding
    control = next(curve.correlation for curve in curves[2:4] if curve.median == floor)
    return f"{finding} Ranks correlate at {cross.correlation:.2f} and {control:.2f}."


def agreement_title(record: Agreement) -> str:
    """Report the module agreement after a text is replaced, after a change of seed, and for FANG's groups."""
    text_ari, (seed_ari, _) = modules.mean_substitution(record), modules.controls(record)
    # for FANG, the value of A and B that the chart shows, and not the mean over all pairs of texts
    means = dict(zip(record.comparisons, record.ari.mean(axis=1), strict=True))
    fang_ari = means.get("fang_ab")
    clauses = [
        f"{text_ari[0]:.2f} when one calibration text is replaced" if text_ari else "",
        f"{seed_ari:.2f} when only the seed changes" if seed_ari is not None else "",
        f"{fang_ari:.2f} for FANG’s groups of A and B" if fang_ari is not None else "",
    ]
    return f"Mean ARI of the modules: {join_words(list(filter(None, clauses))) or 'not measured'}"


def agreement_finding(record: Agreement) -> str:
    """Compare the effects of text and seed on the modules, with the agreements."""
    text_ari, (seed_ari, _) = modules.mean_substitution(record), modules.controls(record)
    if text_ari is None or seed_ari is None:
        return f"{agreement_title(record)}."
    gap = text_ari[0] - seed_ari
    relation = "about as much as" if abs(gap) < _MIN_ARI_GAP else "more than" if gap < 0 else "less than"
    return f"Changing the calibration text changes the modules {relation} changing the seed. {agreement_title(record)}."


def adaptation_finding(counts: Counts) -> str:
    """Report the number of modules that RASA adapts, and the texts of their scores."""
    if not counts.adapted:
        return f"RASA adapts none of the {counts.modules:,} modules: every neuron keeps its score from A."
    share = percent(counts.neurons / counts.all_neurons, 1)
    return (
        f"RASA adapts {counts.adapted:,} of {counts.modules:,} modules, with {share} of the neurons. It scores "
        f"{counts.from_auxiliary:,} of them on B and {counts.from_primary:,} on A."
    )


def budget_title(bins: Bins, base: str) -> str:
    """Compare the retention of GPrune with that of the method `base` in unstable and stable modules."""
    changes = bins.gprune - bins.base
    if len(changes) < 2 or np.abs(changes).max() < BUDGET_TOLERANCE:
        return f"GPrune spreads the budget over stable and unstable modules as {base} does"
    # the difference of the retentions as `budget_shares` prints them
    kept, base_kept = (round(100 * float(values[-1]), 1) for values in (bins.gprune, bins.base))
    unstable, stable = (format_signed(value, ".1f") for value in (kept - base_kept, 100 * bin_changes(bins)[1]))
    return (
        f"Retention against {base}: {unstable} points in the most unstable modules, {stable} on average in the others"
    )


def budget_finding(bins: Bins, base: str) -> str:
    """Return the sentences of `budget_title` and `budget_shares`."""
    return f"{budget_title(bins, base)}. {budget_shares(bins, base)}"


def budget_shares(bins: Bins, base: str) -> str:
    """Report the retentions of both methods in the most unstable modules and over all neurons."""
    gprune_kept, base_kept = pooled_retention(bins)
    shared = float(np.average(bins.shares[0], weights=bins.neurons)) / 100
    return (
        f"GPrune keeps {percent(bins.gprune[-1], 1)} of the neurons in the most unstable modules and {base} "
        f"{percent(bins.base[-1], 1)}. Of all neurons, they keep {percent(gprune_kept, 1)} and {percent(base_kept, 1)};"
        f" both keep {percent(shared, 1)}."
    )


# trust checks of a run


@dataclass(frozen=True, slots=True)
class Check:
    """One trust check: whether a property of a run supports conclusions from it."""

    name: str
    value: str
    """the property as text, with a caveat if the check does not pass"""
    verdict: Literal["pass", "warn", "unknown"]


CHECK_ROWS = {
    "Comparison": ("Retention", "Seeds", "Windows"),
    "Texts": ("Evaluation texts", "Calibration"),
    "Parts of GPrune": ("RASA", "Modules"),
    "Claims and code": ("Other models", "Code"),
}
"""names of the checks in each row of their table"""


def checks(
    record: Mapping[str, Any],
    study: Study,
    masks: Mapping[str, PruningMasks | ExpertMasks],
    statuses: Mapping[str, HoldoutStatus],
    effect: AblationEffect | None = None,
    *,
    recorded: Mapping[str, str] = MappingProxyType({}),
    seeds: Sequence[int] = (),
) -> list[Check]:
    """Return all trust checks of a run.

    `record` is the record of the run. `masks` are keyed by the display name of the method and `statuses` by evaluation
    text. `effect` is None if its results are not stored yet. `recorded` has the outcomes of claims on other models by
    claim. `seeds` are the seeds over which methods are compared.
    """
    limit, samples = study.evaluation.windows, study.calibration.samples
    return [
        _check_budget(study.retention, masks),
        *([] if effect is None else _check_effects(effect)),
        *_check_recorded(recorded),
        _check_texts(statuses),
        _check(
            "Seeds", ", ".join(map(str, seeds)) if len(seeds) > 1 else "one", len(seeds) > 1, "no spread over seeds"
        ),
        _check("Windows", "all" if limit is None else f"at most {limit} of each text", limit is None),
        _check("Calibration", f"{samples} sequences of each text", samples >= PAPER_SAMPLES, f"paper: {PAPER_SAMPLES}"),
        _check_code(record.get("provenance") or {}),
    ]


def _check(name: str, value: str, passes: bool, caveat: str = "") -> Check:
    return Check(name, value if passes or not caveat else f"{value} ({caveat})", "pass" if passes else "warn")


def _check_budget(target: float, masks: Mapping[str, PruningMasks | ExpertMasks]) -> Check:
    """Check that all masks have the target retention, to within BUDGET_TOLERANCE."""
    if not masks:
        return Check("Retention", "no masks yet", "unknown")
    worst = max(masks, key=lambda name: abs(masks[name].retention - target))
    gap = budget_gap([target, *(mask.retention for mask in masks.values())])
    value = f"target {percent(target, 2)}; largest deviation: {worst} at {percent(masks[worst].retention, 2)}"
    return _check("Retention", value, not gap, "budgets differ")


def _check_effects(effect: AblationEffect) -> list[Check]:
    """Check that RASA changes enough decisions, and that modules explain more drift than random ones."""
    share, drift = effect.decisions_changed["RASA"], effect.drift_explained
    variance = f"explain {percent(drift.modules)} of the rank drift’s variance, random modules {percent(drift.random)}"
    return [
        _check(
            "RASA",
            f"changes {percent(share, 1)} of the neuron decisions",
            share >= MIN_CHANGED_SHARE,
            "do not credit it with a gain",
        ),
        _check("Modules", variance, drift.modules > drift.random, "they do not group neurons with similar drift"),
    ]


def _check_recorded(recorded: Mapping[str, str]) -> list[Check]:
    """Return the check of the paper's claims on other models; empty if no outcome is recorded."""
    outcomes = {claim: recorded[claim] for claim in _PAPER_CLAIMS if claim in recorded}
    value = "; ".join(f"“{claim}” – {result}" for claim, result in outcomes.items())
    # the first word of an outcome says whether the claim holds
    hold = all(result.startswith(f"{HOLDS}:") for result in outcomes.values())
    return [_check("Other models", value, hold)] if outcomes else []


def _check_texts(statuses: Mapping[str, HoldoutStatus]) -> Check:
    """Check that an evaluation text is unseen, and that none overlaps with a calibration text."""
    if not statuses:
        return Check("Evaluation texts", "none", "unknown")
    groups: dict[str, list[str]] = {}
    for text, status in statuses.items():
        groups.setdefault("in-domain" if PART in status.related else status.brief, []).append(text)
    value = "; ".join(f"{brief}: {', '.join(names)}" for brief, names in groups.items())
    overlapping = [text for text, status in statuses.items() if SAME in status.related or status.copied]
    passes = not overlapping and any(status.unseen for status in statuses.values())
    caveat = "results on a calibration text are optimistic" if overlapping else "none is unseen"
    return _check("Evaluation texts", value, passes, caveat)


def _check_code(provenance: Mapping[str, Any]) -> Check:
    """Check that the code of the run is identified by a package or a commit without later changes."""
    if package := provenance.get("package"):
        return Check("Code", f"installed package {provenance.get('gprune')}, contents {package}", "pass")
    if not provenance.get("commit"):
        return Check("Code", "commit not recorded", "unknown")
    value = f"commit {provenance['commit']}"
    return _check("Code", value, not provenance.get("uncommitted_changes"), "with uncommitted changes")
