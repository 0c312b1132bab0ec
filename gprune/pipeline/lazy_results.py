"""Results that no run wants and somebody asks for: made from what a run has kept, at their own keys.

The record of the run says nothing of them. What they are made from must be there, but for other such results.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from gprune.models import identity
from gprune.pipeline import provenance
from gprune.pipeline.record import Listener
from gprune.pipeline.stages import KINDS, Results, RunContext, Stage, needed, resolve
from gprune.system import machine
from gprune.system.errors import StoreError
from gprune.system.progress import Waiting

R = TypeVar("R")
_OF_THE_MODEL = ("components", "repaired", "scales", "recovered")
"""those that read the dense model"""


def made(results: Results, stage: Stage[R], listener: Listener, also: Callable[[Stage[Any]], bool] | None = None) -> R:
    """A result, computed unless it is there; see `every`."""
    return every(results, [stage], listener, also)[0]


def every(
    results: Results,
    wanted: Sequence[Stage[R]],
    listener: Listener,
    also: Callable[[Stage[Any]], bool] | None = None,
) -> list[R]:
    """Several results, computed unless they are there; what is loaded for one serves the others.

    All are of kinds that are made on demand, or such that `also` allows; the listener may raise Cancelled.
    Raises StoreError where the run has not come to what one is made from, ModelError where the model is gone
    or another one than the run has read, and what their stages raise.
    """
    graph = results.graph
    work = RunContext(graph.study, graph.inputs, results.store.texts, partial(listener, "model"))
    for stage in wanted:
        _ensure(results, stage, work, listener, also or (lambda _: False))
    return [results.record(stage) for stage in wanted]


def _ensure(
    results: Results,
    stage: Stage[Any],
    work: RunContext,
    listener: Listener,
    also: Callable[[Stage[Any]], bool],
) -> None:
    wanted = KINDS[stage.kind].on_demand or also(stage)
    if results.there(stage) and (not wanted or results.whole(stage)):
        return
    if not wanted:
        raise StoreError(f"this needs “{stage.title}”, which the run does not have: run the study first")
    for need in needed(stage):
        _ensure(results, need, work, listener, also)
    if stage.kind in _OF_THE_MODEL:
        study, memory = results.graph.study, results.store.digests
        card = machine.card(study.device)
        identity.require_same(study.model, results.graph.inputs.model, memory, card)
    words = Waiting("waiting for another process that computes the same")
    waiting = partial(listener, stage.kind, 0, 1, words)
    with results.store.lock(stage.kind, stage.key, waiting):
        if results.whole(stage):
            return
        listener(stage.kind, 0, 1, results.set_aside(stage))
        started = time.perf_counter()
        work.progress = partial(listener, stage.kind)
        with work.within_memory(stage.title):
            record = stage.make(work, **resolve(stage.needs, results.record))
        details = {"seconds": round(time.perf_counter() - started, 3), **provenance.versions()}
        results.store.put(stage.kind, stage.key, record, details)
        listener(stage.kind, 1, 1, stage.title)
