"""Stages that explore: importance scores, rank drift, modules (section 3.1).

Most metrics score neurons independently of modules, so the order is scores, drift, modules. Token-weighted FLAP scores
a neuron within its module, so its order is coupled (appendix, BCM settings). FLAP's ranks give the first modules, whose
token-weighted scores give the drift that refines them. The refined modules give the final scores. The coupling appears
below, where `scores`, `drift` and `partition` call each other.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gprune.pipeline.stages import calibration
from gprune.pipeline.stages.graph import PAIR, FieldSubset, Graph, Stage, StageId, once, settings_of
from gprune.pipeline.stages.run_context import RunContext
from gprune.plugins.registry import PluginInfo
from gprune.records import Array, Partition, RankDrift, UnitScores, WeightFacts
from gprune.study import Study, methods
from gprune.study.methods import METRICS
from gprune.system.errors import PluginError

Pair = tuple[str, str]
"""roles of two texts"""


def _letters(graph: Graph, pair: Pair) -> str:
    """Return the names of two texts for a title, such as A and B."""
    return " and ".join(graph.letters[text] for text in pair)


def _unless_default(pair: Pair) -> tuple[str, ...]:
    # a stage of A and B has no texts in its identity
    return () if pair == PAIR else pair


@dataclass(frozen=True, slots=True)
class Scorer:
    """Two functions that score a text from its statistics."""

    units: Callable[..., UnitScores]
    """scores all units on a calibration set, or on the shards in the keyword argument `shards`"""
    neurons: Callable[[Sequence[int]], Array]
    """(layers, neurons) scores of neurons only, on some shards; faster than `units`"""


@dataclass(frozen=True, slots=True)
class Scoring:
    """The way to score a text's units from stored results, without another pass of the model."""

    identity: StageId
    title: str
    needs: Mapping[str, Any]
    """stages from whose records the scores are computed, by name"""
    scorer: Callable[[Study, Mapping[str, Any]], Scorer]
    """builds the scorer from a study and the records of the needs"""
    settings: Mapping[str, Any]
    """settings that change the scores of neurons"""
    head_settings: Mapping[str, Any]
    """settings that only change the scores of heads"""

    def stage(self, graph: Graph) -> Stage[UnitScores]:
        """Declare the stage that scores the whole calibration set."""

        def make(work: RunContext, **parts: Any) -> UnitScores:
            return self.scorer(work.study, parts).units()

        settings = {**self.settings, **self.head_settings}
        return graph.stage(self.identity, self.title, make, needs=self.needs, settings=settings)

    def neurons(self, graph: Graph) -> FieldSubset[UnitScores]:
        """Return a need for the neuron scores of the stage only, so that head settings do not change the key."""
        return graph.part(self.stage(graph), self.settings, self.neuron_needs(graph))

    def neuron_needs(self, graph: Graph) -> dict[str, Any]:
        """Return the needs of the stage as far as neuron scores depend on them.

        Under token-weighted FLAP, FLAP scores the heads, and only the part of that need without head settings remains.
        """
        needs = dict(self.needs)
        if "heads" in needs:
            needs["heads"] = scoring(graph, self.identity.texts[0], "flap").neurons(graph)
        return needs


@once
def scoring(graph: Graph, text: str, metric: str = "", pair: Pair = PAIR) -> Scoring:
    """Return the scoring of a text under a metric, by default the study's.

    Token-weighted FLAP scores a neuron within the modules of the texts `pair`; other metrics ignore `pair`.
    """
    is_study_metric = metric in ("", graph.study.metric)
    metric = metric or graph.study.metric
    words = "importance scores" if is_study_metric else f"importance scores of {METRICS[metric]}"
    title = f"{words} on {graph.letters[text]}"
    if metric == "twflap":
        # scores under the modules of another pair of texts are a separate stage
        title += f" under the modules of {_letters(graph, pair)}" if pair != PAIR else ""
        identity = StageId("scores", (text, *_unless_default(pair)))
        return _twflap_scoring(graph, identity, title, pair, partition(graph, *pair))
    identity = StageId("scores", (text,), metric="" if is_study_metric else metric)
    if (plugin := _plugin_of(graph, metric)) is not None:
        return _plugin_scoring(graph, identity, title, plugin)
    needs = _statistics_needs(graph, text, metric)

    def scorer(study: Study, parts: Mapping[str, Any]) -> Scorer:
        from gprune.pruning.scoring import neuron_scorer, score

        statistics, norms = parts["statistics"], parts["norms"]
        score_text = partial(score, metric, statistics, norms, parts["shape"], study.calibration)
        return Scorer(score_text, neuron_scorer(metric, statistics, norms))

    if metric != "flap":
        return Scoring(identity, title, needs, scorer, {"metric": metric}, {})
    settings = {"metric": metric, "variant": graph.study.calibration.flap_variant}
    return Scoring(identity, title, needs, scorer, settings, {"square": graph.study.calibration.square_head_score})


