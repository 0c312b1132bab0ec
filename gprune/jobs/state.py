"""Where a job stands: one frozen record in ``state.json``, changed only under the job's lock.

A queued job is taken to running, and ends as done, failed, cancelled, or interrupted: asked by a signal to
leave, as a scheduler sends it, and to be continued. Asked to stop, a queued job is
cancelled at once; a running one is cancelling until its process is gone, and then cancelled, or done if it
was faster. A cancelled job is never failed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from gprune.jobs import folder as files
from gprune.system import safe_parsing
from gprune.system.errors import SettingsError
from gprune.system.forms import LooseForm, Rule, between, one_of

MOST_TEXT = 20_000
LATEST = 1e11
"""seconds since 1970: the year 5000, beyond which no calendar shows a time"""
FINISHED = ("cancelled", "interrupted", "failed", "done")
STATES = ("queued", "running", "cancelling", *FINISHED)
REMEDY = "start it again: finished stages are kept"
LOST = f"the process ended without a result (killed or the machine restarted); {REMEDY}"
DAMAGED = f"the job's {files.STATE} is missing or damaged; {REMEDY}"


def is_text(value: object) -> bool:
    """Whether a value is text that can be shown: of bounded length, and of whole letters."""
    return isinstance(value, str) and len(value) <= MOST_TEXT and safe_parsing.is_whole(value)


Shown = Annotated[str, Rule("text that can be shown", is_text)]
Seconds = Annotated[float, Rule("seconds, up to the year 5000", lambda value: 0 <= value < LATEST)]
_Process = Annotated[int, between(1, 2**31 - 1)]


@dataclass(frozen=True, slots=True)
class JobState(LooseForm):
    """Where a job stands; times are seconds since 1970, process starts seconds since the machine started."""

    state: Annotated[str, one_of(STATES)] = "queued"
    """one of STATES"""
    pid: _Process | None = None
    """process of the run"""
    process_started: Seconds | None = None
    """when that process started, which tells it from a later process with the same number"""
    supervisor: _Process | None = None
    """process that watches the run"""
    supervisor_started: Seconds | None = None
    """when that process started"""
    host: Shown = ""
    """machine of those processes, whose numbers mean nothing elsewhere; empty in earlier versions"""
    boot: Shown = ""
    """which start of that machine"""
    beat: Seconds | None = None
    """when the process that watches the run last said that it is there"""
    started: Seconds | None = None
    """when the job left the queue"""
    claimed: Seconds | None = None
    """the same in seconds since the machine started, by a clock that nobody sets"""
    ended: Seconds | None = None
    """when the job was done, failed, cancelled or interrupted"""
    cancel_requested: Seconds | None = None
    """when someone asked the run to stop"""
    grace: Seconds = 5.0
    """seconds the run has to stop by itself; then SIGTERM, and as many seconds later SIGKILL"""
    error: Shown = ""
    """one sentence, empty unless failed"""
    run_id: Shown = ""
    """name of the result in the cache"""
    summary: dict[str, Any] = field(default_factory=dict)
    """a few plain values of the result, as the run reported them"""
    device: Shown = ""
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

        `interrupted` by a signal that asks a process to leave, `killed` by another, or nobody saw it end.
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
    try:
        # one that does not say where the job stands is damaged as well
        return JobState.parse({"state": ""} | values)
    except SettingsError:
        return JobState(state="failed", error=DAMAGED)


def write_state(folder: Path, state: JobState) -> None:
    """Replaces the state of a job; callers hold the job's lock. JobError where it cannot be written."""
    with files.writable(folder):
        files.write_json(folder / files.STATE, asdict(state))


def update(folder: Path, change: Callable[[JobState], JobState]) -> JobState:
    """Reads, changes and writes the state under the job's lock, and gives it; the same one writes nothing.

    `change` is asked again where the state has become another one before it was written.
    Raises JobError where the folder cannot be written or its lock not be had.
    """
    with files.locked(folder):
        while True:
            before = read_state(folder)
            after = change(before)
            if after == before or _replaced(folder, before, after):
                return after


def _replaced(folder: Path, before: JobState, after: JobState) -> bool:
    """Writes a state unless another one has taken the place of `before`; says whether it did.

    Where a disk has no locks, a process that was suspended has lost its lease to another, which has gone on.
    """

    def unchanged() -> bool:
        return read_state(folder) == before

    with files.writable(folder):
        return files.write_json(folder / files.STATE, asdict(after), unchanged)
