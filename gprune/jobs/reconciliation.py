"""Keeps the queue true: ends the jobs whose process is gone, and starts waiting ones where there is room.

A job that measures speed shares its device with nothing. A GPU has one job anyway; without named GPUs, and
for a study that asks for the CPU, it waits until no other job is at work, and none starts until it has ended.
"""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from gprune.jobs import device_slots, local
from gprune.jobs import folder as files
from gprune.jobs.job import Job, read_job
from gprune.jobs.listing import jobs
from gprune.jobs.state import LOST, JobState, read_state, silence, update
from gprune.system import processes
from gprune.system.errors import JobError

# a job taken from the queue whose supervisor has not shown up after this long is given up
CLAIM_SECONDS = 30.0


def at_work(cache: Path) -> list[Job]:
    """Jobs that wait for their turn, compute, or still leave the machine; nothing is changed.

    A job that is called running but whose processes are gone is not among them.
    """
    found, now = [], time.time()
    for folder in files.all_folders(files.root(cache)):
        state = read_state(folder)
        if state.finished and now - (state.ended or 0.0) > 2 * local.EXIT_SECONDS:
            continue
        waits = state.state == "queued" or (not state.finished and _starting(state, now))
        if waits or local.worker_alive(state) or (not state.finished and local.supervisor_alive(state)):
            with contextlib.suppress(JobError):
                found.append(read_job(folder))
    return found


def settle(home: Path) -> None:
    """Ends the jobs whose process is gone, and stops those that nobody watches; the queue's lock is held."""
    now = time.time()
    for folder in files.all_folders(home):
        state = read_state(folder)
        if state.state == "queued" or local.supervisor_alive(state):
            continue
        if local.worker_alive(state):
            due = local.due_signal(state, now)
            if due is not None and state.pid is not None:
                local.send(state.pid, state.process_started, due)
        elif not state.finished and not _starting(state, now):
            reason = silence(state.host) if local.elsewhere(state) else LOST
            update(folder, partial(JobState.without_result, reason=reason, killed=True))


def _starting(state: JobState, now: float) -> bool:
    """Whether a job was taken from the queue so recently that its supervisor may still be loading."""
    if state.pid is not None or state.started is None:
        return False
    if state.claimed is not None and not local.elsewhere(state):
        return 0 <= processes.uptime() - state.claimed < CLAIM_SECONDS
    return abs(now - state.started) < CLAIM_SECONDS


def advance(home: Path) -> None:
    """Starts waiting jobs, oldest first, while there is room; the queue's lock is held.

    A run that has reported its end keeps its place until its process has left and freed its memory.
    """
    found = jobs(home.parent)
    busy = [
        job for job in found if job.state in ("running", "cancelling") or local.worker_alive(read_state(job.folder))
    ]
    waiting = [job for job in reversed(found) if job.state == "queued"]
    for job, device in starts(waiting, busy) if waiting else []:
        _start(job.folder, device)


def starts(waiting: Sequence[Job], busy: Sequence[Job]) -> list[tuple[Job, str]]:
    """The jobs of the queue that may start now, in their order, each with its device.

    That is empty where no GPUs are named, and names several with blanks between them for a model that lies
    over several. `busy` are at work, or still leave the machine. Raises JobError where what is set cannot be
    read.
    """
    named, room = device_slots.devices(), device_slots.slots()
    taken = [place for job in busy for place in _places(job, named)]
    found: list[tuple[Job, str]] = []
    if any(_alone(job, named) for job in busy):
        return []
    for job in waiting:
        free = [place for place in _choices(job, named) if place not in taken or not named]
        if _alone(job, named):
            # nothing overtakes it, or it would wait for ever
            return found if taken else [(job, free[0])]
        count = _count(job, named)
        if len(free) < count:
            # what is free is kept for it, or jobs of one GPU would have them for ever, one after the other
            taken += free if len(_choices(job, named)) >= count else []
        elif named or len(taken) < room:
            taken += free[:count]
            found.append((job, " ".join(free[:count])))
    return found


def _alone(job: Job, named: tuple[str, ...]) -> bool:
    """Whether no other job may be at work beside one: all of them use the device_slots.CPU."""
    return job.timed and (not named or job.asks == device_slots.CPU)


def _choices(job: Job, named: tuple[str, ...]) -> tuple[str, ...]:
    """The devices that a job may have; speeds of one machine are all measured on its first GPUs."""
    if not named:
        return ("",)
    if job.asks not in device_slots.OPEN_CHOICE:
        return (job.asks,)
    return named[: _count(job, named)] if job.timed else named


def _count(job: Job, named: tuple[str, ...]) -> int:
    """How many devices a job gets."""
    return job.gpus if named and job.asks in device_slots.OPEN_CHOICE else 1


def _places(job: Job, named: tuple[str, ...]) -> list[str]:
    """The devices of a job that is at work, whoever has started it; one where slots are counted."""
    return (job.device.split() if named else []) or list(_choices(job, named)[: _count(job, named)])


def _start(folder: Path, device: str) -> None:
    """Takes a job from the queue; the state is written first, so that a full disk starts nothing twice."""
    claimed = update(folder, partial(_claim, device=device))
    if claimed.state != "running":
        return
    try:
        local.start_supervisor(folder)
    except OSError as error:
        plain = f"no process can be started ({error.strerror or error}): free some memory and start it again"
        reason = files.full(folder, error) or plain
        update(folder, lambda state: state.ended_as("failed", reason))


def _claim(state: JobState, device: str) -> JobState:
    if state.state != "queued":
        return state
    now = time.time()
    given = {"device": device, "claimed": processes.uptime(), **local.here()}
    return replace(state, state="running", started=now, **given)
