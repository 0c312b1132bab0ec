"""The stages behind Fig. 1b: do the modules survive when a calibration text is replaced (appendix)?"""

from __future__ import annotations

from typing import Any

from gprune.comparisons import INITIALIZATION, OTHER_SEED, Comparison, Side, compared
from gprune.modularization.agreement import compare
from gprune.records import Partition, PartitionAgreement
from gprune.stages.exploring import partition
from gprune.stages.graph import Graph, Stage, StageId, once
from gprune.stages.reading import groups


def side(graph: Graph, chosen: Side) -> Stage[Partition]:
    """One of the partitions that are compared."""
    other_seed = chosen.variant == OTHER_SEED
    if chosen.fang:
        return groups(graph, chosen.texts[0], other_seed=other_seed)
    kind = "initialization" if chosen.variant == INITIALIZATION else ""
    return partition(graph, chosen.texts[0], chosen.texts[1], kind=kind, other_seed=other_seed)


@once
def agreement(graph: Graph, comparison: Comparison) -> Stage[PartitionAgreement]:
    """How far the two partitions of a comparison agree."""

    def make(_: Any, sides: list[Partition]) -> PartitionAgreement:
        return PartitionAgreement(*compare(sides[0], sides[1]))

    return graph.stage(
        StageId("agreement", variant=(comparison.name,)),
        f"module agreement, {comparison.title}",
        make,
        needs={"sides": [side(graph, one) for one in (comparison.first, comparison.second)]},
    )


def agreements(graph: Graph) -> dict[str, Stage[PartitionAgreement]]:
    """Every comparison that the study makes, by name; none where it has nothing to compare."""
    study = graph.study
    wanted = compared(study.metric, study.methods, study.substitute)
    return {comparison.name: agreement(graph, comparison) for comparison in wanted}
