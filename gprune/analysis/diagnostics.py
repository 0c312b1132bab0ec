"""What the parts of a finished run do, read from its results: no model is run and nothing is learned.

The parts are taken away one at a time from the run's own decision: RASA by scoring all modules from A, MSL
by thresholds that are all as they started, BCM by one ranking a layer. All else stays, and the common shift
meets the retention again.
"""

from __future__ import annotations

import numpy as np

from gprune.analysis import whatif
from gprune.analysis.ablation_effect import AblationEffect, below_line, changed, explained, within_layers
from gprune.pipeline import stages
from gprune.pipeline.stages import Results
from gprune.pruning.sparsity.rounding import exact_masks
from gprune.records import Array


def ready(results: Results) -> bool:
    """Whether everything is there that `diagnose` reads."""
    texts = all(results.has(stages.scores, text) for text in stages.PAIR)
    kinds = (stages.shape, stages.drift, stages.modules, stages.adapted, stages.learning, stages.masks)
    return texts and results.has(stages.partition) and all(results.has(kind) for kind in kinds)


def diagnose(results: Results) -> AblationEffect:
    """What modules, adaptation and learning do in a study whose GPrune has pruned.

    Args:
        results: what is there of the study, see `ready`.
    """
    partition, adapted = results.get(stages.partition), results.get(stages.adapted)
    kept, drift = results.get(stages.masks).ffn, results.get(stages.drift).magnitude
    start = None
    if results.has(stages.partition, kind="initialization"):
        start = results.get(stages.partition, kind="initialization")
    return AblationEffect(
        drift_explained=explained(drift, partition, start),
        decisions_changed={
            "BCM": changed(kept, within_layers(adapted.scores, kept)),
            **_without(results, kept, adapted.source),
        },
        kept=tuple(kept.mean(axis=1).tolist()),
        below_score_line=below_line(results.get(stages.modules), adapted, len(kept)),
    )


def _without(results: Results, kept: Array, source: Array) -> dict[str, float]:
    """Shares of the decisions that change without RASA, and without what was learned."""
    study = results.graph.study
    primary, auxiliary = (results.get(stages.scores, text) for text in stages.PAIR)
    alignment, target = study.sparsity.alignment, study.retention
    partition, learned = results.get(stages.partition), results.get(stages.learning)
    base = whatif.prepare(results.get(stages.shape), primary, auxiliary, partition, learned, alignment)
    unadapted = whatif.relocated(base, whatif.whole(base, whatif.PRIMARY), target).ffn
    units = whatif.ranked(base, source)
    unlearned = exact_masks(units, np.full(units.thresholds, 1 - target), target, alignment).masks.ffn
    return {"RASA": changed(kept, unadapted), "MSL": changed(kept, unlearned)}
