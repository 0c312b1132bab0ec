"""Stages of studies that prune the experts of mixture-of-experts models: statistics, scores, rank drift, masks.

Calibration sets and evaluations are the stages of all studies. A method of experts has masks and, with
`repair.kind` router, refitted routers.
"""

from collections.abc import Sequence
from typing import Any

from gprune.pipeline.stages.calibration import tokens
from gprune.pipeline.stages.graph import PAIR, Graph, Stage, StageId, once, settings_of
from gprune.pipeline.stages.run_context import RunContext
from gprune.pruning.experts import criteria
from gprune.pruning.rasa import balanced_splits
from gprune.records import Tokens
from gprune.records.experts import (
    AdaptedExperts,
    ExpertDrift,
    ExpertMasks,
    ExpertScores,
    ExpertShape,
    ExpertStatistics,
    PrunedExperts,
    RouterWeights,
)
from gprune.records.repairs import ROUTERS
from gprune.study.methods import EXPERT_CRITERIA, EXPERT_METHODS, Method


@once
def expert_shape(graph: Graph) -> Stage[ExpertShape]:
    """Declare the sizes of the mixtures of the model."""
    reads = graph.model_digests
    return graph.stage(StageId("expert_shape"), "sizes of the mixtures", lambda work: work.experts.shape, reads=reads)


@once
def expert_statistics(graph: Graph, text: str = "primary") -> Stage[ExpertStatistics]:
    """Declare the sums and strongest tokens of every expert on a calibration set, by role, in one pass of the model."""
    settings = graph.study.calibration

    def make(work: RunContext, tokens: Tokens) -> ExpertStatistics:
        from gprune.pruning.experts.routing import collect_experts

        return collect_experts(work.experts, tokens, settings, work.progress)

    return graph.stage(
        StageId("expert_statistics", (text,)),
        f"statistics of experts on {graph.letters[text]}",
        make,
        needs={"tokens": tokens(graph, text)},
        reads=graph.model_digests,
        settings={"shards": settings.shards},
    )


@once
def expert_scores(graph: Graph, criterion: str, text: str = "primary") -> Stage[ExpertScores]:
    """Declare the scores of experts on a calibration set by a criterion of EXPERT_CRITERIA except random."""

    def make(_: RunContext, statistics: ExpertStatistics) -> ExpertScores:
        return criteria.score_experts(criterion, statistics)

    return graph.stage(
        StageId("expert_scores", (text,), metric=criterion),
        f"{EXPERT_CRITERIA[criterion]} of experts on {graph.letters[text]}",
        make,
        needs={"statistics": expert_statistics(graph, text)},
        settings={"criterion": criterion},
    )


def _pair_needs(graph: Graph, criterion: str) -> dict[str, Any]:
    """Return the needs of a stage that compares scores of A and B, and of their shards."""
    return {
        "scores": [expert_scores(graph, criterion, text) for text in PAIR],
        "statistics": [expert_statistics(graph, text) for text in PAIR],
    }


@once
def expert_rank_drift(graph: Graph, criterion: str) -> Stage[ExpertDrift]:
    """Declare the rank drift of experts between A and B (Eq. 1) with its resampling control."""

    def make(work: RunContext, scores: list[ExpertScores], statistics: list[ExpertStatistics]) -> ExpertDrift:
        shards = range(work.study.calibration.shards)
        halves = [criteria.score_halves(criterion, sums, shards[::2], shards[1::2]) for sums in statistics]
        return criteria.expert_drift(scores[0], scores[1], halves[0], halves[1])

    title = f"rank drift of experts between A and B by {EXPERT_CRITERIA[criterion]}"
    identity = StageId("expert_drift", metric=criterion)
    return graph.stage(identity, title, make, needs=_pair_needs(graph, criterion))


