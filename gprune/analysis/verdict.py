"""Ranks of methods, ties within noise, and the sentences that claim them.

Headline, titles, stars, Pareto front, slides, report and the tables of `reproduce` take every claim about methods from
here. Differences are paired over windows, and over seeds where there are several. Methods within noise share a rank.
Nothing is claimed while a method or a text of the comparison is missing, or where the comparison is not fair.

A sentence has the finding first, then its numbers; it has at most three branches.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeVar

import numpy as np

from gprune.analysis import agreement as modules
from gprune.analysis.ablation_effect import LEAST, AblationEffect
from gprune.analysis.claims import CLAIMS, HOLDS
from gprune.analysis.comparison import DENSE, MethodResult, Row, change, texts
from gprune.analysis.decisions import BUDGET_TOLERANCE, Bins, bin_changes, pooled_retention
from gprune.analysis.drift import Distribution
from gprune.analysis.formatting import format_signed, percent
from gprune.analysis.paired_test import (
    BETTER,
    INTERVAL,
    NOISE,
    WORSE,
    Difference,
    Measurement,
    difference,
    interval_in_percent,
    over_texts,
)
from gprune.analysis.tables import BASES
from gprune.analysis.thresholds import Counts
from gprune.data.texts.corpus_relation import SAME
from gprune.evaluation import holdout
from gprune.evaluation.holdout import HoldoutStatus
from gprune.pipeline.stages.method_inputs import repair_label
from gprune.records import Agreement, PruningMasks
from gprune.study import Study
from gprune.study.methods import METHODS
from gprune.system.units import join_words

OURS, FLAP, FLAP_WITHOUT_BIAS = "gprune", "flap", "flap_no_bias"
BEST, SECOND = "★", "☆"
OPEN = "open"
"""the verdict where nothing may be claimed"""
FAR = 0.1
"""FLAP is far behind itself without its bias where its perplexity is higher by more than this share"""
_BIAS = " FLAP's bias is the mean activation on its calibration text. It hurts on texts with other means."
MANY = 10.0
"""a perplexity that rises by more than this is written as a multiple"""
COST_DIGITS = 3
"""decimals of a cost over the dense model's, wherever one is printed or compared"""
ALIKE = 0.02
"""ARIs that differ by less are called alike"""
HARDLY = 1.5
"""a text shifts ranks hardly more than resampling where it shifts them less than so many times as far"""
PAPER_SAMPLES = 2048
"""sequences of each calibration text in section 4"""
_PAPER_CLAIMS = tuple(claim.words for claim in CLAIMS if claim.source in ("main table", "ablation") and not claim.where)
Name = TypeVar("Name")
Compare = Callable[[Name, Name], Difference]
"""returns how much worse its first name is than its second"""
Expected = Mapping[str, Collection[tuple[str, str]]]
"""by text the runs and methods that a comparison must have"""
_ANY: Expected = MappingProxyType({})


def judge(losses: Mapping[Name, float], compare: Compare[Name]) -> dict[Name, int]:
    """Rank names by their loss, from 1 for the lowest; those within noise of the first of a rank share it.

    A name without a finite loss has no rank.
    """
    ranks = dict[Name, int]()
    unranked = sorted((name for name in losses if math.isfinite(losses[name])), key=losses.__getitem__)
    while unranked:
        rank = 1 + max(ranks.values(), default=0)
        ranks |= {name: rank for name in unranked if name == unranked[0] or compare(name, unranked[0]).close}
        unranked = [name for name in unranked if name not in ranks]
    return ranks


def winners(ranks: Mapping[Name, int]) -> list[Name]:
    """Return the names of rank 1, the lowest loss first; none without a competitor."""
    return [name for name, rank in ranks.items() if rank == 1] if len(ranks) > 1 else []