def _statistics_needs(graph: Graph, text: str, metric: str) -> dict[str, Any]:
    """Return the needs of scores that follow from a text's activation statistics."""
    statistics = calibration.statistics(graph, text, metric)
    return {"statistics": statistics, "norms": calibration.norms(graph), "shape": calibration.shape(graph)}


def _plugin_scoring(graph: Graph, identity: StageId, title: str, plugin: PluginInfo) -> Scoring:
    """Return the scoring of the text in `identity` by a plug-in's metric."""
    needs = _statistics_needs(graph, identity.texts[0], plugin.name)
    if plugin.weighs:
        needs["facts"] = weight_facts(graph, plugin)

    def scorer(_: Study, parts: Mapping[str, Any]) -> Scorer:
        from gprune.plugins import calls

        statistics, norms, shape = (parts[name] for name in ("statistics", "norms", "shape"))
        metric = calls.MetricScorer(plugin, load_code(plugin), statistics, norms, shape, parts.get("facts"))
        return Scorer(metric.units, metric.neurons)

    # another version of the plug-in changes the key
    settings = {"metric": plugin.name, "plugin": plugin.digest}
    return Scoring(identity, title, needs, scorer, settings, {})


def _plugin_of(graph: Graph, metric: str) -> PluginInfo | None:
    """Return the plug-in with a metric of this name, or None for a built-in metric."""
    return graph.plugins.get(f"metric.{metric}")


def is_plugin_score(graph: Graph, stage: Stage[Any]) -> bool:
    """Return True for scores of a plug-in, whose code only a run's process may import."""
    return stage.kind == "scores" and _plugin_of(graph, stage.id.metric or graph.study.metric) is not None


def load_code(plugin: PluginInfo) -> Any:
    """Return the Metric or Method of a plug-in. Raises PluginError if this version of it is not installed."""
    available = methods.installed_plugins()
    if plugin.id not in available.code or available.plugins[plugin.id].digest != plugin.digest:
        raise PluginError(f"{plugin.description} is not installed in the version that this run used: install it")
    return available.code[plugin.id]


@once
def weight_facts(graph: Graph, plugin: PluginInfo) -> Stage[WeightFacts]:
    """Declare the facts about the weights that a plug-in metric computes."""

    def make(work: RunContext) -> WeightFacts:
        from gprune.plugins import LayerWeights, calls

        decoder, shape = work.decoder, work.decoder.shape
        layers = [LayerWeights(shape, layer, partial(decoder.matrix, layer)) for layer in range(shape.layers)]
        return calls.weigh_layers(plugin, load_code(plugin), layers, work.progress)

    return graph.stage(
        StageId("weighed", metric=plugin.name),
        f"weight facts for {plugin.label}",
        make,
        reads=graph.model_digests,
        settings={"metric": plugin.name, "plugin": plugin.digest},
    )


def _twflap_scoring(graph: Graph, identity: StageId, title: str, pair: Pair, modules: Stage[Partition]) -> Scoring:
    """Return the scoring of token-weighted FLAP on the text in `identity`, within the modules `modules`.

    The contexts, and the affinity of modules to them, come from the first text of `pair`.
    """
    text, options = identity.texts[0], graph.study.contexts
    needs = {
        "measured": calibration.context_statistics(graph, text, pair[0], gradient=text == pair[0]),
        "own": calibration.context_statistics(graph, pair[0], pair[0], gradient=True),
        "contexts": calibration.contexts(graph, pair[0]),
        "norms": calibration.norms(graph),
        "modules": modules,
        "heads": scores(graph, text, "flap"),
    }

    def scorer(study: Study, parts: Mapping[str, Any]) -> Scorer:
        from gprune.pruning.scoring import twflap

        partition, kind = parts["modules"], study.contexts.module_profile
        # `own` are the statistics of the text from which the contexts come
        profile = twflap.module_profile(parts["own"].affinity, partition.labels, int(partition.counts.max()), kind)
        measured, contexts, norms, heads = (parts[n] for n in ("measured", "contexts", "norms", "heads"))
        score_text = partial(twflap.score, measured, contexts, norms, partition.labels, profile, heads, study.contexts)
        return Scorer(score_text, lambda shards: score_text(shards=shards).ffn)

    settings = {"metric": "twflap", "temperature": options.temperature, "profile": options.module_profile}
    return Scoring(identity, title, needs, scorer, settings, {})


