"""The masks of every baseline (section 4; appendix, multi-dataset calibration).

Most are decided from statistics that are there already: sequential Wanda-sp, OSSCAR and SlimLLM look at each
layer above the pruned ones, and LLM-Pruner needs the gradient of the weights.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from gprune.data import texts as corpora
from gprune.pipeline.stages import plugins
from gprune.pipeline.stages.calibration import context_statistics, contexts, groups, norms, shape, tokens
from gprune.pipeline.stages.graph import PAIR, Graph, Stage, StageId, once, settings_of
from gprune.pipeline.stages.inputs import GRADIENT
from gprune.pipeline.stages.run_context import RunContext
from gprune.pipeline.stages.scoring import scores, scoring
from gprune.plugins.registry import PluginInfo
from gprune.pruning.allocation import uniform
from gprune.pruning.allocation.alignment import aligned, margin
from gprune.pruning.modules.functional_groups import functional_groups, group_profile
from gprune.pruning.scoring import combine, score, twflap
from gprune.records import (
    Array,
    ContextStatistics,
    ModelShape,
    Partition,
    PruningMasks,
    Tokens,
    UnitScores,
    WeightNorms,
    budget,
    pool,
    pool_contexts,
)
from gprune.study import Study
from gprune.study.pruning_method import Method
from gprune.system.errors import CorpusError, MethodError

if TYPE_CHECKING:
    from gprune.pruning.removal.walk import Decide

Decision = tuple[PruningMasks, Array]
"""Masks, and the (layers, neurons) margins by which neurons were kept (positive) or removed (negative)."""


def decided(
    graph: Graph,
    method: Method,
    identity: StageId,
    title: str,
    attention: dict[str, Stage[PruningMasks]] | None = None,
) -> Stage[PruningMasks]:
    """The masks that a baseline decides, or a control that learns nothing.

    `attention` has the masks whose key/value groups are kept, under this name; none decides on its own.
    """
    needs, decide = _DECISIONS[method.decision](graph, method)
    study, needs = graph.study, needs | (attention or {})
    # with another method's attention they are no longer the masks that another one has
    name = method.masks if attention else method.same_as or method.masks
    settings: dict[str, Any] = {"method": name, "retention": study.retention}
    if method.decision == "fang":
        settings["temperature"] = study.contexts.temperature
        settings["grouping"] = study.baselines.fang_grouping
    plugin = method.plugin if method.decision == "plugin" else None
    if plugin is not None:
        settings |= {"seed": study.seed, **plugins.settings_of(plugin)}
    if method.scoring == "pooled":
        # scored here and not by a stage of its own
        how = scoring(graph, "primary", "flap" if method.decision == "fang" else method.metric)
        settings |= {**how.settings, **how.head_settings}
    settings |= study.sparsity.shaped

    def make(work: RunContext, shape: ModelShape, **parts: Any) -> PruningMasks:
        kept, margins = decide(work, shape, **parts)
        if not study.sparsity.equal:
            kept = aligned(kept, margins, shape, study.sparsity.alignment)
        return replace(kept, method=name)

    reads = graph.model if method.layered or method.foreign else {}
    needs = {"shape": shape(graph), **needs}
    return graph.stage(identity, title, make, needs=needs, reads=reads, settings=settings)


def scored_on(method: Method) -> tuple[str, ...]:
    """The roles of the texts that a baseline is scored on."""
    if method.decision == "plugin" and method.plugin is not None:
        return plugins.texts_of(method.plugin)
    return PAIR[:1] if method.scoring == "single" else PAIR


Declared = tuple[dict[str, Any], Callable[..., Decision]]
"""What a decision needs, and how it is made from the records."""


def _ranked(graph: Graph, method: Method) -> Declared:
    """One ranking of the whole model (FLAP), or one ratio in every layer (Wanda-sp), from stored scores."""
    from gprune.pruning.allocation import flap, uniform

    pooled = method.scoring == "pooled"

    def decide(
        work: RunContext, shape: ModelShape, parts: list[Any], attention: PruningMasks | None = None
    ) -> Decision:
        found = ranked_scores(work.study, method, shape, parts)
        target, equal = work.study.retention, equal_counts(work.study, shape)
        if attention is not None:
            kept = uniform.allocate_around(found, shape, target, attention.heads, equal)
        elif method.decision == "flap" and equal is None:
            kept = flap.allocate(found, shape, target)
        else:
            kept = uniform.allocate(found, shape, target, equal)
        return kept, margin(found.ffn, kept.ffn)

    if pooled:
        return {"parts": [scoring(graph, text, method.metric).needs for text in PAIR]}, decide
    return {"parts": [scores(graph, text, method.metric) for text in scored_on(method)]}, decide


def ranked_scores(study: Study, method: Method, shape: ModelShape, parts: list[Any]) -> UnitScores:
    """The scores that a ranking, of a method that decides by `flap` or `uniform`, decides by.

    `parts` are the scores of each text that counts; of a pooled method what they would be made from.
    """
    if method.scoring == "pooled":
        return _pooled(study, method.metric, parts)
    return parts[0] if len(parts) == 1 else combine(method.scoring, parts[0], parts[1], shape)


def _pooled(study: Study, metric: str, parts: list[Any]) -> UnitScores:
    """Scores of both texts as one."""
    together = pool(parts[0]["statistics"], parts[1]["statistics"])
    return score(metric, together, parts[0]["norms"], parts[0]["shape"], study.calibration)


def _sequential(graph: Graph, _: Method) -> Declared:
    from gprune.pruning.allocation import uniform
    from gprune.pruning.scoring import wanda_sp

    def decide(work: RunContext, shape: ModelShape, norms: WeightNorms, tokens: Tokens) -> Decision:
        from gprune.pruning.calibration import sequential

        seen = np.zeros((shape.layers, shape.neurons))

        def layer_score(layer: int, *energies: Any) -> tuple[Array, Array]:
            found = wanda_sp.layer_scores(norms, shape, layer, *energies)
            seen[layer] = found[0]
            return found

        retention, batch = work.study.retention, work.study.calibration.batch
        choose = uniform.decision(layer_score, shape, retention, equal_counts(work.study, shape))
        kept = sequential.walk(work.decoder, tokens, batch, choose, work.progress)
        return uniform.masks(shape, *kept, retention), margin(seen, kept[0])

    return {"norms": norms(graph), "tokens": tokens(graph)}, decide


def _grouped(
    method: Method,
    work: RunContext,
    shape: ModelShape,
    norms: WeightNorms,
    contexts: Any,
    groups: Partition,
    measured: list[ContextStatistics],
    heads: list[Any],
) -> Decision:
    from gprune.pruning.allocation import fang

    study, pooled = work.study, method.scoring == "pooled"
    together = measured[0] if len(measured) == 1 else pool_contexts(measured[0], measured[1])
    if pooled:
        groups = functional_groups(together.affinity, study.baselines.fang_grouping)
        measured, heads = [together], [_pooled(study, "flap", heads)]
    count = contexts.centroids.shape[1]
    profile = np.broadcast_to(group_profile(count), (len(groups.labels), count + 1, count))
    each = [
        twflap.score(statistics, contexts, norms, groups.labels, profile, head, study.contexts)
        for statistics, head in zip(measured, heads, strict=True)
    ]
    found = each[0] if len(each) == 1 else combine(method.scoring, each[0], each[1], shape)
    equal = equal_counts(study, shape)
    kept = fang.allocate(found, groups, together.layer_change, shape, study.retention, equal)
    # the shared group stays
    stays = groups.labels == groups.labels.max()
    return kept, np.where(stays, np.inf, margin(found.ffn, kept.ffn, groups.labels))


def _fang(graph: Graph, method: Method) -> Declared:
    """FANG: groups, scores within them and layer changes of the primary text, or of both texts."""
    pooled = method.scoring == "pooled"

    def heads(text: str) -> Any:
        return scoring(graph, text, "flap").needs if pooled else scores(graph, text, "flap")

    texts = scored_on(method)
    needs = {
        "norms": norms(graph),
        "contexts": contexts(graph),
        "groups": groups(graph),
        # groups are the primary text's unless pooled: only then does the affinity of the other one matter
        "measured": [context_statistics(graph, text, gradient=pooled or text == PAIR[0]) for text in texts],
        "heads": [heads(text) for text in texts],
    }
    return needs, partial(_grouped, method)


@once
def taylor_tokens(graph: Graph) -> Stage[Tokens]:
    """The sequences of LLM-Pruner's gradient: of the primary text, or cut from a text of its own."""
    settings = graph.study.baselines
    if not settings.taylor_text:
        return tokens(graph)
    drawn = {"samples": settings.taylor_samples, "length": settings.taylor_length, "seed": graph.study.seed}
    # a study without the method has not read its text: pages may ask for its masks nevertheless
    digest = graph.inputs.calibration.get(GRADIENT, "")

    def make(work: RunContext) -> Tokens:
        try:
            tokens_drawn = corpora.draw_windows(settings.taylor_text, work.tokenizer, **drawn, cache=work.text_cache)
            work.require_embedded(tokens_drawn.ids, settings.taylor_text)
            return tokens_drawn
        except CorpusError as error:
            # no other method reads it
            raise MethodError(f"baselines.taylor_text: {error}") from error

    return graph.stage(
        StageId("tokens", (GRADIENT,)),
        "drawing the text of LLM-Pruner",
        make,
        reads={"text": digest} | graph.tokenizer,
        settings=drawn | {"cut": "documents"},
    )


