"""The stages that explore: calibration sets, statistics, scores, drift, modules, adapted scores.

Every function reads its result from the session's store or makes it (sections 3.1 and 3.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from gprune import corpora
from gprune.drift import rank_drift
from gprune.pipeline.session import Session
from gprune.progress import Progress
from gprune.records import (
    ActivationStatistics,
    AdaptedScores,
    Agreement,
    ModelShape,
    ModelSize,
    ModuleStatistics,
    Partition,
    RankDrift,
    Tokens,
    UnitScores,
    WeightNorms,
)
from gprune.reliability import adapt, balanced_splits, module_statistics
from gprune.scoring import score


def tokens(session: Session, role: str) -> Tokens:
    """The calibration set of a role: primary, auxiliary or substitute."""
    settings, text = session.study.calibration, getattr(session.study, role)

    def compute(_: Progress) -> Tokens:
        drawn = (settings.samples, settings.length, session.study.seed)
        return corpora.draw(text, session.tokenizer, *drawn, cache=session.text_cache)

    return session.stage(f"tokens_{role}", "tokens", session.plan.tokens(role), Tokens, compute)


def norms(session: Session) -> WeightNorms:
    """Weight norms that the scores need; the session learns the model's shape with them."""
    key, store = session.plan.norms(), session.store
    result = session.stage("norms", "norms", key, WeightNorms, lambda _: session.decoder.weight_norms())
    if not (store.has("shapes", key) and store.has("sizes", key)):
        store.put("shapes", key, session.decoder.shape)
        store.put("sizes", key, session.decoder.size)
    session.shape, session.size = store.get("shapes", key, ModelShape), store.get("sizes", key, ModelSize)
    return result


def shape(session: Session) -> ModelShape:
    """The sizes of the model that decide what can be pruned."""
    if session.shape is None:
        norms(session)
    if session.shape is None:
        raise RuntimeError("norms() leaves the model's shape in the session")
    return session.shape


def size(session: Session) -> ModelSize:
    """Parameters and biases of the model."""
    if session.size is None:
        norms(session)
    if session.size is None:
        raise RuntimeError("norms() leaves the model's size in the session")
    return session.size


def statistics(session: Session, role: str) -> ActivationStatistics:
    """One pass of the dense model over the calibration set of a role."""

    def compute(progress: Progress) -> ActivationStatistics:
        from gprune.calibration import collect

        return collect(session.decoder, tokens(session, role), session.study.calibration, progress)

    key = session.plan.statistics(role)
    return session.stage(f"statistics_{role}", "statistics", key, ActivationStatistics, compute)


def scores(session: Session, role: str, metric: str | None = None) -> UnitScores:
    """Importance scores of a role under a metric (the study's by default), from its statistics."""
    metric = metric or session.study.metric
    name = f"scores_{role}" if metric == session.study.metric else f"scores_{metric}_{role}"
    key = session.plan.scores(role, metric)
    return session.stage(name, "scores", key, UnitScores, lambda _: _scorer(session, role, metric)())


def _scorer(session: Session, role: str, metric: str | None = None) -> Callable[..., UnitScores]:
    """Scores a role's calibration set, or some of its shards, from statistics that are read once."""
    moments, weights, sizes = statistics(session, role), norms(session), shape(session)
    settings = session.study.calibration
    return partial(score, metric or session.study.metric, moments, weights, sizes, settings)


def _halves(session: Session, role: str) -> tuple[UnitScores, UnitScores]:
    """Scores of two token-disjoint halves: the even and the odd shards."""
    shards, scorer = range(session.study.calibration.shards), _scorer(session, role)
    return scorer(shards=shards[::2]), scorer(shards=shards[1::2])


def drift(session: Session, first: str = "primary", second: str = "auxiliary") -> RankDrift:
    """Rank drift between two roles (Eq. 1) with its re-sampling control."""

    def compute(_: Progress) -> RankDrift:
        both = scores(session, first), scores(session, second)
        return rank_drift(*both, _halves(session, first), _halves(session, second))

    name = "drift" if (first, second) == ("primary", "auxiliary") else f"drift_{first}_{second}"
    return session.stage(name, "drift", session.plan.drift(first, second), RankDrift, compute)


