"""The stages that explore: importance scores, rank drift, modules (section 3.1).

Most metrics score neurons without regard to modules, so the order is scores, drift, modules. Token-weighted
FLAP scores a neuron within its module, so its order is coupled (appendix, BCM settings): FLAP's ranks make
the first modules, their token-weighted scores the drift that refines them, and the refined modules the scores
that count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from gprune.drift import rank_drift
from gprune.pipeline import inputs
from gprune.pipeline.session import Session
from gprune.plan import PAIR, first_kind
from gprune.progress import Progress
from gprune.records import Partition, RankDrift, UnitScores
from gprune.scoring import score, twflap

Scorer = Callable[..., UnitScores]
"""Scores a calibration set, or the shards given by the keyword `shards`."""
Pair = tuple[str, str]


def scores(session: Session, role: str, metric: str | None = None, pair: Pair = PAIR) -> UnitScores:
    """Importance scores of a role under a metric (the study's by default), from its statistics."""
    metric = metric or session.study.metric
    name = f"scores_{role}" if metric == session.study.metric else f"scores_{metric}_{role}"
    key = session.plan.scores(role, metric, pair=pair)
    make = scorer(session, role, metric, pair)
    return session.stage(name, "scores", key, UnitScores, lambda _: make())


def scorer(session: Session, role: str, metric: str | None = None, pair: Pair = PAIR) -> Scorer:
    """What scores a role's calibration set, or some of its shards, without another pass of the model."""
    metric = metric or session.study.metric
    if metric == "twflap":
        return _Later(lambda: _token_weighted(session, role, pair, partition(session, *pair)))
    return _Later(lambda: _plain(session, role, metric))


class _Later:
    """A scorer whose statistics are read when it is first used, and once."""

    def __init__(self, make: Callable[[], Scorer]) -> None:
        self._make = make

    @cached_property
    def _scorer(self) -> Scorer:
        return self._make()

    def __call__(self, **arguments: Any) -> UnitScores:
        return self._scorer(**arguments)


def _plain(session: Session, role: str, metric: str) -> Scorer:
    moments, weights = inputs.statistics(session, role), inputs.norms(session)
    return partial(score, metric, moments, weights, inputs.shape(session), session.study.calibration)


def _token_weighted(session: Session, role: str, pair: Pair, modules: Partition) -> Scorer:
    """Token-weighted FLAP under some modules; contexts and affinity are the first text's."""
    measured = inputs.context_statistics(session, role, pair[0], gradient=role == pair[0])
    own = inputs.context_statistics(session, pair[0], pair[0], gradient=True)
    count, kind = int(modules.counts.max()), session.study.contexts.module_profile
    profile = twflap.module_profile(own.affinity, modules.labels, count, kind)
    return partial(
        twflap.score,
        measured,
        inputs.contexts(session, pair[0]),
        inputs.norms(session),
        modules.labels,
        profile,
        scores(session, role, "flap"),
        session.study.contexts,
    )


def _halves(session: Session, make: Scorer) -> tuple[UnitScores, UnitScores]:
    """Scores of two token-disjoint halves: the even and the odd shards."""
    shards = range(session.study.calibration.shards)
    return make(shards=shards[::2]), make(shards=shards[1::2])


def drift(
    session: Session, first: str = "primary", second: str = "auxiliary", metric: str | None = None
) -> RankDrift:
    """Rank drift between two roles (Eq. 1) with its re-sampling control."""
    pair, metric = (first, second), metric or session.study.metric
    both = tuple(scores(session, role, metric, pair) for role in pair)
    makes = tuple(scorer(session, role, metric, pair) for role in pair)
    other = "" if metric == session.study.metric else f"_{metric}"
    name = f"drift{other}" if pair == PAIR else f"drift{other}_{first}_{second}"
    key = session.plan.drift(first, second, metric)
    return session.stage(name, "drift", key, RankDrift, lambda _: _drift(session, both, makes))


def _drift(session: Session, both: tuple[UnitScores, ...], makes: tuple[Scorer, ...]) -> RankDrift:
    return rank_drift(both[0], both[1], *(_halves(session, make) for make in makes))


def partition(
    session: Session,
    first: str = "primary",
    second: str = "auxiliary",
    name: str = "partition",
    *,
    seed: int | None = None,
    **changes: Any,
) -> Partition:
    """Modules of a pair of texts (BCM, section 3.1); `changes` override kind or direction."""
    pair, seed = (first, second), session.study.seed if seed is None else seed
    settings = replace(session.study.modularization, **changes)
    key = session.plan.partition(first, second, seed=seed, **changes)
    start, clusters = None, None
    if session.study.metric == "twflap":
        for role in pair:
            inputs.context_statistics(session, role, first, gradient=role == first)
        start = _first_partition(session, pair, name, first_kind(settings.kind), seed)
        moved, both = _first_drift(session, pair, name, start, seed, settings.kind)
    else:
        clusters = _clusters(session, seed)
        moved = drift(session, first, second)
        both = scores(session, first), scores(session, second)

    def compute(progress: Progress) -> Partition:
        from gprune.modularization.partition import modularize

        rows = session.decoder.neuron_parameters
        labels = None if start is None else start.labels
        return modularize(rows, moved, *both, settings, seed, progress, labels, clusters)

    return session.stage(name, "partition", key, Partition, compute)


def _clusters(session: Session, seed: int) -> Partition:
    """Clusters of the parameters alone: partitions by any drift start from the same ones."""
    settings, shape = session.study.modularization, inputs.shape(session)

    def compute(progress: Progress) -> Partition:
        from gprune.modularization.partition import cluster_layers

        rows = session.decoder.neuron_parameters
        return cluster_layers(rows, shape.layers, shape.neurons, settings, seed, progress)

    name = "clusters" if seed == session.study.seed else "clusters_other_seed"
    return session.stage(name, "clusters", session.plan.clusters(seed), Partition, compute)


def _first_partition(session: Session, pair: Pair, name: str, kind: Any, seed: int) -> Partition:
    """The modules that twFLAP starts from: parameters and FLAP's drift, not refined."""
    moved = drift(session, *pair, metric="flap")
    both = tuple(scores(session, role, "flap") for role in pair)
    clusters = _clusters(session, seed)
    settings = replace(session.study.modularization, kind=kind, direction="magnitude")

    def compute(progress: Progress) -> Partition:
        from gprune.modularization.partition import modularize

        rows = session.decoder.neuron_parameters
        return modularize(rows, moved, both[0], both[1], settings, seed, progress, clusters=clusters)

    key = session.plan.first_partition(*pair, kind=kind, seed=seed)
    return session.stage(f"first_{name}", "partition", key, Partition, compute)


def _first_drift(
    session: Session, pair: Pair, name: str, start: Partition, seed: int, kind: str
) -> tuple[RankDrift, tuple[UnitScores, UnitScores]]:
    """Token-weighted scores under the first modules, and their drift, which the refinement follows."""
    plan, (first, second) = session.plan, pair
    under = plan.first_partition(*pair, kind=first_kind(kind), seed=seed)
    makes = tuple(_Later(partial(_token_weighted, session, role, pair, start)) for role in pair)

    def under_first(role: str, make: Scorer) -> UnitScores:
        key = plan.first_scores(role, pair, under)
        return session.stage(f"first_scores_{name}_{role}", "scores", key, UnitScores, lambda _: make())

    both = under_first(first, makes[0]), under_first(second, makes[1])
    key = plan.first_drift(*pair, under)
    moved = session.stage(
        f"first_drift_{name}", "drift", key, RankDrift, lambda _: _drift(session, both, makes)
    )
    return moved, both