def scoring_under(graph: Graph, text: str, name: str, modules: Stage[Partition]) -> Scoring:
    """Return the scoring of token-weighted FLAP on a text within `modules`, which replace the study's.

    `name` distinguishes the stage from those with other modules.
    """
    title = f"importance scores on {graph.letters[text]}, {modules.title}"
    return _twflap_scoring(graph, StageId("scores", (text,), variant=(name,)), title, PAIR, modules)


def scores(graph: Graph, text: str = "primary", metric: str = "", pair: Pair = PAIR) -> Stage[UnitScores]:
    """Declare the importance scores of a text under a metric, by default the study's; for `pair` see `scoring`."""
    return scoring(graph, text, metric, pair).stage(graph)


@once
def drift(graph: Graph, first: str = "primary", second: str = "auxiliary", metric: str = "") -> Stage[RankDrift]:
    """Declare the rank drift between two texts (Eq. 1) with its resampling control."""
    pair = (first, second)
    metric = "" if metric == graph.study.metric else metric
    description = f"rank drift of {METRICS[metric]}" if metric else "rank drift"
    scorings = [scoring(graph, text, metric, pair) for text in pair]
    identity = StageId("drift", _unless_default(pair), metric=metric)
    return _drift_stage(graph, identity, f"{description} between {_letters(graph, pair)}", scorings)


def _drift_stage(graph: Graph, identity: StageId, title: str, scorings: list[Scoring]) -> Stage[RankDrift]:
    """Declare the drift between the scores of two texts, and between their even and odd shards."""

    def make(work: RunContext, both: list[UnitScores], parts: list[Mapping[str, Any]]) -> RankDrift:
        from gprune.pruning.drift import rank_drift

        shards = range(work.study.calibration.shards)
        both_scorers = scorers(work.study, scorings, parts)
        halves = [(scorer.units(shards=shards[::2]), scorer.units(shards=shards[1::2])) for scorer in both_scorers]
        return rank_drift(both[0], both[1], *halves)

    return graph.stage(identity, title, make, needs=shard_needs(graph, scorings))


def shard_needs(graph: Graph, scorings: list[Scoring]) -> dict[str, Any]:
    """Return the needs of a stage that also compares scores on shards of two texts.

    `both` are the neuron scores of the texts, and `parts` the needs from which their shards are scored (see `scorers`).
    """
    return {
        "both": [scoring.neurons(graph) for scoring in scorings],
        "parts": [scoring.neuron_needs(graph) for scoring in scorings],
    }


def scorers(study: Study, scorings: list[Scoring], needs_by_text: list[Mapping[str, Any]]) -> list[Scorer]:
    """Return the scorer of each text; `needs_by_text` are the records of `parts` in `shard_needs`."""
    return [scoring.scorer(study, needs) for scoring, needs in zip(scorings, needs_by_text, strict=True)]


@once
def clusters(graph: Graph, *, other_seed: bool = False) -> Stage[Partition]:
    """Declare the clusters of neurons by their parameters alone, from which partitions start.

    With `other_seed`, the seed is the study's plus one.
    """
    # True counts as 1
    settings, seed = graph.study.modularization, graph.study.seed + other_seed
    used = {name: getattr(settings, name) for name in ("candidates", "restarts", "seeding")}

    def make(work: RunContext) -> Partition:
        from gprune.pruning.modules.partition import cluster_layers

        shape = work.decoder.shape
        rows = work.decoder.neuron_parameters
        return cluster_layers(rows, shape.layers, shape.neurons, settings, seed, work.progress)

    return graph.stage(
        StageId("clusters", variant=calibration.seed_variant(other_seed)),
        f"clusters of the neurons’ parameters{calibration.seed_suffix(other_seed)}",
        make,
        reads=graph.model_digests,
        settings=used | {"seed": seed},
    )


