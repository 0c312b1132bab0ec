"""A run and its job that a signal has interrupted: both say so, and offer to go on."""

from __future__ import annotations

from pathlib import Path

import pytest
from app_driver import on, opened, words
from synthetic_run import a_study, names, write_run

from gprune.jobs import folder as files
from gprune.jobs import job as records
from gprune.jobs import queue
from gprune.jobs.local import worker_command
from gprune.jobs.state import JobState, write_state


def test_an_interrupted_run_and_its_job_can_be_continued(
    cache: Path, started: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    resumed: list[str] = []
    monkeypatch.setattr(queue, "resume", lambda _, name: resumed.append(name) or queue.get(cache, name))
    write_run(cache, stages=names()[:9], state="interrupted")
    home = files.root(cache)
    home.mkdir()
    job = records.create(home, a_study(), "an interrupted job", (), worker_command, 1)
    write_state(job.folder, JobState(state="running", started=1.0).ended_as("interrupted"))
    app = opened()
    assert ":orange-badge[interrupted]" in words(app)
    assert f"This run stopped after 9 of {len(names())} steps" in words(app)
    app.button(key="frame_continue").click().run()
    assert len(started) == 1
    on(app, "jobs")
    (table,) = (one.value for one in app.dataframe if {"job", "state"} <= set(one.value.columns))
    assert list(table["state"]) == ["interrupted"]
    app.button(key=f"jobs_resume_{job.id}").click().run()
    assert resumed == [job.id] and not app.exception and not app.error
