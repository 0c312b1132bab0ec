"""Cached results of analyses for the pages, computed once per key of their inputs; they are read-only.

Arguments that are named after a result, such as `primary` and `partition`, are keys of results in the store.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pandas as pd

from gprune import records
from gprune.analysis import ablation_effect, agreement, comparison, decisions, drift, thresholds, whatif
from gprune.analysis.ablation_effect import AblationEffect
from gprune.analysis.decisions import BUDGET_TOLERANCE
from gprune.analysis.formatting import percent
from gprune.analysis.paired_test import Measurement
from gprune.analysis.verdict import own_method
from gprune.app.ui.chart_style import label
from gprune.app.ui.text import escape
from gprune.evaluation import protocol
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run, record
from gprune.pipeline.stages import Stage
from gprune.pruning import rasa
from gprune.records import Array, PruningMasks
from gprune.records.experts import ExpertDrift, ExpertMasks
from gprune.study import ReliabilitySettings

MOST_TABLE_ROWS = 2000
"""maximum number of rows of a table on a page"""


@dataclass(frozen=True, slots=True)
class RunResults:
    """A run and the keys of its results; instances with equal keys are equal, for caching."""

    keys: tuple[str, ...]
    run: Run = field(compare=False)


def _load(root: str, kind: str, key: str, expected: type) -> Any:
    """Return a stored result, a record of the type `expected`."""
    return record(root, kind, key, expected.__name__)


@lru_cache(256)
def drift_curves(root: str, key: str, bins: int, kind: str = "drift") -> list[drift.Distribution]:
    """Return the four curves of the drift histogram; `kind` is drift or, for experts, expert_drift."""
    record_type = {"drift": records.RankDrift, "expert_drift": ExpertDrift}[kind]
    return drift.distributions(_load(root, kind, key, record_type), bins)


@lru_cache(64)
def compute_drift_by_layer(root: str, key: str, bins: int) -> Array:
    """Return the (layers, bins) percentages of each layer's neurons by rank drift."""
    return drift.shares_by_layer(_load(root, "drift", key, records.RankDrift).magnitude, bins)


@lru_cache(64)
def drift_layers(root: str, key: str) -> pd.DataFrame:
    """Return a table of the median drift and the rank correlation of every layer."""
    return drift.drift_by_layer(_load(root, "drift", key, records.RankDrift))


@lru_cache(64)
def drift_top(root: str, key: str, primary: str, auxiliary: str, count: int) -> pd.DataFrame:
    """Return a table of the neurons whose rank shifts most."""
    first, second = (_load(root, "scores", scores, records.UnitScores) for scores in (primary, auxiliary))
    return drift.top_drifting(_load(root, "drift", key, records.RankDrift), first, second, count)


@lru_cache(128)
def decision_bins(root: str, drift_key: str, partition: str, gprune: str, base: str, bins: int) -> decisions.Bins:
    """Return the decisions of two methods by drift bin (Fig. 3); `gprune` and `base` are the keys of their masks."""
    first, second = (_load(root, "masks", key, records.PruningMasks) for key in (gprune, base))
    magnitude = _load(root, "drift", drift_key, records.RankDrift).magnitude
    return decisions.compare(magnitude, _load(root, "partition", partition, records.Partition), first, second, bins)


@lru_cache(128)
def module_scores(root: str, primary: str, partition: str, scale: str) -> Array:
    """Return the (modules,) mean scores on the primary text, raw or standardized as `scale` says."""
    scores = _load(root, "scores", primary, records.UnitScores).ffn
    return rasa.mean_scores(scores, _load(root, "partition", partition, records.Partition), scale)


def preview(run: Run, settings: ReliabilitySettings) -> thresholds.Decision:
    """Return the decision of RASA under other settings, computed in this process.

    Raises MissingResultError if scores, modules or their statistics are missing.
    """

    def mean_scores(scale: str) -> Array:
        keys = run.key(stages.scores, "primary"), run.key(stages.partition)
        return module_scores(run.root, *keys, scale)

    return thresholds.reliability_decision(run, settings, mean_scores)


