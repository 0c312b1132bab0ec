"""The record of a run (`runs/<run>/run.json`): its stages, their times, and how the run ended.

The record gets an entry after each stage, so that the app can show results while later stages are still running. An
entry of an earlier run of the study is kept only if the current graph gives its stage the same key.

One process owns a run: it holds the run's lock, computes its stages and writes its record. A second start of the study
waits for the lock, then reuses existing results and computes the missing ones. If an owner dies, the record still says
"running", and readers detect that the owner's process is gone (gprune.pipeline.runs). A run with all its results also
works from a read-only cache.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from itertools import product
from typing import Any, Self

from gprune.data import texts
from gprune.jobs import processes
from gprune.pipeline import runs
from gprune.pipeline.stages import KINDS, Graph, Results, Stage, accuracy, required_stages, stages_by_name
from gprune.pipeline.stages.inputs import roles
from gprune.pipeline.stages.results import measurable
from gprune.store import provenance
from gprune.study import run_name
from gprune.system.errors import Cancelled, Interrupted, StoreError
from gprune.system.files import Lock, make_folder
from gprune.system.progress import Reused, Waiting
from gprune.system.safe_parsing import sentence

Listener = Callable[[str, int, int, str], None]
"""Called with the stage's name, finished steps, all steps, and a message; raises Cancelled to stop the run."""
WAITING_SECONDS = 0.5
"""seconds between two waiting messages of a second start"""


class RunRecord:
    """The record of an active run."""

    def __init__(
        self,
        results: Results,
        until: str,
        expected: dict[str, float],
        missing_tasks: dict[str, str],
        listener: Listener,
    ) -> None:
        """Read the entries of an earlier run of the study that are still valid; nothing is written.

        `expected` are the seconds of every stage up to `until`, by name, in order. `missing_tasks` are the reasons why
        tasks cannot be measured here, by task. The listener is called for every finished stage.
        """
        self.results, self.until, self.expected, self.listener = results, until, expected, listener
        self.missing_tasks = missing_tasks
        self.expected_from_cache = True
        """False if `expected` are only proportions, because no batches of the model were timed in this cache"""
        self.name = run_name(results.graph.study)
        self.stages: dict[str, dict[str, Any]] = {}
        """entries of the stages that this run has finished, by name"""
        self.unavailable: dict[str, dict[str, str]] = {}
        """key and reason of every stage that this run could not compute, by stage name"""
        self.started, self._began = datetime.now(UTC), time.monotonic()
        self.read()
        self._texts = self._describe_texts()

    def read(self) -> None:
        """Read the stored record again, and keep its entries that are still valid."""
        previous = runs.read(self.results.store, self.name) or {}
        entries, graph = previous.get("stages", {}), self.results.graph
        graphs, failures = [graph], runs.failures(previous)
        if failures:
            # results made without the failed stages are valid until those stages can be computed
            graphs.append(Graph(graph.study, graph.inputs, failures=failures))
        valid = {(stage.name, stage.key) for graph in graphs for stage in stages_by_name(graph).values()}
        self._earlier, self._earlier_failures = (
            {name: entry for name, entry in table.items() if (name, entry["key"]) in valid}
            for table in (entries, previous.get("unavailable") or {})
        )
        # a result is outdated if one of its stages is
        self._is_current = len(self._earlier) == len(entries)
        self._result = previous.get("result") if self._is_current else None
        self.previous = previous

    def unmeasured_tasks(self) -> dict[str, str]:
        """Return the reason why a task was not measured, by task: it has no data, or a model could not answer it."""
        unmeasured, reasons, graph = dict(self.missing_tasks), self._merge_failures(), self.results.graph
        for task, method in product(measurable(graph), graph.study.methods):
            stage = accuracy(graph, method, task)
            # the accuracy of a method that cannot run says nothing about the task
            has_model = not any(need.name in reasons for need in required_stages(stage))
            if has_model and stage.name in reasons and stage.name not in self.stages:
                unmeasured.setdefault(task, reasons[stage.name]["reason"])
        return unmeasured

    def _merge_failures(self) -> dict[str, dict[str, str]]:
        """Return key and reason of the stages that this run or an earlier one could not compute, by name."""
        return self._earlier_failures | self.unavailable

    def leave_out(self, stage: Stage[Any], reason: str) -> None:
        """Add a stage that cannot be computed to the record; nothing is written yet."""
        self.unavailable[stage.name] = {"key": stage.key, "reason": reason}

    def is_done(self, stages: Iterable[Stage[Any]]) -> bool:
        """Return True if the record that was read last is of the same study and done, and lists all of `stages`."""
        measures_perplexity = self.until in ("perplexity", "all")
        study_and_tasks = (self.previous.get("study"), self.previous.get("missing_tasks"))
        return (
            self._is_current
            and self.previous.get("state") == "done"
            and study_and_tasks == (json.loads(self.results.graph.study.to_json()), self.unmeasured_tasks())
            and (self._result is not None or not measures_perplexity)
            and all(stage.name in self._earlier or stage.name in self._earlier_failures for stage in stages)
        )

    def has_all_results(self, stages: Iterable[Stage[Any]]) -> bool:
        """Return True if every result exists, except those that an earlier run could not compute."""
        keys, store = {name: entry["key"] for name, entry in self._earlier.items()}, self.results.store
        return all(
            stage.name in self._earlier_failures
            or store.has(stage.kind, keys.get(stage.name, stage.key), KINDS[stage.kind].record)
            for stage in stages
        )

    def add_stage(self, stage: Stage[Any], reused: bool) -> None:
        """Add a finished stage to the record, without writing it, and report it to the listener."""
        details, optional = self.results.details(stage), ("passes", "notices")
        seconds = float(details.get("seconds") or 0.0)
        entry = {"key": stage.key, "seconds": round(seconds, 3), "reused": reused}
        self.stages[stage.name] = entry | {name: details[name] for name in optional if details.get(name)}
        if reused:
            self.listener(stage.name, 1, 1, Reused("reused"))
            return
        finished = self.expected.keys() & {*self.stages, *self.unavailable}
        passes = (
            f", {count:g} {direction} passes" for direction, count in (details.get("passes") or {}).items() if count
        )
        message = f"{seconds:.1f} s{''.join(passes)} (step {len(finished)} of {len(self.expected)})"
        self.listener(stage.name, 1, 1, message)

    def save(self, state: str, result: dict[str, Any] | None = None, error: str | None = None) -> None:
        """Write the record.

        `state` is running, done, failed, cancelled or interrupted. `result` is the final result of the run; without
        one, an earlier result is kept. `error` is one sentence about a failed run.
        """
        reasons = self._merge_failures()
        values = {
            "run": self.name,
            "study": self.results.graph.study.to_dict(),
            "state": state,
            "until": self.until,
            "error": error if error is None else sentence(error),
            "owner": processes.identify_process() if state == "running" else None,
            "started": self.started.isoformat(timespec="seconds"),
            "updated": datetime.now(UTC).isoformat(timespec="seconds"),
            # the monotonic clock is never adjusted
            "seconds": round(time.monotonic() - self._began, 1),
            "expected": self.expected,
            "expected_from_cache": self.expected_from_cache,
            "stages": {**self._earlier, **self.stages},
            "unavailable": {name: entry for name, entry in reasons.items() if name not in self.stages},
            "missing_tasks": self.unmeasured_tasks(),
            "texts": self._texts,
            "provenance": provenance.collect_provenance(self.results.graph.inputs, self.results.graph.study.device),
            "result": result or self._result,
        }
        runs.save(self.results.store, self.name, values)

    def _describe_texts(self) -> dict[str, str]:
        """Return a description of every text, by calibration role or by name of the evaluation text."""
        study = self.results.graph.study
        cache = self.results.store.texts
        described = {role: texts.describe(text, "calibration", cache) for role, text in roles(study).items()}
        return described | {text: texts.describe(text, "evaluation", cache) for text in study.evaluation.texts}


