"""The stages that run the code of other packages: what a metric sees of the weights, its scores, a decision.

The declarations need the name, the facts and the digest of a plug-in, and nothing of its code: that is
imported when a stage computes. The digest stands in the settings of each of these stages, so that a changed
plug-in changes the keys of what it computes, and of nothing else.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gprune.pipeline.stages.calibration import tokens
from gprune.pipeline.stages.graph import PAIR, Graph, Stage, StageId, once
from gprune.pipeline.stages.inputs import Inputs
from gprune.pipeline.stages.run_context import RunContext
from gprune.plugins import LayerWeights, Metric, Problem, calls
from gprune.plugins.discovery import Plugin
from gprune.plugins.loading import load
from gprune.pruning.allocation.alignment import margin
from gprune.records import Array, ModelShape, PruningMasks, Tokens, UnitScores, WeightFacts
from gprune.study import methods
from gprune.study.pruning_method import Method
from gprune.system.errors import PluginError


def of_metric(name: str) -> Plugin | None:
    """The plug-in that brings a metric; None of a built-in one."""
    return methods.PLUGINS.get(f"metric.{name}")


def scores(graph: Graph, stage: Stage[Any]) -> bool:
    """Whether a stage is scores by a plug-in, whose code only the process of a run may import."""
    return stage.kind == "scores" and of_metric(stage.id.metric or graph.study.metric) is not None


def settings_of(graph: Graph, plugin: Plugin) -> dict[str, Any]:
    """What tells a plug-in from itself after a change: its package, version and content."""
    return {"plugin": graph.inputs.digest_of(plugin)}


def code_of(plugin: Plugin, inputs: Inputs) -> Any:
    """Imports a plug-in: only what computes may ask for it.

    Raises PluginError where it is not installed, has changed since the run began, or cannot be imported.
    """
    return load(methods.installed(plugin), inputs.digest_of(plugin))


@once
def weighed(graph: Graph, name: str) -> Stage[WeightFacts]:
    """What a plug-in's metric finds of the weights, once for each model."""
    plugin = methods.PLUGINS[f"metric.{name}"]

    def make(work: RunContext) -> WeightFacts:
        from gprune.models.weights import layer_weights

        decoder = work.decoder
        layers = [
            LayerWeights(decoder.shape, layer, layer_weights(decoder, layer)) for layer in range(decoder.shape.layers)
        ]
        return calls.weighed(plugin, code_of(plugin, work.inputs), layers, work.progress)

    return graph.stage(
        StageId("weighed", metric=name),
        f"what {plugin.label} finds of the weights",
        make,
        reads=graph.model,
        settings={"metric": name, **settings_of(graph, plugin)},
    )


def scorer(plugin: Plugin, inputs: Inputs, parts: Mapping[str, Any]) -> calls.Asked:
    """What scores a text by a plug-in's metric, from the records of a scoring's needs."""
    metric: Metric = code_of(plugin, inputs)
    norms, shape = parts["norms"], parts["shape"]
    return calls.Asked(plugin, metric, parts["statistics"], norms, shape, parts.get("facts"))


def texts_of(plugin: Plugin) -> tuple[str, ...]:
    """The roles of the texts that a method is given."""
    return PAIR if plugin.texts == "both" else PAIR[:1]


def needs_of(graph: Graph, method: Method, scored: Any) -> dict[str, Any]:
    """What the decision of a plug-in's method needs."""
    plugin = _declared(method)
    found: dict[str, Any] = {}
    if plugin.needs != "model":
        found["scores"] = [scored(graph, text, plugin.metric) for text in texts_of(plugin)]
    if plugin.needs != "scores":
        found["tokens"] = [tokens(graph, text) for text in texts_of(plugin)]
    return found


def decide(
    method: Method,
    work: RunContext,
    shape: ModelShape,
    scores: list[UnitScores] | None = None,
    tokens: list[Tokens] | None = None,
) -> tuple[PruningMasks, Array]:
    """Masks of a plug-in's method, and the margins by which its neurons were kept or removed.

    Raises PluginError where it cannot decide.
    """
    plugin, study = _declared(method), work.study
    code = code_of(plugin, work.inputs)
    problem = Problem(
        shape,
        study.retention,
        study.seed,
        scores=tuple(scores or ()),
        tokens=tuple(one.ids for one in tokens or ()),
        progress=work.progress,
    )
    if plugin.needs == "scores":
        kept = calls.decided(plugin, code, problem)
    else:
        with work.lent(plugin.words) as model:
            kept = calls.decided(plugin, code, replace(problem, model=model))
    ranked = scores[0].ffn if scores else kept.ffn.astype(float)
    return kept, margin(ranked, kept.ffn)


def _declared(method: Method) -> Plugin:
    if method.plugin is None:
        raise PluginError(f"{method.name} is a method of this project, and no plug-in's")
    return method.plugin
