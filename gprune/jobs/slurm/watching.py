"""Brings what the folders say together with what Slurm says, where a run could not report its end itself.

A folder that tells of an end is believed. Of the others Slurm is asked; what it calls ended is given a
moment, for a file of another node may be seen late. A run that writes its beat is at work, though Slurm knows
nothing of it.
"""

import contextlib
import threading
import time
from dataclasses import replace
from pathlib import Path

from gprune.jobs import folder as files
from gprune.jobs import local
from gprune.jobs.slurm import batch, client
from gprune.jobs.slurm.client import QueueState
from gprune.jobs.slurm.record import ENDS, UNKNOWN, WAITS, Record, is_slurm, read_record, write_record
from gprune.jobs.state import REMEDY, JobState, read_state, write_state
from gprune.system.errors import JobError

LOOK_SECONDS = 10.0
"""Slurm is asked no more often than that while pages are open"""
SETTLE_SECONDS = 20.0
"""what a node wrote last is visible everywhere after that"""
ANSWERED_SECONDS = 4 * client.SUBMIT_SECONDS
"""whoever waited for sbatch is gone after that"""

_looking = threading.Lock()
_last: dict[Path, float] = {}


def soon(home: Path) -> None:
    """Looks in the background if the last look is long enough ago: a page does not wait for Slurm."""
    if time.monotonic() - _last.get(home, -LOOK_SECONDS) < LOOK_SECONDS or _looking.locked():
        return
    if waiting(home):
        threading.Thread(target=_look_quietly, args=(home,), daemon=True).start()


def _look_quietly(home: Path) -> None:
    # what cannot be written is written by the next look
    with contextlib.suppress(JobError):
        look(home)


def waiting(home: Path) -> list[Path]:
    """The folders of Slurm's jobs that have not ended for good."""
    found = (folder for folder in files.all_folders(home) if is_slurm(folder))
    return [folder for folder in found if open_in_slurm(read_state(folder), read_record(folder))]


def open_in_slurm(state: JobState, record: Record) -> bool:
    """Whether a job of Slurm's goes on, or is taken up again by Slurm itself."""
    return not state.finished or (state.state == "interrupted" and record.known)


def look(home: Path) -> None:
    """Asks Slurm once for all jobs that have not ended, and records what follows from it.

    Raises JobError where a job's folder cannot be written.
    """
    with _looking:
        _last[home] = time.monotonic()
        folders, asked = waiting(home), time.time()
        found: dict[tuple[str, int], QueueState] = {}
        problem = ""
        try:
            found = client.standings(read_record(folder).array for folder in folders)
        except JobError as error:
            problem = str(error)
        for folder in folders:
            with files.locked(folder):
                _conclude(folder, found, asked, problem)


def _conclude(folder: Path, found: dict[tuple[str, int], QueueState], asked: float, problem: str) -> None:
    """Records what Slurm said of one job, whose lock is held."""
    record, state = read_record(folder), read_state(folder)
    if not record.array:
        if asked - record.made > ANSWERED_SECONDS and state.state == "queued":
            write_state(folder, state.ended_as("failed", f"it never got into Slurm; {REMEDY}"))
        return
    if problem:
        told = replace(record, problem=problem)
    else:
        now = found.get((record.array, record.task), QueueState(UNKNOWN, ""))
        over = now.state == UNKNOWN or now.state in ENDS
        since = (record.gone or asked) if over else None
        told = replace(record, state=now.state, reason=now.reason, gone=since, problem="")
    if told != record:
        write_record(folder, told)
    after = state if problem else concluded(folder, state, told, asked)
    if after != state:
        write_state(folder, after)


def concluded(folder: Path, state: JobState, record: Record, asked: float) -> JobState:
    """Where a job stands after Slurm was asked."""
    if state.state == "interrupted" and record.state == "CANCELLED":
        # somebody has told Slurm itself to stop it: nobody is to go on with it
        return state.ended_as("cancelled")
    if state.finished:
        return state
    begun = max(state.beat or 0.0, state.started or 0.0)
    if record.state in WAITS and state.state in ("running", "cancelling"):
        # a run that began after the question is none that Slurm has taken back
        return _taken_back(state, record) if begun < asked - SETTLE_SECONDS else state
    if record.gone is None or asked - record.gone < SETTLE_SECONDS:
        return state
    if record.state == UNKNOWN and state.state == "running" and not local.silent(state, asked):
        return state
    if state.state == "cancelling" or record.state == "CANCELLED":
        return state.ended_as("cancelled")
    return _ended(folder, state, record)


def _taken_back(state: JobState, record: Record) -> JobState:
    if state.state == "cancelling":
        return state.ended_as("cancelled")
    return state.ended_as("interrupted", f"Slurm took it back and starts it again by itself ({record.note()})")


_REASONS = {
    "BOOT_FAIL": ("interrupted", "its node did not start"),
    "DEADLINE": ("interrupted", "its deadline has passed"),
    "NODE_FAIL": ("interrupted", "its node failed, and Slurm did not take it back"),
    "PREEMPTED": ("interrupted", "another job took its place, and Slurm did not take it back"),
    "TIMEOUT": ("interrupted", "the time limit was reached, and Slurm did not take it back"),
    "OUT_OF_MEMORY": ("failed", "it needed more memory than it had: set a larger `memory` for Slurm"),
}  # fmt: skip


def _ended(folder: Path, state: JobState, record: Record) -> JobState:
    """A job that Slurm calls ended, or has lost, and that could not say so itself."""
    if record.state in _REASONS:
        word, reason = _REASONS[record.state]
        return state.ended_as(word, f"{reason}; {REMEDY}")
    if record.state == UNKNOWN:
        began = "its run has been silent for 15 minutes" if state.state == "running" else "it never began"
        return state.ended_as("failed", f"lost: Slurm does not know {record.name} any more, and {began}; {REMEDY}")
    sign = folder / batch.SIGN
    if sign.exists() and not sign.stat().st_size:
        return state.ended_as(
            "failed", f"its node could not write: the disk of {folder} or your quota on it is full; {REMEDY}"
        )
    if not sign.exists():
        said = client.details(record.array, record.task)
        node = said.get("NodeList") or "that Slurm chose"
        return state.ended_as(
            "failed",
            f"the node {node} cannot see this folder, or could not start the script (exit code "
            f"{said.get('ExitCode', 'unknown')}): put the cache on a file system that the nodes share",
        )
    return state.ended_as("failed", f"the process ended without a result ({record.note()}); see its log, then {REMEDY}")
