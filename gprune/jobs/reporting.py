"""How a job reports its progress and its end, and learns that it was asked to stop.

    with JobReporter(folder) as report:
        run(study, on_progress=report)        # report(stage, done, total, message)
        report.finish({"retention": 0.5}, run_id)

A full disk loses progress lines, not the run.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from gprune.jobs import folder as files
from gprune.jobs.state import JobState, one_line, read_state, update
from gprune.system.errors import Cancelled, GpruneError, Interrupted
from gprune.system.files import make_folder
from gprune.system.progress import Progress, Waiting

EVENT_SECONDS = 0.3
"""Seconds between two progress lines of a stage, except for its first and its last."""
CHECK_SECONDS = 0.5
"""Seconds between two looks whether the job was cancelled."""


class JobReporter:
    """Write the events and the state of one job, in the process that does the work.

    As a context manager it marks the job running, and on the way out done, cancelled, interrupted or failed; exceptions
    pass through. Called with `(stage, done, total, message)` it records progress, and raises `Cancelled` once the job
    was asked to stop.
    """

    def __init__(self, folder: str | Path) -> None:
        """Prepare to report to a job's folder; nothing is written before the `with`."""
        self.folder = Path(folder).resolve()
        self._stage = ""
        self._written = self._checked = -1.0
        self._pending = b""
        self._complete = False
        self._run_id = ""
        self._summary: dict[str, Any] = {}

    def __enter__(self) -> JobReporter:
        """Mark the job running in this process.

        Raises Cancelled where it was asked to stop before, JobError where the folder cannot be written.
        """
        with files.writable(self.folder):
            make_folder(self.folder)
        if update(self.folder, self._begin).state == "cancelling":
            self._change(lambda state: state.ended_as("cancelled"))
            raise Cancelled("the run was stopped on request before it began")
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Record how the run ended; the exception, if any, goes on to the caller."""
        self._flush()
        self._change(lambda state: self._end(state, error))

    def __call__(self, stage: str, done: int, total: int, message: str = "") -> None:
        """Record that `done` of `total` steps of a stage are finished; Cancelled where the job is to stop."""
        now = time.monotonic()
        event = {
            "ts": time.time(),
            "stage": stage,
            "done": int(done),
            "total": int(total),
            "message": one_line(message),
        }
        event |= {"waits": True} if isinstance(message, Waiting) else {}
        first, complete = stage != self._stage, done >= total
        if first:
            self._flush()
            self._stage, self._complete = stage, False
        self._pending = (json.dumps(event) + "\n").encode()
        if first or now - self._written >= EVENT_SECONDS or (complete and not self._complete):
            self._complete, self._written = complete, now
            self._flush()
        if now - self._checked >= CHECK_SECONDS:
            self._checked = now
            if is_cancelled(self.folder):
                raise Cancelled("the run was stopped on request")

    def stage(self, name: str) -> Progress:
        """Return a listener for one stage: a function of done, total and message."""
        return partial(self, name)

    def finish(self, summary: dict[str, Any] | None = None, run_id: str = "") -> None:
        """Set what is recorded when the `with` block ends without an exception.

        `summary` is a few plain values for the list of jobs, `run_id` the name of the result in the cache.
        """
        self._run_id = run_id
        self._summary = dict(summary or {})

    def _flush(self) -> None:
        data, self._pending = self._pending, b""
        if data:
            with contextlib.suppress(OSError), open(self.folder / files.EVENTS, "ab", buffering=0) as file:
                file.write(data)

    def _begin(self, state: JobState) -> JobState:
        begun = state if state.state in ("running", "cancelling") else JobState(state="running", started=time.time())
        return begun.with_process(os.getpid())

    def _end(self, state: JobState, error: BaseException | None) -> JobState:
        if error is None or (isinstance(error, SystemExit) and not error.code):
            return replace(state.ended_as("done"), run_id=self._run_id, summary=self._summary)
        stopped = state.state == "cancelling"
        if isinstance(error, Interrupted) and not stopped:
            return state.ended_as("interrupted")
        if stopped or isinstance(error, Cancelled | KeyboardInterrupt):
            return state.ended_as("cancelled")
        return state.ended_as("failed", sentence(error))

    def _change(self, change: Callable[[JobState], JobState]) -> None:
        try:
            update(self.folder, change)
        except GpruneError as error:
            print(f"the job's state was not recorded: {error}", file=sys.stderr)


def is_cancelled(folder: Path) -> bool:
    """Return True if a job was asked to stop."""
    return read_state(folder).state == "cancelling"


def sentence(error: BaseException) -> str:
    """Return an exception as one line: the project's own errors as they are, others with the name of their class."""
    if isinstance(error, GpruneError):
        return one_line(str(error))
    lines = str(error).strip().splitlines()
    return one_line(": ".join([type(error).__name__, *lines[:1]]))
