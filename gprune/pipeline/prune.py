"""The stages that prune: masks of every method, the smaller model, its folder."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from gprune.methods import METHODS, Method
from gprune.pipeline import adaptation, baselines, explore, inputs, provenance
from gprune.pipeline.session import Session
from gprune.progress import Progress
from gprune.records import ActivationStatistics, LearningHistory, PruningMasks, pool


def masks(session: Session, name: str) -> PruningMasks:
    """Which units some masks keep, by the name under which methods use them.

    Raises:
        MethodError: the method cannot run on this model or at this retention.
    """
    return _learned(session) if name == "gprune" else baselines.masks(session, name)


def _learned(session: Session) -> PruningMasks:
    """The masks of gprune; how they were learned is a result of its own."""
    plan, store = session.plan, session.store

    def learn(progress: Progress) -> PruningMasks:
        result, history = _learn(session, progress)
        # before the masks and under their lock: whoever finds the masks finds their history
        store.put("history", plan.history(), history, provenance.versions())
        return result

    result = session.stage("masks_gprune", "masks", plan.masks("gprune"), PruningMasks, learn)
    if store.has("history", plan.history()):
        reused = session.stages["masks_gprune"]["reused"]
        session.note("history", "history", plan.history(), 0.0, reused)
    else:
        # lost or damaged: learned again, since the same seed gives the same course
        learned = lambda progress: _learn(session, progress)[1]  # noqa: E731
        session.stage("history", "history", plan.history(), LearningHistory, learned)
    return result


def _learn(session: Session, progress: Progress) -> tuple[PruningMasks, LearningHistory]:
    from gprune.sparsity.learning import learn

    study = session.study
    return learn(
        session.decoder,
        adaptation.adapted(session).scores,
        explore.scores(session, "primary").heads,
        explore.partition(session),
        inputs.tokens(session, "primary"),
        inputs.tokens(session, "auxiliary"),
        study.sparsity,
        study.retention,
        study.seed,
        progress,
    )


def cut(session: Session, name: str) -> Any:
    """The dense model itself, or a physically smaller copy under a method's masks."""
    method = METHODS[name]
    if method.decision == "none":
        return session.decoder.model
    from gprune import surgery

    statistics = _means(session, method) if compensated(session, name) else None
    return surgery.cut(session.decoder, masks(session, method.masks), statistics)


def _means(session: Session, method: Method) -> ActivationStatistics:
    """The statistics behind the bias compensation: of both texts where the scores are of both."""
    primary = inputs.statistics(session, "primary")
    if method.scoring == "single":
        return primary
    return pool(primary, inputs.statistics(session, "auxiliary"))


def compensated(session: Session, name: str) -> bool:
    """Whether a method moves the removed units' mean into the biases."""
    method = METHODS[name]
    return session.study.sparsity.bias_compensation if method.decision == "learned" else method.compensated


def checkpoint(session: Session) -> Path:
    """The pruned model as a folder, read back and compared before it is called done."""
    key, name, started = session.plan.checkpoint(), "checkpoint", time.perf_counter()
    store = session.store

    def write(folder: Path) -> dict[str, Any]:
        from gprune.export import checkpoint as folder_form

        session.listener(name, 0, 1, "writing and reading back")
        folder_form.save(
            cut(session, "gprune"),
            session.tokenizer,
            folder / "model",
            masks(session, "gprune"),
            source=session.study.model,
            fingerprint=session.plan.inputs.model,
            bias_compensation=session.study.sparsity.bias_compensation,
            study=session.study.to_dict(),
        )
        return {}

    reused = store.has(name, key)
    if not reused:
        with store.lock(name, key, lambda: session.waiting(name)):
            reused = store.has(name, key)
            if not reused:
                store.put_folder(name, key, write, provenance.versions())
    session.note(name, name, key, time.perf_counter() - started, reused)
    return store.folder(name, key) / "model"
