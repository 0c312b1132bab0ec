"""Measure the effect of each part of the method on the masks of a run.

The measures are the share of the rank drift's variance that the modules explain, the share of neuron decisions that
each part changes, and the share of modules below RASA's score threshold in each layer. A part with almost no effect
cannot explain a gain.

No model is run and nothing is trained. One part at a time is removed from the run's decision. Without RASA, all modules
are scored from A; without MSL, thresholds keep their initial values; without BCM, each layer has one ranking. In the
first two cases, thresholds are then shifted to meet the retention; in the last, layers keep their widths.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gprune.analysis import whatif
from gprune.analysis.decisions import share_changed
from gprune.pipeline import stages
from gprune.pipeline.stages import Results
from gprune.pruning.ranking import module_means
from gprune.pruning.sparsity.rounding import exact_masks
from gprune.records import Array, Partition


def has_results(results: Results) -> bool:
    """Return True if a run has all results that `diagnose` reads."""
    texts = all(results.has(stages.scores, text) for text in stages.PAIR)
    kinds = (stages.shape, stages.drift, stages.modules, stages.adapted_scores, stages.learning, stages.masks)
    return texts and results.has(stages.partition) and all(results.has(kind) for kind in kinds)


def diagnose(results: Results) -> AblationEffect:
    """Return the effect of modules, score adaptation and learning in a run for which `has_results` is True."""
    partition, adapted = results.get(stages.partition), results.get(stages.adapted_scores)
    mask, drift = results.get(stages.masks).ffn, results.get(stages.drift).magnitude
    start = None
    if results.has(stages.partition, kind="initialization"):
        start = results.get(stages.partition, kind="initialization")
    return AblationEffect(
        drift_explained=explained_share(drift, partition, start),
        decisions_changed={
            "BCM": share_changed(mask, keep_highest_per_layer(adapted.scores, mask)),
            **_share_changed_without(results, mask, adapted.source),
        },
    )


def _share_changed_without(results: Results, mask: Array, source: Array) -> dict[str, float]:
    """Return the share of neuron decisions that change without RASA, and without learned thresholds (MSL).

    `mask` is GPrune's (layers, neurons) mask and `source` the text of each module, as in `AdaptedScores.source`.
    """
    study = results.graph.study
    primary, auxiliary = (results.get(stages.scores, text) for text in stages.PAIR)
    width_settings, target = (study.sparsity.alignment, study.sparsity.equal), study.retention
    partition, learning = results.get(stages.partition), results.get(stages.learning)
    base = whatif.prepare(results.get(stages.shape), primary, auxiliary, partition, learning, *width_settings)
    unadapted = whatif.shifted_masks(base, whatif.uniform_source(base, whatif.PRIMARY), target).ffn
    units = whatif.rank_units(base, source)
    # before learning, every threshold is 1 minus the retention
    unlearned = exact_masks(units, np.full(units.thresholds, 1 - target), target, *width_settings).masks.ffn
    return {"RASA": share_changed(mask, unadapted), "MSL": share_changed(mask, unlearned)}


MIN_CHANGED_SHARE = 0.02
"""minimum share of changed decisions for a part to explain a gain"""
PARTS = {
    "BCM": "ranking within modules instead of within layers",
    "RASA": "scoring unreliable modules from the other text",
    "MSL": "learning a threshold for each module",
}
"""description of each part"""


@dataclass(frozen=True, slots=True)
class Explained:
    """Share of the within-layer variance of the rank drift that lies between modules, in [0, 1].

    It is NaN if the drift is constant within every layer.
    """

    modules: float
    """share for the modules of the run"""
    random: float
    """expected share for random modules of the same sizes"""
    initialization: float | None = None
    """share for the modules before refinement, or None if not available"""


@dataclass(frozen=True, slots=True)
class AblationEffect:
    """The effect of each part of the method on the masks of one run."""

    drift_explained: Explained
    decisions_changed: Mapping[str, float]
    """share of all neurons whose decision changes if a part is removed, by part"""


def explained_share(drift: Array, partition: Partition, start: Partition | None = None) -> Explained:
    """Return the share of the within-layer variance of drift that lies between modules, and its reference values.

    Args:
        drift: (layers, neurons) rank drift.
        partition: modules of the run.
        start: modules before refinement, if available.
    """
    centred = np.asarray(drift, dtype=np.float64)
    centred = centred - centred.mean(axis=1, keepdims=True)
    layer_squares = (centred**2).sum(axis=1)
    # (K - 1) / (N - 1) for K modules of N neurons is the exact mean share over all permutations of the labels
    random_shares = (partition.counts - 1) / max(centred.shape[1] - 1, 1)
    squares = layer_squares.sum()
    random = float(layer_squares @ random_shares / squares) if squares > 0 else float("nan")
    share = _explained_fraction(centred, partition)
    return Explained(share, random, None if start is None else _explained_fraction(centred, start))


def _explained_fraction(centred: Array, partition: Partition) -> float:
    """Return the fraction of variance that the module means explain, or NaN if all values are 0.

    `centred` is (layers, neurons) with the mean of each layer removed.
    """
    labels = partition.global_labels.ravel()
    means = module_means(centred.ravel(), labels, partition.modules)[labels]
    squares = (centred**2).sum()
    return float((means**2).sum() / squares) if squares > 0 else float("nan")


def keep_highest_per_layer(scores: Array, mask: Array) -> Array:
    """Return a (layers, neurons) bool mask of the highest scores that keeps as many neurons in each layer as `mask`."""
    order = np.argsort(-np.asarray(scores), axis=1, kind="stable")
    keep = np.zeros(np.shape(mask), dtype=bool)
    np.put_along_axis(keep, order, np.arange(order.shape[1]) < mask.sum(axis=1)[:, None], axis=1)
    return keep


def shares_by_modules(shares: Explained) -> dict[str, float]:
    """Return the explained shares by label of the modules; initial modules are included if available."""
    start = {} if shares.initialization is None else {"before refinement": shares.initialization}
    return {"modules of the run": shares.modules, **start, "random modules": shares.random}


def effect_table(effect: AblationEffect) -> pd.DataFrame:
    """Return a table with one row per part: its description and the percentage of changed decisions."""
    changes = effect.decisions_changed.items()
    rows = [{"part": part, "does": PARTS[part], "decisions changed (%)": 100 * share} for part, share in changes]
    return pd.DataFrame(rows)


def explained_table(shares: Explained) -> pd.DataFrame:
    """Return a table with one row per kind of modules: the percentage of explained drift variance."""
    rows = [{"modules": name, "drift explained (%)": 100 * share} for name, share in shares_by_modules(shares).items()]
    return pd.DataFrame(rows)
