"""The stages that prune and measure: masks of every method, the pruned model's folder, perplexity."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

from gprune.pipeline import explore, provenance
from gprune.pipeline.session import Session
from gprune.progress import Progress
from gprune.records import LearningHistory, Perplexity, PruningMasks

METHODS = {
    "dense": ("dense", False),
    "gprune": ("gprune", False),
    "flap": ("flap", True),
    "flap_no_bias": ("flap", False),
    "wanda_sp": ("wanda_sp", False),
}
"""method as reported: the masks it uses, and whether the removed units' mean goes into the bias"""

MASKS = ("gprune", "flap", "wanda_sp")


def masks(session: Session, method: str) -> PruningMasks:
    """Which units a method keeps: gprune, or a baseline with its own allocation."""
    if method == "gprune":
        return _learned(session)
    compute = {"flap": _flap, "wanda_sp": _wanda_sp}[method]
    key = session.plan.masks(method)
    return session.stage(
        f"masks_{method}", "masks", key, PruningMasks, lambda progress: compute(session, progress)
    )


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
        explore.adapted(session).scores,
        explore.scores(session, "primary").heads,
        explore.partition(session),
        explore.tokens(session, "primary"),
        explore.tokens(session, "auxiliary"),
        study.sparsity,
        study.retention,
        study.seed,
        progress,
    )


def _flap(session: Session, _: Progress) -> PruningMasks:
    from gprune.allocation import flap

    scores, shape = explore.scores(session, "primary", "flap"), explore.shape(session)
    return flap.allocate(scores, shape, session.study.retention)


def _wanda_sp(session: Session, progress: Progress) -> PruningMasks:
    from gprune.allocation import uniform
    from gprune.calibration import sequential
    from gprune.scoring import wanda_sp

    shape, retention = explore.shape(session), session.study.retention
    score = partial(wanda_sp.layer_scores, explore.norms(session), shape)
    decide = uniform.decision(score, shape, retention)
    tokens, batch = explore.tokens(session, "primary"), session.study.calibration.batch
    ffn, heads = sequential.walk(session.decoder, tokens, batch, decide, progress)
    return uniform.masks(shape, ffn, heads, retention)


def cut(session: Session, method: str) -> Any:
    """The dense model itself, or a physically smaller copy under a method's masks."""
    name, compensated = source(session, method)
    if name == "dense":
        return session.decoder.model
    from gprune import surgery

    statistics = explore.statistics(session, "primary") if compensated else None
    return surgery.cut(session.decoder, masks(session, name), statistics)


def source(session: Session, method: str) -> tuple[str, bool]:
    """The masks that a reported method uses, and whether it compensates the bias."""
    if method == "gprune":
        return "gprune", session.study.sparsity.bias_compensation
    return METHODS[method]


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


def perplexity(session: Session) -> dict[str, dict[str, float]]:
    """Perplexity of the dense model and of every method on every evaluation text."""
    texts = session.study.evaluation.texts
    results: dict[str, dict[str, float]] = {}
    for method in METHODS:
        name, compensated = source(session, method)
        keys = {text: session.plan.perplexity(name, compensated, text) for text in texts}
        missing = not all(session.store.has("perplexity", key) for key in keys.values())
        # cut once for all texts, and only when one of them is missing
        model = cut(session, method) if missing else None
        results[method] = {
            text: _measure(session, f"perplexity.{method}.{index}", text, keys[text], model)
            for index, text in enumerate(texts)
        }
    return results


def _measure(session: Session, name: str, text: str, key: str, model: Any) -> float:
    def compute(progress: Progress) -> Perplexity:
        from gprune.evaluation import perplexity as evaluation

        return evaluation.perplexity(model, session.stream(text), text, session.study.evaluation, progress)

    return float(session.stage(name, "perplexity", key, Perplexity, compute).perplexity)