def stars(ranks: Mapping[Name, int]) -> dict[Name, str]:
    """Return the signs of the first two ranks; a name without a competitor has none."""
    symbols = {1: BEST, 2: SECOND}
    return {name: symbols[rank] for name, rank in ranks.items() if rank in symbols} if len(ranks) > 1 else {}


def pareto_front(costs: Mapping[Name, float], losses: Mapping[Name, float], compare: Compare[Name]) -> set[Name]:
    """Return the names that are better, beyond noise, than each cheaper one of the front.

    Costs that agree to the printed digit are equal: of these the best counts, and what is within noise of it.
    """
    printed, front = {name: round(cost, COST_DIGITS) for name, cost in costs.items()}, list[Name]()
    for cost in sorted(set(printed.values())):
        ranks = judge({name: losses[name] for name in printed if printed[name] == cost}, compare)
        best = [name for name, rank in ranks.items() if rank == 1]
        if best and all(compare(best[0], name).verdict == BETTER for name in front):
            front += best
    return set(front)


def rank_lines(
    lines: Sequence[MethodResult], names: Sequence[str], expected: Expected = _ANY
) -> dict[tuple[str, str], int]:
    """Rank the pruned models on the mean over the texts `names`; empty if nothing may be claimed."""
    if obstacles([row for line in lines for row in line.rows]):
        return {}
    if any(missing_methods(lines, text, expected) for text in names):
        return {}
    pruned = {line.name: line for line in lines if line.method != DENSE and all(map(line.by_seed, names))}
    losses = {name: sum(map(line.loss, names)) for name, line in pruned.items()}
    return judge(losses, lambda first, second: compare_lines(pruned[first], pruned[second], names))


def compare_lines(first: MethodResult, second: MethodResult, names: Sequence[str]) -> Difference:
    """Return how much worse the first line is on the mean over some texts; unpaired ones as independent."""
    changes = {text: change(first, second, text) for text in names}
    paired = {text: gap for text, gap in changes.items() if isinstance(gap, Difference)}
    return over_texts([paired.get(text) or difference(first.cell(text), second.cell(text)) for text in names])


def missing_methods(lines: Iterable[MethodResult], text: str, expected: Expected) -> list[str]:
    """Return the methods of `expected` that have neither a perplexity on a text nor a reason for none."""
    available = {row.name for line in lines for row in line.rows if text in row.cells or row.reason}
    return list(dict.fromkeys(name[1] for name in expected.get(text, ()) if name[1] != DENSE and name not in available))


def budget_gap(retentions: Iterable[float]) -> float:
    """Return the largest difference of some retentions if it is too large to compare them, else 0."""
    finite = [retention for retention in retentions if math.isfinite(retention)]
    gap = max(finite, default=0.0) - min(finite, default=0.0)
    return gap if gap > BUDGET_TOLERANCE else 0.0


def obstacles(table: list[Row]) -> list[str]:
    """Return why no winner can be called, a sentence for each reason; none if the comparison is fair."""
    reasons = []
    if gap := budget_gap(row.retention for row in table if row.method != DENSE):
        reasons.append(
            f"the retentions differ by {percent(gap, 1)} of the decoder's weights, more than "
            f"{percent(BUDGET_TOLERANCE, 1)}: choose runs with the same retention"
        )
    models = {cell.model for row in table for cell in row.cells.values()}
    if len(models) > 1:
        reasons.append(f"the table has {len(models)} different dense models: choose runs of one model")
    for text in texts(table):
        windows = {row.cells[text].windows_read for row in table if text in row.cells}
        if len(windows) > 1:
            reasons.append(f"{text} was measured in different ways ({'; '.join(sorted(windows))})")
    return reasons


def is_same_budget(first: MethodResult, second: MethodResult) -> bool:
    """Return True if two lines may be called better or worse; the dense model is a reference to all."""
    return DENSE in (first.method, second.method) or not budget_gap((first.retention, second.retention))


