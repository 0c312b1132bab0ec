"""The stages that run plug-ins: facts of the weights, scores, a decision.

A stage is declared from the description of a plug-in; its code runs when the stage computes. The digest of the
plug-in is among the settings of each of these stages, so that another version changes the keys of its results.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from gprune.pipeline.stages.calibration import tokens
from gprune.pipeline.stages.graph import PAIR, Graph, Stage, StageId, once
from gprune.pipeline.stages.run_context import RunContext
from gprune.plugins import LayerWeights, Problem, calls
from gprune.plugins.registry import PluginInfo
from gprune.records import Array, ModelShape, PruningMasks, Tokens, UnitScores, WeightFacts
from gprune.study import methods
from gprune.system.errors import PluginError


def of_metric(graph: Graph, name: str) -> PluginInfo | None:
    """Return the plug-in of a metric; None for a built-in one."""
    return graph.plugins.get(f"metric.{name}")


def is_plugin_score(graph: Graph, stage: Stage[Any]) -> bool:
    """Return True for scores by a plug-in, whose code only the process of a run may import."""
    return stage.kind == "scores" and of_metric(graph, stage.id.metric or graph.study.metric) is not None


def plugin_settings(plugin: PluginInfo) -> dict[str, Any]:
    """Return the settings by which results of a plug-in differ between its versions."""
    return {"plugin": plugin.digest}


def load_code(plugin: PluginInfo) -> Any:
    """Return the Metric or Method. Raises PluginError if this version is not installed."""
    available = methods.installed_plugins()
    if plugin.id not in available.code or available.plugins[plugin.id].digest != plugin.digest:
        raise PluginError(f"{plugin.description} is not installed here in the version of the run: run the study again")
    return available.code[plugin.id]


@once
def weight_facts(graph: Graph, plugin: PluginInfo) -> Stage[WeightFacts]:
    """Declare the facts that a metric computes from the weights."""

    def make(work: RunContext) -> WeightFacts:
        decoder, shape = work.decoder, work.decoder.shape
        layers = [LayerWeights(shape, layer, partial(decoder.matrix, layer)) for layer in range(shape.layers)]
        return calls.weigh_layers(plugin, load_code(plugin), layers, work.progress)

    return graph.stage(
        StageId("weighed", metric=plugin.name),
        f"facts of the weights for {plugin.label}",
        make,
        reads=graph.model,
        settings={"metric": plugin.name, **plugin_settings(plugin)},
    )


def scorer(plugin: PluginInfo, parts: Mapping[str, Any]) -> calls.MetricScorer:
    """Bind a metric to the records of a scoring's needs."""
    statistics, norms, shape = (parts[name] for name in ("statistics", "norms", "shape"))
    return calls.MetricScorer(plugin, load_code(plugin), statistics, norms, shape, parts.get("facts"))


def texts_of(plugin: PluginInfo) -> tuple[str, ...]:
    """Return the roles of the texts that a method gets."""
    return PAIR if plugin.texts == "both" else PAIR[:1]


def declare_decision(graph: Graph, plugin: PluginInfo, scored: Any) -> tuple[dict[str, Any], Any]:
    """Return the needs of a method's decision and its function; `scored` declares scores."""
    needs: dict[str, Any] = {}
    if plugin.needs != "model":
        needs["scores"] = [scored(graph, text, plugin.metric) for text in texts_of(plugin)]
    if plugin.needs != "scores":
        needs["tokens"] = [tokens(graph, text) for text in texts_of(plugin)]
    return needs, partial(decide, plugin)


def decide(
    plugin: PluginInfo,
    work: RunContext,
    shape: ModelShape,
    scores: list[UnitScores] | None = None,
    tokens: list[Tokens] | None = None,
) -> tuple[PruningMasks, Array]:
    """Return the masks of a method, and the margins by which its neurons were kept or removed.

    Raises PluginError if it cannot decide.
    """
    from gprune.pruning.allocation.alignment import margin

    code, study, ids = load_code(plugin), work.study, tuple(text.ids for text in tokens or ())
    arguments: dict[str, Any] = {"scores": tuple(scores or ()), "tokens": ids, "progress": work.progress}
    problem = Problem(shape, study.retention, study.seed, **arguments)
    if plugin.needs == "scores":
        masks = calls.decide(plugin, code, problem)
    else:
        work.decoder.require_whole(plugin.description)
        # tokens of the plug-in's passes are counted
        with work.decoder.counting() as model:
            masks = calls.decide(plugin, code, replace(problem, model=model))
    ranked = scores[0].ffn if scores else masks.ffn.astype(float)
    return masks, margin(ranked, masks.ffn)
