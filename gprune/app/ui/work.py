"""Jobs as the pages see them: which run a job makes, what is going on now, and the demo's first start."""

import os
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st

from gprune.app.server import require_trust
from gprune.app.ui import buttons, faults, job_runs, packed
from gprune.app.ui.chart_style import label
from gprune.app.ui.text import plain, short
from gprune.jobs import Job, queue
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run, Unreadable, all_runs
from gprune.store import require_folder
from gprune.study import Study
from gprune.study.demo import demo_study
from gprune.system.errors import GpruneError, StoreError
from gprune.system.units import seconds_since_1970

AUTOSTART_VARIABLE = "GPRUNE_AUTOSTART"


@dataclass(frozen=True, slots=True)
class Marks:
    """What tells whether a page has to be drawn anew, from what changes most seldom to what changes most."""

    states: str
    """the state of the run that is shown, and whether it has its first chart; at once"""
    others: str
    """the states of all jobs and other runs, which stand in lists; soon"""
    stages: str
    """how many stages the run has; when the page has rested"""


@dataclass(frozen=True, slots=True)
class Situation:
    """Runs and jobs at one moment."""

    root: str
    runs: list[Run]
    unreadable: list[Unreadable]
    jobs: list[Job]
    problem: str
    """why the cache, or its jobs, cannot be used; empty if they can"""

    @property
    def active(self) -> list[Job]:
        """Jobs that wait or run."""
        return [job for job in self.jobs if job.active]

    def run_named(self, name: str) -> Run | None:
        """A run by name."""
        return next((run for run in self.runs if run.name == name), None)

    @property
    def states(self) -> str:
        """Changes with the state of a job or a run, and when a run has its first chart."""
        jobs = [(job.id, job.state) for job in self.jobs]
        runs = [(run.name, run.state, stages.drift(run.graph).name in run.stages) for run in self.runs]
        return repr((jobs, runs, len(self.unreadable)))

    def marks(self, whose: str | None) -> Marks:
        """What a page of one run, or of all where it is None, is drawn from."""
        if whose is None:
            return Marks(self.states, "", self.signature)
        run = self.run_named(whose)
        mine = run and (run.state, stages.drift(run.graph).name in run.stages)
        jobs = [(job.id, job.state) for job in self.jobs]
        # the job of a run that has not begun to write is the reader's as well
        own = [pair for pair in jobs if job_runs.made_by(self.root, pair[0]) == whose]
        runs = [(one.name, one.state) for one in self.runs]
        others = repr((jobs, runs, len(self.unreadable)))
        return Marks(repr((own, mine)), others, repr(run and len(run.stages)))

    @property
    def signature(self) -> str:
        """Changes whenever a page should be drawn anew: with the states, and with every stage of a run."""
        return self.states + repr([len(run.stages) for run in self.runs])


def look(root: str) -> Situation:
    """Read runs and jobs; jobs whose process is gone are ended first."""
    try:
        require_folder(Path(root))
    except StoreError as error:
        return Situation(root, [], [], [], str(error))
    runs, unreadable = all_runs(root)
    try:
        found = queue.jobs(Path(root))
        if any(job.active for job in found):
            queue.reconcile(Path(root))
            found = queue.jobs(Path(root))
        return Situation(root, runs, unreadable, found, "")
    except GpruneError as error:
        return Situation(root, runs, unreadable, [], str(error))


def submit(root: str, study: Study, label: str = "", arguments: tuple[str, ...] = ()) -> Job:
    """Puts a study into the queue; every job of the app comes this way.

    Raises GpruneError where the queue refuses it, or it asks for what this server was not started for.
    """
    require_trust(study.trust_remote_code)
    return queue.submit(Path(root), study, label=label, arguments=arguments)


def resume(root: str, job_id: str) -> Job:
    """Submits the study of a job again; for errors see `submit`, and GpruneError where it cannot be read."""
    require_trust(queue.study_of(Path(root), job_id).trust_remote_code)
    return queue.resume(Path(root), job_id)


def start(root: str, study: Study, arguments: tuple[str, ...] = ()) -> Job | None:
    """Submits a study, or finds the job of a double click; None after the page has been told why not."""
    with faults.shown():
        packed.require_here(root, study)
        return begin(root, study, job_label(study), arguments)
    return None


def start_button(
    words: str,
    key: str,
    root: str,
    study: Study,
    arguments: tuple[str, ...] = (),
    place: Any = None,
    **look: Any,
) -> None:
    """Draws the button that submits a study, in a place if one is given; see `start` and `st.button`."""
    with place or nullcontext():
        clicked = buttons.pressed(words, key=key, icon=":material/play_arrow:", **look)
    if clicked and start(root, study, arguments) is not None:
        st.rerun()


def begin(root: str, study: Study, title: str, arguments: tuple[str, ...]) -> Job | None:
    """Submits a job, or finds one at work on the same; None after the page has been told why not."""
    with faults.shown():
        job = submit(root, study, title, arguments)
        # a job waits for its device by itself, so that nobody knows here when it begins
        st.toast(f"Submitted: {plain(job.label)}")
        return job
    return None


def job_label(study: Study) -> str:
    """What to call a job: name or model, metric and kept share, a seed that is not 0, then both texts."""
    what = study.name or f"{short(study.model)} {label(study.metric)} {100 * study.retention:.3g} %"
    seed = f", seed {study.seed}" if study.seed else ""
    return f"{what}{seed}, {short(study.primary)} | {short(study.auxiliary)}"


def preferred(runs: list[Run]) -> Run | None:
    """The run to show where none was chosen: the newest that is done, else one at work, else the newest."""
    at_work = (run for run in runs if run.state == "running")
    done = (run for run in runs if run.complete)
    return next(done, None) or next(at_work, None) or next(iter(runs), None)


def autostart(situation: Situation) -> bool:
    """Starts the demo where nothing was ever run and GPRUNE_AUTOSTART is not 0; says whether it did."""
    wanted = os.environ.get(AUTOSTART_VARIABLE, "1") != "0"
    if not wanted or situation.runs or situation.jobs or situation.problem:
        return False
    with faults.shown():
        submit(situation.root, demo_study())
        return True
    return False


def under_way(situation: Situation, job: Job) -> Run | None:
    """The run of a job, once the job has written to it: before, its record is that of an earlier one.

    Where another process computes the same run, the job shares its work and the record is that one's.
    """
    run = situation.run_named(job_runs.made_by(situation.root, job.id))
    if run is None or job.started is None:
        return None
    began = seconds_since_1970(run.record.get("started"))
    # a record's start is in whole seconds; one in the future is of a clock that was set back since
    own = job.started - 1.0 <= began <= time.time() + 1.0
    return run if own or run.state == "running" else None
