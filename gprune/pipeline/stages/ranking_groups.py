"""The ranking spaces of GPrune and of its controls: which neurons compete, and what they are scored by.

GPrune ranks within the study's own modules. A control puts others in their place and leaves the rest as it
is: one module a layer (no modules at all), random modules of equal size, or modules of BCM's sizes whose
members are drawn.
"""

from __future__ import annotations

from typing import Any

from gprune.pipeline.stages.calibration import shape
from gprune.pipeline.stages.graph import Graph, Stage, StageId, once
from gprune.pipeline.stages.scoring import Scoring, partition, scoring, scoring_under
from gprune.pruning.modules.replacement import shuffled, whole_layers
from gprune.records import ModelShape, Partition

LAYERS, SHUFFLED = "layers", "shuffled"


@once
def space(graph: Graph, modules: str = "") -> Stage[Partition]:
    """The modules that neurons are ranked in.

    Args:
        graph: the study's graph.
        modules: the study's own where empty, or layers, random or shuffled.
    """
    if modules == LAYERS:
        return _whole_layers(graph)
    return _shuffled(graph) if modules == SHUFFLED else partition(graph, kind=modules)


def _whole_layers(graph: Graph) -> Stage[Partition]:
    def make(_: Any, shape: ModelShape) -> Partition:
        return whole_layers(shape.layers, shape.neurons)

    identity = StageId("partition", variant=(LAYERS,))
    return graph.stage(
        identity, "one module a layer", make, needs={"shape": shape(graph)}, settings={"kind": LAYERS}
    )


def _shuffled(graph: Graph) -> Stage[Partition]:
    seed = graph.study.seed

    def make(_: Any, modules: Partition) -> Partition:
        return shuffled(modules, seed)

    return graph.stage(
        StageId("partition", variant=(SHUFFLED,)),
        "modules of the same sizes and other members",
        make,
        needs={"modules": partition(graph)},
        settings={"kind": SHUFFLED, "seed": seed},
    )


def scored_in(graph: Graph, text: str, modules: str = "") -> Scoring:
    """How a text is scored in a ranking space.

    Only token-weighted FLAP scores a neuron within its module, so only then a control has scores of its own.
    One module a layer takes the study's: a whole layer has no context that stands out.
    """
    if graph.study.metric != "twflap" or modules in ("", LAYERS):
        return scoring(graph, text)
    return scoring_under(graph, text, modules, space(graph, modules))