def partition(
    session: Session,
    name: str = "partition",
    first: str = "primary",
    second: str = "auxiliary",
    *,
    seed: int | None = None,
    **changes: Any,
) -> Partition:
    """Modules of a pair of texts (BCM, section 3.1); `changes` override kind or direction."""
    settings = replace(session.study.modularization, **changes)

    def compute(progress: Progress) -> Partition:
        from gprune.modularization.partition import modularize

        return modularize(
            session.decoder.neuron_parameters,
            drift(session, first, second),
            scores(session, first),
            scores(session, second),
            settings,
            session.study.seed if seed is None else seed,
            progress,
        )

    key = session.plan.partition(first, second, seed=seed, **changes)
    return session.stage(name, "partition", key, Partition, compute)


_COMPARISONS = (
    ("A-B against A-C", "AB", "AC"),
    ("A-B against B-C", "AB", "BC"),
    ("A-C against B-C", "AC", "BC"),
    ("control: A-B, another seed", "AB", "AB_other_seed"),
    ("control: initialization only, A-B against A-C", "AB_initialization", "AC_initialization"),
)


def agreement(session: Session) -> Agreement | None:
    """Agreement of modules under text substitution (Fig. 1b); None without a third text."""
    from gprune.modularization.agreement import compare

    if not session.study.substitute:
        return None
    for make in (tokens, statistics, scores):
        make(session, "substitute")
    made = {"AB": partition(session)}
    # the direction is decided once per metric (appendix), on the study's own pair
    profile = made["AB"].profile
    seed = session.study.seed + 1
    pair_ab, pair_ac = ("primary", "auxiliary"), ("primary", "substitute")
    pair_bc = ("auxiliary", "substitute")
    wanted: dict[str, tuple[tuple[str, str], dict[str, Any]]] = {
        "AC": (pair_ac, {"direction": profile}),
        "BC": (pair_bc, {"direction": profile}),
        "AB_other_seed": (pair_ab, {"direction": profile, "seed": seed}),
        "AB_initialization": (pair_ab, {"kind": "initialization"}),
        "AC_initialization": (pair_ac, {"kind": "initialization"}),
    }
    keys = [session.plan.partition()]
    for name, (pair, changes) in wanted.items():
        drift(session, *pair)
        made[name] = partition(session, f"partition_{name.lower()}", *pair, **changes)
        keys.append(session.plan.partition(*pair, **changes))

    def compute(_: Progress) -> Agreement:
        rows = [compare(made[a], made[b]) for _, a, b in _COMPARISONS]
        titles = tuple(title for title, _, _ in _COMPARISONS)
        return Agreement(titles, np.stack([row[0] for row in rows]), np.stack([row[1] for row in rows]))

    return session.stage("agreement", "agreement", session.plan.agreement(keys), Agreement, compute)


def modules(session: Session) -> ModuleStatistics:
    """Drift, mean score and repeatability of every module (RASA before its thresholds)."""

    def halves(role: str, progress: Progress) -> Iterator[tuple[Any, Any]]:
        # one pair at a time: at 7B all pairs of both texts would be gigabytes
        splits, scorer = balanced_splits(session.study.calibration.shards), _scorer(session, role)
        for done, (first, second) in enumerate(splits):
            progress(done, len(splits), f"repeatability on the {role} text")
            yield scorer(shards=first).ffn, scorer(shards=second).ffn

    def compute(progress: Progress) -> ModuleStatistics:
        both = scores(session, "primary"), scores(session, "auxiliary")
        pairs = halves("primary", progress), halves("auxiliary", progress)
        return module_statistics(*both, partition(session), *pairs, session.study.reliability)

    return session.stage("modules", "modules", session.plan.modules(), ModuleStatistics, compute)


def adapted(session: Session) -> AdaptedScores:
    """RASA (section 3.2): scores in which unreliable modules are re-scored."""

    def compute(_: Progress) -> AdaptedScores:
        both = scores(session, "primary"), scores(session, "auxiliary")
        settings, seed = session.study.reliability, session.study.seed
        return adapt(*both, partition(session), modules(session), settings, seed)

    return session.stage("adapted", "adapted", session.plan.adapted(), AdaptedScores, compute)
