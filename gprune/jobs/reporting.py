"""What the run itself uses to say where it stands: progress, its end, and whether it was asked to stop.

    with JobReporter(folder) as report:
        run(study, on_progress=report)        # report(stage, done, total, message)
        report.finish({"retention": 0.5}, run_id)

Reporting never decides whether a run succeeds: a full disk loses progress lines, not the run.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from gprune.jobs import folder as files
from gprune.jobs import local
from gprune.jobs.state import JobState, one_line, read_state, update, write_state
from gprune.store.folder import is_full
from gprune.system.errors import Cancelled, GpruneError, Interrupted, JobError
from gprune.system.progress import Progress, Waiting

# progress lines are at least this far apart; in a long stage a hundredth of its age, up to the longest
SHORTEST_SECONDS = 0.2
LONGEST_SECONDS = 1.0
STAGE_SHARE = 0.01
# how often a run has the system ask a shared disk whether another machine has asked it to stop
FRESH_SECONDS = 5.0


class JobReporter:
    """Writes the events and the state of one job; used by the process that does the work.

    As a context manager it marks the job running, and on the way out done, cancelled, interrupted or failed;
    exceptions pass through. Called with `(stage, done, total, message)` it records progress, and raises
    `Cancelled` once the job was asked to stop.
    """

    def __init__(self, folder: str | Path, clock: Callable[[], float] = time.time) -> None:
        """Prepares to report to a job's folder, made if missing; nothing is written before the `with`."""
        self.folder = Path(folder).resolve()
        self._clock = clock
        self._stage = ""
        self._stage_began = 0.0
        self._written = -LONGEST_SECONDS
        self._complete = False
        self._waiting: bytes = b""
        self._torn = False
        self._checked = -LONGEST_SECONDS
        self._refreshed = -FRESH_SECONDS
        self._stop = False
        self._run_id = ""
        self._summary: dict[str, Any] = {}

    def __enter__(self) -> JobReporter:
        """Marks the job running under this process.

        Raises Cancelled where it was asked to stop before it began, JobError where the folder cannot be
        created.
        """
        files.make(self.folder)
        self._change(self._begin)
        if self._asked_to_stop():
            self._change(lambda state: state.ended_as("cancelled"))
            raise Cancelled("the run was stopped on request before it began")
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Records how the run ended; the exception, if any, goes on to the caller."""
        self._flush()
        self._change(lambda state: self._end(state, error))

    def __call__(self, stage: str, done: int, total: int, message: str = "") -> None:
        """Records progress; see `event`."""
        self.event(stage, done, total, message)

    def event(self, stage: str, done: int, total: int, message: str = "") -> None:
        """Records that `done` of `total` steps of a stage are finished; Cancelled where the job is to stop.

        The first and the last event of a stage are always written, those between at most five a second.
        """
        now = self._clock()
        self._record(now, stage, int(done), int(total), message)
        if abs(now - self._checked) >= SHORTEST_SECONDS or self._stop:
            self._checked = now
            if self._asked_to_stop():
                raise Cancelled("the run was stopped on request")

    def stage(self, name: str) -> Progress:
        """A listener for the work of one stage: a function of done, total and message."""
        return partial(self.event, name)

    def finish(self, summary: dict[str, Any] | None = None, run_id: str = "") -> None:
        """Says what came out, to be recorded when the `with` block ends without an exception.

        `summary` is a few plain values for the list of jobs, `run_id` the name of the result in the cache.
        """
        self._run_id = run_id
        self._summary = dict(summary or {})

    def _record(self, now: float, stage: str, done: int, total: int, message: str) -> None:
        event = {"ts": now, "stage": stage, "done": done, "total": total, "message": one_line(message)}
        event |= {"waits": True} if isinstance(message, Waiting) else {}
        complete = done >= total
        first = stage != self._stage
        if first:
            self._flush()
            self._stage, self._stage_began, self._complete = stage, now, False
        self._waiting = (json.dumps(event) + "\n").encode()
        age = abs(now - self._stage_began)
        interval = min(LONGEST_SECONDS, max(SHORTEST_SECONDS, STAGE_SHARE * age))
        if first or abs(now - self._written) >= interval or (complete and not self._complete):
            self._complete = complete
            self._written = now
            self._flush()

    def _flush(self) -> None:
        """Writes the event that waits, if any; a line torn by a full disk is closed off by the next one."""
        if not self._waiting:
            return
        data = b"\n" + self._waiting if self._torn else self._waiting
        self._waiting = b""
        try:
            files.append(self.folder / files.EVENTS, data)
            self._torn = False
        except OSError:
            self._torn = True

    def _asked_to_stop(self) -> bool:
        now = time.monotonic()
        if now - self._refreshed >= FRESH_SECONDS:
            self._refreshed = now
        self._stop = self._stop or os.path.exists(self.folder / files.CANCEL)
        return self._stop

    def _begin(self, state: JobState) -> JobState:
        """The state of a job that runs in this process."""
        self._stop = self._stop or state.state == "cancelling"
        waited = state.state in ("running", "cancelling")
        base = state if waited else JobState(started=self._clock())
        pid = os.getpid()
        return replace(
            base,
            state="cancelling" if state.state == "cancelling" else "running",
            pid=pid,
            process_started=local.process_start(pid),
            **local.here(),
        )

    def _end(self, state: JobState, error: BaseException | None) -> JobState:
        if error is None or (isinstance(error, SystemExit) and not error.code):
            return replace(state.ended_as("done"), run_id=self._run_id, summary=self._summary)
        stopped = self._asked_to_stop() or state.state == "cancelling"
        if isinstance(error, Interrupted) and not stopped:
            return state.ended_as("interrupted")
        if stopped or isinstance(error, Cancelled | KeyboardInterrupt):
            return state.ended_as("cancelled")
        return state.ended_as("failed", sentence(error))

    def _change(self, change: Callable[[JobState], JobState]) -> None:
        """Changes the state; without the lock if it cannot be had, and at worst only tells the log."""
        try:
            update(self.folder, change)
        except JobError:
            try:
                write_state(self.folder, change(read_state(self.folder)))
            except JobError as error:
                print(f"the job's state was not recorded: {error}", file=sys.stderr)


def is_cancelled(folder: Path) -> bool:
    """Whether someone has asked a job to stop; on a full disk its state alone may say so."""
    return (folder / files.CANCEL).exists() or read_state(folder).state == "cancelling"


def sentence(error: BaseException) -> str:
    """An exception as one line: our own errors as they are, others with the name of their kind."""
    lines = str(error).strip().splitlines()
    text = lines[0].strip() if lines else ""
    if isinstance(error, GpruneError) and text:
        return one_line(str(error))
    if isinstance(error, SystemExit):
        return f"the run ended with exit code {text}"
    kind = type(error).__name__
    return one_line(f"{kind}: {text}" if text else kind)


class Forgiving(io.TextIOBase):
    """A stream that loses what a full disk or quota does not take."""

    def __init__(self, stream: TextIO) -> None:
        """Stands in for a stream."""
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """As the stream's."""
        return self._stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        """As the stream's."""
        return self._stream.errors

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """The descriptor, where there is one."""
        return self._stream.fileno()

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, text: str) -> int:
        """Writes a text, or loses it on a full disk; OSError where the stream does not take it otherwise."""
        with _losing():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Hands on what is still held back; errors as `write`."""
        with _losing():
            self._stream.flush()


@contextlib.contextmanager
def _losing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise


@contextlib.contextmanager
def forgiving() -> Iterator[None]:
    """What is printed while the context lasts may be lost."""
    with (
        contextlib.redirect_stdout(Forgiving(sys.stdout)),
        contextlib.redirect_stderr(Forgiving(sys.stderr)),
    ):
        yield