def is_comparable(first: MethodResult | None, second: MethodResult | None, text: str) -> bool:
    """Return True if two lines exist, are finite on a text, were measured alike and have one budget."""
    if first is None or second is None or not is_same_budget(first, second):
        return False
    same_windows = first.cell(text).windows_read == second.cell(text).windows_read
    return same_windows and bool(np.isfinite([first.loss(text), second.loss(text)]).all())


@dataclass(frozen=True, slots=True)
class Opponents:
    """GPrune on one text and what it is compared with; all but `dense` and `base` measured alike and of its budget."""

    text: str
    missing: list[str]
    """methods of the comparison that are not measured: until they are, nothing is claimed"""
    dense: MethodResult | None
    ours: MethodResult | None
    base: MethodResult | None
    """the metric's own method, or the best of the other baselines if that one is not part of the comparison"""
    best: MethodResult | None
    """the best other method that is not a control"""
    control: MethodResult | None
    """the best control"""
    flap: MethodResult | None
    without_bias: MethodResult | None
    """FLAP without its bias compensation, where FLAP is far behind it"""

    @property
    def named(self) -> list[MethodResult]:
        """Return the lines that sentences compare GPrune with, without duplicates."""
        lines = self.base, self.best, self.flap, self.without_bias
        return list({line.method: line for line in lines if line is not None}.values())

    @property
    def fair(self) -> bool:
        """Return True if the base may be compared with GPrune and everything is measured."""
        return bool(not self.missing and self.ours and self.base) and is_comparable(self.ours, self.base, self.text)

    @property
    def verdict(self) -> str:
        """Return GPrune's result against the best other method: BETTER, WORSE, NOISE or OPEN."""
        return self.difference(self.best).verdict if self.fair and self.best else OPEN

    def difference(self, other: MethodResult) -> Difference:
        """Return how much worse GPrune is than another line."""
        assert self.ours is not None
        return compare_lines(self.ours, other, [self.text])


def opponents(
    lines: Sequence[MethodResult], text: str, expected: Expected = _ANY, metric_method: str = FLAP
) -> Opponents:
    """Return the lines to compare GPrune with on a text; `metric_method` is the method of its metric."""
    lines_by_method = {line.method: line for line in lines if line.by_seed(text)}
    rivals = [line for name, line in lines_by_method.items() if name in METHODS and name not in (OURS, DENSE)]
    rivals.sort(key=lambda line: line.loss(text))
    base = lines_by_method.get(metric_method)
    # another method must not replace the expected one while its result is missing
    if base is None and metric_method not in (method for _, method in expected.get(text, ())):
        base = next((line for line in rivals if METHODS[line.method].baseline), None)
    ours = lines_by_method.get(OURS)
    fair = {line.method: line for line in rivals if is_comparable(ours, line, text)}
    best, control = (
        next((line for name, line in fair.items() if METHODS[name].control == kind), None) for kind in (False, True)
    )
    flap, without_bias = fair.get(FLAP), fair.get(FLAP_WITHOUT_BIAS)
    behind = compare_lines(flap, without_bias, [text]) if flap and without_bias else None
    if behind is None or behind.verdict != WORSE or behind.change <= FAR:
        without_bias = None
    missing = missing_methods(lines, text, expected)
    return Opponents(text, missing, lines_by_method.get(DENSE), ours, base, best, control, flap, without_bias)


def method_label(method: str) -> str:
    """Return the label of a method for a sentence."""
    return METHODS[method].label if method in METHODS else method


def own_method(metric: str) -> str:
    """Return the method that a metric comes from, which prunes by it alone."""
    return BASES.get(metric, (metric,))[0]


# what pruning costs


@dataclass(frozen=True, slots=True)
class Headline:
    """One sentence, and the numbers behind it."""

    sentence: str
    detail: str = ""
    """the perplexities and their error"""
    verdict: str = OPEN
    """GPrune against the best other method; open where nothing can be said"""


