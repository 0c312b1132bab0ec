"""The masks of every baseline (section 4; appendix, multi-dataset calibration).

Most baselines use stored statistics. Sequential Wanda-sp, OSSCAR and SlimLLM run each layer on the outputs of the
pruned layers below it, and LLM-Pruner needs the gradient of the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from gprune import records
from gprune.data import texts as corpora
from gprune.pipeline.stages.calibration import context_statistics, contexts, groups, norms, shape, tokens
from gprune.pipeline.stages.graph import PAIR, Graph, Stage, StageId, once, settings_of
from gprune.pipeline.stages.inputs import GRADIENT
from gprune.pipeline.stages.run_context import RunContext
from gprune.pipeline.stages.scoring import load_code, scores, scoring
from gprune.plugins.registry import PluginInfo
from gprune.records import Array, ModelShape, PruningMasks, Tokens, UnitScores, WeightNorms, budget
from gprune.study import Study
from gprune.study.methods import Method
from gprune.system.errors import CorpusError, MethodError

if TYPE_CHECKING:
    from gprune.pruning.allocation.uniform import Counts

Decision = tuple[PruningMasks, Array]
"""Masks, and the (layers, neurons) margins by which neurons were kept (positive) or removed (negative)."""


def baseline_masks(
    graph: Graph, method: Method, identity: StageId, title: str, attention: dict[str, Stage[PruningMasks]]
) -> Stage[PruningMasks]:
    """Declare the masks of a baseline, or of a control without learning.

    `identity` and `title` are those of the stage. `attention` is empty, or has masks under the name `attention` whose
    key/value groups the baseline adopts.
    """
    (needs, decide), study = _DECISIONS[method.decision](graph, method), graph.study
    # masks that adopt attention are not shared with other methods
    name = method.masks if attention else method.same_as or method.masks
    settings: dict[str, Any] = {"method": name, "retention": study.retention}
    if method.decision == "fang":
        settings["temperature"] = study.contexts.temperature
        settings["grouping"] = study.baselines.fang_grouping
    plugin = method.plugin if method.decision == "plugin" else None
    if plugin is not None:
        settings |= {"seed": study.seed, "plugin": plugin.digest}
    if method.scoring == "pooled":
        # pooled scores are computed here, so their settings belong to this stage
        primary_scoring = scoring(graph, "primary", "flap" if method.decision == "fang" else method.metric)
        settings |= {**primary_scoring.settings, **primary_scoring.head_settings}
    settings |= study.sparsity.width_settings

    def make(work: RunContext, shape: ModelShape, **parts: Any) -> PruningMasks:
        from gprune.pruning.allocation.alignment import align_widths

        masks, margins = decide(work, shape, **parts)
        if not study.sparsity.equal:
            masks = align_widths(masks, margins, shape, study.sparsity.alignment)
        return replace(masks, method=name)

    model_inputs = graph.model_digests if method.layered or method.plugin_runs_model else {}
    needs = {"shape": shape(graph), **needs, **attention}
    return graph.stage(identity, title, make, needs=needs, reads=model_inputs, settings=settings)


def scored_on(method: Method) -> tuple[str, ...]:
    """Return the roles of the texts from which a baseline's scores are computed."""
    if method.decision == "plugin" and method.plugin is not None:
        return PAIR if method.plugin.texts == "both" else PAIR[:1]
    return PAIR[:1] if method.scoring == "single" else PAIR


Declared = tuple[dict[str, Any], Callable[..., Decision]]
"""The needs of a decision, and the function that decides from their records."""


def _declare_ranking(graph: Graph, method: Method) -> Declared:
    """Declare a decision from stored scores.

    FLAP ranks all layers together; Wanda-sp uses one ratio in every layer.
    """

    def decide(
        work: RunContext, shape: ModelShape, parts: list[Any], attention: PruningMasks | None = None
    ) -> Decision:
        from gprune.pruning.allocation import flap, uniform
        from gprune.pruning.allocation.alignment import margin

        # `parts` are the scores on each text; for a pooled method, the inputs from which they are computed
        by_text = [_pool_scores(work.study, method.metric, parts)] if method.scoring == "pooled" else parts
        combined = _combine_texts(method, by_text, shape)
        target, equal = work.study.retention, _find_equal_counts(work.study, shape)
        if attention is not None:
            masks = uniform.allocate_with_fixed_groups(combined, shape, target, attention.heads, equal)
        elif method.decision == "flap" and equal is None:
            masks = flap.allocate(combined, shape, target)
        else:
            masks = uniform.allocate(combined, shape, target, equal)
        return masks, margin(combined.ffn, masks.ffn)

    if method.scoring == "pooled":
        return {"parts": [scoring(graph, text, method.metric).needs for text in PAIR]}, decide
    return {"parts": [scores(graph, text, method.metric) for text in scored_on(method)]}, decide


def _combine_texts(method: Method, scores: list[UnitScores], shape: ModelShape) -> UnitScores:
    """Return the scores of one text, or those of two texts combined as the method does."""
    from gprune.pruning.scoring import combine_scores

    return scores[0] if len(scores) == 1 else combine_scores(method.scoring, scores[0], scores[1], shape)


