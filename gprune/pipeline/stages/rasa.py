"""Stages that follow from modules: score adaptation (RASA, section 3.2) and module agreement (Fig. 1b).

GPrune ranks neurons within the study's modules. A control replaces them and changes nothing else: with one module per
layer (no modules), with random modules of equal size, or with modules of BCM's sizes and shuffled members. A shared
k-means seed alone makes partitions agree. The comparisons therefore include two controls: the same texts under another
seed, and the modules before refinement.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gprune.pipeline.stages.calibration import groups, shape
from gprune.pipeline.stages.graph import PAIR, Graph, Stage, StageId, once, settings_of
from gprune.pipeline.stages.run_context import RunContext
from gprune.pipeline.stages.scoring import Scorer, Scoring, partition, scorers, scoring, scoring_under, shard_needs
from gprune.pruning.rasa import adapt, balanced_splits, module_statistics
from gprune.records import AdaptedScores, Array, ModelShape, ModuleStatistics, Partition, PartitionAgreement, UnitScores
from gprune.study import Study
from gprune.study.methods import METHODS

LAYERS, SHUFFLED = "layers", "shuffled"
"""modules of controls: one module per layer, and modules with shuffled members"""
SUBSTITUTION, SWAP, FANG, CONTROL = "substitution", "swap", "FANG", "control"
"""kinds of comparisons"""
OTHER_SEED, INITIALIZATION = "other_seed", "initialization"
"""variants of a partition"""


@once
def space(graph: Graph, modules: str = "") -> Stage[Partition]:
    """Declare the modules within which neurons are ranked: the study's by default, or layers, random or shuffled."""
    if modules not in (LAYERS, SHUFFLED):
        return partition(graph, kind=modules)
    seed, identity = graph.study.seed, StageId("partition", variant=(modules,))

    def make_layers(_: Any, shape: ModelShape) -> Partition:
        from gprune.pruning.modules.replacement import one_module_per_layer

        return one_module_per_layer(shape.layers, shape.neurons)

    def make_shuffled(_: Any, modules: Partition) -> Partition:
        from gprune.pruning.modules.replacement import shuffle_members

        return shuffle_members(modules, seed)

    if modules == LAYERS:
        needs, settings = {"shape": shape(graph)}, {"kind": LAYERS}
        return graph.stage(identity, "one module a layer", make_layers, needs=needs, settings=settings)
    title = "modules of the same sizes with shuffled members"
    modules_needed = {"modules": partition(graph)}
    return graph.stage(identity, title, make_shuffled, needs=modules_needed, settings={"kind": SHUFFLED, "seed": seed})


def scored_in(graph: Graph, text: str, modules: str = "") -> Scoring:
    """Return the scoring of a text within the modules of `space`.

    A control has its own scores only under token-weighted FLAP, which scores a neuron within its module. One module per
    layer uses the study's scores, because a whole layer has no dominant context.
    """
    if graph.study.metric != "twflap" or modules in ("", LAYERS):
        return scoring(graph, text)
    return scoring_under(graph, text, modules, space(graph, modules))


@once
def modules(graph: Graph, among: str = "") -> Stage[ModuleStatistics]:
    """Declare drift, mean score and repeatability of every module (RASA before its thresholds).

    `among` names the modules (see `space`); empty for the study's.
    """
    scorings = [scored_in(graph, text, among) for text in PAIR]
    ranking_space = space(graph, among)

    def make(
        work: RunContext, both: list[UnitScores], partition: Partition, parts: list[Mapping[str, Any]]
    ) -> ModuleStatistics:
        settings = work.study.reliability
        text_scorers = zip(PAIR, scorers(work.study, scorings, parts), strict=True)
        splits = [_score_splits(work, text, scorer) for text, scorer in text_scorers]
        return module_statistics(both[0], both[1], partition, splits[0], splits[1], settings)

    return graph.stage(
        StageId("modules", variant=(among,) if among else ()),
        f"module statistics, {ranking_space.title}" if among else "module statistics",
        make,
        needs=shard_needs(graph, scorings) | {"partition": ranking_space},
        settings={"score_scale": graph.study.reliability.score_scale},
    )


def _score_splits(work: RunContext, text: str, scorer: Scorer) -> Iterator[tuple[Array, Array]]:
    """Yield the neuron scores on both halves of each balanced split of the shards.

    The scores are computed one split at a time, because those of all splits would take gigabytes at 7B.
    """
    splits = balanced_splits(work.study.calibration.shards)
    for index, (first_half, second_half) in enumerate(splits):
        work.progress(index, len(splits), f"repeatability on the {text} text")
        yield scorer.neurons(first_half), scorer.neurons(second_half)


@once
def adapted_scores(graph: Graph, method: str = "gprune") -> Stage[AdaptedScores]:
    """Declare the neuron scores of a method after RASA (section 3.2), or without RASA for a control that omits it."""
    definition, settings, seed = METHODS[method], graph.study.reliability, graph.study.seed
    if not definition.adapts:
        settings = replace(settings, selection="none")

    def make(_: RunContext, both: list[UnitScores], partition: Partition, modules: ModuleStatistics) -> AdaptedScores:
        return adapt(both[0], both[1], partition, modules, settings, seed)

    scorings = [scored_in(graph, text, definition.modules) for text in PAIR]
    is_gprune = method == "gprune"
    return graph.stage(
        StageId("adapted") if is_gprune else StageId("adapted", method=method),
        "score adaptation" if is_gprune else f"scores of {definition.label}",
        make,
        needs={
            "both": [text_scoring.neurons(graph) for text_scoring in scorings],
            "partition": space(graph, definition.modules),
            "modules": modules(graph, definition.modules),
        },
        settings=settings_of(settings) | {"seed": seed},
    )


