"""The masks of every baseline (section 4; appendix, multi-dataset calibration).

All but two are decided from statistics that are there already: sequential Wanda-sp looks at each layer above
the pruned ones, and LLM-Pruner needs the gradient of the weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from gprune import budget
from gprune.methods import METHODS, Method
from gprune.modularization.functional_groups import functional_groups, group_profile
from gprune.pipeline import explore, inputs
from gprune.pipeline.agreement import groups
from gprune.pipeline.session import Session
from gprune.plan import PAIR
from gprune.progress import Progress
from gprune.ranking import module_means, rank_quantile_within
from gprune.records import Array, ContextStatistics, Partition, PruningMasks, UnitScores, pool, pool_contexts
from gprune.scoring import score, twflap
from gprune.scoring.combination import combine

Decision = tuple[PruningMasks, Array]
"""Masks, and the (layers, neurons) margins by which neurons were kept (positive) or removed (negative)."""
Decide = Callable[[Progress], Decision]


def masks(session: Session, name: str) -> PruningMasks:
    """The masks of a baseline, by the name under which methods use them.

    Raises:
        MethodError: the baseline cannot run on this model or at this retention.
    """
    method = next(method for method in METHODS.values() if method.masks == name)
    decide = _DECISIONS[method.decision](session, method)

    def compute(progress: Progress) -> PruningMasks:
        decided, margin = decide(progress)
        return replace(_aligned(session, decided, margin), method=name)

    return session.stage(f"masks_{name}", "masks", session.plan.masks(name), PruningMasks, compute)


def _aligned(session: Session, decided: PruningMasks, margin: Array) -> PruningMasks:
    """Rounds the widths to the alignment that is asked for, the neurons nearest the cut first."""
    alignment, shape = session.study.sparsity.alignment, inputs.shape(session)
    if alignment == 1:
        return decided
    ffn = budget.align(shape, decided.ffn, decided.heads, margin, decided.target, alignment)
    return replace(decided, ffn=ffn, retention=budget.retention(shape, ffn, decided.heads))


def _margin(scores: Array, kept: Array, labels: Array | None = None) -> Array:
    """Rank quantile of a neuron in its layer, or in its group there, above the share that was removed.

    Ranks make scores of different layers comparable, and each layer or group has its cut at zero.
    """
    layers, neurons = scores.shape
    groups = np.zeros((layers, neurons), dtype=np.int64) if labels is None else labels
    rows = []
    for row, keep, label in zip(scores, kept, groups, strict=True):
        share = module_means(keep.astype(np.float64), label)[label]
        rows.append(rank_quantile_within(row, label) - (1 - share))
    return np.stack(rows)


def _scored(session: Session, method: Method) -> Callable[[], UnitScores]:
    """The scores of a baseline: of one text, or of both texts together."""
    roles = PAIR[:1] if method.scoring == "single" else PAIR
    both = [explore.scores(session, role, method.metric) for role in roles]
    if method.scoring == "single":
        return lambda: both[0]
    if method.scoring != "pooled":
        return lambda: combine(method.scoring, both[0], both[1], inputs.shape(session))
    parts = [inputs.statistics(session, role) for role in PAIR]
    known = inputs.norms(session), inputs.shape(session), session.study.calibration
    return lambda: score(method.metric, pool(parts[0], parts[1]), *known)


def _ranked(session: Session, method: Method) -> Decide:
    """One ranking of the whole model (FLAP), or one ratio in every layer (Wanda-sp), from stored scores."""
    from gprune.allocation import flap, uniform

    allocate = flap.allocate if method.decision == "flap" else uniform.allocate
    scored, shape = _scored(session, method), inputs.shape(session)

    def decide(_: Progress) -> Decision:
        scores = scored()
        kept = allocate(scores, shape, session.study.retention)
        return kept, _margin(scores.ffn, kept.ffn)

    return decide


def _sequential(session: Session, _: Method) -> Decide:
    from gprune.allocation import uniform
    from gprune.scoring import wanda_sp

    shape, retention = inputs.shape(session), session.study.retention
    norms, seen = inputs.norms(session), np.zeros((shape.layers, shape.neurons))

    def layer_score(layer: int, *energies: Any) -> tuple[Array, Array]:
        scores = wanda_sp.layer_scores(norms, shape, layer, *energies)
        seen[layer] = scores[0]
        return scores

    choose = uniform.decision(layer_score, shape, retention)
    tokens, batch = inputs.tokens(session, "primary"), session.study.calibration.batch

    def decide(progress: Progress) -> Decision:
        from gprune.calibration import sequential

        kept = sequential.walk(session.decoder, tokens, batch, choose, progress)
        return uniform.masks(shape, *kept, retention), _margin(seen, kept[0])

    return decide


def _fang(session: Session, method: Method) -> Decide:
    """FANG: groups, scores within them and layer changes of the primary text, or of both texts."""
    from gprune.allocation import fang

    shape, grouping = inputs.shape(session), session.study.baselines.fang_grouping
    roles, pooled = PAIR[:1] if method.scoring == "single" else PAIR, method.scoring == "pooled"
    # groups are the primary text's unless pooled: only then does the affinity of the other one matter
    measured = [
        inputs.context_statistics(session, role, gradient=pooled or role == PAIR[0]) for role in roles
    ]
    together = measured[0] if len(measured) == 1 else pool_contexts(measured[0], measured[1])
    made = groups(session, "primary")
    if pooled:
        made = functional_groups(together.affinity, grouping)
    heads = [explore.scores(session, role, "flap") for role in roles]
    known = _group_scorer(session, made)

    def decide(_: Progress) -> Decision:
        scores = _combined(session, method, known, together, measured, heads)
        kept = fang.allocate(scores, made, together.layer_change, shape, session.study.retention)
        margin = _margin(scores.ffn, kept.ffn, made.labels)
        # the shared group stays
        return kept, np.where(made.labels == made.labels.max(), np.inf, margin)

    return decide


def _group_scorer(session: Session, made: Partition) -> Callable[..., UnitScores]:
    """Scores statistics by context under FANG's groups."""
    contexts, norms = inputs.contexts(session, "primary"), inputs.norms(session)
    count = contexts.centroids.shape[1]
    profile = np.broadcast_to(group_profile(count), (len(made.labels), count + 1, count))
    settings = session.study.contexts

    def scorer(statistics: ContextStatistics, heads: UnitScores) -> UnitScores:
        return twflap.score(statistics, contexts, norms, made.labels, profile, heads, settings)

    return scorer