@once
def adapted_experts(graph: Graph, criterion: str) -> Stage[AdaptedExperts]:
    """Declare the adaptation of scores on A to B: RASA with the expert as module."""
    settings, seed = graph.study.reliability, graph.study.seed

    def make(work: RunContext, scores: list[ExpertScores], statistics: list[ExpertStatistics]) -> AdaptedExperts:
        splits = balanced_splits(work.study.calibration.shards)

        halves = [[criteria.score_halves(criterion, sums, *split) for split in splits] for sums in statistics]
        return criteria.adapt_experts(scores[0], scores[1], halves[0], halves[1], settings, seed)

    return graph.stage(
        StageId("expert_adaptation", metric=criterion),
        f"adapting {EXPERT_CRITERIA[criterion]} of experts",
        make,
        needs=_pair_needs(graph, criterion),
        settings=settings_of(settings) | {"seed": seed},
    )


@once
def expert_masks(graph: Graph, name: str) -> Stage[ExpertMasks]:
    """Declare the masks of a method of EXPERT_METHODS, by its name."""
    method, retention, seed = EXPERT_METHODS[name], graph.study.retention, graph.study.seed

    def make(_: RunContext, shape: ExpertShape, scores: Sequence[Any] = ()) -> ExpertMasks:
        if not scores:
            values = criteria.random_scores(shape, seed)
        elif method.scoring == "score_average":
            values = criteria.average_experts(*scores)
        else:
            values = scores[0].scores if isinstance(scores[0], AdaptedExperts) else scores[0]
        return criteria.allocate_experts(name, shape, values, retention)

    scores = _mask_scores(graph, method)
    return graph.stage(
        StageId("expert_masks", method=name),
        f"masks of {method.label}",
        make,
        needs={"shape": expert_shape(graph)} | ({"scores": scores} if scores else {}),
        settings={"method": name, "retention": retention} | ({} if scores else {"seed": seed}),
    )


def _mask_scores(graph: Graph, method: Method) -> list[Stage[Any]]:
    """Return the stages of the scores from which the masks of a method follow; empty for random masks."""
    if method.metric == "random":
        return []
    if method.scoring == "adapted":
        return [adapted_experts(graph, method.metric)]
    texts = {"single": PAIR[:1], "auxiliary": PAIR[1:], "score_average": PAIR}[method.scoring]
    return [expert_scores(graph, method.metric, text) for text in texts]


@once
def router_weights(graph: Graph, name: str) -> Stage[RouterWeights]:
    """Declare the refitted routers of a method's model: distilled from the dense model on the texts of the repair."""
    study, unused = graph.study, ("kind", "texts", "rank", "alpha", "targets")

    def make(work: RunContext, texts: list[Tokens], masks: ExpertMasks) -> RouterWeights:
        from gprune.pruning.experts.routers import refit_routers

        work.release_model()
        model = work.prune(PrunedExperts(masks))
        run_arguments = study.recovery, study.seed, work.progress, work.resumption
        return refit_routers(work.experts, model, name, texts, *run_arguments)

    return graph.stage(
        StageId(ROUTERS, method=name),
        f"refitting the routers of {EXPERT_METHODS[name].label}",
        make,
        needs={"masks": expert_masks(graph, name), "texts": [tokens(graph, role) for role in study.repair.roles]},
        reads=graph.model_digests,
        settings=settings_of(study.recovery, without=unused) | {"seed": study.seed},
    )


def criteria_of(graph: Graph) -> list[str]:
    """Return the criteria of the study's methods, or REAP if they are all random.

    Criteria whose scores are adapted come first, in the order of the methods.
    """
    used = [EXPERT_METHODS[name] for name in graph.study.methods if name in EXPERT_METHODS]
    used.sort(key=lambda method: method.scoring != "adapted")
    names = dict.fromkeys(method.metric for method in used if method.metric != "random")
    return list(names) or ["reap"]


def drifts_of_experts(graph: Graph) -> list[Stage[ExpertDrift]]:
    """Return the rank drifts of `criteria_of`."""
    return [expert_rank_drift(graph, criterion) for criterion in criteria_of(graph)]