class RunOwner:
    """Context manager that owns one run while its stages are computed, and keeps its record."""

    def __init__(self, record: RunRecord, plan: tuple[Stage[Any], ...], listener: Listener) -> None:
        """Bind the owner to a record and a plan; nothing is written. The listener may raise Cancelled."""
        self._record, self._plan, self.listener = record, plan, listener
        self._lock_path = runs.lock_path(record.results.store.root, record.name)
        self._lock = Lock(self._lock_path)
        self._announced = False
        """True after this process has first written the record"""

    def __enter__(self) -> Self:
        """Wait for the run's lock, and mark the run as running unless it is done.

        Raises StoreError if the record cannot be written.
        """
        while self._is_owned_by_another():
            self._report_waiting()
        try:
            self._record.read()
            if not self._record.is_done(self._plan):
                self._save_running()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Record how the run ended; an exception is not suppressed."""
        try:
            if isinstance(error, Interrupted):
                self._save_stopped("interrupted", "the process was asked to stop; resume the run to finish it")
            elif isinstance(error, Cancelled | KeyboardInterrupt):
                self._save_stopped("cancelled", "cancelled; finished stages are kept")
            elif isinstance(error, Exception):
                self._save_stopped("failed", sentence(error))
        finally:
            self._lock.release()

    def announce(self) -> None:
        """Mark the run as running before its first computation, even if it was done before.

        Raises StoreError if the record cannot be written.
        """
        if not self._announced:
            self._save_running()

    def record_progress(self) -> None:
        """Write the record after a stage, unless the run was already done. Raises StoreError if this fails."""
        if self._announced:
            self._save_running()

    def finish(self, result: dict[str, Any] | None) -> None:
        """Mark the run as done unless it was done already; without a new result, an earlier result is kept.

        Raises StoreError if the record cannot be written.
        """
        if self._announced:
            self._record.save("done", result)

    def _is_owned_by_another(self) -> bool:
        # a cache that cannot be written has no owner
        with contextlib.suppress(OSError):
            make_folder(self._lock_path.parent)
            return not self._lock.acquire(WAITING_SECONDS)
        return False

    def _report_waiting(self) -> None:
        record = runs.read(self._record.results.store, self._record.name) or {}
        owner, finished = record.get("owner") or {}, len(record.get("stages", {}))
        holder = f"process {owner['pid']} on {owner['host']}" if owner else "another process"
        text = f"waiting for {holder}, which runs this study ({finished} of {len(record.get('expected') or {})} stages)"
        self.listener(self._plan[-1].name, 0, 1, Waiting(text))

    def _save_running(self) -> None:
        # in a cache that cannot be written, the lock is not held
        if self._lock.is_held:
            self._record.save("running")
            self._announced = True

    def _save_stopped(self, state: str, error: str) -> None:
        if not self._announced:
            return
        # if the disk is full, the run is shown as interrupted once this process has ended
        with contextlib.suppress(StoreError):
            self._record.save(state, error=error)
