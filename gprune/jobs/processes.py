"""Identification of processes by number, start time and machine, because the system reuses numbers."""

import os
import platform

import psutil

# the kernel measures start times in ticks of 0.01 s; two processes with the same number start much further apart
SAME_START_SECONDS = 0.05


def process_start(pid: int) -> float | None:
    """Return the seconds from the start of the machine to the start of a process; None if it is not running.

    The creation time in wall-clock time is not used, because it changes whenever the clock is corrected.
    """
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return float(process.create_time() - psutil.boot_time())
    except psutil.Error:
        return None


def is_alive(pid: int | None, started: float | None) -> bool:
    """Return True if the process with this number and start time is running, not a later one with its number."""
    if pid is None or started is None:
        return False
    actual = process_start(pid)
    return actual is not None and abs(actual - started) <= SAME_START_SECONDS


def host() -> str:
    """Return the name of this machine or container, at most 200 characters."""
    return platform.node()[:200]


def identify_process() -> dict[str, object]:
    """Return the identity of this process: number, start time and machine."""
    return {"pid": os.getpid(), "started": process_start(os.getpid()), "host": host()}