def _combined(
    session: Session,
    method: Method,
    scorer: Callable[..., UnitScores],
    together: ContextStatistics,
    measured: list[ContextStatistics],
    heads: list[UnitScores],
) -> UnitScores:
    """FANG's scores of one text, of both averaged, or of both as one."""
    if method.scoring == "pooled":
        parts = [inputs.statistics(session, role) for role in PAIR]
        known = inputs.norms(session), inputs.shape(session), session.study.calibration
        return scorer(together, score("flap", pool(parts[0], parts[1]), *known))
    each = [scorer(one, head) for one, head in zip(measured, heads, strict=True)]
    if method.scoring == "single":
        return each[0]
    return combine(method.scoring, each[0], each[1], inputs.shape(session))


def _llm_pruner(session: Session, _: Method) -> Decide:
    from gprune.allocation import llm_pruner

    tokens, shape = inputs.tokens(session, "primary"), inputs.shape(session)

    def compute(progress: Progress) -> UnitScores:
        from gprune.calibration.gradients import taylor_scores

        return taylor_scores(session.decoder, tokens, session.study.baselines, progress)

    key = session.plan.taylor()
    scores = session.stage("scores_llm_pruner_primary", "scores", key, UnitScores, compute)

    def decide(_: Progress) -> Decision:
        kept = llm_pruner.allocate(scores, shape, session.study.retention)
        margin = _margin(scores.ffn, kept.ffn)
        # layers that are not pruned stay whole
        return kept, np.where(kept.ffn.all(axis=1, keepdims=True), np.inf, margin)

    return decide


_DECISIONS: dict[str, Callable[[Session, Method], Decide]] = {
    "flap": _ranked,
    "uniform": _ranked,
    "sequential": _sequential,
    "fang": _fang,
    "llm_pruner": _llm_pruner,
}
