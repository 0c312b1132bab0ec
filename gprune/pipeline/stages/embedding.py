"""The stages that lay out the neurons of one layer as points: made when somebody asks, in no study's course.

A picture of one layer answers no question of a study by itself, so that no run makes it and none needs it:
what is kept of it can go at any time. Its key is that of every result: of what it is made from, and how.
"""

from collections.abc import Sequence

from gprune.pipeline.stages.calibration import statistics
from gprune.pipeline.stages.graph import Graph, Stage, StageId, once
from gprune.pipeline.stages.inputs import ROLES
from gprune.pipeline.stages.run_context import RunContext
from gprune.pipeline.stages.stage_order import Has
from gprune.pruning import neuron_embedding as analysis
from gprune.records import ActivationStatistics, Components, NeuronMap

BEHAVIOUR, PARAMETERS = analysis.BEHAVIOUR, analysis.PARAMETERS


@once
def components(graph: Graph, layer: int) -> Stage[Components]:
    """The neurons of a layer, counted from 0, in the principal components of their parameters."""

    def make(work: RunContext) -> Components:
        from gprune.models.weights import neuron_parameters
        from gprune.pruning.calibration.principal import places

        rows = neuron_parameters(work.study.model, layer, work.inputs.precision, lambda: work.decoder)
        work.progress(0, 1, f"principal components of {len(rows):,} neurons")
        analysis.require_different(rows, f"the parameters of layer {layer}")
        return Components(layer, *places(rows, analysis.MOST_COMPONENTS))

    return graph.stage(
        StageId("components", variant=(f"layer{layer}",)),
        f"principal components of the parameters of layer {layer}",
        make,
        reads=graph.model,
        settings={"layer": layer, "most": analysis.MOST_COMPONENTS},
    )


@once
def neuron_map(graph: Graph, layer: int, basis: str, texts: tuple[str, ...] = ()) -> Stage[NeuronMap]:
    """The neurons of a layer, counted from 0, laid out by UMAP.

    `basis` is BEHAVIOUR or PARAMETERS; `texts` are roles of the texts whose statistics tell the behaviour; of
    no effect on parameters.
    """
    seed = graph.study.seed
    texts = texts if basis == BEHAVIOUR else ()

    def make(
        work: RunContext, measured: Sequence[ActivationStatistics] = (), reduced: Components | None = None
    ) -> NeuronMap:
        points = analysis.behaviour(measured, layer).places if reduced is None else reduced.places
        work.progress(0, 1, f"UMAP of {len(points):,} neurons")
        places, kept = analysis.laid_out(points, seed)
        return NeuronMap(layer, basis, kept, places)

    by_what = basis if not texts else f"{basis} on {', '.join(graph.letters[text] for text in texts)}"
    return graph.stage(
        StageId("map", texts, method=basis, variant=(f"layer{layer}",)),
        f"UMAP of layer {layer} by {by_what}",
        make,
        needs={"measured": [statistics(graph, text) for text in texts]}
        if basis == BEHAVIOUR
        else {"reduced": components(graph, layer)},
        settings={"layer": layer, "basis": basis, "seed": seed, **analysis.SETTINGS},
    )


def mapped_texts(graph: Graph, has: Has) -> tuple[str, ...]:
    """Roles of the texts of a study whose statistics are there, of which a behaviour is put together."""
    return tuple(role for role in ROLES if getattr(graph.study, role) and has(statistics(graph, role)))
