"""The stages that read and run the dense model: calibration sets, norms, statistics, contexts (section 3).

Every function reads its result from the session's store or makes it.
"""

from __future__ import annotations

from gprune import corpora
from gprune.methods import METHODS
from gprune.pipeline.session import Session
from gprune.progress import Progress
from gprune.records import (
    ActivationStatistics,
    Contexts,
    ContextStatistics,
    ModelShape,
    ModelSize,
    Tokens,
    WeightNorms,
)


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
    drawn = tokens(session, role)

    def compute(progress: Progress) -> ActivationStatistics:
        from gprune.calibration import collect

        return collect(session.decoder, drawn, session.study.calibration, progress)

    key = session.plan.statistics(role)
    return session.stage(f"statistics_{role}", "statistics", key, ActivationStatistics, compute)


def contexts(session: Session, role: str, seed: int | None = None) -> Contexts:
    """Context clusters made from a sample of a role's calibration set (base metric twFLAP, FANG)."""
    drawn, study = tokens(session, role), session.study
    chosen = study.seed if seed is None else seed

    def compute(progress: Progress) -> Contexts:
        from gprune.calibration.contexts import fit_contexts

        batch = study.calibration.batch
        return fit_contexts(session.decoder, drawn, study.contexts, batch, chosen, progress)

    name = f"contexts_{role}" + _suffix(seed)
    return session.stage(name, "contexts", session.plan.contexts(role, seed), Contexts, compute)


def _pools_contexts(session: Session) -> bool:
    """Whether a method of the study needs the affinity of both texts."""
    methods = (METHODS[name] for name in session.study.methods)
    return any(method.decision == "fang" and method.scoring == "pooled" for method in methods)


def _suffix(seed: int | None) -> str:
    return "" if seed is None else "_other_seed"


def context_statistics(
    session: Session, role: str, made_on: str = "primary", *, gradient: bool, seed: int | None = None
) -> ContextStatistics:
    """One pass over a role's calibration set under the contexts of another, backward too for the affinity.

    Where statistics with a gradient are there, or will be needed by another method of the study, they serve
    for those without: the moments are the same.
    """
    plan, store = session.plan, session.store
    gradient = gradient or (made_on == "primary" and seed is None and _pools_contexts(session))
    key = plan.context_statistics(role, made_on, gradient=gradient, seed=seed)
    whole = plan.context_statistics(role, made_on, gradient=True, seed=seed)
    if not store.has("context_statistics", key) and store.has("context_statistics", whole):
        key = whole
    drawn, made = tokens(session, role), contexts(session, made_on, seed)

    def compute(progress: Progress) -> ContextStatistics:
        from gprune.calibration.context_statistics import collect_contexts

        shards, batch = session.study.calibration.shards, session.study.calibration.batch
        return collect_contexts(session.decoder, drawn, made, shards, batch, gradient, progress)

    under = "" if made_on == "primary" else f"_by_{made_on}"
    name = f"context_statistics_{role}{under}{_suffix(seed)}"
    return session.stage(name, "context_statistics", key, ContextStatistics, compute)
