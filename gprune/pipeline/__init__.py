"""From a study to a pruned and measured model: every stage of its graph in order, through the store.

One process owns a run, and a second start follows it (gprune.pipeline.run_owner). Studies that need the same
result compute it once, under its lock.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from gprune.data.texts import is_sampled
from gprune.models import identity
from gprune.models.loadable import attention_notice
from gprune.pipeline import provenance
from gprune.pipeline.eta import expected, stage_times
from gprune.pipeline.preflight import ESTIMATE, require_room
from gprune.pipeline.record import Listener, RunRecord
from gprune.pipeline.run_owner import RunOwner
from gprune.pipeline.stages import (
    KINDS,
    PAIR,
    Graph,
    Results,
    RunContext,
    Stage,
    adapted,
    drift,
    needed,
    positions,
    require_texts,
    resolve,
    served,
)
from gprune.pipeline.stages.inputs import GRADIENT, read
from gprune.pipeline.stages.task_data import require_all, require_tasks
from gprune.pipeline.summary import summarized
from gprune.store import Store, states
from gprune.store.resumption import Resumption, Spent
from gprune.study import Study
from gprune.study.settings import require
from gprune.system import machine, safe_parsing
from gprune.system.errors import MethodError, StoreError, TaskError
from gprune.system.progress import Notice, Waiting

_WAITING = Waiting("waiting for another run that computes the same")


def run(
    study: Study,
    store: Store,
    listener: Listener,
    until: str = "all",
    anyway: bool = False,
) -> dict[str, Any]:
    """Runs a study through the store.

    `until` is the last thing wanted, one of gprune.pipeline.stages.UNTIL; `anyway` starts even if it cannot
    fit in memory, as far as arithmetic tells; the listener is told of every stage's progress and may raise
    Cancelled. Gives settings, keys, retention, parameters, checkpoint,
    perplexities and seconds, as plain JSON values; fields of stages that were not asked for are absent.
    Raises GpruneError with one sentence that says what is wrong and what to do.
    """
    if until == "answers":
        tasks = list(study.evaluation.tasks)
        require(bool(tasks), "evaluation.tasks", tasks, "at least one task for a run until answers")
    if until in ("perplexity", "all"):
        study.recovery.require_installed()
    require_tasks(study)
    missing_tasks: dict[str, str] = {}
    inputs = read(study, missing_tasks, on_progress=partial(listener, "download"), store=store)
    require_all(missing_tasks)
    results = Results(store, Graph(study, inputs))
    wanted = results.course(until)
    learning = next((stage.title for stage in wanted if stage.id.has_backward and not results.holds(stage)), "")
    if study.offload and learning:
        raise identity.offloaded(learning)
    # the records of all runs are read once
    times = stage_times(results)
    expectation = expected(wanted, results, times)
    record = RunRecord(results, until, expectation.seconds, missing_tasks, listener)
    record.expected_from_cache = expectation.from_cache
    if notice := attention_notice(identity.locate(study.model)):
        listener(ESTIMATE, 1, 1, Notice(notice))
    require_texts(results, wanted)
    require_room(wanted, results, times, listener, anyway)
    store.sweep()
    states.sweep(store)
    with RunOwner(record, wanted, listener) as owner:
        runner = _Runner(results, record, owner)
        runner.work.learning_title = learning
        runner.run(wanted, _essential(results.graph, until))
        summary = summarized(results, wanted, record)
        owner.finish(summary if until in ("perplexity", "all") else None)
    return summary


def opened(study: Study, store: Store) -> Results:
    """The results of a study, whichever runs made them; nothing is computed or downloaded.

    Raises GpruneError where what the study reads is not on this machine.
    """
    return Results(store, Graph(study, read(study, download=False, store=store)))


def _essential(graph: Graph, until: str) -> tuple[Stage[Any], ...]:
    """What a run that goes so far is for, whichever methods it compares."""
    if until == "positions":
        return tuple(positions(graph, role) for role in PAIR)
    return (drift(graph), adapted(graph)) if until in ("adapted", "agreement") else (drift(graph),)


class _Runner:
    """Computes what is missing, each stage under its lock, so that two runs of one study share the work."""

    def __init__(self, results: Results, record: RunRecord, owner: RunOwner) -> None:
        graph, store, listener = results.graph, results.store, owner.heard
        self.results, self.record, self.owner, self.listener = results, record, owner, listener
        self.work = RunContext(graph.study, graph.inputs, store.texts, partial(listener, "model"))
        self.wanted: tuple[Stage[Any], ...] = ()
        self.on_the_way: set[Stage[Any]] = set()
        """what this run has made beside others, or for what is made beside them"""

    def run(self, wanted: tuple[Stage[Any], ...], essential: tuple[Stage[Any], ...]) -> None:
        """Goes through the stages; a method that cannot run is left out with all that needs it.

        So is a task that cannot be measured on a method, with all that its stage makes on the way. Raises
        MethodError where one of the essential stages, without which the run is for nothing, cannot be had.
        """
        left_out, self.wanted = self.record.unavailable, wanted
        self._tokenize(wanted)
        for stage in wanted:
            makers = [one for one in wanted if stage in one.beside + one.joined]
            if makers and left_out.keys() >= {*makers} and stage not in essential and not self._whole(stage):
                # by itself it would take the work that has just failed, and fail as well
                left_out[stage] = left_out[makers[0]]
                continue
            try:
                lacking = next((left_out[one] for one in self._provided(stage) if one in left_out), None)
                if lacking is not None and not stage.optional:
                    raise MethodError(lacking)
                if not self.results.holds(stage):
                    # made ahead of their turn, in which they are noted
                    ahead = (need for one in self._joined(stage) for need in needed(one))
                    self.on_the_way |= {need for need in ahead if not self._there(need)}
                self._ensure(stage)
            except (MethodError, TaskError) as error:
                if stage in essential:
                    raise
                left_out[stage] = safe_parsing.sentence(error)
                self.listener(stage.name, 1, 1, f"left out: {error}")

    def _tokenize(self, wanted: tuple[Stage[Any], ...]) -> None:
        """Read every text that is not there yet, so that one which the model cannot read fails before the rest."""
        evaluation = self.results.graph.study.evaluation
        for stage in wanted:
            if self.results.holds(stage) or any(needed(stage)):
                continue
            if stage.kind == "tokens" and stage.id.texts[0] != GRADIENT and not self._there(stage):
                self.on_the_way.add(stage)
        for stage in wanted:
            if stage.kind == "overlap" and not self.results.holds(stage):
                text = evaluation.texts[stage.id.item or 0]
                if not is_sampled(text):
                    self.work.stream(text)

    def _provided(self, stage: Stage[Any]) -> Iterator[Stage[Any]]:
        """What a stage is made from: each of its needs, or what serves for it."""
        for need in needed(stage):
            found = served(need, self.results.holds, self.record.unavailable)
            if found is not need and found in self.record.unavailable:
                # the richer result cannot be had: the one that was asked for may
                self._ensure(need)
                found = need
            yield found

    def _joined(self, stage: Stage[Any]) -> list[Stage[Any]]:
        """What this run wants and lacks that the work of a stage can make as well."""
        return [one for one in stage.joined if one in self.wanted and not self.results.holds(one)]

    def _ensure(self, stage: Stage[Any]) -> None:
        """Computes a stage unless its result is there, and notes it."""
        self.record.note(stage, self._there(stage) and stage not in self.on_the_way)
        self.owner.noted(stage)

    def _there(self, stage: Stage[Any]) -> bool:
        """Whether a stage's result is there; if not, computes it."""
        started, reused = time.perf_counter(), self._whole(stage)
        if not reused:
            waiting = partial(self.listener, stage.name, 0, 1, _WAITING)
            with self.results.store.lock(stage.kind, stage.key, waiting):
                reused = self._whole(stage)
                if not reused:
                    self._compute(stage, started)
        return reused

    def _whole(self, stage: Stage[Any]) -> bool:
        """Whether a result is there that lacks nothing which can be had now."""
        if not self.results.whole(stage):
            return False
        lacked = set(self.results.details(stage).get("left_out", ())) if stage.optional else set()
        return lacked <= {one.name for one in self._left_out(stage)}

    def _left_out(self, stage: Stage[Any]) -> list[Stage[Any]]:
        return [one for one in needed(stage) if one in self.record.unavailable]

    def _compute(self, stage: Stage[Any], started: float) -> None:
        store, work = self.results.store, self.work
        self.owner.announce()
        self.listener(stage.name, 0, 1, self.results.set_aside(stage))
        notices: list[str] = []
        work.progress = partial(self._heard, stage, notices)
        before = work.tokens_passed()
        needs = resolve(stage.needs, self._load)

        def here() -> Spent:
            now = work.tokens_passed()
            return Spent(now[0] - before[0], now[1] - before[1], time.perf_counter() - started)

        file = states.StateFile(store, stage.kind, stage.key)
        resumption = work.resumption = Resumption(file, here, work.progress)
        details = partial(self._details, stage, resumption, here, notices)

        def fill(folder: Path) -> dict[str, Any]:
            with work.within_memory(stage.title):
                stage.make(work, folder, **needs)
            return details()

        if KINDS[stage.kind].record is None:
            store.put_folder(stage.kind, stage.key, fill)
        else:
            self._put_made(stage, needs, details)
        resumption.end()
        # what a stage has left between blocks is not added to the peak of the next
        machine.trim()

    def _put_made(self, stage: Stage[Any], needs: Mapping[str, Any], details: Callable[[], dict[str, Any]]) -> None:
        """Makes a result that is a record, with what it makes on the way, and puts them into the store."""
        also = [one for one in stage.beside if not self.results.holds(one)]
        asked: dict[str, Any] = {"also": tuple(one.id for one in also)} if also else {}
        if joined := self._joined(stage):
            asked["joined"] = [resolve(one.needs, self._load) for one in joined]
            also += joined
        with self.work.within_memory(stage.title):
            made = stage.make(self.work, **needs, **asked)
        if also:
            made, *others = made
            # first: where the run ends in between, the work that makes them is done again
            for one, extra in zip(also, others, strict=True):
                self._put_extra(one, stage, extra)
        if stage.optional:
            # what is there is the result of a run that could have less
            self.results.store.discard(stage.kind, stage.key)
        self.results.store.put(stage.kind, stage.key, made, details())

    def _details(
        self, stage: Stage[Any], resumption: Resumption, here: Callable[[], Spent], notices: list[str]
    ) -> dict[str, Any]:
        """What is kept beside a result that was just made."""
        known = self._told(resumption.spent) | provenance.versions()
        known |= {"notices": notices} if notices else {}
        if resumption.began:
            known["resumed"] = {"step": resumption.began, **self._told(here())}
        return known | ({"left_out": [one.name for one in self._left_out(stage)]} if stage.optional else {})

    def _put_extra(self, stage: Stage[Any], maker: Stage[Any], made: Any) -> None:
        """Keeps what another stage has made on the way."""
        store = self.results.store
        waiting = partial(self.listener, maker.name, 1, 1, _WAITING)
        with store.lock(stage.kind, stage.key, waiting):
            if spoilt := self.results.set_aside(stage):
                self.listener(stage.name, 0, 1, spoilt)
            details = {"seconds": 0.0, "with": maker.name, **provenance.versions()}
            store.put(stage.kind, stage.key, made, details)
        self.on_the_way.add(stage)

    def _heard(self, stage: Stage[Any], notices: list[str], done: int, total: int, message: str) -> None:
        """Passes progress on, and keeps what is to be kept of it."""
        if isinstance(message, Notice):
            notices.append(str(message))
        self.listener(stage.name, done, total, message)

    def _load(self, stage: Stage[Any]) -> Any:
        if stage in self.record.unavailable:
            return None
        try:
            return self.results.record(stage)
        except StoreError:
            # damaged or removed since this run has looked at it
            self._ensure(stage)
            return self.results.record(stage)

    def _told(self, spent: Spent) -> dict[str, Any]:
        """Seconds, and how often a stage ran the dense model over a calibration set's worth of tokens."""
        calibration = self.results.graph.study.calibration
        whole = calibration.samples * calibration.length
        tokens = {"forward": spent.forward, "backward": spent.backward}
        passes = {way: round(count / whole, 3) for way, count in tokens.items()}
        return {"seconds": round(spent.seconds, 3), "passes": passes if any(tokens.values()) else None}
