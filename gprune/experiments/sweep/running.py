"""Has the missing studies of a sweep run, and counts beforehand what they have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gprune import jobs
from gprune.experiments.scheduler import INCOMPLETE, Schedule, Watcher
from gprune.experiments.sweep.plan import Variation
from gprune.experiments.sweep.status import DONE, FAILED, StudyStatus, finished, standings
from gprune.jobs.job import measures_speed
from gprune.jobs.slurm.settings import SlurmSettings
from gprune.pipeline import opened
from gprune.pipeline.eta import Extent, extent
from gprune.pipeline.stages.inputs import read
from gprune.store import Store
from gprune.study import Study


@dataclass(frozen=True, slots=True)
class SweepJob:
    """A study of a sweep that is to run."""

    study: Study
    until: str
    """how far, one of gprune.pipeline.stages.UNTIL"""

    @property
    def shared(self) -> Study:
        """What tells it from other entries: all of it."""
        return self.study

    @property
    def timed(self) -> bool:
        """Whether it measures speed, and nothing may run beside it."""
        return measures_speed(self.study, self.until)


def prepare(variations: Sequence[Variation], store: Store) -> None:
    """Makes sure that all that the studies read is on this machine, before the first one starts.

    Raises:
        GpruneError: a model, a text or a task is missing or cannot be used; see
        gprune.pipeline.stages.inputs.
    """
    for one in variations:
        read(one.study, {}, memory=store.digests)


def extents(variations: Sequence[Variation], store: Store, until: str) -> list[Extent]:
    """The stages of every study, and those of them that are not there.

    Raises:
        GpruneError: what a study reads is not on this machine.
    """
    return [extent(opened(one.study, store), until) for one in variations]


def run(
    variations: Sequence[Variation],
    store: Store,
    until: str,
    *,
    again: bool = False,
    watch: Watcher = lambda _: None,
    told: Callable[[SweepJob, str], None] = lambda _entry, _reason: None,
    build: jobs.CommandBuilder = jobs.worker_command,
    slurm: SlurmSettings | None = None,
) -> list[StudyStatus]:
    """Has the studies run that are missing, were interrupted or cancelled, or are under way already.

    Args:
        variations: the studies of a sweep.
        store: the cache.
        until: how far they go.
        again: whether those run again that have failed.
        watch: told where the work stands.
        told: told of every study that has ended, with the reason where it failed.
        build: makes a run's argument list, as for gprune.jobs.submit.
        slurm: has Slurm run the studies, as it is told here; None uses this machine's queue.

    Returns:
        Where the studies stand at the end.

    Raises:
        GpruneError: the cache cannot be written; the work under way is cancelled.
    """

    def needed(entry: SweepJob) -> bool:
        return not finished(entry.study, store, entry.until)

    def ended(entry: SweepJob, reason: str) -> None:
        told(entry, reason or (INCOMPLETE if needed(entry) else ""))

    # what was killed is told from what is under way
    jobs.reconcile(store.root)
    stay = (DONE,) if again else (DONE, FAILED)
    before = standings(variations, store, until)
    left = [SweepJob(one.variation.study, until) for one in before if one.state not in stay]
    Schedule(store.root, watch, ended, needed, build, slurm, each=True).run(left)
    return standings(variations, store, until)