def _pool_scores(study: Study, metric: str, needs_by_text: list[Any]) -> UnitScores:
    """Return scores from the pooled statistics of both texts."""
    from gprune.pruning.scoring import score

    pooled = records.pool(needs_by_text[0]["statistics"], needs_by_text[1]["statistics"])
    return score(metric, pooled, needs_by_text[0]["norms"], needs_by_text[0]["shape"], study.calibration)


def _declare_sequential(graph: Graph, _: Method) -> Declared:
    """Declare the decision of Wanda-sp that scores each layer on the outputs of the pruned layers below it."""

    def decide(work: RunContext, shape: ModelShape, norms: WeightNorms, tokens: Tokens) -> Decision:
        from gprune.pruning.allocation import uniform
        from gprune.pruning.allocation.alignment import margin
        from gprune.pruning.calibration import sequential
        from gprune.pruning.scoring import wanda_sp

        # filled by `layer_score`, for the margins
        ffn_scores = np.zeros((shape.layers, shape.neurons))

        def layer_score(layer: int, *energies: Any) -> tuple[Array, Array]:
            neurons, heads = wanda_sp.layer_scores(norms, shape, layer, *energies)
            ffn_scores[layer] = neurons
            return neurons, heads

        retention, batch = work.study.retention, work.study.calibration.batch
        choose = uniform.layer_decision(layer_score, shape, retention, _find_equal_counts(work.study, shape))
        ffn, heads = sequential.prune_layerwise(work.decoder, tokens, batch, choose, work.progress)
        return uniform.build_masks(shape, ffn, heads, retention), margin(ffn_scores, ffn)

    return {"norms": norms(graph), "tokens": tokens(graph)}, decide


def _decide_fang(
    method: Method,
    work: RunContext,
    shape: ModelShape,
    norms: WeightNorms,
    contexts: Any,
    groups: records.Partition,
    measured: list[records.ContextStatistics],
    heads: list[Any],
) -> Decision:
    """Return FANG's masks; `measured` are the statistics by context, `heads` the scores of heads, of each text.

    For a pooled method, `heads` are the needs of these scores instead.
    """
    from gprune.pruning.allocation import fang
    from gprune.pruning.allocation.alignment import margin
    from gprune.pruning.modules.functional_groups import functional_groups, group_profile
    from gprune.pruning.scoring import twflap

    study, pooled = work.study, method.scoring == "pooled"
    together = measured[0] if len(measured) == 1 else records.pool_contexts(measured[0], measured[1])
    if pooled:
        groups = functional_groups(together.affinity, study.baselines.fang_grouping)
        measured, heads = [together], [_pool_scores(study, "flap", heads)]
    count = contexts.centroids.shape[1]
    profile = np.broadcast_to(group_profile(count), (len(groups.labels), count + 1, count))
    scores_by_text = [
        twflap.score(statistics, contexts, norms, groups.labels, profile, head, study.contexts)
        for statistics, head in zip(measured, heads, strict=True)
    ]
    combined, equal = _combine_texts(method, scores_by_text, shape), _find_equal_counts(study, shape)
    masks = fang.allocate(combined, groups, together.layer_change, shape, study.retention, equal)
    # the shared group, which has the last label, is always kept
    is_shared = groups.labels == groups.labels.max()
    return masks, np.where(is_shared, np.inf, margin(combined.ffn, masks.ffn, groups.labels))


def _declare_fang(graph: Graph, method: Method) -> Declared:
    """Declare the decision of FANG from functional groups, scores within them, and the change by each layer."""
    pooled, texts = method.scoring == "pooled", scored_on(method)
    heads = [scoring(graph, text, "flap") for text in texts]
    needs = {
        "norms": norms(graph),
        "contexts": contexts(graph),
        "groups": groups(graph),
        # the auxiliary text's affinity is needed only if pooled, because groups otherwise come from the primary text
        "measured": [context_statistics(graph, text, gradient=pooled or text == PAIR[0]) for text in texts],
        "heads": [head_scoring.needs if pooled else head_scoring.stage(graph) for head_scoring in heads],
    }
    return needs, partial(_decide_fang, method)


@once
def taylor_tokens(graph: Graph) -> Stage[Tokens]:
    """Declare the sequences for LLM-Pruner's gradient, from the primary text or a separate text."""
    settings = graph.study.baselines
    if not settings.taylor_text:
        return tokens(graph)
    sampling = {"samples": settings.taylor_samples, "length": settings.taylor_length, "seed": graph.study.seed}
    # a study without the method has not read this text, but pages may still declare its masks
    digest = graph.inputs.calibration.get(GRADIENT, "")

    def make(work: RunContext) -> Tokens:
        try:
            tokens_drawn = corpora.draw_windows(settings.taylor_text, work.tokenizer, **sampling, cache=work.text_cache)
            work.require_embedded(tokens_drawn.ids, settings.taylor_text)
        except CorpusError as error:
            # a MethodError, because no other method reads this text
            raise MethodError(f"baselines.taylor_text: {error}") from error
        return tokens_drawn

    return graph.stage(
        StageId("tokens", (GRADIENT,)),
        "drawing the text of LLM-Pruner",
        make,
        reads={"text": digest} | graph.tokenizer_digests,
        settings=sampling | {"cut": "documents"},
    )