def outcome(lines: Sequence[MethodResult], study: Study, statuses: Mapping[str, HoldoutStatus]) -> Opponents | None:
    """Return the lines to compare GPrune with on the first unseen text, or else on the nearest to one.

    `lines` are all methods of the run, with those of other seeds; `statuses` relate its evaluation texts to its
    calibration texts. None if the study measures no perplexity.
    """
    text = holdout.first(statuses, study)
    expected = {text: [(lines[0].name[0], method) for method in study.methods]} if lines else {}
    return opponents(lines, text, expected, own_method(study.metric)) if text else None


def headline(result: Opponents, status: HoldoutStatus, study: Study, seeds: int = 1) -> Headline:
    """Return the result of a run in one sentence.

    `status` relates the text to the calibration texts. `seeds` counts the runs of the cache that differ from
    this one in their seed, itself among them.
    """
    without_bias = result.without_bias if result.base is result.flap else None
    cells = [line.cell(result.text) for line in (result.ours, result.base, without_bias) if line is not None]
    if not cells:
        return Headline(f"No pruned model is measured on {result.text}")
    dense = result.dense.cell(result.text) if result.dense else None
    retention = next(filter(np.isfinite, (cell.retention for cell in cells)), study.retention)
    phrases = [f"{_movement(cell, dense)} with {method_label(cell.method)}" for cell in cells]
    verb = phrases[0].split(" ")[0]
    phrases[1:] = [phrase.removeprefix(f"{verb} ") for phrase in phrases[1:]]
    text = "unseen text" if status.unseen else f"{result.text} ({status.brief})"
    sentence = f"At {percent(retention)} retention, perplexity on {text} {join_words(phrases)}"
    conclusion = "" if result.verdict == BETTER else against_best(result)
    sentences = filter(None, (sentence, conclusion, against_control(result)))
    detail = _detail(result, status, seeds) + _repair(study) + (_BIAS if without_bias else "")
    return Headline(". ".join(sentences), detail, result.verdict)


def _movement(cell: Measurement, dense: Measurement | None) -> str:
    """Return how a perplexity differs from the dense model's: `rises 41%`; the perplexity itself without one."""
    change = difference(cell, dense).change if dense else math.nan
    if not math.isfinite(change):
        return f"is {cell.perplexity:,.1f}" if math.isfinite(cell.perplexity) else "is not finite"
    if change > MANY:
        return f"rises {1 + change:,.0f}-fold"
    return f"{'rises' if change >= 0 else 'falls'} {percent(abs(change), 0 if abs(change) >= 0.0995 else 1)}"


def missing_opponent(result: Opponents) -> str:
    """Return why no winner may be called on a text; empty if one may."""
    if result.missing:
        return f"not measured: {join_words(list(map(method_label, result.missing)))}"
    if not (result.ours and result.base):
        return f"{'a baseline' if result.ours else 'GPrune'} is not part of this run"
    if gap := budget_gap((result.ours.retention, result.base.retention)):
        return f"the retentions of GPrune and {method_label(result.base.method)} differ by {percent(gap, 1)}"
    return "" if result.fair and result.best else "the methods were measured in different ways"


def against_best(result: Opponents) -> str:
    """Return GPrune against the best other method on one text, in a sentence without its end."""
    if reason := missing_opponent(result):
        return f"No winner: {reason}"
    assert result.best is not None
    change, name = result.difference(result.best).change, method_label(result.best.method)
    if result.verdict == NOISE:
        return f"GPrune and {name} are within noise ({format_signed(change, '.1%')})"
    return f"GPrune’s perplexity is {percent(abs(change), 1)} {'lower' if change < 0 else 'higher'} than {name}’s"


