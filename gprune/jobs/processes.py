"""Processes by their number, their start and their machine: a number alone is given again."""

import os
import platform

import psutil

# clock ticks of the kernel are 0.01 s; two processes of one number start far further apart
SAME_START_SECONDS = 0.05


def process_start(pid: int) -> float | None:
    """Seconds from the start of the machine to the start of a process; None if it does not run.

    The plain creation time of a process moves whenever the clock is corrected.
    """
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return float(process.create_time() - psutil.boot_time())
    except psutil.Error:
        return None


def is_alive(pid: int | None, started: float | None) -> bool:
    """Return True if a process still runs and is the one that was started then, not a later one with its number."""
    if pid is None or started is None:
        return False
    actual = process_start(pid)
    return actual is not None and abs(actual - started) <= SAME_START_SECONDS


def host() -> str:
    """Name of this machine, or of the container."""
    return platform.node()[:200]


def identify_process() -> dict[str, object]:
    """Return what identifies this process: number, start and machine."""
    return {"pid": os.getpid(), "started": process_start(os.getpid()), "host": host()}