def masks_of(run: Run, choice: whatif.LabChoice) -> PruningMasks:
    """Return the masks of a choice, composed from the run's thresholds and cached.

    Raises MissingResultError if the run lacks a result that GPrune's masks need, MethodError if the
    masks of the method cannot be computed here (see `whatif.obstacle`), SettingsError if the retention is below that of
    the minimum widths of the layers.
    """
    if choice.method != "gprune":
        # the decisions of a run's baselines depend on these inputs
        inputs = f"{run.root} {run.study.to_json()} {run.graph.inputs!r}"
        return _compute_baseline_masks(RunResults((inputs,), run), choice)
    keys = [run.root, *(run.key(stages.scores, text) for text in stages.PAIR)]
    keys += [run.key(stages.partition), run.key(stages.modules), run.key(stages.learning)]
    keys += [str(run.study.sparsity.alignment), str(run.study.seed)]
    return _compute_gprune_masks(RunResults(tuple(keys), run), choice)


def masks_of_text(run: Run, method: str, text: str) -> PruningMasks:
    """Return the masks of a method at the run's retention, decided by the scores of one text.

    `text` is `whatif.PRIMARY` or `whatif.AUXILIARY`. Raises the errors of `masks_of`.
    """
    return masks_of(run, whatif.LabChoice(method, run.study.retention, text, run.study.reliability))


@lru_cache(64)
def _compute_gprune_masks(results: RunResults, choice: whatif.LabChoice) -> PruningMasks:
    base = _prepare(results)
    if choice.scoring == whatif.ADAPTED:
        source = preview(results.run, choice.settings)[1].source
    else:
        source = whatif.uniform_source(base, choice.scoring)
    return whatif.shifted_masks(base, source, choice.retention)


@lru_cache(4)
def _prepare(results: RunResults) -> whatif.Prepared:
    return whatif.prepare_run(results.run)


@lru_cache(64)
def _compute_baseline_masks(inputs: RunResults, choice: whatif.LabChoice) -> PruningMasks:
    adapted: Any = None
    if choice.scoring == whatif.ADAPTED:
        adapted = preview(inputs.run, choice.settings)[1].scores
    return whatif.decide(inputs.run.results, choice.method, choice.retention, choice.scoring, adapted)


def measured_pairs(run: Run) -> list[tuple[str, str]]:
    """Return the pairs of method and text that have a perplexity in a run."""
    pairs = itertools.product(run.study.methods, run.study.evaluation.texts)
    return [(method, text) for method, text in pairs if run.has(stages.perplexity, method, text)]


# a run is opened anew for each drawing of a page
@lru_cache(32)
def measurements(run: Run) -> list[Measurement]:
    """Return every measured perplexity of a run. Raises StoreError if a result is damaged."""
    masks, pairs = run.masks(), measured_pairs(run)
    # the size of a method is the same for all texts
    sizes = {method: _model_size(run, method, masks) for method in dict.fromkeys(method for method, _ in pairs)}
    return [
        measurement(run, method, text, stages.perplexity(run.graph, method, text), *sizes[method])
        for method, text in pairs
    ]


def measurement(
    run: Run, method: str, text: str, stage: Stage[records.Perplexity], retention: float, parameters: int
) -> Measurement:
    """Return a perplexity of a method with its size and protocol, for comparisons.

    `retention` is that of the prunable weights, NaN if unknown; `parameters` are those of the whole model, 0 if
    unknown. Raises MissingResultError if the result is not there, StoreError if it is damaged.
    """
    value, inputs, study = run.read(stage), run.graph.inputs, run.study
    details, digest = run.results.details(stage), inputs.evaluation.get(text)
    return Measurement(
        run=run.name,
        method=method,
        text=text,
        perplexity=value.perplexity,
        standard_error=value.standard_error,
        windows=value.windows,
        length=value.length,
        retention=retention,
        parameters=parameters,
        model=inputs.model or study.model,
        # together with the length, this determines the tokens of the windows; empty if it is not recorded
        content=f"{inputs.tokenizer}:{digest}" if digest else "",
        losses=value.losses,
        stamp=protocol.of_perplexity(value, details, inputs.precision, study.evaluation.windows),
    )


