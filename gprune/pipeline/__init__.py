"""From a study to a pruned and measured model: every stage in order, through the store."""

from __future__ import annotations

from typing import Any

from gprune.errors import Cancelled
from gprune.pipeline.session import Listener, Session
from gprune.store import Store
from gprune.study import Study

UNTIL = ("drift", "adapted", "masks", "perplexity")
"""what a run may stop after"""


def run(study: Study, store: Store, listener: Listener, until: str = "perplexity") -> dict[str, Any]:
    """Runs a study through the store.

    Args:
        study: what to run.
        store: where results are kept.
        listener: told of every stage's progress; may raise Cancelled.
        until: the last thing wanted, one of UNTIL.

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

    masks = {method: prune.masks(session, method) for method in prune.MASKS}
    weights = explore.shape(session).decoder_weights
    retention, parameters = {}, {}
    for method, (name, _) in prune.METHODS.items():
        retention[method] = 1.0 if name == "dense" else masks[name].retention
        parameters[method] = session.parameters - round((1 - retention[method]) * weights)
    return {"retained_fraction": retention["gprune"], "retention": retention, "parameters": parameters}
