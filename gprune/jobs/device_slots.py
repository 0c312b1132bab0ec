"""Answers: on which devices may jobs run, and how many at a time?

So many jobs run at a time as there are slots: one, or what `GPRUNE_JOB_SLOTS` says. Where
`GPRUNE_JOB_DEVICES` names GPUs, one job runs on each of them instead, and one on the CPU if its study asks
for that.
"""

import os
import re
from collections.abc import Sequence

from gprune.system import machine
from gprune.system.errors import JobError
from gprune.system.safe_parsing import quoted

SLOTS_VARIABLE = "GPRUNE_JOB_SLOTS"
DEVICES_VARIABLE = "GPRUNE_JOB_DEVICES"
CPU = "cpu"
OPEN_CHOICE = ("auto", "cuda")
"""what a study asks for whose GPU the queue may choose"""
_GPU = re.compile(r"cuda:(0|[1-9][0-9]?)", re.ASCII)
_VISIBLE = "CUDA_VISIBLE_DEVICES"


def slots() -> int:
    """How many jobs may run at a time where no devices are named.

    Raises JobError where the variable does not hold a whole number of at least 1.
    """
    text = os.environ.get(SLOTS_VARIABLE, "1")
    if not text.isdecimal() or int(text) < 1:
        raise JobError(f"{SLOTS_VARIABLE} must be a whole number of at least 1, or not set (got {text!r})")
    return int(text)


def devices() -> tuple[str, ...]:
    """The GPUs that have a job each, none where slots decide; JobError for another value."""
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
    """Names the GPUs, as `cuda:0`, for this process and its jobs; none leaves what is set as it is.

    Raises JobError where one of them is no GPU of this machine.
    """
    if names:
        os.environ[DEVICES_VARIABLE] = " ".join(names)
        require_valid()


def visible(device: str) -> dict[str, str]:
    """What a job's environment holds besides, so that it sees its own GPUs alone.

    `device` is as `cuda:1`, counted among the GPUs that this process sees; empty for no change. Raises
    ValueError where it does not see so many.
    """
    if not device:
        return {}
    seen, number = os.environ.get(_VISIBLE), _number(device)
    if seen is None:
        return {_VISIBLE: str(number)}
    names = seen.split(",")
    if number >= len(names):
        raise ValueError(f"there is no {device} among {_VISIBLE}={seen}")
    return {_VISIBLE: names[number].strip()}


def _number(device: str) -> int:
    return int(device.partition(":")[2])
