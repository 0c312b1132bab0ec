"""Has missing studies run as jobs: a few at a time, each on its own device where there are several.

Studies that measure speed come last and one by one, and each waits until no other job of the cache is under
way: nothing that we start disturbs the clock.

The queue of jobs is the only memory: killed and started again, the schedule finds what has finished in the
cache and what still runs in the queue, and goes on from there.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gprune import jobs
from gprune.errors import GpruneError, JobError
from gprune.jobs.queue import SLOTS_VARIABLE, slots
from gprune.jobs.slurm import submission
from gprune.jobs.slurm.settings import SlurmSettings
from gprune.pipeline import opened
from gprune.reproduction.series import Errand
from gprune.stages.course import wanted
from gprune.store import Store
from gprune.study import Study

POLL_SECONDS = 0.5
RECONCILE_SECONDS = 2.0
CANCELLED = "its job was cancelled: run the command again to go on"
INTERRUPTED = "its job was interrupted: run the command again to go on"


@dataclass(frozen=True, slots=True)
class Open:
    """A job that has not ended."""

    errand: Errand
    job: str
    """id of the job"""
    device: str
    """device it was sent to; empty where the schedule does not choose"""
    own: bool
    """whether a reproduction started it; others are waited for, and never cancelled"""


@dataclass(frozen=True, slots=True)
class Status:
    """How far a schedule has come."""

    done: int
    """studies that have ended"""
    total: int
    """studies in all"""
    label: str
    """the study that runs"""
    stage: str
    """its stage, with the share that is done"""
    remaining: float | None
    """seconds left at the mean time of a study so far; None before the first has ended"""


Watcher = Callable[[Status], None]
Ended = Callable[[Errand, str], None]
"""Called with an errand that has ended and the reason why it failed, empty where it did not."""


class Schedule:
    """Runs errands through the queue of jobs of one cache."""

    def __init__(
        self,
        cache: Path,
        devices: Sequence[str] = (),
        watch: Watcher = lambda _: None,
        ended: Ended = lambda _errand, _reason: None,
        needed: Callable[[Errand], bool] = lambda _: True,
        build: jobs.CommandBuilder = jobs.worker_command,
        slurm: SlurmSettings | None = None,
    ) -> None:
        """Prepares a schedule; nothing is started yet.

        Args:
            cache: the cache folder.
            devices: devices to keep busy, one study each; none leaves the choice to the studies.
            watch: told where the work stands.
            ended: told of every errand that has ended.
            needed: asked before an errand is started, since a job of an earlier command may just have ended.
            build: makes a run's argument list, as for gprune.jobs.submit.
            slurm: has Slurm run the studies, as it is told here, all at once; None uses this machine's queue.
        """
        self._slurm = slurm
        self.cache, self.devices = cache, tuple(devices)
        self._watch, self._ended, self._needed, self._build = watch, ended, needed, build
        self._open: list[Open] = []
        self._seconds: list[float] = []
        self._reconciled = 0.0

    def run(self, errands: Sequence[Errand]) -> dict[Study, str]:
        """Has every errand run once.

        Args:
            errands: what to run, in this order, those with a clock after all others.

        Returns:
            Why errands failed, by what their rows share; those that ended well are absent.

        Raises:
            JobError: the cache cannot be written, or the number of slots is not valid.
        """
        waiting = deque(sorted(errands, key=lambda errand: errand.timed))
        failures = dict[Study, str]()
        try:
            while waiting or self._open:
                if self._slurm is not None:
                    self._hand_over(waiting, self._slurm)
                while waiting and self._room(waiting[0]):
                    self._start(waiting.popleft())
                self._look(failures)
                self._watch(self._status(len(errands), len(waiting)))
                if waiting or self._open:
                    time.sleep(POLL_SECONDS)
        except BaseException:
            self._cancel()
            raise
        return failures

    def _hand_over(self, waiting: deque[Errand], slurm: SlurmSettings) -> None:
        """Puts every errand into Slurm: one array, and one of those with a clock, which share no node."""
        for timed in (False, True):
            due = [errand for errand in waiting if errand.timed == timed]
            for errand in due:
                waiting.remove(errand)
                if not self._needed(errand):
                    self._ended(errand, "")
            due = [errand for errand in due if self._needed(errand)]
            some = [submission.Errand(errand.study, errand.study.name, _arguments(errand)) for errand in due]
            found = jobs.submit_slurm(self.cache, some, slurm, exclusive=timed) if some else []
            for errand, job in zip(due, found, strict=True):
                self._open.append(Open(errand, job.id, "", own=True))

    def _room(self, errand: Errand) -> bool:
        if errand.timed:
            return not self._open and not any(job.active for job in jobs.jobs(self.cache))
        if len(self.devices) > 1:
            return len(self._open) < len(self.devices)
        # one more than can run, so that the queue never stands still between two looks
        return len(self._open) <= slots()

    def _start(self, errand: Errand) -> None:
        found = self._already_open(errand)
        if found is not None:
            self._open.append(found)
            return
        if not self._needed(errand):
            self._ended(errand, "")
            return
        busy = {item.device for item in self._open}
        device = next((name for name in self.devices if name not in busy), (*self.devices, "")[0])
        study = replace(errand.study, device=device) if device else errand.study
        job = jobs.submit(self.cache, study, study.name, _arguments(errand), self._build).id
        self._open.append(Open(errand, job, device, own=True))

    def _already_open(self, errand: Errand) -> Open | None:
        """A job that is under way and makes all that an errand wants, whoever started it."""
        taken = {item.job for item in self._open}
        for job in jobs.jobs(self.cache):
            if job.state not in ("queued", "running") or job.id in taken:
                continue
            if job.arguments not in (_arguments(errand), ()):
                continue
            # a model or a text that cannot be read here makes nothing
            with contextlib.suppress(GpruneError):
                study = jobs.study_of(self.cache, job.id)
                own = self._keys(replace(errand.study, device=study.device), errand.until)
                if own <= self._keys(study, errand.until if job.arguments else "all"):
                    return Open(errand, job.id, study.device, own=False)
        return None

    def _keys(self, study: Study, until: str) -> set[str]:
        """Keys of what a study wants."""
        return {stage.key for stage in wanted(opened(study, Store(self.cache)).graph, until)}

    def _look(self, failures: dict[Study, str]) -> None:
        if time.monotonic() - self._reconciled >= RECONCILE_SECONDS:
            jobs.reconcile(self.cache)
            self._reconciled = time.monotonic()
        for item in list(self._open):
            reason = self._ending(item)
            if reason is None:
                continue
            self._open.remove(item)
            if reason:
                failures[item.errand.shared] = reason
            self._ended(item.errand, reason)

    def _ending(self, item: Open) -> str | None:
        """None while a job is under way; afterwards why it failed, or an empty text."""
        try:
            job = jobs.get(self.cache, item.job)
        except JobError as error:
            return str(error)
        if job.active:
            return None
        if job.state == "done":
            self._seconds.append(job.elapsed or 0.0)
            return ""
        if job.state == "interrupted":
            return INTERRUPTED
        return job.error if job.state == "failed" and job.error else CANCELLED

    def _status(self, total: int, waiting: int) -> Status:
        label = stage = ""
        left = waiting + len(self._open)
        for item in self._open:
            with contextlib.suppress(GpruneError):
                progress = jobs.progress(self.cache, item.job)
                if progress.stage:
                    label, stage = (
                        item.errand.study.name,
                        f"{progress.stage} {progress.done}/{progress.total}",
                    )
                    break
        at_once = max(1, len(self.devices), slots())
        mean = sum(self._seconds) / len(self._seconds) if self._seconds else None
        return Status(total - left, total, label, stage, mean * left / at_once if mean is not None else None)

    def _cancel(self) -> None:
        """Asks the jobs of reproductions to stop, those that wait first; their own supervisors see to it."""
        for item in reversed(self._open):
            if item.own:
                with contextlib.suppress(GpruneError):
                    jobs.cancel(self.cache, item.job)


def _arguments(errand: Errand) -> tuple[str, ...]:
    return "--until", errand.until


def allow(devices: Sequence[str]) -> None:
    """Lets as many jobs run at a time as there are devices, for this process and the jobs it starts.

    Args:
        devices: the devices; none leaves the number as it is.

    Raises:
        JobError: the number of slots that is set is not valid.
    """
    if len(devices) > 1:
        os.environ[SLOTS_VARIABLE] = str(max(slots(), len(devices)))
