"""The one polling fragment: what is being computed now, on every page.

It exists only while a job is active, draws the progress, and reruns the page when a stage of the run that is
shown has been finished, so that charts appear by themselves. All sessions of a server share one look.
"""

import random
import threading
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

import streamlit as st

from gprune.app.ui import titles, work
from gprune.app.ui.text import plain, said
from gprune.jobs import Job, JobProgress, queue
from gprune.study import Study
from gprune.system.errors import GpruneError
from gprune.system.units import duration

FRESH_SECONDS = 1.0
"""a look that is younger serves the next session as well"""
GONE_SECONDS = 30.0
"""a session that has not looked for so long follows nothing any more"""
POLL_SECONDS = 2.0
SOONEST, LATEST, SHARE = 4.0, 20.0, 0.1
"""stages can end faster than a page is drawn, and drawing takes its time from the run: a page rests for a
tenth of the time that the run has taken, so that the first charts come soon and the later ones cost little"""
POLL_EACH, REST_EACH = 0.25, 1.0
"""seconds that each session which follows adds: many of them share the cores with the run"""
EVERYTHING = ("compare",)
"""pages that show more than one run, by their address"""


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen, and when."""

    situation: work.Situation
    at: float
    """on the clock of `time.monotonic`"""
    told: dict[str, tuple[str, float]] = field(default_factory=dict)
    """sentence and share of each job that was described since"""


_LOOKING = threading.Lock()
_looks: dict[str, Look] = {}
_followers: dict[str, float] = {}
"""when each session has looked last, by its identity"""


def shared_look(root: str) -> Look:
    """Runs and jobs as one of the sessions has seen them less than a second ago."""
    with _LOOKING:
        known, now = _looks.get(root), time.monotonic()
        if known is None or now - known.at >= FRESH_SECONDS:
            # one server looks at one cache; a second one is that of a test
            _looks.clear()
            known = _looks[root] = Look(work.look(root), time.monotonic())
        return known


def _following(session: str) -> int:
    """Notes that a session follows what is computed; how many do, at least 1."""
    now = time.monotonic()
    with _LOOKING:
        _followers[session] = now
        for name in [name for name, seen in _followers.items() if now - seen > GONE_SECONDS]:
            del _followers[name]
        return len(_followers)


def follow(situation: work.Situation, page: str, shown: str) -> None:
    """Draws the running jobs, and the page again when something of it has changed."""
    sessions = followers()
    whose = None if page in EVERYTHING or not shown else shown
    patience = random.uniform(0.0, REST_EACH * (sessions - 1))
    # the bar at the top of the window would cover the frame of the first job
    st.space("xsmall")
    polled = st.fragment(_watch, run_every=poll(sessions))
    polled(situation.root, whose, situation.marks(whose), time.monotonic(), patience)


def followers() -> int:
    """Notes that this session follows what is computed, and counts those that do."""
    return _following(st.session_state.setdefault("frame_session", uuid.uuid4().hex))


def _watch(root: str, whose: str | None, marks: work.Marks, drawn: float, patience: float) -> None:
    """Draws the running jobs and reruns the page when something has changed; see `due`."""
    sessions, seen = followers(), shared_look(root)
    if due(seen, whose, marks, time.monotonic() - drawn, sessions, patience):
        st.rerun()
    for job in seen.situation.active[:3]:
        with st.container(border=True, key=f"live_{job.id}"):
            sentence, fraction = told(seen, job)
            st.markdown(sentence)
            st.progress(fraction)


def due(seen: Look, whose: str | None, drawn: work.Marks, ago: float, sessions: int, patience: float) -> bool:
    """Whether a page of one run, or of all where it is None, is to be drawn anew, so many seconds after.

    By `patience`, in seconds, a session comes later than others to what does not concern its run.
    """
    now = seen.situation.marks(whose)
    if now.states != drawn.states:
        return True
    if now.others != drawn.others:
        return ago >= patience
    return now.stages != drawn.stages and ago >= rest(seen.situation.active, sessions)


def poll(sessions: int) -> float:
    """Seconds between two looks of a session while so many follow what is computed."""
    return max(POLL_SECONDS, POLL_EACH * sessions)


def rest(active: list[Job], sessions: int = 1) -> float:
    """Seconds between two drawings of a page while jobs are at work and so many sessions follow them."""
    started = [job.started for job in active if job.started is not None]
    elapsed = time.time() - min(started) if started else 0.0
    return max(min(max(SHARE * elapsed, SOONEST), LATEST), REST_EACH * sessions)


def told(seen: Look, job: Job) -> tuple[str, float]:
    """What `describe` says; made once for all sessions that see the same."""
    if job.id not in seen.told:
        seen.told[job.id] = describe(seen.situation, job)
    return seen.told[job.id]


def describe(situation: work.Situation, job: Job) -> tuple[str, float]:
    """One sentence about a job, and its finished share in [0, 1]."""
    name = f"**{plain(job.label)}**"
    if job.state == "queued":
        return f":material/hourglass_empty: {name} waits in the queue, place {job.position or 1}", 0.0
    try:
        study = queue.study_of(Path(situation.root), job.id)
        progress = queue.progress(Path(situation.root), job.id)
    except GpruneError as error:
        return f"{name}: {said(error)}", 0.0
    verb = "is being stopped" if job.state == "cancelling" else f"is being computed on {job.device or 'this machine'}"
    if job.exports:
        return f":material/hourglass_top: {name} {verb}: {_now(study, progress)}", min(1.0, progress.fraction)
    run = work.under_way(situation, job)
    if run is None or not run.outlook:
        return f":material/hourglass_top: {name} {verb}: {_now(study, progress)}", 0.0
    found = titles.outlook(run, progress)
    step = f"step {min(found.done + 1, found.steps)} of {found.steps}"
    sentence = f":material/hourglass_top: {name} {verb}: {step}, {_now(study, progress)}"
    if found.left is not None and found.left >= 1:
        sentence += f", about {duration(found.left)} left in all"
    return sentence, found.share


def _now(study: Study, progress: JobProgress) -> str:
    words = [plain(titles.title(study, progress.stage)) if progress.stage else "starting"]
    if progress.total > 1:
        words[0] += f" {progress.done}/{progress.total}"
    if progress.waits:
        words.append(plain(progress.waits))
    words.append(f"{duration(progress.elapsed)} so far")
    return ", ".join(words)
