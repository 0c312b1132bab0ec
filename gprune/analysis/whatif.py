"""Compute masks for other RASA thresholds, retentions and texts from the stored results of a run.

Nothing is trained and no model is run. The learned thresholds of GPrune are shifted together until the masks meet the
target, as at the end of training; baselines decide from stored scores. A module is scored from A or from B. The ranks
under both texts are therefore computed once, and each setting only needs another shift. With the settings and the
retention of the run, the result is the masks of the run.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar

import numpy as np

from gprune.pipeline import stages
from gprune.pipeline.stages import Graph, Results, Stage, is_plugin_score
from gprune.pipeline.stages.results import Declaration
from gprune.pruning.ranking import GroupedRanks
from gprune.pruning.sparsity.rounding import RankedUnits, exact_masks, quantiles, require_reachable
from gprune.records import Array, Learning, ModelShape, Partition, PruningMasks, UnitScores
from gprune.study import ReliabilitySettings, Study
from gprune.study.methods import METHODS, SCORINGS
from gprune.system.errors import MethodError

P = ParamSpec("P")
R = TypeVar("R")

PRIMARY, AUXILIARY, ADAPTED = "primary", "auxiliary", "adapted"
TEXTS = {PRIMARY: "A", AUXILIARY: "B", ADAPTED: "A and B, adapted"}
"""text of the scores: primary, auxiliary, or RASA's choice for each module"""


@dataclass(frozen=True, slots=True)
class LabChoice:
    """Settings of the masks that a user tries out on the page *Tune*."""

    method: str
    """name in METHODS"""
    retention: float
    """fraction of the decoder's linear weights to keep, in (0, 1)"""
    scoring: str
    """text of the scores, one of TEXTS"""
    settings: ReliabilitySettings
    """settings of RASA; used only if `scoring` is adapted"""


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """Ranked units of a run on both texts, from which the masks of every RASA setting are computed."""

    units: RankedUnits
    """all units, ranked on A"""
    auxiliary: Array
    """(layers * neurons,) float32 quantile of the rank of each neuron in its module, on B"""
    thresholds: Array
    """(thresholds,) float64 learned thresholds of the run"""
    alignment: int
    """`sparsity.alignment` of the run"""
    equal: bool
    """whether all layers of the run keep the same number of units"""


def prepare(
    shape: ModelShape,
    primary: UnitScores,
    auxiliary: UnitScores,
    partition: Partition,
    learning: Learning,
    alignment: int = 1,
    equal: bool = False,
) -> Prepared:
    """Rank the units of a run on both texts.

    `primary` and `auxiliary` are the scores on A and B; the other arguments are results and settings of the run.
    """
    units = RankedUnits.build(shape, primary.ffn, primary.heads, partition)
    auxiliary_quantiles = quantiles(GroupedRanks(partition.global_labels.ravel()), auxiliary.ffn)
    thresholds = np.concatenate([learning.thresholds, learning.head_thresholds])
    return Prepared(units, auxiliary_quantiles, thresholds, alignment, equal)


