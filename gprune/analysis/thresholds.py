"""Count the modules and neurons that RASA adapts under other thresholds (section 3.2).

The rule itself is `gprune.pruning.rasa.adapt`. While a user drags a threshold line, the browser counts with the same
rule (`counting.js` of the page).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from gprune.analysis import whatif
from gprune.pipeline import stages
from gprune.pruning.rasa import adapt, mean_scores
from gprune.records import AdaptedScores, Array, ModuleStatistics
from gprune.study import ReliabilitySettings

UNCHANGED, FROM_PRIMARY, FROM_AUXILIARY = 0, 1, 2
"""values of `groups`: not adapted, adapted and scored from A, adapted and scored from B"""
OUTCOMES = ("unchanged", "adapted, not re-scored", "adapted, re-scored")
"""label of each value of `groups`"""


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of modules and neurons that a pair of thresholds affects."""

    modules: int
    """number of all modules"""
    adapted: int
    """adapted modules"""
    neurons: int
    """neurons in adapted modules"""
    all_neurons: int
    """number of all neurons"""
    from_primary: int
    """adapted modules scored from A"""
    from_auxiliary: int
    """adapted modules scored from B"""
    rescored: int
    """neurons with a score from B"""


class Decision(NamedTuple):
    """Decision of RASA under some settings."""

    statistics: ModuleStatistics
    """drift, score, size and repeatability of each module under these settings"""
    adapted: AdaptedScores
    """adapted scores and both thresholds"""

    @property
    def counts(self) -> Counts:
        """Return the numbers of affected modules and neurons."""
        return count(self.statistics, self.adapted)


def reliability_decision(
    run: whatif.Loads, settings: ReliabilitySettings, mean_scores_at: Callable[[str], Array] | None = None
) -> Decision:
    """Return RASA's decision under other settings than those of the run.

    `mean_scores_at` returns the (modules,) mean primary scores for a score scale other than the run's, for example from
    a cache; by default they are computed here. Raises StoreError if a result is missing or damaged.
    """
    primary, auxiliary = (run.load(stages.scores, text) for text in stages.PAIR)
    partition, statistics = run.load(stages.partition), run.load(stages.modules)
    scale = settings.score_scale
    if scale != run.study.reliability.score_scale:
        score = mean_scores_at(scale) if mean_scores_at else mean_scores(primary.ffn, partition, scale)
        statistics = replace(statistics, score=score)
    return Decision(statistics, adapt(primary, auxiliary, partition, statistics, settings, run.study.seed))


def groups(adapted: AdaptedScores) -> Array:
    """Return the group of each module, (modules,) int64: UNCHANGED, FROM_PRIMARY or FROM_AUXILIARY."""
    # `source` is 0 for A and 1 for B
    return adapted.adapted.astype(np.int64) * (1 + adapted.source.astype(np.int64))


def count(statistics: ModuleStatistics, adapted: AdaptedScores) -> Counts:
    """Count the modules and neurons that RASA adapts, by the text of their scores."""
    group, size = groups(adapted), statistics.size
    return Counts(
        modules=len(size),
        adapted=int((group != UNCHANGED).sum()),
        neurons=int(size[group != UNCHANGED].sum()),
        all_neurons=int(size.sum()),
        from_primary=int((group == FROM_PRIMARY).sum()),
        from_auxiliary=int((group == FROM_AUXILIARY).sum()),
        rescored=int(size[group == FROM_AUXILIARY].sum()),
    )


def describe_rule(settings: ReliabilitySettings) -> str:
    """Describe the settings in short: `γ_drift 0.90, γ_score 0.85`, then settings that differ from the paper's."""
    if settings.selection == "none":
        return "no adaptation"
    drift, score = _format_quantile(settings.drift_quantile), _format_quantile(settings.score_quantile)
    clauses = [f"γ_drift {drift}" if settings.selection == "drift" else f"γ_drift {drift}, γ_score {score}"]
    if settings.selection != "drift_and_score":
        clauses.append({"drift": "drift only", "random": "random modules"}[settings.selection])
    if settings.score_scale != "raw" and settings.selection != "drift":
        clauses.append(settings.score_scale)
    if settings.source != "repeatability":
        clauses.append("random text")
    return " ".join(clauses)


def _format_quantile(quantile: float) -> str:
    """Format a number with two decimals, or with three if the third is not 0."""
    return f"{quantile:.3f}".removesuffix("0")


def overlap(first: Array, second: Array) -> float:
    """Return the Jaccard index of two sets of modules, (modules,) bool; 1 if both are empty."""
    union = int((first | second).sum())
    return float((first & second).sum() / union) if union else 1.0


def labels_within_layer(layer: Array) -> Array:
    """Return the (modules,) label of each module within its layer; `layer` is (modules,), ascending."""
    starts = np.searchsorted(layer, layer, side="left")
    return np.arange(len(layer)) - starts


def decision_table(statistics: ModuleStatistics, adapted: AdaptedScores) -> pd.DataFrame:
    """Return a table of all modules with their statistics and RASA's decision.

    Re-scored modules are first, then other adapted modules, then unchanged ones.
    """
    group = groups(adapted)
    frame = pd.DataFrame(
        {
            "layer": statistics.layer,
            "module": labels_within_layer(statistics.layer),
            "neurons": statistics.size,
            "within-module drift": statistics.drift,
            "mean primary score": statistics.score,
            "u on A": statistics.u_primary,
            "u on B": statistics.u_auxiliary,
            "decision": np.array(OUTCOMES)[group],
        }
    )
    return frame.iloc[np.lexsort((np.arange(len(group)), -group))].reset_index(drop=True)
