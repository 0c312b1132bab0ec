"""Where a job stands: one frozen record in ``state.json``, changed only under the job's lock.

A queued job is taken to running, and ends as done, failed, cancelled, or interrupted: asked by a signal to
leave, as a scheduler sends it, and to be continued. Asked to stop, a queued job is
cancelled at once; a running one is cancelling until its process is gone, and then cancelled, or done if it
was faster. A cancelled job is never failed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from gprune.jobs import folder as files
from gprune.system import safe_parsing

MOST_TEXT = 20_000
FINISHED = ("cancelled", "interrupted", "failed", "done")
STATES = ("queued", "running", "cancelling", *FINISHED)
REMEDY = "start it again: finished stages are kept"
LOST = f"the process ended without a result (killed or the machine restarted); {REMEDY}"
DAMAGED = f"the job's {files.STATE} is missing or damaged; {REMEDY}"


@dataclass(frozen=True, slots=True)
class JobState:
    """Where a job stands; times are seconds since 1970, process starts seconds since the machine started."""

    state: str = "queued"
    """one of STATES"""
    pid: int | None = None
    """process of the run"""
    process_started: float | None = None
    """when that process started, which tells it from a later process with the same number"""
    supervisor: int | None = None
    """process that watches the run"""
    supervisor_started: float | None = None
    """when that process started"""
    host: str = ""
    """machine of those processes, whose numbers mean nothing elsewhere; empty in earlier versions"""
    boot: str = ""
    """which start of that machine"""
    beat: float | None = None
    """when the process that watches the run last said that it is there"""
    started: float | None = None
    """when the job left the queue"""
    claimed: float | None = None
    """the same in seconds since the machine started, by a clock that nobody sets"""
    ended: float | None = None
    """when the job was done, failed, cancelled or interrupted"""
    cancel_requested: float | None = None
    """when someone asked the run to stop"""
    grace: float = 5.0
    """seconds the run has to stop by itself; then SIGTERM, and as many seconds later SIGKILL"""
    error: str = ""
    """one sentence, empty unless failed"""
    run_id: str = ""
    """name of the result in the cache"""
    summary: dict[str, Any] = field(default_factory=dict)
    """a few plain values of the result, as the run reported them"""
    device: str = ""
    """GPU that the queue has given it, or several with blanks between; empty where it has none to give"""
    killed: bool = False
    """whether its process was killed, or its machine started anew: nothing of it says that it cannot work"""

    @property
    def finished(self) -> bool:
        """Whether nothing more will happen."""
        return self.state in FINISHED

    def ended_as(self, state: str, error: str = "") -> JobState:
        """The same job, ended now."""
        return replace(self, state=state, error=one_line(error), ended=time.time())

    def without_result(self, reason: str = LOST, interrupted: bool = False, killed: bool = False) -> JobState:
        """The job after its process is gone: a reported result stays, a cancelled job is no failure.

        Args:
            reason: why it has none, in one sentence.
            interrupted: whether a signal has ended it that asks a process to leave.
            killed: whether another signal has, or nobody was there to see it end.
        """
        if self.state == "cancelling":
            return self.ended_as("cancelled")
        if self.state == "running":
            ended = self.ended_as("interrupted") if interrupted else self.ended_as("failed", reason)
            return replace(ended, killed=killed and not interrupted)
        return self


def silence(host: str) -> str:
    """Why a job of another machine is given up."""
    return f"nothing was heard for 15 minutes from {one_line(host)[:80]}, where it ran; {REMEDY}"


def one_line(text: str) -> str:
    """The text without line breaks and of bounded length; its end, where the remedy stands, survives."""
    return safe_parsing.sentence(text)


def read_state(folder: Path) -> JobState:
    """The state of a job; a damaged file reads as failed, with the reason."""
    values = files.read_json(folder / files.STATE) or {}
    known = {name: values[name] for name in (f.name for f in fields(JobState)) if name in values}
    return JobState(**known) if _plausible(known) else JobState(state="failed", error=DAMAGED)


def _plausible(values: dict[str, Any]) -> bool:
    if values.get("state") not in STATES:
        return False
    texts = all(is_text(values.get(name, "")) for name in ("error", "run_id", "host", "boot", "device"))
    pids = all(values.get(name) is None or _is_pid(values[name]) for name in ("pid", "supervisor"))
    times = (
        "process_started",
        "supervisor_started",
        "started",
        "claimed",
        "beat",
        "ended",
        "cancel_requested",
    )
    numbers = all(values.get(name) is None or is_time(values[name]) for name in times)
    grace = is_time(values.get("grace", 0.0))
    kinds = isinstance(values.get("summary", {}), dict) and isinstance(values.get("killed", False), bool)
    return texts and pids and numbers and grace and kinds


def is_time(value: object) -> bool:
    """Whether a value is seconds that a calendar and a clock can show, up to the year 5000."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e11


def is_text(value: object) -> bool:
    """Whether a value is text that can be shown: of bounded length, and of whole letters."""
    halves = isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value)
    return isinstance(value, str) and not halves and len(value) <= MOST_TEXT


def _is_pid(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31


def write_state(folder: Path, state: JobState) -> None:
    """Replaces the state of a job; callers hold the job's lock.

    Raises:
        JobError: the folder cannot be written.
    """
    try:
        files.write_json(folder / files.STATE, asdict(state))
    except OSError as error:
        raise files.unwritable(folder, error) from error


def update(folder: Path, change: Callable[[JobState], JobState]) -> JobState:
    """Reads, changes and writes the state under the job's lock.

    Args:
        folder: the job's folder.
        change: from the present state to the next; the same state writes nothing.

    Returns:
        The state afterwards.

    Raises:
        JobError: the folder cannot be written or its lock not be had.
    """
    with files.locked(folder):
        before = read_state(folder)
        after = change(before)
        if after != before:
            write_state(folder, after)
    return after
