"""The effect of each part of the method on the decisions of a run.

How much of the rank drift the modules explain, how many decisions each part changes, and on which layers the
score line of RASA can fall. A part that acts on next to nothing cannot be what a gain comes from.

No model is run and nothing is learned. The parts are taken away one at a time from the run's own decision:
RASA by scoring all modules from A, MSL by thresholds that are all as they started, BCM by one ranking a
layer. All else stays, and the common shift meets the retention again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gprune.analysis import whatif
from gprune.analysis.resampling import share_changed
from gprune.pipeline import stages
from gprune.pipeline.stages import Results
from gprune.pruning.ranking import module_means
from gprune.pruning.sparsity.rounding import exact_masks
from gprune.records import AdaptedScores, Array, ModuleStatistics, Partition


def ready(results: Results) -> bool:
    """Return True if a study has all results that `diagnose` reads."""
    texts = all(results.has(stages.scores, text) for text in stages.PAIR)
    kinds = (stages.shape, stages.drift, stages.modules, stages.adapted_scores, stages.learning, stages.masks)
    return texts and results.has(stages.partition) and all(results.has(kind) for kind in kinds)


def diagnose(results: Results) -> AblationEffect:
    """Return the effect of modules, adaptation and learning in a study whose GPrune has pruned; see `ready`."""
    partition, adapted = results.get(stages.partition), results.get(stages.adapted_scores)
    mask, drift = results.get(stages.masks).ffn, results.get(stages.drift).magnitude
    start = None
    if results.has(stages.partition, kind="initialization"):
        start = results.get(stages.partition, kind="initialization")
    return AblationEffect(
        drift_explained=explained_share(drift, partition, start),
        decisions_changed={
            "BCM": share_changed(mask, within_layers(adapted.scores, mask)),
            **_without(results, mask, adapted.source),
        },
        kept=tuple(mask.mean(axis=1).tolist()),
        below_score_line=below_line(results.get(stages.modules), adapted, len(mask)),
    )


def _without(results: Results, mask: Array, source: Array) -> dict[str, float]:
    """Return the shares of decisions that change without RASA, and without learned thresholds."""
    study = results.graph.study
    primary, auxiliary = (results.get(stages.scores, text) for text in stages.PAIR)
    widths, target = (study.sparsity.alignment, study.sparsity.equal), study.retention
    partition, learning = results.get(stages.partition), results.get(stages.learning)
    base = whatif.prepare(results.get(stages.shape), primary, auxiliary, partition, learning, *widths)
    unadapted = whatif.shifted_masks(base, whatif.uniform_source(base, whatif.PRIMARY), target).ffn
    units = whatif.rank_units(base, source)
    unlearned = exact_masks(units, np.full(units.thresholds, 1 - target), target, *widths).masks.ffn
    return {"RASA": share_changed(mask, unadapted), "MSL": share_changed(mask, unlearned)}


LEAST = 0.02
"""share of the decisions below which no gain is credited to a part"""
PARTS = {
    "BCM": "ranking within modules and not within layers",
    "RASA": "scoring unreliable modules from the other text",
    "MSL": "learning a threshold for each module",
}
"""what each part does, in words"""


@dataclass(frozen=True, slots=True)
class Explained:
    """Shares of the variance of d within layers that lie between modules, in [0, 1]; NaN if d is constant."""

    modules: float
    """of the modules that the run ranks in"""
    random: float
    """expected of random modules of the same sizes"""
    initialization: float | None = None
    """of the modules before their refinement, or None if they are not there"""


@dataclass(frozen=True, slots=True)
class AblationEffect:
    """The effect of the parts of one run."""

    drift_explained: Explained
    decisions_changed: Mapping[str, float]
    """share of all neurons that would be decided otherwise without a part, by part"""
    kept: tuple[float, ...]
    """share of the neurons of each layer that is kept"""
    below_score_line: tuple[float, ...]
    """share of the modules of each layer whose score is at or below RASA's line"""


def explained_share(drift: Array, partition: Partition, start: Partition | None = None) -> Explained:
    """Return the share of the (layers, neurons) drift d that the modules explain, and `start`, their initialization."""
    centred = np.asarray(drift, dtype=np.float64)
    centred = centred - centred.mean(axis=1, keepdims=True)
    total = (centred**2).sum(axis=1)
    # this is the exact mean share over all permutations of the labels
    chance = (partition.counts - 1) / max(centred.shape[1] - 1, 1)
    variance = total.sum()
    random = float(total @ chance / variance) if variance > 0 else float("nan")
    share = _between(centred, partition)
    return Explained(share, random, None if start is None else _between(centred, start))


def _between(centred: Array, partition: Partition) -> float:
    """Return the share of the squared centred values that lies between the modules' means."""
    labels = partition.global_labels.ravel()
    means = module_means(centred.ravel(), labels, partition.modules)[labels]
    squares = (centred**2).sum()
    return float((means**2).sum() / squares) if squares > 0 else float("nan")


def below_line(statistics: ModuleStatistics, adapted: AdaptedScores, layers: int) -> tuple[float, ...]:
    """Return the share of each layer's modules whose score is at or below RASA's threshold."""
    below = (statistics.score <= adapted.score_threshold).astype(np.float64)
    shares: Array = module_means(below, statistics.layer, layers)
    return tuple(shares.tolist())


def within_layers(scores: Array, mask: Array) -> Array:
    """Return (layers, neurons) bool that keeps as many neurons a layer, ranked within the layer."""
    order = np.argsort(-np.asarray(scores), axis=1, kind="stable")
    keep = np.zeros(np.shape(mask), dtype=bool)
    np.put_along_axis(keep, order, np.arange(order.shape[1]) < mask.sum(axis=1)[:, None], axis=1)
    return keep


def kinds(shares: Explained) -> dict[str, float]:
    """Return the shares by the label of the modules; the initialization only if it exists."""
    start = {} if shares.initialization is None else {"before refinement": shares.initialization}
    return {"modules of the run": shares.modules, **start, "random modules": shares.random}


def effect_table(effect: AblationEffect) -> pd.DataFrame:
    """Return one row a part: what it does, and the percentage of decisions that it changes."""
    changes = effect.decisions_changed.items()
    rows = [{"part": part, "does": PARTS[part], "decisions changed (%)": 100 * share} for part, share in changes]
    return pd.DataFrame(rows)


def explained_table(shares: Explained) -> pd.DataFrame:
    """Return one row a kind of modules: the percentage of the drift's variance between them."""
    rows = [{"modules": name, "drift explained (%)": 100 * share} for name, share in kinds(shares).items()]
    return pd.DataFrame(rows)