@once
def taylor(graph: Graph) -> Stage[UnitScores]:
    """Declare LLM-Pruner's scores, on the primary text or a separate text."""
    text_label = "its own text" if graph.study.baselines.taylor_text else graph.letters[PAIR[0]]
    # the text is part of the key of its tokens
    settings = settings_of(graph.study.baselines, without=("fang_grouping", "taylor_text"))

    def make(work: RunContext, tokens: Tokens) -> UnitScores:
        from gprune.pruning.calibration.gradients import taylor_scores

        return taylor_scores(work.decoder, tokens, work.study.baselines, work.progress)

    return graph.stage(
        StageId("scores", ("primary",), metric="llm_pruner"),
        f"importance scores of LLM-Pruner on {text_label}",
        make,
        needs={"tokens": taylor_tokens(graph)},
        reads=graph.model_digests,
        settings=settings | {"metric": "llm_pruner"},
    )


def _declare_llm_pruner(graph: Graph, _: Method) -> Declared:
    """Declare the decision of LLM-Pruner, which leaves the first and last layers whole."""

    def decide(work: RunContext, shape: ModelShape, scores: UnitScores) -> Decision:
        from gprune.pruning.allocation import llm_pruner

        masks = llm_pruner.allocate(scores, shape, work.study.retention)
        return masks, _compute_margins(scores.ffn, masks.ffn)

    return {"scores": taylor(graph)}, decide


def _compute_margins(scores: Array, mask: Array) -> Array:
    """Return (layers, neurons) margins from scores and mask, infinite in layers that are not pruned."""
    from gprune.pruning.allocation.alignment import margin

    is_unpruned = mask.all(axis=1, keepdims=True)
    return np.where(is_unpruned, np.inf, margin(scores, mask))


def _find_equal_counts(study: Study, shape: ModelShape) -> Counts | None:
    """Return the number of kept units per layer if all layers get equal widths, else None."""
    if not study.sparsity.equal:
        return None
    return budget.equal_counts(shape, study.retention, study.sparsity.alignment)


def _declare_removal(graph: Graph, method: Method) -> Declared:
    """Declare the decision of OSSCAR or SlimLLM, which prunes and repairs each layer after the layers below it."""

    def decide(work: RunContext, shape: ModelShape, tokens: Tokens) -> Decision:
        from gprune.pruning.allocation import uniform
        from gprune.pruning.removal import osscar, slimllm
        from gprune.pruning.removal.walk import remove_layerwise

        assert method.fit is not None
        study, batch = work.study, work.study.calibration.batch
        if method.decision == "osscar":
            choose = osscar.osscar_decision(shape, study.retention, _find_equal_counts(study, shape))
        else:
            cosines = slimllm.layer_cosines(work.decoder, tokens, batch, work.progress)
            choose = slimllm.slimllm_decision(work.decoder, study.retention, cosines)
        walked = remove_layerwise(work.decoder, tokens, batch, choose, method.fit, work.progress)
        masks = uniform.build_masks(shape, walked.ffn, walked.heads, study.retention)
        return masks, _compute_margins(walked.order, walked.ffn)

    return {"tokens": tokens(graph)}, decide


def _declare_plugin(graph: Graph, method: Method) -> Declared:
    """Declare the decision of a plug-in from scores, tokens and the model, or both. Raises PluginError if it fails."""
    plugin, needs = cast(PluginInfo, method.plugin), dict[str, Any]()
    if plugin.needs != "model":
        needs["scores"] = [scores(graph, text, plugin.metric) for text in scored_on(method)]
    if plugin.needs != "scores":
        needs["tokens"] = [tokens(graph, text) for text in scored_on(method)]

    def decide(
        work: RunContext, shape: ModelShape, scores: Sequence[UnitScores] = (), tokens: Sequence[Tokens] = ()
    ) -> Decision:
        from gprune.plugins import Problem, calls
        from gprune.pruning.allocation.alignment import margin

        code, study, ids = load_code(plugin), work.study, tuple(text.ids for text in tokens)
        problem = Problem(shape, study.retention, study.seed, scores=tuple(scores), tokens=ids, progress=work.progress)
        if plugin.needs == "scores":
            masks = calls.decide(plugin, code, problem)
        else:
            work.decoder.require_whole(plugin.description)
            # count the tokens of the plug-in's forward passes
            with work.decoder.counting() as model:
                masks = calls.decide(plugin, code, replace(problem, model=model))
        ranked = scores[0].ffn if scores else masks.ffn.astype(float)
        return masks, margin(ranked, masks.ffn)

    return needs, decide


_DECISIONS: dict[str, Callable[[Graph, Method], Declared]] = {
    "flap": _declare_ranking,
    "uniform": _declare_ranking,
    "sequential": _declare_sequential,
    "fang": _declare_fang,
    "llm_pruner": _declare_llm_pruner,
    "osscar": _declare_removal,
    "slimllm": _declare_removal,
    "plugin": _declare_plugin,
}