@once
def taylor(graph: Graph) -> Stage[UnitScores]:
    """LLM-Pruner's scores, on the primary text or on one of its own."""
    # a text of its own stands in the key of its tokens
    unused = ("fang_grouping", "taylor_text")
    read = "its own text" if graph.study.baselines.taylor_text else graph.letters[PAIR[0]]

    def make(work: RunContext, tokens: Tokens) -> UnitScores:
        from gprune.pruning.calibration.gradients import taylor_scores

        return taylor_scores(work.decoder, tokens, work.study.baselines, work.progress)

    return graph.stage(
        StageId("scores", ("primary",), metric="llm_pruner"),
        f"importance scores of LLM-Pruner on {read}",
        make,
        needs={"tokens": taylor_tokens(graph)},
        reads=graph.model,
        settings=settings_of(graph.study.baselines, without=unused) | {"metric": "llm_pruner"},
    )


def _llm_pruner(graph: Graph, _: Method) -> Declared:
    from gprune.pruning.allocation import llm_pruner

    def decide(work: RunContext, shape: ModelShape, scores: UnitScores) -> Decision:
        kept = llm_pruner.allocate(scores, shape, work.study.retention)
        return kept, margins_of(scores.ffn, kept.ffn)

    return {"scores": taylor(graph)}, decide