class Loads(Protocol):
    """Protocol of a run that loads a result, given the function that declares its stage, such as `stages.masks`."""

    @property
    def study(self) -> Study:
        """Return the settings of the run."""
        ...

    def load(self, declare: Declaration[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Return a record: `run.load(stages.masks, "flap")`."""
        ...


def prepare_run(run: Loads) -> Prepared:
    """Rank the units of a run on both texts; see `prepare`. Raises StoreError if a result is missing or damaged."""
    primary, auxiliary = (run.load(stages.scores, text) for text in stages.PAIR)
    partition, learning = run.load(stages.partition), run.load(stages.learning)
    widths = run.study.sparsity.alignment, run.study.sparsity.equal
    return prepare(run.load(stages.shape), primary, auxiliary, partition, learning, *widths)


def uniform_source(base: Prepared, scoring: str) -> Array:
    """Return the (modules,) int8 sources for scoring all modules from one text: PRIMARY or AUXILIARY."""
    return np.full(base.units.modules, int(scoring == AUXILIARY), dtype=np.int8)


def shifted_masks(base: Prepared, source: Array, target: float) -> PruningMasks:
    """Return GPrune's masks with some modules scored from B, by shifting the learned thresholds.

    `source` (modules,) is 0 for A and 1 for B, as `AdaptedScores.source`. `target` is the fraction of the decoder's
    linear weights to keep, which is met to within one neuron, or one block of neurons with an alignment. Raises
    SettingsError if the minimum widths of the layers exceed the target.
    """
    require_reachable(base.units.shape, target, base.alignment)
    return exact_masks(rank_units(base, source), base.thresholds, target, base.alignment, base.equal).masks


def rank_units(base: Prepared, source: Array) -> RankedUnits:
    """Return the ranked units with some modules scored from B; `source` is (modules,), 1 for B."""
    # neurons are first in `units`, followed by key/value groups, which RASA does not adapt
    neurons = len(base.auxiliary)
    from_auxiliary = np.asarray(source, dtype=bool)[base.units.threshold_index[:neurons]]
    mixed = base.units.quantiles.copy()
    np.copyto(mixed[:neurons], base.auxiliary, where=from_auxiliary)
    return replace(base.units, quantiles=mixed)


def obstacle(results: Results, method: str, scoring: str) -> str:
    """Return the reason why the masks of a baseline cannot be computed from stored results; empty if they can.

    `scoring` is one of TEXTS.
    """
    entry, study = METHODS[method], results.graph.study
    if entry.decision == "learned":
        return f"{entry.label} has its own learned thresholds, so other masks would need new learning"
    if entry.decision == "gated":
        return f"{entry.label} has a learned value for every unit, so other masks would need new learning"
    if entry.plugin is not None:
        return f"{entry.label} is decided by code of the plug-in {entry.plugin.distribution}, which only a run executes"
    if entry.decision == "chosen":
        return f"{entry.label} is chosen by measurement, so other masks would need new measurements"
    if entry.layered:
        return (
            f"{entry.label} scores each layer on the outputs of pruned layers, so other masks need a pass of the model"
        )
    if scoring != PRIMARY and entry.scoring != "single":
        return f"{entry.label} is scored on {SCORINGS[entry.scoring]}, whichever text is chosen"
    if scoring != PRIMARY and method == "llm_pruner" and study.baselines.taylor_text:
        return f"{entry.label} is scored on {study.baselines.taylor_text}, whichever text is chosen"
    if scoring == ADAPTED and (entry.decision not in ("flap", "uniform") or entry.metric != study.metric):
        return f"adapted scores exist for {study.metric} only, which {entry.label} does not use"
    stage = stages.masks(_change_study(results.graph, study.retention, scoring), entry.masks)
    missing = _find_missing(results, stage)
    return f"{entry.label} needs “{missing}”, which is not available" if missing else ""


def decide(results: Results, method: str, retention: float, scoring: str, adapted: Array | None = None) -> PruningMasks:
    """Return the masks of a baseline at any retention from stored results.

    `retention` is the fraction of the decoder's linear weights to keep, in (0, 1). `scoring` is one of TEXTS; for
    ADAPTED, `adapted` has the (layers, neurons) scores. Raises MethodError if the masks cannot be computed (see
    `obstacle`) or the method cannot reach the retention, StoreError if a record is damaged.
    """
    reason = obstacle(results, method, scoring)
    if reason:
        raise MethodError(reason)
    graph = _change_study(results.graph, retention, scoring)
    stage = stages.masks(graph, METHODS[method].masks)
    # decisions use only the study of a run context, so the folder does not matter and no text is read
    context = stages.RunContext(graph.study, graph.inputs, Path())
    needs: dict[str, Any] = stages.resolve(stage.needs, lambda need: _load_or_compute(results, context, need))
    if scoring == ADAPTED and adapted is not None:
        needs["parts"] = [replace(needs["parts"][0], ffn=adapted)]
    return stage.make(context, **needs)


def _change_study(graph: Graph, retention: float, scoring: str) -> Graph:
    """Return the graph of the same study at another retention, with A and B exchanged for scores on B."""
    study, inputs, letters = replace(graph.study, retention=retention), graph.inputs, graph.letters
    if scoring == AUXILIARY:
        study = replace(study, primary=study.auxiliary, auxiliary=study.primary)
        inputs = replace(inputs, calibration=_exchange_texts(inputs.calibration))
        letters = _exchange_texts(letters)
    return Graph(study, inputs if graph.has_inputs else None, letters, graph.failures)


def _exchange_texts(texts: Mapping[str, str]) -> dict[str, str]:
    return {**texts, PRIMARY: texts[AUXILIARY], AUXILIARY: texts[PRIMARY]}


def _find_missing(results: Results, stage: Stage[Any]) -> str:
    """Return the title of a required result that can be neither loaded nor computed here; empty if there is none."""
    for need in stages.required_stages(stage):
        if not results.holds(need):
            title = _find_missing(results, need) if _is_computable(results.graph, need) else need.title
            if title:
                return title
    return ""


def _load_or_compute(results: Results, context: stages.RunContext, need: Stage[Any]) -> Any:
    """Load a stored record, or compute it from stored records."""
    if results.holds(need) or not _is_computable(results.graph, need):
        return results.record(need)
    return need.make(context, **stages.resolve(need.needs, lambda inner: _load_or_compute(results, context, inner)))


def _is_computable(graph: Graph, stage: Stage[Any]) -> bool:
    """Return True for scores that are computed from stored statistics, without tokens or a plug-in."""
    # scores of plug-ins need the plug-in's code, which the app does not import
    return stage.kind == "scores" and "tokens" not in stage.needs and not is_plugin_score(graph, stage)