@once
def partition(
    graph: Graph, first: str = "primary", second: str = "auxiliary", *, kind: str = "", other_seed: bool = False
) -> Stage[Partition]:
    """Declare the modules of a pair of texts, by role (BCM, section 3.1).

    `kind` is refined, initialization or random, by default the study's. With `other_seed`, the seed is the study's plus
    one. Under token-weighted FLAP, the scores and drift come from the first modules (see `_declare_first_partition`).
    """
    pair = (first, second)
    variant = calibration.seed_variant(other_seed) + ((kind,) if kind else ())
    identity = StageId("partition", _unless_default(pair), variant=variant)
    needs: dict[str, Any] = {}
    if graph.study.modularization.direction == "auto" and not kind and identity != StageId("partition"):
        # whether modules use signed drift is decided once per metric (appendix), on the study's own pair
        needs["profile"] = partition(graph)
    if graph.study.metric == "twflap":
        start = _declare_first_partition(graph, pair, kind, other_seed)
        prefix = f"importance scores under {start.title}, on "
        scorings = [
            _twflap_scoring(graph, _first_identity(start, "scores", text), prefix + graph.letters[text], pair, start)
            for text in pair
        ]
        start_drift = _drift_stage(graph, _first_identity(start, "drift"), f"rank drift under {start.title}", scorings)
        needs |= {"start": start, "moved": start_drift}
    else:
        scorings = [scoring(graph, text) for text in pair]
        needs |= {"clusters": clusters(graph, other_seed=other_seed), "moved": drift(graph, *pair)}
    # scores of both texts; their drift is `moved`, and `start` or `clusters` are the initial modules
    needs = {"both": [text_scoring.neurons(graph) for text_scoring in scorings], **needs}
    title = {"initialization": "initial modules", "random": "random modules"}.get(kind, "modules")
    if identity != StageId("partition"):
        title += f" of {_letters(graph, pair)}{calibration.seed_suffix(other_seed)}"
    return _partition_stage(graph, identity, title, {"kind": kind} if kind else {}, other_seed, needs)


def _first_identity(start: Stage[Partition], kind: str, text: str = "") -> StageId:
    """Return the identity of scores of a text, or of drift, under the first modules `start`."""
    texts = start.id.texts
    return replace(start.id, kind=kind, texts=(text, *texts) if text else texts)


def _declare_first_partition(graph: Graph, pair: Pair, kind: str, other_seed: bool) -> Stage[Partition]:
    """Declare the first modules of token-weighted FLAP, by FLAP's rank drift and without refinement."""
    needs = {
        "both": [scoring(graph, text, "flap").neurons(graph) for text in pair],
        "clusters": clusters(graph, other_seed=other_seed),
        "moved": drift(graph, *pair, "flap"),
    }
    # random modules stay random; all others are initial modules
    modules_kind = kind or graph.study.modularization.kind
    changes = {"kind": "random" if modules_kind == "random" else "initialization", "direction": "magnitude"}
    variant = ("first", *calibration.seed_variant(other_seed), *((kind,) if kind else ()))
    identity = StageId("partition", _unless_default(pair), variant=variant)
    suffix = f", {kind}" if kind else ""
    title = f"the first modules of {_letters(graph, pair)}{calibration.seed_suffix(other_seed)}{suffix}"
    return _partition_stage(graph, identity, title, changes, other_seed, needs)


def _partition_stage(
    graph: Graph, identity: StageId, title: str, changes: dict[str, Any], other_seed: bool, needs: dict[str, Any]
) -> Stage[Partition]:
    """Declare modules with changed settings of modularization.

    `needs` are the drift `moved`, the scores `both`, the initial modules `start` or `clusters` and, optionally, the
    modules `profile` whose decision about signed drift is adopted.
    """
    settings = replace(graph.study.modularization, **changes)
    seed = graph.study.seed + other_seed

    def make(work: RunContext, moved: RankDrift, both: list[UnitScores], **needs: Partition) -> Partition:
        from gprune.pruning.modules.partition import modularize

        initial = needs["start"].labels if "start" in needs else needs["clusters"]
        direction: Any = needs["profile"].profile if "profile" in needs else ""
        is_decided = direction in ("magnitude", "direction")
        resolved_settings = replace(settings, direction=direction) if is_decided else settings
        rows = work.decoder.neuron_parameters
        return modularize(rows, moved, both[0], both[1], initial, resolved_settings, seed, work.progress)

    plain = settings_of(settings) | {"seed": seed}
    return graph.stage(identity, title, make, needs=needs, reads=graph.model_digests, settings=plain)