def compare_runs(first: MethodResult, second: MethodResult, text: str, names: Sequence[str], text_name: str) -> str:
    """Return how the models of two runs differ on a text, in a sentence; `names` are their labels."""
    values = f"{first.mean(text):,.1f} and {second.mean(text):,.1f} on {text_name}"
    if not is_comparable(first, second, text):
        return f"No winner between {join_words(names)}: their retentions or windows differ (perplexity {values})."
    gap = compare_lines(first, second, [text])
    detail = f"{format_signed(gap.change, '.1%')} {interval_in_percent(gap, 1)}".strip()
    if gap.close:
        return f"{join_words(names)} are within noise ({detail}; perplexity {values})."
    direction = "lower" if gap.change < 0 else "higher"
    return f"{names[0]} has a {direction} perplexity than {names[1]} ({detail}; {values})."


def against_control(result: Opponents) -> str:
    """Return that the best control does as well as GPrune or better, in a sentence without its end; else empty."""
    if result.control is None or result.missing:
        return ""
    gap = result.difference(result.control)
    if gap.verdict == BETTER:
        return ""
    change = format_signed(0.0 - gap.change / (1 + gap.change), ".1%")
    verb = "does as well" if gap.close else "does better"
    return f"A control {verb}: {method_label(result.control.method)} ({change} perplexity)"


def _detail(result: Opponents, status: HoldoutStatus, seeds: int) -> str:
    lines = [line for line in (result.dense, *result.named, result.ours) if line is not None]
    cells = [line.cell(result.text) for line in lines]
    values = ", ".join(f"{method_label(cell.method)} {cell.perplexity:,.1f}" for cell in cells)
    detail = f"{status.sentence}. Perplexity over {cells[0].windows_read}: {values}."
    if not result.fair or result.ours is None:
        return detail
    changes = {method_label(line.method): result.difference(line) for line in result.named}
    intervals = [
        f"{name} {format_signed(change.change, '.1%')} {interval_in_percent(change, 1)}"
        for name, change in changes.items()
        if math.isfinite(change.margin)
    ]
    count = len(result.ours.seeds)
    over = f"{count} seeds" if count > 1 else f"one seed of {seeds} in this cache" if seeds > 1 else "one seed"
    paired = "paired" if next(iter(changes.values())).paired else "windows differ"
    caption = f"{INTERVAL}, {paired}; {over}"
    return f"{detail} GPrune against {'; '.join(intervals)} ({caption})." if intervals else detail


def _repair(study: Study) -> str:
    """Return the repair that a study gives every method alike; empty if it gives none."""
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
    expected: Expected = _ANY,
) -> str:
    """Return GPrune against the best other method on each of some texts, and the controls that do as well.

    `lines` are all methods of a run; `statuses` relate its evaluation texts to its calibration texts;
    `expected` as in `missing_methods`.
    """
    results = [result for text in names if (result := opponents(lines, text, expected)).ours is not None]
    sentences = [
        f"On {result.text} ({statuses[result.text].brief}): {sentence}."
        for result in results
        for sentence in (against_best(result), against_control(result))
        if sentence
    ]
    return " ".join(sentences)


def retention_finding(pruned: Measurement, dense: Measurement) -> str:
    """Return the cost of a method at its retention, against the dense model on the same text."""
    return (
        f"At {percent(pruned.retention)} retention, perplexity on {pruned.text} changes from {dense.perplexity:.1f} to "
        f"{pruned.perplexity:.1f} with {METHODS[pruned.method].label}."
    )


# what the steps of a run find


def drift_title(curves: Sequence[Distribution]) -> str:
    """Return how far another text shifts ranks, against resampling; `curves` as `drift.distributions` returns them."""
    cross, floor = curves[0], max(curves[2].median, curves[3].median)
    if floor <= 0:
        return f"Changing the calibration text shifts ranks by {percent(cross.median, 1)} of the ranking (median)"
    if cross.median < HARDLY * floor:
        return "Changing the calibration text shifts ranks hardly more than resampling it"
    return f"Changing the calibration text shifts ranks {cross.median / floor:.1f}× more than resampling it"


