"""Run the missing studies of a sweep, and say where each of them stands.

The run's record says whether a study is done, the newest job of it where it stands until then. What was
killed, jobs included, reads as interrupted: nothing says that it cannot work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gprune import jobs
from gprune.experiments.scheduler import INCOMPLETE, Schedule, ScheduledStudy, Watcher, arguments
from gprune.experiments.sweep.plan import Variation
from gprune.jobs.job import fingerprint
from gprune.pipeline import opened, runs
from gprune.pipeline.eta import extent
from gprune.pipeline.record import RunRecord
from gprune.pipeline.stages import KINDS, UNTIL, Graph, Results
from gprune.pipeline.stages.inputs import read
from gprune.store import Store
from gprune.study import Study, run_name
from gprune.system.errors import GpruneError


def prepare(variations: Sequence[Variation], store: Store) -> None:
    """Makes sure that all that the studies read is on this machine, before the first one starts.

    Raises GpruneError where a model, a text or a task is missing or cannot be used; see
    pipeline.stages.inputs.
    """
    for variation in variations:
        read(variation.study, {}, store=store)


def run(
    variations: Sequence[Variation],
    store: Store,
    until: str,
    *,
    again: bool = False,
    watch: Watcher = lambda _: None,
    told: Callable[[ScheduledStudy, str], None] = lambda _entry, _reason: None,
    build: jobs.CommandBuilder = jobs.worker_command,
) -> list[StudyStatus]:
    """Has the studies run that are missing, were interrupted or cancelled, or are under way already.

    They go as far as `until`, and those that have failed run `again` if asked. `watch` is told where the work
    stands, `told` of every study that has ended, with the reason where it failed; `build` makes a run's
    argument list, as for gprune.jobs.submit. Gives where the studies stand at the end. Raises
    GpruneError where the cache cannot be written; the work under way is cancelled.
    """

    def needed(entry: ScheduledStudy) -> bool:
        return not finished(entry.study, store, entry.until)

    def ended(entry: ScheduledStudy, reason: str) -> None:
        told(entry, reason or (INCOMPLETE if needed(entry) else ""))

    # what was killed is told from what is under way
    jobs.reconcile(store.root)
    left = [ScheduledStudy(study, until) for study in unfinished(variations, store, until, again=again)]
    Schedule(store.root, watch, ended, needed, build, each=True).run(left)
    return standings(variations, store, until)


DONE, FAILED, MISSING, INTERRUPTED = "done", "failed", "missing", "interrupted"
STATES = (DONE, "running", "queued", "cancelling", INTERRUPTED, "cancelled", FAILED, MISSING)
"""missing has not begun yet, or its results have gone since"""


@dataclass(frozen=True, slots=True)
class StudyStatus:
    """Where one study of a sweep stands."""

    variation: Variation
    run: str
    """name of its run"""
    state: str
    """one of STATES"""
    words: str
    """why it failed or waits, or what it is at; empty where there is nothing to say"""
    job: str
    """id of its newest job; empty where it has none"""


def unfinished(variations: Sequence[Variation], store: Store, until: str, *, again: bool = False) -> list[Study]:
    """Return the studies of a sweep that are not done; those that failed only if `again`."""
    stay = (DONE,) if again else (DONE, FAILED)
    statuses = standings(variations, store, until)
    return [status.variation.study for status in statuses if status.state not in stay]


def shared_stages(studies: Sequence[Study], store: Store, until: str) -> list[tuple[int, str]]:
    """Return runs, each the index of a study and its last stage, that compute what several of the studies need.

    A run computes nothing that only its own study needs. Results that are in the cache already are left out.
    """
    results = [opened(study, store) for study in studies]
    counts = Counter(key for result in results for key in extent(result, until).missing)
    planned: set[str] = set()
    runs_before = []
    for index, result in enumerate(results):
        for end in reversed(UNTIL[: UNTIL.index(until) + 1]):
            missing = extent(result, end).missing
            if missing and all(counts[key] > 1 for key in missing):
                if not missing <= planned:
                    runs_before.append((index, end))
                    planned |= missing
                break
    return runs_before


def finished(study: Study, store: Store, until: str) -> bool:
    """Return True if a study has left a run that is done, and everything that it was to make is there."""
    record = runs.read(store, run_name(study))
    if record is None or runs.standing(record) != "done":
        return False
    missing_tasks: dict[str, str] = {}
    try:
        inputs = read(study, missing_tasks, download=False, store=store)
    except GpruneError:
        # what it reads has gone; its run says what it was
        return False
    results = Results(store, Graph(study, inputs))
    wanted = [stage for stage in results.course(until) if not KINDS[stage.kind].extra]
    run_record = RunRecord(results, until, {}, missing_tasks, lambda *_: None)
    return run_record.covers(wanted) and run_record.whole(wanted)


def standings(variations: Sequence[Variation], store: Store, until: str) -> list[StudyStatus]:
    """Return where the studies of a sweep stand, in their order."""
    newest: dict[str, jobs.Job] = {}
    for job in jobs.jobs(store.root):
        newest.setdefault(job.fingerprint, job)
    return [
        _standing(variation, store, until, newest.get(fingerprint(variation.study, arguments(until))))
        for variation in variations
    ]


def _standing(variation: Variation, store: Store, until: str, job: jobs.Job | None) -> StudyStatus:
    run, job_id = run_name(variation.study), job.id if job else ""
    if (job is None or not job.active) and finished(variation.study, store, until):
        return StudyStatus(variation, run, DONE, "", job_id)
    if job is not None and job.state != "done":
        state = INTERRUPTED if job.killed else job.state
        return StudyStatus(variation, run, state, _words(job, store), job_id)
    record = runs.read(store, run) or {}
    state = runs.standing(record)
    if state and state != "done":
        # a run that a terminal has started
        return StudyStatus(variation, run, state, record.get("error") or "", job_id)
    return StudyStatus(variation, run, MISSING, INCOMPLETE if job is not None and state else "", job_id)


def _words(job: jobs.Job, store: Store) -> str:
    if job.state not in ("running", "cancelling"):
        return job.error
    progress = jobs.progress(store.root, job.id)
    done = f" {progress.done}/{progress.total}" if progress.total else ""
    at = progress.waits or f"{progress.stage}{done}"
    return f"{at} on {job.device}" if job.device else at
