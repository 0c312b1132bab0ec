"""State of a job: one frozen record in ``state.json``, changed only under the job's lock.

A job is queued, running, and then done, failed, cancelled, or interrupted by a signal that asks its process to leave. A
running job that was asked to stop is cancelling until its process has ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

from gprune.jobs import folder as files
from gprune.system import processes, safe_parsing
from gprune.system.errors import SettingsError
from gprune.system.files import write_json
from gprune.system.forms import LooseForm, one_of

FINISHED = ("cancelled", "interrupted", "failed", "done")
STATES = ("queued", "running", "cancelling", *FINISHED)
REMEDY = "start it again: finished stages are kept"
ERROR = "error: "
"""Beginning of the line by which a command says why it failed."""
LOST = "the process ended without a result (killed, out of memory, or the machine restarted)"
DAMAGED = f"the job's {files.STATE} is missing or damaged; {REMEDY}"


@dataclass(frozen=True)
class JobState(LooseForm):
    """State of a job; times are seconds since 1970."""

    state: Annotated[str, one_of(STATES)] = "queued"
    host: str = ""
    """Machine of the process."""
    pid: int | None = None
    process_started: float | None = None
    """Create time of the process, see `gprune.system.processes`; distinguishes later processes with its number."""
    started: float | None = None
    """When the job left the queue."""
    ended: float | None = None
    cancel_requested: float | None = None
    error: str = ""
    """One sentence, empty unless failed."""
    device: str = ""
    """GPU that the queue assigned; empty if it assigns none."""

    @property
    def finished(self) -> bool:
        """Return True if nothing more will happen."""
        return self.state in FINISHED

    @property
    def killed(self) -> bool:
        """Return True if the process ended without reporting how: the job may succeed when it is started again."""
        return self.error.startswith(LOST)

    def elapsed_at(self, moment: float) -> float | None:
        """Return the seconds from its start to its end, or to `moment` in seconds since 1970; None while it waits."""
        return None if self.started is None else max(0.0, (self.ended or moment) - self.started)

    def with_process(self, pid: int) -> JobState:
        """Return the same job with a process of this machine."""
        return replace(self, pid=pid, process_started=processes.process_start(pid), host=processes.host())

    def ended_as(self, state: str, error: str = "") -> JobState:
        """Return the same job, ended now."""
        return replace(self, state=state, error=safe_parsing.sentence(error), ended=time.time())

    def after_death(self, reason: str) -> JobState:
        """Return the state of a job whose process is gone; a reported end stays."""
        if self.finished:
            return self
        return self.ended_as("cancelled") if self.state == "cancelling" else self.ended_as("failed", reason)


def read_state(folder: Path) -> JobState:
    """Return the state of a job; a damaged file reads as failed, with the reason."""
    values = files.read_json(folder / files.STATE) or {}
    try:
        return JobState.parse({"state": ""} | values)
    except SettingsError:
        return JobState(state="failed", error=DAMAGED)


def write_state(folder: Path, state: JobState) -> None:
    """Replace the state of a job. Raises JobError if it cannot be written."""
    with files.writable(folder):
        write_json(folder / files.STATE, asdict(state))


def update(folder: Path, change: Callable[[JobState], JobState]) -> JobState:
    """Change the state under the job's lock and return it. Raises JobError if it cannot be written."""
    with files.lock_folder(folder):
        before = read_state(folder)
        after = change(before)
        if after != before:
            write_state(folder, after)
        return after
