"""The stages of reliability-aware score adaptation (RASA, section 3.2)."""

from __future__ import annotations

from collections.abc import Iterator

from gprune.pipeline import explore
from gprune.pipeline.session import Session
from gprune.progress import Progress
from gprune.records import AdaptedScores, Array, ModuleStatistics
from gprune.reliability import adapt, balanced_splits, module_statistics


def modules(session: Session) -> ModuleStatistics:
    """Drift, mean score and repeatability of every module (RASA before its thresholds)."""
    both = explore.scores(session, "primary"), explore.scores(session, "auxiliary")
    partition = explore.partition(session)

    def halves(role: str, progress: Progress) -> Iterator[tuple[Array, Array]]:
        # one pair at a time: at 7B all pairs of both texts would be gigabytes
        splits, make = balanced_splits(session.study.calibration.shards), explore.scorer(session, role)
        for done, (first, second) in enumerate(splits):
            progress(done, len(splits), f"repeatability on the {role} text")
            yield make(shards=first).ffn, make(shards=second).ffn

    def compute(progress: Progress) -> ModuleStatistics:
        pairs = halves("primary", progress), halves("auxiliary", progress)
        return module_statistics(*both, partition, *pairs, session.study.reliability)

    return session.stage("modules", "modules", session.plan.modules(), ModuleStatistics, compute)


def adapted(session: Session) -> AdaptedScores:
    """RASA (section 3.2): scores in which unreliable modules are re-scored."""
    both = explore.scores(session, "primary"), explore.scores(session, "auxiliary")
    partition, statistics = explore.partition(session), modules(session)

    def compute(_: Progress) -> AdaptedScores:
        settings, seed = session.study.reliability, session.study.seed
        return adapt(*both, partition, statistics, settings, seed)

    return session.stage("adapted", "adapted", session.plan.adapted(), AdaptedScores, compute)
