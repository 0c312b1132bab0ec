"""Compute the stages of a run and results on demand, each stage under its lock, so that processes share the work."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from gprune.models import identity
from gprune.pipeline.record import Listener
from gprune.pipeline.stages import KINDS, Results, RunContext, Stage, required_stages, resolve
from gprune.store import provenance
from gprune.store.resumption import Resumption, Spent, StateFile
from gprune.system import machine
from gprune.system.errors import StoreError
from gprune.system.progress import Notice, Waiting

_WAITING = Waiting("waiting for another run that computes the same result")
R = TypeVar("R")
_MODEL_READERS = ("components", "repaired", "scales", "recovered", "routers")
"""kinds of stage that read the dense model and can be computed without a run"""


class StageComputer:
    """Computes the stages of one graph, with objects such as the model loaded only once."""

    def __init__(self, results: Results, listener: Listener) -> None:
        """Bind the results of a study; the listener receives progress and may raise Cancelled to stop the work."""
        graph = results.graph
        self.results, self.listener = results, listener
        self.work = RunContext(graph.study, graph.inputs, results.store.texts, partial(listener, "model"))
        self.computed: set[Stage[Any]] = set()
        """stages that this process has computed"""

    def compute_if_missing(self, stage: Stage[Any]) -> None:
        """Compute a stage under its lock unless its result exists and is intact."""
        if self.results.is_intact(stage):
            return
        started = time.perf_counter()
        report_waiting = partial(self.listener, stage.name, 0, 1, _WAITING)
        with self.results.store.lock(stage.kind, stage.key, report_waiting):
            # another process may have computed it while this one waited
            if not self.results.is_intact(stage):
                self._compute(stage, started)
                self.computed.add(stage)

    def _compute(self, stage: Stage[Any], started: float) -> None:
        """Compute a stage, whose lock is held, and store its record with cost, versions and notices."""
        store, work, notices = self.results.store, self.work, list[str]()
        self.announce()
        self.listener(stage.name, 0, 1, self.results.set_aside(stage))

        def on_progress(done: int, total: int, message: str) -> None:
            if isinstance(message, Notice):
                notices.append(str(message))
            self.listener(stage.name, done, total, message)

        work.progress = on_progress
        checkpoint = StateFile(store, stage.kind, stage.key)
        work.resumption = resumption = Resumption(checkpoint, work.count_cost(started), on_progress)

        def details() -> dict[str, Any]:
            values = self._format_cost(resumption.spent) | provenance.versions()
            return values | ({"notices": notices} if notices else {})

        with work.within_memory(stage.title):
            if KINDS[stage.kind].record is None:
                # `write` fills the folder and returns None, so `or` adds the details
                write = partial(stage.make, work, **resolve(stage.needs, self.load))
                store.put_folder(stage.kind, stage.key, lambda folder: write(folder) or details())
            else:
                # an earlier stage may have computed this record as well
                record = work.by_products.pop(stage.key, None)
                if record is None:
                    record = stage.make(work, **resolve(stage.needs, self.load))
                store.put(stage.kind, stage.key, record, details())
        work.missing.discard(stage.key)
        resumption.end()
        # release cached memory, so that it does not count in the next stage's peak
        machine.release_free_memory()

    def announce(self) -> None:
        """Do nothing; the subclass of a run records that a computation has started."""

    def load(self, stage: Stage[Any]) -> Any:
        """Return the record of a stage that another stage needs."""
        return self.results.record(stage)

    def _format_cost(self, cost: Spent) -> dict[str, Any]:
        """Return the seconds of a stage and its passes of the dense model; a pass has a calibration set's tokens."""
        calibration = self.results.graph.study.calibration
        tokens_in_set = calibration.samples * calibration.length
        tokens = {"forward": cost.forward, "backward": cost.backward}
        passes = {direction: round(count / tokens_in_set, 3) for direction, count in tokens.items()}
        return {"seconds": round(cost.seconds, 3), "passes": passes if any(tokens.values()) else None}


def compute_result(
    results: Results, stage: Stage[R], listener: Listener, can_compute: Callable[[Stage[Any]], bool] | None = None
) -> R:
    """Return a result from the cache, or compute it without an entry in the record of the run.

    A missing result is computed only if its kind is computed on demand, or `can_compute` returns True for its stage.
    The same applies to every missing input. The listener may raise Cancelled. Raises StoreError if an input is missing
    that only the run may compute, ModelError if the model is missing or has changed since the run, and any error of the
    stages.
    """
    _ensure_computed(StageComputer(results, listener), stage, can_compute or (lambda _: False))
    return results.record(stage)


def _ensure_computed(computer: StageComputer, stage: Stage[Any], can_compute: Callable[[Stage[Any]], bool]) -> None:
    """Compute a missing or damaged result after its inputs; for errors see `compute_result`."""
    results = computer.results
    # a result that may not be computed again counts as existing even if it is damaged
    may_compute = KINDS[stage.kind].on_demand or can_compute(stage)
    if results.holds(stage) and (not may_compute or results.is_intact(stage)):
        return
    if not may_compute:
        raise StoreError(f"the result “{stage.title}” is missing from the run: run the study first")
    for need in required_stages(stage):
        _ensure_computed(computer, need, can_compute)
    if stage.kind in _MODEL_READERS:
        study, digests = results.graph.study, results.store.digests
        card = machine.card(study.device)
        identity.require_same(study.model, results.graph.inputs.model, digests, card)
    computer.compute_if_missing(stage)
