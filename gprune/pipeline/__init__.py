"""From a study to a pruned and measured model: every stage in order, through the store."""

from __future__ import annotations

from typing import Any

from gprune import budget
from gprune.errors import Cancelled
from gprune.pipeline.session import Listener, Session
from gprune.store import Store
from gprune.study import Study


def run(study: Study, store: Store, listener: Listener, until: str = "perplexity") -> dict[str, Any]:
    """Runs a study through the store.

    Args:
        study: what to run.
        store: where results are kept.
        listener: told of every stage's progress; may raise Cancelled.
        until: the last thing wanted, one of gprune.plan.UNTIL.

    Returns:
        Settings, keys, retained fractions, parameters, checkpoint, perplexities and seconds, as plain JSON
        values; fields of stages that were not asked for are absent.

    Raises:
        GpruneError: with one sentence that says what is wrong and what to do.
    """
    session = Session(study, store, listener)
    store.sweep()
    session.save("running")
    try:
        result = _execute(session, until)
    except (Cancelled, KeyboardInterrupt):
        session.save("cancelled", error="stopped on request; finished stages are kept")
        raise
    except Exception as error:
        session.save("failed", error=str(error))
        raise
    session.save("done", result=result if until == "perplexity" else None)
    return result


def _execute(session: Session, until: str) -> dict[str, Any]:
    from gprune.pipeline import explore, prune

    # each stage before the one that needs it, so that its seconds are its own
    roles = ("primary", "auxiliary")
    for role in roles:
        explore.tokens(session, role)
    explore.norms(session)
    for make in (explore.statistics, explore.scores):
        for role in roles:
            make(session, role)
    explore.drift(session)
    result: dict[str, Any] = {"settings": session.study.to_dict(), "run": session.run}
    if until != "drift":
        for step in (explore.partition, explore.modules, explore.adapted):
            step(session)
    if until in ("masks", "perplexity"):
        result |= _retained(session)
    if until == "perplexity":
        result["checkpoint"] = str(prune.checkpoint(session))
        result["perplexity"] = prune.perplexity(session)
        explore.agreement(session)
    result["keys"] = {name: stage["key"] for name, stage in session.stages.items()}
    result["seconds"] = {name: stage["seconds"] for name, stage in session.stages.items()}
    result["reused"] = [name for name, stage in session.stages.items() if stage["reused"]]
    return result


def _retained(session: Session) -> dict[str, Any]:
    from gprune.pipeline import explore, prune

    shape, size = explore.shape(session), explore.size(session)
    masks = {method: prune.masks(session, method) for method in prune.MASKS}
    retention, parameters = {"dense": 1.0}, {"dense": size.parameters}
    for method in prune.METHODS:
        name, compensated = prune.source(session, method)
        if name != "dense":
            kept = masks[name]
            retention[method] = kept.retention
            parameters[method] = budget.parameters(shape, size, kept.ffn, kept.heads, compensated)
    return {"retained_fraction": retention["gprune"], "retention": retention, "parameters": parameters}
