"""When the preview may compute: jobs come first, since they are what the person waits for.

The queue of jobs runs one at a time and holds no lock on a device, so a preview looks at the queue. On a GPU
the worker ends as soon as a job for this GPU waits or runs, and gives its memory back; on a CPU it rests.
"""

from __future__ import annotations

from pathlib import Path

from gprune.errors import GpruneError
from gprune.jobs import Job, queue
from gprune.jobs.local import EXPORTS


def hindrance(root: Path, device: str) -> str:
    """Why the preview has to wait, in one sentence; empty where nothing stands against it.

    Args:
        root: the cache folder with its jobs.
        device: where the model of the preview is loaded: cpu, cuda or cuda:1.
    """
    for job in queue.at_work(root):
        if device == "cpu" or _wants(root, job, _card(device)):
            return f"the preview waits while a job is at work: {job.label}"
    return ""


def _wants(root: Path, job: Job, card: int) -> bool:
    """Whether a job computes on a GPU; what cannot be told counts as yes."""
    if job.arguments[:1] and job.arguments[0] in EXPORTS:
        return False
    try:
        device = queue.study_of(root, job.id).device
    except GpruneError:
        return True
    return device != "cpu" and _card(device) == card


def _card(device: str) -> int:
    """Number of a GPU, by whatever name it is asked for."""
    number = device.partition(":")[2]
    return int(number) if number.isdecimal() else 0
