"""Process of one job: ``python -m gprune.jobs.worker FOLDER`` waits for a device and becomes the job's command.

The process holds the lock of the device. The command inherits the lock, so the operating system frees the device when
the command ends, for whatever reason. Of the jobs that wait for the same device, the oldest starts first.
"""

import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from gprune.jobs import folder as files
from gprune.jobs import processes, queue
from gprune.jobs.folder import Job, JobState, read_job, read_state, update
from gprune.jobs.queue import jobs
from gprune.system import machine
from gprune.system.errors import GpruneError
from gprune.system.files import make_folder

POLL_SECONDS = 0.3
"""Seconds between two attempts to lock a device."""


def run_job(folder: Path) -> None:
    """Wait for a device and replace this process by the job's command. Raises GpruneError if this fails."""
    # held until the command ends, which inherits the descriptor
    queue.try_lock(folder / files.ALIVE)
    update(folder, lambda state: state.with_process(os.getpid()))
    job = read_job(folder)
    device = wait_for_device(job)
    state = update(folder, lambda state: _start_on(state, device))
    if state.state != "running":
        return
    # a study that names a GPU selects it itself
    assigned_gpu = device if job.asks in queue.OPEN_CHOICE else ""
    os.environ.update(queue.visible_device(assigned_gpu))
    try:
        os.execvp(job.command[0], job.command)
    except (OSError, ValueError, IndexError) as error:
        reason = f"the command {list(job.command)!r} cannot be started ({error}): check the installation"
        update(folder, lambda state: state.ended_as("failed", reason))


def wait_for_device(job: Job) -> str:
    """Wait until the devices or slots of a job are free, lock them, and return the first; empty if it needs none."""
    names, count = queue.device_candidates(job.asks, job.timed)
    paths = {name: lock_path(job.folder.parent, name) for name in names}
    while count:
        descriptors: dict[str, int] = {}
        for name, path in paths.items():
            descriptor = queue.try_lock(path)
            if descriptor is not None:
                descriptors[name] = descriptor
            if len(descriptors) == count:
                break
        if len(descriptors) == count and not _is_overtaking(job, names):
            return next(iter(descriptors))
        for descriptor in descriptors.values():
            os.close(descriptor)
        time.sleep(POLL_SECONDS)
    return ""


def lock_path(home: Path, name: str) -> Path:
    """Return the lock file of a device or slot.

    On a machine with GPUs, all caches of a user share the lock files, except that of the CPU. Other lock files are in
    the folder `home` of a cache's jobs.
    """
    visible = queue.visible_device(name)
    if name == files.CPU or not (visible or machine.cards()):
        return home / f".device-{processes.host()}-{name}"
    folder = Path(tempfile.gettempdir()) / f"gprune-{os.getuid()}"
    with files.writable(folder):
        make_folder(folder)
    return folder / f"device-{processes.host()}-{visible.get('CUDA_VISIBLE_DEVICES', name)}"


def _is_overtaking(job: Job, names: tuple[str, ...]) -> bool:
    """Return True if an older job of this machine waits for one of the devices `names`."""
    for other in jobs(job.folder.parents[1]):
        is_older = other.state == "queued" and (other.created, other.id) < (job.created, job.id)
        if not is_older or not set(names) & set(queue.device_candidates(other.asks, other.timed)[0]):
            continue
        # the process of the other job may have ended since the list was read
        state = read_state(other.folder)
        if state.host == processes.host() and queue.has_process(other.folder, state):
            return True
    return False


def _start_on(state: JobState, device: str) -> JobState:
    """Return the state of a queued job that starts on a device; any other state is returned unchanged."""
    # the job may have been cancelled while it waited
    if state.state != "queued":
        return state
    return replace(state, state="running", started=time.time(), device=device if "slot" not in device else "")


def main(arguments: list[str]) -> int:
    """Run the job in the named folder."""
    folder = Path(arguments[0]).absolute()
    try:
        run_job(folder)
    except GpruneError as error:
        reason = str(error)
        print(f"error: {reason}", file=sys.stderr)
        update(folder, lambda state: state if state.finished else state.ended_as("failed", reason))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
