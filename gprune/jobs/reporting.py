"""Record the progress and the end of a job in its process, stop it when it is cancelled, and read its progress.

    with JobReporter(folder) as report:
        run(study, on_progress=report)        # report(stage, done, total, message)

On a full disk, progress lines are lost, but the run continues. `pipeline.eta` estimates the time left of a run from
the seconds of its stages.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from gprune.jobs import folder as files
from gprune.jobs.folder import JobState, read_state, update
from gprune.system import safe_parsing
from gprune.system.errors import Cancelled, GpruneError, Interrupted
from gprune.system.files import make_folder
from gprune.system.progress import Waiting
from gprune.system.safe_parsing import sentence

EVENT_SECONDS = 0.3
"""Minimum number of seconds between two progress lines of a stage, except for its first and last line."""
CHECK_SECONDS = 0.5
"""Seconds between two checks whether the job was cancelled."""


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a job's progress."""

    ts: float
    """Seconds since 1970."""
    stage: str
    done: int
    """Finished steps of the stage."""
    total: int
    """Steps of the stage; 0 if unknown."""
    message: str
    waits: bool = False
    """True if the job waits for another run."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The events of a job, reduced to the displayed ones."""

    spans: tuple[tuple[str, float], ...] = ()
    """(stage, seconds since 1970 of its first event); a stage may occur several times."""
    last: Event | None = None


@dataclass(frozen=True, slots=True)
class StageTime:
    """One row of the timeline."""

    stage: str
    seconds: float
    state: str
    """running, done, cancelled, interrupted or failed"""


@dataclass(frozen=True, slots=True)
class JobProgress:
    """Progress of a job at one moment."""

    stage: str = ""
    """Current stage; empty before the first event."""
    done: int = 0
    total: int = 0
    message: str = ""
    waits: str = ""
    """Reason why the job waits for another run that computes the same result; empty if it does not wait."""
    elapsed: float | None = None
    """Seconds since the job left the queue; None while it waits."""
    stages: tuple[StageTime, ...] = ()
    """Time of each stage, in order of appearance."""

    @property
    def fraction(self) -> float:
        """Return the finished share of the current stage, in [0, 1]; 0 if unknown."""
        return min(1.0, max(0.0, self.done / self.total)) if self.total > 0 else 0.0


def read_trace(path: Path) -> Trace:
    """Return the trace of a job's events file; damaged lines are skipped, and a missing file has no events."""
    try:
        stat = path.stat()
        return _read_trace(path, stat.st_size, stat.st_mtime_ns)
    except OSError:
        return Trace()


@lru_cache(maxsize=256)
def _read_trace(path: Path, size: int, modified: int) -> Trace:
    # the size and the time of the last change are part of the cache key, so an unchanged file is read once
    lines = path.read_bytes()[:size].split(b"\n")
    # the text after the last line break is still being written
    events = [event for line in lines[:-1] if (event := parse_event(line)) is not None]
    spans: list[tuple[str, float]] = []
    for event in events:
        if not spans or spans[-1][0] != event.stage:
            spans.append((event.stage, event.ts))
    return Trace(tuple(spans), events[-1] if events else None)


def parse_event(line: bytes) -> Event | None:
    """Return the event of a line, or None if it is damaged."""
    try:
        return Event(**safe_parsing.json_object(line, "the event"))
    except (ValueError, TypeError):
        return None


def measure_progress(trace: Trace, state: JobState, current_time: float) -> JobProgress:
    """Return the progress of a job from its events and state; `current_time` is in seconds since 1970."""
    elapsed, event = state.elapsed_at(current_time), trace.last
    if event is None:
        return JobProgress(elapsed=elapsed)
    stages = _compute_stage_times(trace.spans, state, state.ended or current_time)
    waits = event.message if event.waits else ""
    return JobProgress(event.stage, event.done, event.total, event.message, waits, elapsed, stages)


def _compute_stage_times(spans: Sequence[tuple[str, float]], state: JobState, end: float) -> tuple[StageTime, ...]:
    """Return the time of each stage until the moment `end`; only the last stage may be unfinished."""
    rows: dict[str, StageTime] = {}
    # a stage lasts until the next one begins
    for (stage, start), (_, stop) in pairwise([*spans, ("", end)]):
        before = rows.get(stage, StageTime(stage, 0.0, "done"))
        rows[stage] = replace(before, seconds=before.seconds + max(0.0, stop - start))
    current = spans[-1][0]
    rows[current] = replace(rows[current], state=state.state if state.finished else "running")
    return tuple(rows.values())


class JobReporter:
    """Writes the events and the state of one job, in the process that does the work.

    As a context manager it marks the job as running, and at the end as done, cancelled, interrupted or failed;
    exceptions are not suppressed. A call with `(stage, done, total, message)` records progress, and raises `Cancelled`
    if the job was asked to stop.
    """

    def __init__(self, folder: str | Path) -> None:
        """Bind the reporter to a job's folder; nothing is written before the `with` block."""
        self.folder = Path(folder).resolve()
        self._stage = ""
        # times of the monotonic clock
        self._last_event = self._last_check = -1.0

    def __enter__(self) -> JobReporter:
        """Mark the job as running in this process.

        Raises Cancelled if it was already asked to stop, JobError if the folder cannot be written.
        """
        with files.writable(self.folder):
            make_folder(self.folder)
        if update(self.folder, self._mark_running).state == "cancelling":
            self._change_state(lambda state: state.ended_as("cancelled"))
            raise Cancelled("the run was cancelled before it began")
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Record how the run ended; an exception is not suppressed."""
        self._change_state(lambda state: self._build_final_state(state, error))

    def __call__(self, stage: str, done: int, total: int, message: str = "") -> None:
        """Record that `done` of `total` steps of a stage are finished.

        Raises Cancelled if the job was asked to stop.
        """
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
        """Return the state of a job that runs in this process."""
        # the worker has marked a job of the queue already; a run without a worker marks itself
        is_marked = state.state in ("running", "cancelling")
        return (state if is_marked else JobState(state="running", started=time.time())).with_process(os.getpid())

    def _build_final_state(self, state: JobState, error: BaseException | None) -> JobState:
        """Return the state after the work has ended, with the exception that ended it or None."""
        if error is None or (isinstance(error, SystemExit) and not error.code):
            return state.ended_as("done")
        is_cancelling = state.state == "cancelling"
        if isinstance(error, Interrupted) and not is_cancelling:
            return state.ended_as("interrupted")
        if is_cancelling or isinstance(error, Cancelled | KeyboardInterrupt):
            return state.ended_as("cancelled")
        return state.ended_as("failed", describe_error(error))

    def _change_state(self, change: Callable[[JobState], JobState]) -> None:
        """Change the state of the job; an error is only printed, so that it does not hide that of the run."""
        try:
            update(self.folder, change)
        except GpruneError as error:
            print(f"the job's state was not recorded: {error}", file=sys.stderr)


def is_cancelled(folder: Path) -> bool:
    """Return True if a job was asked to stop."""
    return read_state(folder).state == "cancelling"


def describe_error(error: BaseException) -> str:
    """Return the message of an exception as one line; for errors of other packages, it starts with their class."""
    if isinstance(error, GpruneError):
        return sentence(str(error))
    lines = str(error).strip().splitlines()
    return sentence(": ".join([type(error).__name__, *lines[:1]]))
