"""Progress and end of a job, and its cancellation.

    with JobReporter(folder) as report:
        run(study, on_progress=report)        # report(stage, done, total, message)

A full disk loses progress lines, not the run.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from gprune.jobs import folder as files
from gprune.jobs.state import JobState, read_state, update
from gprune.jobs.timeline import Event
from gprune.system.errors import Cancelled, GpruneError, Interrupted
from gprune.system.files import make_folder
from gprune.system.progress import Waiting
from gprune.system.safe_parsing import sentence

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
        self._last_event = self._last_check = -1.0

    def __enter__(self) -> JobReporter:
        """Mark the job running in this process.

        Raises Cancelled where it was asked to stop before, JobError if the folder cannot be written.
        """
        with files.writable(self.folder):
            make_folder(self.folder)
        if update(self.folder, self._mark_running).state == "cancelling":
            self._change_state(lambda state: state.ended_as("cancelled"))
            raise Cancelled("the run was cancelled before it began")
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Record how the run ended; the exception, if any, goes on to the caller."""
        self._change_state(lambda state: self._final_state(state, error))

    def __call__(self, stage: str, done: int, total: int, message: str = "") -> None:
        """Record that `done` of `total` steps of a stage are finished; Cancelled where the job is to stop."""
        current_time = time.monotonic()
        is_complete = 0 < total <= done
        if stage != self._stage or is_complete or current_time - self._last_event >= EVENT_SECONDS:
            self._stage, self._last_event = stage, current_time
            event = Event(time.time(), stage, int(done), int(total), sentence(message), isinstance(message, Waiting))
            self._append_event(json.dumps(asdict(event)))
        if current_time - self._last_check >= CHECK_SECONDS:
            self._last_check = current_time
            if is_cancelled(self.folder):
                raise Cancelled("the run was cancelled")

    def _append_event(self, line: str) -> None:
        with contextlib.suppress(OSError), open(self.folder / files.EVENTS, "ab", buffering=0) as file:
            file.write(f"{line}\n".encode())

    def _mark_running(self, state: JobState) -> JobState:
        started = state if state.state in ("running", "cancelling") else JobState(state="running", started=time.time())
        return started.with_process(os.getpid())

    def _final_state(self, state: JobState, error: BaseException | None) -> JobState:
        if error is None or (isinstance(error, SystemExit) and not error.code):
            return state.ended_as("done")
        stopped = state.state == "cancelling"
        if isinstance(error, Interrupted) and not stopped:
            return state.ended_as("interrupted")
        if stopped or isinstance(error, Cancelled | KeyboardInterrupt):
            return state.ended_as("cancelled")
        return state.ended_as("failed", describe_error(error))

    def _change_state(self, change: Callable[[JobState], JobState]) -> None:
        try:
            update(self.folder, change)
        except GpruneError as error:
            print(f"the job's state was not recorded: {error}", file=sys.stderr)


def is_cancelled(folder: Path) -> bool:
    """Return True if a job was asked to stop."""
    return read_state(folder).state == "cancelling"


def describe_error(error: BaseException) -> str:
    """Return an exception as one line: the project's own errors as they are, others with the name of their class."""
    if isinstance(error, GpruneError):
        return sentence(str(error))
    lines = str(error).strip().splitlines()
    return sentence(": ".join([type(error).__name__, *lines[:1]]))
