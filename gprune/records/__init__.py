"""The vocabulary of results: frozen records that pass from one stage to the next.

Every record holds read-only numpy arrays and plain values, nothing else, so that any of them can be
stored, hashed, drawn and compared. Axis words are the same everywhere: layers, neurons, heads
(key/value groups where stated), channels, shards, samples, modules, contexts, units.

A *unit* is what pruning removes whole: an FFN neuron (one row of gate_proj and up_proj with one column
of down_proj) or a key/value group (one key/value head with all its query heads).
They are loaded when the first is asked for: the names of repairs, which a study needs, take no numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gprune.records.answers import Answers, Questions
    from gprune.records.base import Array
    from gprune.records.calibration import (
        ActivationStatistics,
        SampledText,
        StrongestPositions,
        Tokens,
        merge_moments,
        pool,
    )
    from gprune.records.choice import CandidateFigures, Choice
    from gprune.records.contexts import Contexts, ContextStatistics, pool_contexts
    from gprune.records.decisions import (
        GateLearning,
        LearnedScales,
        Learning,
        PruningMasks,
        RecoveredWeights,
        RepairedWeights,
    )
    from gprune.records.evaluation import Accuracy, Perplexity, TextOverlap, Throughput
    from gprune.records.model import ModelShape, ModelSize, WeightFacts, WeightNorms
    from gprune.records.modules import (
        AdaptedScores,
        Agreement,
        ModuleStatistics,
        Partition,
        PartitionAgreement,
    )
    from gprune.records.repairs import REPAIRS, PrunedModel, Repair
    from gprune.records.scores import Components, NeuronMap, RankDrift, UnitScores

__all__ = [
    "Accuracy",
    "ActivationStatistics",
    "AdaptedScores",
    "Agreement",
    "Answers",
    "Array",
    "CandidateFigures",
    "Choice",
    "Components",
    "ContextStatistics",
    "Contexts",
    "GateLearning",
    "LearnedScales",
    "Learning",
    "ModelShape",
    "ModelSize",
    "ModuleStatistics",
    "NeuronMap",
    "Partition",
    "PartitionAgreement",
    "Perplexity",
    "PrunedModel",
    "PruningMasks",
    "Questions",
    "REPAIRS",
    "RankDrift",
    "RecoveredWeights",
    "Repair",
    "RepairedWeights",
    "SampledText",
    "StrongestPositions",
    "TextOverlap",
    "Throughput",
    "Tokens",
    "UnitScores",
    "WeightFacts",
    "WeightNorms",
    "merge_moments",
    "pool",
    "pool_contexts",
]
_PARTS = "answers base calibration choice contexts decisions evaluation model modules repairs scores"


def __getattr__(name: str) -> Any:
    """A record, or what makes one: all of them are loaded with the first."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for part in _PARTS.split():
        members = vars(import_module(f"{__name__}.{part}"))
        globals().update({public: members[public] for public in __all__ if public in members})
    return globals()[name]
