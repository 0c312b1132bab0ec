"""Devices of the queue: one job per device, the others wait.

``GPRUNE_JOB_DEVICES`` names GPUs with one job each; a study that asks for the CPU waits for the CPU alone. Without it
the machine takes one job at a time, or as many as ``GPRUNE_JOB_SLOTS`` says.
"""

import os
import re

from gprune.system import machine
from gprune.system.errors import JobError
from gprune.system.safe_parsing import quote

SLOTS_VARIABLE = "GPRUNE_JOB_SLOTS"
DEVICES_VARIABLE = "GPRUNE_JOB_DEVICES"
CPU = "cpu"
NO_DEVICE = "none"
"""A job that computes nothing itself, as a sweep that submits its studies."""
OPEN_CHOICE = ("auto", "cuda")
"""Devices of a study for which the queue chooses the GPU."""
_GPU = re.compile(r"cuda:(0|[1-9][0-9]?)", re.ASCII)
_VISIBLE = "CUDA_VISIBLE_DEVICES"


def slots() -> int:
    """Return how many jobs run at a time where no devices are named; JobError for an invalid value."""
    text = os.environ.get(SLOTS_VARIABLE, "1")
    if not text.isdecimal() or int(text) < 1:
        raise JobError(f"{SLOTS_VARIABLE} must be a whole number of at least 1, or not set (got {text!r})")
    return int(text)


def devices() -> tuple[str, ...]:
    """Return the named GPUs, none where slots decide; JobError for an invalid value."""
    text = os.environ.get(DEVICES_VARIABLE, "")
    names = tuple(text.split())
    if len(set(names)) < len(names) or not all(_GPU.fullmatch(name) for name in names):
        raise JobError(
            f"{DEVICES_VARIABLE} must name GPUs, each once, as 'cuda:0 cuda:1', or not be set: a study asks "
            f"for the CPU itself, by its device (got {quote(text)})"
        )
    return names


def require_valid() -> None:
    """Raise JobError if a setting is invalid or names a GPU that this machine does not have."""
    slots()
    count = len(machine.cards()) if devices() else 0
    absent = next((name for name in devices() if _number(name) >= count), None)
    if absent is not None:
        raise JobError(f"{DEVICES_VARIABLE} names {absent}, and this machine shows {count} GPUs: name others, or none")


def max_jobs() -> int:
    """Return how many jobs may run at a time."""
    return len(devices()) or slots()


def candidates(asks: str, timed: bool) -> tuple[tuple[str, ...], int]:
    """Return the devices or slots that a job may hold, and how many of them it needs.

    A speed measurement takes the first GPU, so that all speeds are of one device, or else all slots.
    """
    if asks == NO_DEVICE:
        return (), 0
    names = devices()
    if not names:
        names = tuple(f"slot{number}" for number in range(slots()))
        return names, len(names) if timed else 1
    if asks not in OPEN_CHOICE:
        return (asks,), 1
    return (names[:1] if timed else names), 1


def visible(device: str) -> dict[str, str]:
    """Return the environment variable by which a job sees one GPU of those that this process sees."""
    if not _GPU.fullmatch(device):
        return {}
    value = os.environ.get(_VISIBLE)
    if value is None:
        return {_VISIBLE: str(_number(device))}
    names = value.split(",")
    if _number(device) >= len(names):
        raise JobError(f"there is no {device} among {_VISIBLE}={value}")
    return {_VISIBLE: names[_number(device)].strip()}


def _number(device: str) -> int:
    return int(device.partition(":")[2])
