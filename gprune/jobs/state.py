"""State of a job: one frozen record in ``state.json``, changed only under the job's lock.

A job is queued, running, and then done, failed, cancelled, or interrupted by a signal that asks its process to leave. A
running job that was asked to stop is cancelling until its process has ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from gprune.jobs import folder as files
from gprune.system import processes, safe_parsing
from gprune.system.errors import SettingsError
from gprune.system.forms import LooseForm, Rule, between, one_of

MAX_TEXT = 20_000
MAX_SECONDS = 1e11
"""Seconds since 1970 of the year 5000; no calendar shows a later time."""
FINISHED = ("cancelled", "interrupted", "failed", "done")
STATES = ("queued", "running", "cancelling", *FINISHED)
REMEDY = "start it again: finished stages are kept"
ERROR = "error: "
"""Beginning of the line by which a command says why it failed."""
LOST = "the process ended without a result (killed, out of memory, or the machine restarted)"
DAMAGED = f"the job's {files.STATE} is missing or damaged; {REMEDY}"


def is_text(value: object) -> bool:
    """Return True for text that can be displayed."""
    return isinstance(value, str) and len(value) <= MAX_TEXT and safe_parsing.is_whole(value)


Text = Annotated[str, Rule("text that can be shown", is_text)]
Seconds = Annotated[float, Rule("seconds, up to the year 5000", lambda value: 0 <= value < MAX_SECONDS)]


@dataclass(frozen=True, slots=True)
class JobState(LooseForm):
    """State of a job; times are seconds since 1970."""

    state: Annotated[str, one_of(STATES)] = "queued"
    host: Text = ""
    """Machine of the process."""
    pid: Annotated[int, between(1, 2**31 - 1)] | None = None
    process_started: Seconds | None = None
    """Create time of the process, see `gprune.system.processes`; distinguishes later processes with its number."""
    started: Seconds | None = None
    """When the job left the queue."""
    ended: Seconds | None = None
    cancel_requested: Seconds | None = None
    error: Text = ""
    """One sentence, empty unless failed."""
    run_id: Text = ""
    """Name of the result in the cache."""
    summary: dict[str, Any] = field(default_factory=dict)
    """A few plain values of the result."""
    device: Text = ""
    """GPU that the queue assigned; empty where it assigns none."""
    killed: bool = False
    """True if the process ended without reporting how: the job may succeed when it is started again."""

    @property
    def finished(self) -> bool:
        """Return True if nothing more will happen."""
        return self.state in FINISHED

    def with_process(self, pid: int) -> JobState:
        """Return the same job with a process of this machine."""
        return replace(self, pid=pid, process_started=processes.process_start(pid), host=processes.host())

    def ended_as(self, state: str, error: str = "") -> JobState:
        """Return the same job, ended now."""
        return replace(self, state=state, error=one_line(error), ended=time.time())

    def after_death(self, reason: str) -> JobState:
        """Return the state of a job whose process is gone; a reported end stays."""
        if self.finished:
            return self
        return (
            self.ended_as("cancelled")
            if self.state == "cancelling"
            else replace(self.ended_as("failed", reason), killed=reason.startswith(LOST))
        )


def one_line(text: str) -> str:
    """Return the text without line breaks and of bounded length; its end is kept."""
    return safe_parsing.sentence(text)


def read_state(folder: Path) -> JobState:
    """Return the state of a job; a damaged file reads as failed, with the reason."""
    values = files.read_json(folder / files.STATE) or {}
    try:
        return JobState.parse({"state": ""} | values)
    except SettingsError:
        return JobState(state="failed", error=DAMAGED)


def write_state(folder: Path, state: JobState) -> None:
    """Replace the state of a job; JobError where it cannot be written."""
    with files.writable(folder):
        files.write_json(folder / files.STATE, asdict(state))


def update(folder: Path, change: Callable[[JobState], JobState]) -> JobState:
    """Change the state under the job's lock and return it; JobError where it cannot be written."""
    with files.locked(folder):
        before = read_state(folder)
        after = change(before)
        if after != before:
            write_state(folder, after)
        return after
