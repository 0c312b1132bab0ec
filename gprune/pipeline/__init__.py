"""From a study to a pruned and measured model: every stage in order, through the store."""

from __future__ import annotations

from typing import Any

from gprune import budget
from gprune.errors import Cancelled, MethodError
from gprune.methods import METHODS
from gprune.pipeline.session import Listener, Session
from gprune.plan import PAIR
from gprune.store import Store
from gprune.study import Study


def run(study: Study, store: Store, listener: Listener, until: str = "all") -> dict[str, Any]:
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
    session = Session(study, store, listener, until)
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
    session.save("done", result=result if until in ("perplexity", "all") else None)
    return result


def _execute(session: Session, until: str) -> dict[str, Any]:
    study, result = session.study, {"settings": session.study.to_dict(), "run": session.run}
    _explore(session)
    if until != "drift" and ("gprune" in study.methods or until in ("adapted", "agreement")):
        from gprune.pipeline import adaptation

        adaptation.adapted(session)
    if until == "agreement":
        _agree(session)
    if until in ("masks", "perplexity", "all"):
        result |= _retained(session)
    if until in ("perplexity", "all"):
        result |= _measured(session)
    if until == "all":
        result |= _finished(session)
    result["unavailable"] = session.unavailable
    result["keys"] = {name: stage["key"] for name, stage in session.stages.items()}
    result["seconds"] = {name: stage["seconds"] for name, stage in session.stages.items()}
    result["passes"] = session.passes
    result["reused"] = [name for name, stage in session.stages.items() if stage["reused"]]
    return result


def _explore(session: Session) -> None:
    """Statistics, scores and drift of both texts, each stage before the one that needs it."""
    from gprune.pipeline import explore, inputs

    for role in PAIR:
        inputs.tokens(session, role)
    inputs.norms(session)
    for role in PAIR:
        inputs.statistics(session, role)
    if session.study.metric == "twflap":
        # its scores depend on the modules
        explore.partition(session)
    for role in PAIR:
        explore.scores(session, role)
    explore.drift(session)


def _agree(session: Session) -> None:
    """The agreement of modules, where there is anything to compare."""
    from gprune.pipeline import agreement

    agreement.agreement(session)


def _retained(session: Session) -> dict[str, Any]:
    from gprune.pipeline import inputs, prune

    shape, size = inputs.shape(session), inputs.size(session)
    retention, parameters = {}, {}
    for name in session.study.methods:
        if METHODS[name].decision == "none":
            retention[name], parameters[name] = 1.0, size.parameters
            continue
        try:
            kept = prune.masks(session, METHODS[name].masks)
        except MethodError as error:
            session.unavailable[name] = str(error)
            session.listener(f"masks_{name}", 1, 1, f"left out: {error}")
            continue
        retention[name] = kept.retention
        added = prune.compensated(session, name)
        parameters[name] = budget.parameters(shape, size, kept.ffn, kept.heads, added)
    result: dict[str, Any] = {"retention": retention, "parameters": parameters}
    return result | ({"retained_fraction": retention["gprune"]} if "gprune" in retention else {})


def _measured(session: Session) -> dict[str, Any]:
    """Perplexity of every method that can run; accuracy and speed where they are asked for."""
    from gprune.pipeline.measure import Measured, speed

    result: dict[str, Any] = {"perplexity": {}}
    if session.study.evaluation.tasks:
        result |= {"accuracy": {}, "unavailable_tasks": session.missing_tasks}
    for name in session.study.methods:
        if name in session.unavailable:
            continue
        measured = Measured(session, name)
        result["perplexity"][name] = measured.perplexity()
        if "accuracy" in result:
            result["accuracy"][name] = measured.accuracy()
    if session.study.evaluation.speed != "none":
        found = speed(session, list(result["perplexity"]))
        result["speed"] = {"setting": found.setting, "machine": found.machine, "rows": list(found.rows)}
    return result


def _finished(session: Session) -> dict[str, Any]:
    from gprune.pipeline import prune

    wrote = "gprune" in session.study.methods and "gprune" not in session.unavailable
    result = {"checkpoint": str(prune.checkpoint(session))} if wrote else {}
    _agree(session)
    return result
