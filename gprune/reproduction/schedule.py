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
from gprune.reproduction.series import Task, task_key

POLL_SECONDS = 0.5
RECONCILE_SECONDS = 2.0
CANCELLED = "its job was cancelled: run the command again to go on"


@dataclass(frozen=True, slots=True)
class Open:
    """A job that has not ended."""

    task: Task
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
Ended = Callable[[Task, str], None]
"""Called with a task that has ended and the reason why it failed, empty where it did not."""


class Schedule:
    """Runs tasks through the queue of jobs of one cache."""

    def __init__(
        self,
        cache: Path,
        devices: Sequence[str] = (),
        watch: Watcher = lambda _: None,
        ended: Ended = lambda _task, _reason: None,
        needed: Callable[[Task], bool] = lambda _: True,
        build: jobs.CommandBuilder = jobs.worker_command,
    ) -> None:
        """Prepares a schedule; nothing is started yet.

        Args:
            cache: the cache folder.
            devices: devices to keep busy, one study each; none leaves the choice to the studies.
            watch: told where the work stands.
            ended: told of every task that has ended.
            needed: asked before a task is started, since a job of an earlier command may just have ended.
            build: makes a run's argument list, as for gprune.jobs.submit.
        """
        self.cache, self.devices = cache, tuple(devices)
        self._watch, self._ended, self._needed, self._build = watch, ended, needed, build
        self._open: list[Open] = []
        self._seconds: list[float] = []
        self._reconciled = 0.0

    def run(self, tasks: Sequence[Task]) -> dict[str, str]:
        """Has every task run once.

        Args:
            tasks: what to run, in this order, those with a clock after all others.

        Returns:
            Why tasks failed, by their key; those that ended well are absent.

        Raises:
            JobError: the cache cannot be written, or the number of slots is not valid.
        """
        waiting = deque(sorted(tasks, key=lambda task: task.timed))
        failures = dict[str, str]()
        try:
            while waiting or self._open:
                while waiting and self._room(waiting[0]):
                    self._start(waiting.popleft())
                self._look(failures)
                self._watch(self._status(len(tasks), len(waiting)))
                if waiting or self._open:
                    time.sleep(POLL_SECONDS)
        except BaseException:
            self._cancel()
            raise
        return failures

    def _room(self, task: Task) -> bool:
        if task.timed:
            return not self._open and not any(job.active for job in jobs.jobs(self.cache))
        if len(self.devices) > 1:
            return len(self._open) < len(self.devices)
        # one more than can run, so that the queue never stands still between two looks
        return len(self._open) <= slots()

    def _start(self, task: Task) -> None:
        found = self._already_open(task)
        if found is not None:
            job, own, device = found
            self._open.append(Open(task, job, device, own))
            return
        if not self._needed(task):
            self._ended(task, "")
            return
        busy = {item.device for item in self._open}
        device = next((name for name in self.devices if name not in busy), (*self.devices, "")[0])
        study = replace(task.study, device=device) if device else task.study
        job = jobs.submit(self.cache, study, study.name, ("--until", task.until), self._build).id
        self._open.append(Open(task, job, device, own=True))

    def _already_open(self, task: Task) -> tuple[str, bool, str] | None:
        """A job that is under way for the same work, whoever started it and on whatever device."""
        arguments = ("--until", task.until)
        taken = {item.job for item in self._open}
        for job in jobs.jobs(self.cache):
            if job.state not in ("queued", "running") or job.id in taken:
                continue
            with contextlib.suppress(JobError):
                study = jobs.study_of(self.cache, job.id)
                same = task_key(study) == task.key and set(task.study.methods) <= set(study.methods)
                enough = set(task.study.evaluation.texts) <= set(study.evaluation.texts)
                wanted, had = task.study.evaluation, study.evaluation
                tasks = set(wanted.tasks) <= set(had.tasks) and (
                    not wanted.tasks or wanted.limit == had.limit
                )
                if same and enough and tasks and job.arguments in (arguments, ()):
                    return job.id, False, study.device
        return None

    def _look(self, failures: dict[str, str]) -> None:
        if time.monotonic() - self._reconciled >= RECONCILE_SECONDS:
            jobs.reconcile(self.cache)
            self._reconciled = time.monotonic()
        for item in list(self._open):
            reason = self._ending(item)
            if reason is None:
                continue
            self._open.remove(item)
            if reason:
                failures[item.task.key] = reason
            self._ended(item.task, reason)

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
        return job.error if job.state == "failed" and job.error else CANCELLED

    def _status(self, total: int, waiting: int) -> Status:
        label = stage = ""
        left = waiting + len(self._open)
        for item in self._open:
            with contextlib.suppress(GpruneError):
                progress = jobs.progress(self.cache, item.job)
                if progress.stage:
                    label, stage = item.task.study.name, f"{progress.stage} {progress.done}/{progress.total}"
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


def allow(devices: Sequence[str]) -> None:
    """Lets as many jobs run at a time as there are devices, for this process and the jobs it starts.

    Args:
        devices: the devices; none leaves the number as it is.

    Raises:
        JobError: the number of slots that is set is not valid.
    """
    if len(devices) > 1:
        os.environ[SLOTS_VARIABLE] = str(max(slots(), len(devices)))
