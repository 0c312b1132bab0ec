"""When the preview may compute: jobs come first, since they are what the person waits for.

The queue of jobs holds no lock on a device, so a preview looks at the queue. On a GPU
the worker ends as soon as a job for this GPU waits or runs, and gives its memory back; on a CPU it rests.
"""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from gprune.app.preview.request import key_of
from gprune.jobs import Job, reconciliation
from gprune.jobs.device_slots import CPU, OPEN_CHOICE

LOOK_OUT_SECONDS = 0.5
"""how often the queue of jobs is looked at"""


class JobGate:
    """What the queue of jobs said last, for every model that is loaded or wanted."""

    def __init__(self, waits_for: Callable[[Path, str], str]) -> None:
        """Looks at nothing yet; `waits_for` says why a preview has to wait, as `hindrance` does."""
        self._waits_for = waits_for
        self._said: dict[str, tuple[float, str]] = {}

    def look(self, models: Iterable[dict[str, Any]]) -> None:
        """Looks at the queue for some models, where that was not done just now."""
        for model in models:
            last = self._said.get(key_of(model))
            if last is None or time.monotonic() - last[0] >= LOOK_OUT_SECONDS:
                reason = self._waits_for(Path(model["root"]), model["device"])
                self._said[key_of(model)] = time.monotonic(), reason

    def reason(self, model: dict[str, Any]) -> str:
        """Why a model has to wait; while the queue has not been looked at, nothing begins."""
        return self._said.get(key_of(model), (0.0, "the queue of jobs is being read"))[1]


def hindrance(root: Path, device: str) -> str:
    """Why a preview on cpu, cuda or cuda:1 has to wait, in a sentence; empty where it has not."""
    for job in reconciliation.at_work(root):
        if device == CPU or _wants(job, _card(device)):
            return f"the preview waits while a job is at work: {job.label}"
    return ""


def _wants(job: Job, card: int) -> bool:
    """Whether a job computes on a GPU: one that the queue has given it, or that its study asks for."""
    if not job.device and job.asks in OPEN_CHOICE:
        # nobody has chosen: one model over several GPUs takes the first ones
        return card < job.gpus
    return any(name != CPU and _card(name) == card for name in (job.device or job.asks).split())


def _card(device: str) -> int:
    """Number of a GPU, by whatever name it is asked for."""
    number = device.partition(":")[2]
    return int(number) if number.isdecimal() else 0