def drift_finding(curves: Sequence[Distribution]) -> str:
    """Return the title of the rank drift and the numbers behind it."""
    cross, floor = curves[0], max(curves[2:4], key=lambda curve: curve.median)
    return (
        f"{drift_title(curves)}. The median shift is {percent(cross.median, 1)} of the ranking between the texts "
        f"and {percent(floor.median, 1)} between halves of one text. Ranks correlate at {cross.correlation:.2f} and "
        f"{floor.correlation:.2f}."
    )


def agreement_title(record: Agreement) -> str:
    """Return how far modules agree when a text is replaced, next to the seed alone and FANG's groups."""
    text_ari, (seed_ari, _) = modules.mean_substitution(record), modules.controls(record)
    # the chart's value for A and B, not the mean over every pair of texts
    means = dict(zip(record.comparisons, record.ari.mean(axis=1), strict=True))
    fang_ari = means.get("fang_ab")
    clauses = [
        f"{text_ari[0]:.2f} when one calibration text is replaced" if text_ari else "",
        f"{seed_ari:.2f} when only the seed changes" if seed_ari is not None else "",
        f"{fang_ari:.2f} for FANG’s groups of A and B" if fang_ari is not None else "",
    ]
    return f"Mean ARI of the modules: {join_words(list(filter(None, clauses))) or 'not measured'}"


def agreement_finding(record: Agreement) -> str:
    """Return whether the text or the seed changes the modules more, and the agreements behind it."""
    text_ari, (seed_ari, _) = modules.mean_substitution(record), modules.controls(record)
    if text_ari is None or seed_ari is None:
        return f"{agreement_title(record)}."
    gap = text_ari[0] - seed_ari
    more = "about as much as" if abs(gap) < ALIKE else "more than" if gap < 0 else "less than"
    return f"Changing the calibration text changes the modules {more} changing the seed. {agreement_title(record)}."


def adaptation_finding(counts: Counts) -> str:
    """Return how many modules RASA adapts, and from which text it scores them."""
    if not counts.adapted:
        return f"RASA adapts none of the {counts.modules:,} modules: every neuron keeps its score from A."
    share = percent(counts.neurons / counts.all_neurons, 1)
    return (
        f"RASA adapts {counts.adapted:,} of {counts.modules:,} modules, with {share} of the neurons. It scores "
        f"{counts.from_auxiliary:,} of them on B and {counts.from_primary:,} on A."
    )


def budget_title(bins: Bins, base: str) -> str:
    """Return where GPrune keeps more and where fewer neurons than another method."""
    changes = bins.ours - bins.base
    if len(changes) < 2 or np.abs(changes).max() < BUDGET_TOLERANCE:
        return f"GPrune spreads the budget over stable and unstable modules as {base} does"
    unstable, stable = (format_signed(value, ".3f") for value in bin_changes(bins))
    return f"Retention against {base}: {unstable} in the most unstable modules, {stable} in the others"


def budget_finding(bins: Bins, base: str) -> str:
    """Return the title of the budget and the shares that both methods keep."""
    return f"{budget_title(bins, base)}. {budget_shares(bins, base)}"


def budget_shares(bins: Bins, base: str) -> str:
    """Return the shares of the most unstable modules and of all neurons that both methods keep."""
    retained, base_kept = pooled_retention(bins)
    shared = float(np.average(bins.shares[0], weights=bins.neurons)) / 100
    return (
        f"GPrune keeps {percent(bins.ours[-1], 1)} of the most unstable modules and {base} "
        f"{percent(bins.base[-1], 1)}. Of all neurons, they keep {percent(retained, 1)} and {percent(base_kept, 1)}; "
        f"both keep {percent(shared, 1)}."
    )


# whether a run can be trusted


@dataclass(frozen=True, slots=True)
class Check:
    """One trust check."""

    name: str
    value: str
    verdict: Literal["pass", "warn", "unknown"]


