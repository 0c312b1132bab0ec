"""Records: frozen dataclasses for the inputs and results of the stages.

A record has only read-only numpy arrays and plain values, so that it can be stored, hashed and compared. Names of axes
are the same everywhere: layers, neurons, heads (key/value groups if stated), channels, shards, samples, modules,
contexts, units.

A *unit* is the smallest structure that pruning removes: an FFN neuron (one row of gate_proj and up_proj with one column
of down_proj) or a key/value group (one key/value head with all its query heads).

Records are imported on first access, because a study needs only the names of repairs, which do not need numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gprune.records.answers import Answers as Answers
    from gprune.records.answers import GeneratedAnswers as GeneratedAnswers
    from gprune.records.answers import Questions as Questions
    from gprune.records.base import Array as Array
    from gprune.records.calibration import ActivationStatistics as ActivationStatistics
    from gprune.records.calibration import SampledText as SampledText
    from gprune.records.calibration import StrongestPositions as StrongestPositions
    from gprune.records.calibration import Tokens as Tokens
    from gprune.records.calibration import merge_moments as merge_moments
    from gprune.records.calibration import pool as pool
    from gprune.records.choice import CandidateFigures as CandidateFigures
    from gprune.records.choice import Choice as Choice
    from gprune.records.contexts import Contexts as Contexts
    from gprune.records.contexts import ContextStatistics as ContextStatistics
    from gprune.records.contexts import pool_contexts as pool_contexts
    from gprune.records.decisions import GateLearning as GateLearning
    from gprune.records.decisions import LearnedScales as LearnedScales
    from gprune.records.decisions import Learning as Learning
    from gprune.records.decisions import PruningMasks as PruningMasks
    from gprune.records.decisions import RecoveredWeights as RecoveredWeights
    from gprune.records.decisions import RepairedWeights as RepairedWeights
    from gprune.records.evaluation import Accuracy as Accuracy
    from gprune.records.evaluation import Perplexity as Perplexity
    from gprune.records.evaluation import TextOverlap as TextOverlap
    from gprune.records.evaluation import Throughput as Throughput
    from gprune.records.model import ModelShape as ModelShape
    from gprune.records.model import ModelSize as ModelSize
    from gprune.records.model import WeightFacts as WeightFacts
    from gprune.records.model import WeightNorms as WeightNorms
    from gprune.records.modules import AdaptedScores as AdaptedScores
    from gprune.records.modules import Agreement as Agreement
    from gprune.records.modules import ModuleStatistics as ModuleStatistics
    from gprune.records.modules import Partition as Partition
    from gprune.records.modules import PartitionAgreement as PartitionAgreement
    from gprune.records.repairs import REPAIRS as REPAIRS
    from gprune.records.repairs import PrunedModel as PrunedModel
    from gprune.records.repairs import Repair as Repair
    from gprune.records.scores import Components as Components
    from gprune.records.scores import NeuronMap as NeuronMap
    from gprune.records.scores import RankDrift as RankDrift
    from gprune.records.scores import UnitScores as UnitScores

_PARTS = "answers base calibration choice contexts decisions evaluation model modules repairs scores"


def __getattr__(name: str) -> Any:
    """Import all modules of this package on the first access to one of their names."""
    modules = [import_module(f"{__name__}.{part}") for part in _PARTS.split()] if name[0] != "_" else []
    for module in modules:
        if name in vars(module):
            globals()[name] = vars(module)[name]
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