@dataclass(frozen=True, slots=True)
class Side:
    """One of two compared partitions."""

    texts: tuple[str, ...]
    """roles of its texts: a pair for modules, one text for FANG's groups"""
    variant: str = ""
    """OTHER_SEED, INITIALIZATION or empty"""

    @property
    def fang(self) -> bool:
        """Return True for FANG's groups of one text."""
        return len(self.texts) == 1


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two partitions whose agreement is measured."""

    name: str
    """identifier of the comparison"""
    title: str
    """label in charts and tables, with the letters of the texts"""
    kind: str
    """SUBSTITUTION, SWAP, FANG or CONTROL"""
    first: Side
    second: Side

    @property
    def fang(self) -> bool:
        """Return True if it compares FANG's groups."""
        return self.first.fang

    @property
    def texts(self) -> frozenset[str]:
        """Return the roles of the texts of both partitions."""
        return frozenset(self.first.texts + self.second.texts)


# the two partitions of each comparison
_AB = Side(("primary", "auxiliary"))
_AC = Side(("primary", "substitute"))
_BC = Side(("auxiliary", "substitute"))
_BA = Side(("auxiliary", "primary"))
_AB_START, _AC_START = Side(_AB.texts, INITIALIZATION), Side(_AC.texts, INITIALIZATION)
_AB_SEED = Side(_AB.texts, OTHER_SEED)
_A, _B, _C = (Side((role,)) for role in (*_AB.texts, "substitute"))
_A_SEED = Side(_A.texts, OTHER_SEED)
_ALL = (
    Comparison("ab_ac", "B replaced by C", SUBSTITUTION, _AB, _AC),
    Comparison("ab_bc", "A replaced by C", SUBSTITUTION, _AB, _BC),
    Comparison("ac_bc", "A replaced by B", SUBSTITUTION, _AC, _BC),
    Comparison("other_seed", "control: same texts, another seed", CONTROL, _AB, _AB_SEED),
    Comparison("initialization", "control: initialization only, B replaced by C", CONTROL, _AB_START, _AC_START),
    Comparison("swap", "swap: A and B", SWAP, _AB, _BA),
    Comparison("fang_ab", "FANG: A and B", FANG, _A, _B),
    Comparison("fang_ac", "FANG: A and C", FANG, _A, _C),
    Comparison("fang_bc", "FANG: B and C", FANG, _B, _C),
    Comparison("fang_other_seed", "control: FANG, another seed", CONTROL, _A, _A_SEED),
)
COMPARISONS = {comparison.name: comparison for comparison in _ALL}


def list_comparisons(study: Study) -> tuple[Comparison, ...]:
    """Return the comparisons of a study, in the order of the figure.

    A swap of the texts is included for token-weighted FLAP only, whose contexts come from the first text; the magnitude
    of the drift is the same in both orders. FANG's groups are included if FANG is among the methods or the metric is
    token-weighted FLAP. Substitutions need a third text.
    """
    is_twflap, substitute = study.metric == "twflap", study.substitute
    has_fang_groups = is_twflap or "fang" in study.methods

    def is_compared(comparison: Comparison) -> bool:
        """Return True if the study makes a comparison."""
        if "substitute" in comparison.texts and not substitute:
            return False
        if comparison.fang:
            return has_fang_groups
        if comparison.kind == SWAP:
            return is_twflap
        return bool(substitute) or (is_twflap and comparison.name == OTHER_SEED)

    return tuple(comparison for comparison in COMPARISONS.values() if is_compared(comparison))


def compared_partition(graph: Graph, side: Side) -> Stage[Partition]:
    """Declare the partition of one side of a comparison."""
    other_seed = side.variant == OTHER_SEED
    if side.fang:
        return groups(graph, side.texts[0], other_seed=other_seed)
    kind = "initialization" if side.variant == INITIALIZATION else ""
    return partition(graph, side.texts[0], side.texts[1], kind=kind, other_seed=other_seed)


@once
def agreement(graph: Graph, comparison: Comparison) -> Stage[PartitionAgreement]:
    """Declare the agreement of the two partitions of a comparison."""
    identity, title = StageId("agreement", variant=(comparison.name,)), f"module agreement, {comparison.title}"
    sides = [compared_partition(graph, partition_side) for partition_side in (comparison.first, comparison.second)]

    def make(_: Any, sides: list[Partition]) -> PartitionAgreement:
        from gprune.pruning.modules.agreement import compare

        return PartitionAgreement(*compare(sides[0], sides[1]))

    return graph.stage(identity, title, make, needs={"sides": sides})


def agreements(graph: Graph) -> dict[str, Stage[PartitionAgreement]]:
    """Declare every comparison of modules that the study makes, by name."""
    return {comparison.name: agreement(graph, comparison) for comparison in list_comparisons(graph.study)}
