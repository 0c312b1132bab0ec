"""Run missing studies as jobs: as many at a time as the queue has slots.

Studies that measure speed run last, one at a time. The queue runs no other job of the cache at the same time
(gprune.jobs.queue).

The schedule has no state of its own. After a restart it finds finished results in the cache and running jobs in the
queue, and continues from there. A result that several studies need is computed once: it has a lock, and other processes
report that they wait for it (gprune.pipeline).
"""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from gprune import jobs
from gprune.jobs import queue
from gprune.jobs.folder import fingerprint, measures_speed
from gprune.study import Study
from gprune.system.errors import GpruneError, JobError

POLL_SECONDS = 0.5
"""seconds between two polls of the jobs"""
RECONCILE_SECONDS = 2.0
"""seconds between two searches for jobs whose process was killed"""
CANCELLED = "its job was cancelled: run the command again to continue"
INTERRUPTED = "its job was interrupted: run the command again to continue"
INCOMPLETE = "its run ended without this result: run the command again, and see the job's log"


@dataclass(frozen=True, slots=True)
class ScheduledStudy:
    """A study to run, and the stage at which it ends."""

    study: Study
    until: str
    """last stage of the run, one of gprune.pipeline.stages.UNTIL"""

    @property
    def timed(self) -> bool:
        """Return True if the study measures speed, so that no other job may run at the same time."""
        return measures_speed(self.study, self.until)


E = TypeVar("E", bound=ScheduledStudy)


@dataclass(frozen=True, slots=True)
class OpenJob(Generic[E]):
    """A job that has not ended, with its entry in the schedule."""

    entry: E
    job: str
    """id of the job"""
    is_own: bool
    """True if this schedule started the job; other jobs are never cancelled"""


@dataclass(frozen=True, slots=True)
class Status:
    """Progress of a schedule."""

    done: int
    """number of studies that have ended"""
    total: int
    """number of all studies"""
    label: str
    """name of a running study; empty if none runs"""
    stage: str
    """current stage of that study and its finished steps; empty if none runs"""


Watcher = Callable[[Status], None]


class Schedule(Generic[E]):
    """Runs entries through the queue of jobs of one cache."""

    def __init__(
        self,
        cache: Path,
        watch: Watcher = lambda _: None,
        ended: Callable[[E, str], None] = lambda _entry, _reason: None,
        needed: Callable[[E], bool] = lambda _: True,
        build: jobs.CommandBuilder = jobs.worker_command,
    ) -> None:
        """Prepare a schedule; nothing is started yet.

        Args:
            cache: Folder with the queue of jobs and the results.
            watch: Called with the status after every poll.
            ended: Called with every entry that has ended and the reason for its failure, empty if it succeeded.
            needed: Returns True if an entry still lacks results. It is called before the entry is started, because a
                job of an earlier command may have computed them, and after its job has ended.
            build: Builds the argument list of a run, as for gprune.jobs.submit.
        """
        self.cache = cache
        self._watch, self._ended, self._needed, self._build = watch, ended, needed, build
        self._waiting, self._open = deque[E](), list[OpenJob[E]]()
        self._reconciled = 0.0

    def run(self, entries: Sequence[E]) -> None:
        """Run every entry once, in order, but entries that measure speed last.

        Raises JobError if the cache cannot be written, or the number of slots is not valid.
        """
        # mark jobs whose process was killed as ended
        jobs.reconcile(self.cache)
        self._waiting.extend(sorted(entries, key=lambda entry: entry.timed))
        try:
            while self._waiting or self._open:
                while self._waiting and self._has_room(self._waiting[0]):
                    self._start(self._waiting.popleft())
                self._poll()
                self._watch(self._build_status(len(entries)))
                if self._waiting or self._open:
                    time.sleep(POLL_SECONDS)
        except BaseException:
            self._cancel_jobs()
            raise

    def _has_room(self, entry: E) -> bool:
        # a study that measures speed runs alone
        if entry.timed:
            return not self._open
        # submit one more job than can run, so that the queue is never empty between two polls
        return len(self._open) <= queue.max_jobs()

    def _start(self, entry: E) -> None:
        """Submit the job of an entry, unless a job of the entry is active or its results are complete."""
        open_job = self._find_open(entry)
        if open_job is not None:
            self._open.append(open_job)
            return
        if not self._needed(entry):
            self._ended(entry, "")
            return
        job = jobs.submit(self.cache, entry.study, entry.study.name, arguments(entry.until), self._build)
        self._open.append(OpenJob(entry, job.id, is_own=True))

    def _find_open(self, entry: E) -> OpenJob[E] | None:
        """Return the active job of an entry, whoever started it, or None."""
        digest = fingerprint(entry.study, arguments(entry.until))
        active = (job for job in jobs.jobs(self.cache) if job.state in ("queued", "running"))
        return next((OpenJob(entry, job.id, is_own=False) for job in active if job.fingerprint == digest), None)

    def _poll(self) -> None:
        """Report the entries whose jobs have ended; restart those that the job of another command left incomplete."""
        if time.monotonic() - self._reconciled >= RECONCILE_SECONDS:
            jobs.reconcile(self.cache)
            self._reconciled = time.monotonic()
        for item in list(self._open):
            reason = self._find_end_reason(item)
            if reason is None:
                continue
            self._open.remove(item)
            incomplete = self._needed(item.entry)
            if not item.is_own and (self._is_killed(item) or (incomplete and not reason)):
                # start the entry again: the job of another command was killed before the run started, or it computed
                # the study under another run name, as a sweep with another title does
                self._waiting.appendleft(item.entry)
                continue
            self._ended(item.entry, reason or (INCOMPLETE if incomplete else ""))

    def _is_killed(self, item: OpenJob[E]) -> bool:
        with contextlib.suppress(JobError):
            return jobs.get(self.cache, item.job).killed
        return False

    def _find_end_reason(self, item: OpenJob[E]) -> str | None:
        """Return None while a job is active; afterwards the reason for its failure, or an empty text."""
        try:
            job = jobs.get(self.cache, item.job)
        except JobError as error:
            return str(error)
        if job.active:
            return None
        if job.state == "done":
            return ""
        if job.state == "interrupted":
            return INTERRUPTED
        return job.error if job.state == "failed" and job.error else CANCELLED

    def _build_status(self, total: int) -> Status:
        label = stage = ""
        left = len(self._waiting) + len(self._open)
        for item in self._open:
            with contextlib.suppress(GpruneError):
                progress = jobs.progress(self.cache, item.job)
                if progress.stage:
                    detail = progress.waits or f"{progress.done}/{progress.total}"
                    label, stage = item.entry.study.name, f"{progress.stage} {detail}"
                    break
        return Status(total - left, total, label, stage)

    def _cancel_jobs(self) -> None:
        """Ask the jobs of this schedule to stop; waiting jobs come first."""
        for item in reversed(self._open):
            if item.is_own:
                with contextlib.suppress(GpruneError):
                    jobs.cancel(self.cache, item.job)


def arguments(until: str) -> tuple[str, ...]:
    """Return the command-line arguments that follow the study."""
    return "--until", until