def checks(
    record: Mapping[str, Any],
    study: Study,
    masks: Mapping[str, PruningMasks],
    statuses: Mapping[str, HoldoutStatus],
    effect: AblationEffect | None = None,
    *,
    recorded: Mapping[str, str] = MappingProxyType({}),
    seeds: Sequence[int] = (),
) -> list[Check]:
    """Return every trust check of a run.

    `masks` are by display name, `statuses` of its evaluation texts; `effect` is that of the parts of GPrune,
    None if the run has not come that far. `recorded` are claims that were judged on other models, with
    their outcome; `seeds` are those over which methods are compared.
    """
    limit, samples = study.evaluation.windows, study.calibration.samples
    return [
        _budget_check(study.retention, masks),
        *([] if effect is None else _effect_checks(effect)),
        *_recorded_check(recorded),
        _text_check(statuses),
        _check("Seeds", ", ".join(map(str, seeds or (study.seed,))), len(seeds) > 1, "no spread over seeds"),
        _check("Windows", "all" if limit is None else f"at most {limit} of each text", limit is None),
        _check("Calibration", f"{samples} sequences of each text", samples >= PAPER_SAMPLES, f"paper: {PAPER_SAMPLES}"),
        _code_check(record.get("provenance") or {}),
    ]


def _check(name: str, value: str, passes: bool, caveat: str = "") -> Check:
    return Check(name, value if passes or not caveat else f"{value} ({caveat})", "pass" if passes else "warn")


def _budget_check(target: float, masks: Mapping[str, PruningMasks]) -> Check:
    if not masks:
        return Check("Retention", "no masks yet", "unknown")
    worst = max(masks, key=lambda name: abs(masks[name].retention - target))
    gap = budget_gap([target, *(mask.retention for mask in masks.values())])
    value = f"target {percent(target, 1)}; farthest: {worst} at {percent(masks[worst].retention, 2)}"
    return _check("Retention", value, not gap, "budgets differ")


def _effect_checks(effect: AblationEffect) -> list[Check]:
    share, drift = effect.decisions_changed["RASA"], effect.drift_explained
    variance = f"explain {percent(drift.modules)} of the rank drift’s variance, random modules {percent(drift.random)}"
    return [
        _check(
            "RASA",
            f"changes {percent(share, 1)} of the neuron decisions",
            share >= LEAST,
            "do not credit it with a gain",
        ),
        _check("Modules", variance, drift.modules > drift.random, "they do not group neurons with similar drift"),
    ]


def _recorded_check(recorded: Mapping[str, str]) -> list[Check]:
    """Return the claims on GPrune, its modules and RASA that were judged on other models."""
    outcomes = {claim: recorded[claim] for claim in _PAPER_CLAIMS if claim in recorded}
    value = "; ".join(f"{claim}: {result}" for claim, result in outcomes.items())
    # the first word of an outcome says whether the claim holds
    hold = all(result.startswith(f"{HOLDS}:") for result in outcomes.values())
    return [_check("Other models", value, hold)] if outcomes else []


def _text_check(statuses: Mapping[str, HoldoutStatus]) -> Check:
    if not statuses:
        return Check("Evaluation texts", "none", "unknown")
    groups: dict[str, list[str]] = {}
    for text, status in statuses.items():
        groups.setdefault(status.brief, []).append(text)
    value = "; ".join(f"{brief}: {', '.join(names)}" for brief, names in groups.items())
    overlapping = [text for text, status in statuses.items() if SAME in status.related or status.copied]
    passes = not overlapping and any(status.unseen for status in statuses.values())
    caveat = "results on a calibration text are optimistic" if overlapping else "none is unseen"
    return _check("Evaluation texts", value, passes, caveat)


def _code_check(provenance: Mapping[str, Any]) -> Check:
    if package := provenance.get("package"):
        return Check("Code", f"installed package {provenance.get('gprune')}, contents {package}", "pass")
    if not provenance.get("commit"):
        return Check("Code", "commit not recorded", "unknown")
    value = f"commit {provenance['commit']}"
    return _check("Code", value, not provenance.get("uncommitted_changes"), "with uncommitted changes")
