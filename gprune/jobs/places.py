"""Answers: which waiting jobs may start now, and on which device?

So many jobs run at a time as there are slots: one, or what `GPRUNE_JOB_SLOTS` says. Where
`GPRUNE_JOB_DEVICES` names GPUs, one job runs on each of them instead, and one on the CPU if its study asks
for that.

A job that measures speed shares its device with nothing. A GPU has one job anyway; without named GPUs, and
for a study that asks for the CPU, it waits until no other job is at work, and none starts until it has ended.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gprune import machine
from gprune.errors import JobError
from gprune.untrusted import quoted

if TYPE_CHECKING:
    from gprune.jobs.job import Job

SLOTS_VARIABLE = "GPRUNE_JOB_SLOTS"
DEVICES_VARIABLE = "GPRUNE_JOB_DEVICES"
CPU = "cpu"
OPEN_CHOICE = ("auto", "cuda")
"""what a study asks for whose GPU the queue may choose"""
_GPU = re.compile(r"cuda:(0|[1-9][0-9]?)", re.ASCII)
_VISIBLE = "CUDA_VISIBLE_DEVICES"


def slots() -> int:
    """How many jobs may run at a time where no devices are named.

    Raises:
        JobError: the variable does not hold a whole number of at least 1.
    """
    text = os.environ.get(SLOTS_VARIABLE, "1")
    if not text.isdecimal() or int(text) < 1:
        raise JobError(f"{SLOTS_VARIABLE} must be a whole number of at least 1, or not set (got {text!r})")
    return int(text)


def devices() -> tuple[str, ...]:
    """The GPUs that have a job each; none where slots decide.

    Raises:
        JobError: the variable holds something else.
    """
    text = os.environ.get(DEVICES_VARIABLE, "")
    found = tuple(text.split())
    if len(set(found)) < len(found) or not all(_GPU.fullmatch(name) for name in found):
        raise JobError(
            f"{DEVICES_VARIABLE} must name GPUs, each once, as 'cuda:0 cuda:1', or not be set: a study asks "
            f"for the CPU itself, by its device (got {quoted(text)})"
        )
    return found


def require_valid() -> None:
    """Checks what is set, before a job is put into the queue.

    Raises:
        JobError: it cannot be read, or names a GPU that is not there: a job would use the CPU unasked.
    """
    slots()
    there = len(machine.cards()) if devices() else 0
    for name in devices():
        if _number(name) >= there:
            raise JobError(
                f"{DEVICES_VARIABLE} names {name}, and this machine shows {there} GPUs: name others, or none"
            )


def at_once() -> int:
    """How many jobs may run at a time, those that ask for the CPU beside GPUs left out."""
    return len(devices()) or slots()


def allow(names: Sequence[str]) -> None:
    """Names the GPUs for this process and the jobs that it starts.

    Args:
        names: as `cuda:0`; none leaves what is set as it is.

    Raises:
        JobError: one of them is no GPU of this machine.
    """
    if names:
        os.environ[DEVICES_VARIABLE] = " ".join(names)
        require_valid()


def visible(device: str) -> dict[str, str]:
    """What a job's environment holds besides, so that a GPU is the only one that it sees.

    Args:
        device: as `cuda:1`, counted among the GPUs that this process sees; empty for no change.

    Raises:
        ValueError: this process does not see so many.
    """
    if not device:
        return {}
    seen = os.environ.get(_VISIBLE)
    if seen is None:
        return {_VISIBLE: str(_number(device))}
    names = seen.split(",")
    if _number(device) >= len(names):
        raise ValueError(f"there is no {device} among {_VISIBLE}={seen}")
    return {_VISIBLE: names[_number(device)].strip()}


def starts(waiting: Sequence[Job], busy: Sequence[Job]) -> list[tuple[Job, str]]:
    """The jobs that may start now, each with its device.

    Args:
        waiting: the jobs in the queue, in their order.
        busy: the jobs that are at work, or still leave the machine.

    Returns:
        Jobs in their order; the device is empty where no GPUs are named.

    Raises:
        JobError: what is set cannot be read.
    """
    named, room = devices(), slots()
    taken = [_place(job, named) for job in busy]
    found: list[tuple[Job, str]] = []
    if any(_alone(job, named) for job in busy):
        return []
    for job in waiting:
        free = [place for place in _choices(job, named) if place not in taken or not named]
        if _alone(job, named):
            # nothing overtakes it, or it would wait for ever
            return found if taken else [(job, free[0])]
        if free and (named or len(taken) < room):
            taken.append(free[0])
            found.append((job, free[0]))
    return found


def _alone(job: Job, named: tuple[str, ...]) -> bool:
    """Whether no other job may be at work beside one: all of them use the CPU."""
    return job.timed and (not named or job.asks == CPU)


def _choices(job: Job, named: tuple[str, ...]) -> tuple[str, ...]:
    """The devices that a job may have; speeds of one machine are all measured on its first GPU."""
    if not named:
        return ("",)
    if job.asks not in OPEN_CHOICE:
        return (job.asks,)
    return named[:1] if job.timed else named


def _place(job: Job, named: tuple[str, ...]) -> str:
    """The device of a job that is at work, whoever has started it."""
    return job.device or _choices(job, named)[0]


def _number(device: str) -> int:
    return int(device.partition(":")[2])