def unavailable(run: Run) -> dict[str, str]:
    """Return, by method, why its masks or repair could not be computed, unless another run has computed them since."""
    reasons = {str(entry.get("key")): str(entry["reason"]) for entry in run.unavailable.values()}
    reasons_by_method = {}
    for name in run.masks_of:
        needed = stages.every_need(stages.model_inputs(run.graph, name))
        failed = [stage for stage in needed if stage.key in reasons and not run.has_result(stage)]
        if failed:
            reasons_by_method[name] = reasons[failed[0].key]
    return reasons_by_method


def _model_size(run: Run, method: str, masks: dict[str, Any]) -> tuple[float, int]:
    """Return the retained fraction of the prunable weights, or NaN, and the parameters of the model; 0 if unknown."""
    sizes: Any = run.find(stages.expert_shape) if run.study.prunes_experts else run.size
    if method == comparison.DENSE:
        return 1.0, sizes.parameters if sizes else 0
    method_masks = masks.get(run.masks_of[method])
    if method_masks is None:
        return float("nan"), 0
    if isinstance(method_masks, ExpertMasks):
        return method_masks.retention, sizes.pruned_parameters(method_masks.count) if sizes else 0
    shape = run.shape
    if shape is None or sizes is None:
        return method_masks.retention, 0
    pruned = records.PrunedModel(method_masks, stages.applied_repairs(run.results, method))
    return method_masks.retention, pruned.parameters(shape, sizes)


def ablation_effects(run: Run) -> AblationEffect:
    """Return the effect of each part of GPrune on the masks of a run.

    Raises MissingResultError if a result is not computed yet, StoreError if a result is damaged.
    """
    run.require(ablation_effect.has_results(run.results), stages.masks)
    keys = (run.root, run.key(stages.masks), run.key(stages.adapted_scores), run.key(stages.drift))
    return _compute_effects(RunResults(keys, run))


@lru_cache(64)
def _compute_effects(results: RunResults) -> AblationEffect:
    return ablation_effect.diagnose(results.run.results)


def seed_sentence(record: records.Agreement) -> str:
    """Return a sentence if modules agree less with another k-means seed than with another text, else an empty text."""
    mean_agreement, (other_seed, start) = agreement.mean_substitution(record), agreement.controls(record)
    if mean_agreement is None or other_seed is None or other_seed >= mean_agreement[0]:
        return ""
    share = "Most" if other_seed < mean_agreement[0] / 2 else "Part"
    alone = "" if start is None else f", and the initialization alone agrees at {start:.2f} under the shared seed"
    return (
        f"{share} of the agreement comes from the shared k-means seed: with another seed on the same texts, the "
        f"modules agree at only {other_seed:.2f}{alone}."
    )


def default_baseline(run: Run, names: Sequence[str]) -> str:
    """Return the method of the run's own metric if it is among `names`, else the first of them."""
    method = own_method(run.study.metric)
    return method if method in names else names[0]


def budget_warning(run: Run, method: str, base: str) -> str:
    """Return a sentence if two masks keep different shares of the decoder's weights, else an empty text."""
    first, second = (run.load(stages.masks, name).retention for name in (method, base))
    if abs(first - second) <= BUDGET_TOLERANCE:
        return ""
    return (
        f"The budgets differ: {escape(label(method))} keeps {percent(first, 2)} of the decoder's weights, "
        f"{escape(label(base))} {percent(second, 2)}. This explains part of the differences."
    )
