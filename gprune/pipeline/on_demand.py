"""Results that no run wants and somebody asks for: made from what a run has kept, at their own keys.

The record of the run says nothing of them. What they are made from must be there, but for other such results.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar

from gprune import machine
from gprune.errors import ModelError, StoreError
from gprune.models import identity
from gprune.pipeline import provenance
from gprune.pipeline.record import Listener
from gprune.stages import KINDS, Results, Stage, Work, needed, resolve

R = TypeVar("R")
_OF_THE_MODEL = ("components", "edited_perplexity")
"""those that read the dense model"""


def made(results: Results, stage: Stage[R], listener: Listener) -> R:
    """A result, computed unless it is there; see `every`."""
    return every(results, [stage], listener)[0]


def every(results: Results, wanted: Sequence[Stage[R]], listener: Listener) -> list[R]:
    """Several results, computed unless they are there; what is loaded for one serves the others.

    Args:
        results: what is there of the study.
        wanted: of kinds that are made on demand.
        listener: told of progress; may raise Cancelled.

    Raises:
        StoreError: the run has not come to what one is made from.
        ModelError: the model is gone, or is another one than the run has read.
        GpruneError: as their stages.
    """
    graph = results.graph
    work = Work(graph.study, graph.inputs, results.store.texts, partial(listener, "model"))
    for stage in wanted:
        _ensure(results, stage, work, listener)
    return [results.record(stage) for stage in wanted]


def _ensure(results: Results, stage: Stage[Any], work: Work, listener: Listener) -> None:
    if results.there(stage) and (not KINDS[stage.kind].on_demand or results.whole(stage)):
        return
    if not KINDS[stage.kind].on_demand:
        raise StoreError(f"this needs “{stage.title}”, which the run does not have: run the study first")
    for need in needed(stage):
        _ensure(results, need, work, listener)
    if stage.kind in _OF_THE_MODEL:
        _require_same_model(results)
    waiting = partial(listener, stage.kind, 0, 1, "waiting for another process that computes the same")
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


def _require_same_model(results: Results) -> None:
    """Checks that the model which is here is the one that was run.

    Raises:
        ModelError: it is gone, or has changed.
    """
    study = results.graph.study
    found = identity.fingerprint(study.model, results.store.digests, machine.card(study.device))
    if found != results.graph.inputs.model:
        raise ModelError(
            f"the model {study.model!r} is not the one that the run has read: put that back, or run the "
            "study again"
        )