def margins_of(scores: Array, kept: Array) -> Array:
    """(layers, neurons) margins of a method, infinite in layers that it leaves whole: they stay so.

    Both arguments are (layers, neurons): its importance scores, and bool, what it keeps.
    """
    stays = kept.all(axis=1, keepdims=True)
    return np.where(stays, np.inf, margin(scores, kept))


def equal_counts(study: Study, shape: ModelShape) -> uniform.Counts | None:
    """Neurons and key/value groups of every layer, where the study wants equal widths."""
    if not study.sparsity.equal:
        return None
    return budget.equal_counts(shape, study.retention, study.sparsity.alignment)


def removed(graph: Graph, method: Method) -> tuple[dict[str, Any], Any]:
    """What the decision needs, and how it is made: masks, and the (layers, neurons) margins of neurons."""

    def decide(work: RunContext, shape: ModelShape, tokens: Tokens) -> tuple[PruningMasks, Array]:
        from gprune.pruning.removal.walk import walk

        assert method.fit is not None
        batch, retention = work.study.calibration.batch, work.study.retention
        choose = _rule(method, work, tokens)
        found = walk(work.decoder, tokens, batch, choose, method.fit, work.progress)
        return uniform.masks(shape, found.ffn, found.heads, retention), margins_of(found.order, found.ffn)

    return {"tokens": tokens(graph)}, decide


def _rule(method: Method, work: RunContext, tokens: Tokens) -> "Decide":
    from gprune.pruning.removal import osscar, slimllm

    study = work.study
    if method.decision == "osscar":
        shape = work.decoder.shape
        return osscar.decision(shape, study.retention, equal_counts(study, shape))
    change = slimllm.cosines(work.decoder, tokens, study.calibration.batch, work.progress)
    return slimllm.decision(work.decoder, study.retention, change)


_DECISIONS: dict[str, Callable[[Graph, Method], Declared]] = {
    "flap": _ranked,
    "uniform": _ranked,
    "sequential": _sequential,
    "fang": _fang,
    "llm_pruner": _llm_pruner,
    "osscar": removed,
    "slimllm": removed,
    "plugin": lambda graph, method: (
        plugins.needs_of(graph, cast(PluginInfo, method.plugin), scores),
        partial(plugins.decide, cast(PluginInfo, method.plugin)),
    ),
}
