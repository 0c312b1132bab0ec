"""The jobs page: stages in words, time left of those at work only, what was interrupted, every setting."""

from types import SimpleNamespace

import pytest
from app_driver import on, opened, words
from streamlit.testing.v1 import AppTest
from synthetic_run import a_study, names, read, write_run
from waiting import limit

from gprune.app.pages.jobs import page, settings_form
from gprune.app.ui import job_runs, work
from gprune.jobs import JobProgress, queue
from gprune.jobs import folder as files
from gprune.jobs import job as records
from gprune.jobs.job import LOCAL
from gprune.jobs.local import worker_command
from gprune.jobs.state import JobState, write_state
from gprune.pipeline import runs
from gprune.store import Store
from gprune.study import Study


def _no_stages(active):
    import pandas as pd

    from gprune.app.pages.jobs import page as jobs

    jobs._times(pd.DataFrame({"stage": [], "seconds": [], "state": []}), active)


@pytest.mark.parametrize(("active", "sentence"), [(True, "No stage has begun"), (False, "It ended before")])
def test_a_job_without_stages_gets_a_sentence(active, sentence):
    app = AppTest.from_function(_no_stages, args=(active,), default_timeout=limit(60)).run()
    assert app.info[0].value.startswith(sentence) and not app.dataframe


@pytest.mark.parametrize(("state", "told"), [("running", True), ("failed", False)])
def test_a_row_names_the_stage_and_the_time_left_of_a_job_at_work(tmp_path, monkeypatch, state, told):
    name = write_run(tmp_path, stages=names()[:9], state="running")
    progress = JobProgress(stage="clusters", done=1, total=4, elapsed=3.0)
    monkeypatch.setattr(page.queue, "progress", lambda *_: progress)
    monkeypatch.setattr(job_runs, "study_of", lambda *_: a_study())
    job = SimpleNamespace(
        id="1", label="a job", state=state, active=state == "running", arguments=(), created=0.0, started=0.0
    )
    job.position, job.engine, job.note, job.elapsed = None, LOCAL, "", 3.0
    job.exports, job.device = False, ""
    situation = work.look(str(tmp_path))
    assert situation.run_named(name) is not None
    row = page._row(situation, job)
    assert 0 < row["progress"] < 1
    assert row["stage"] == ("clusters of the neurons’ parameters" if told else "")
    assert bool(row["time left"]) is told
    runs.save(Store(tmp_path), name, read(tmp_path, name) | {"expected": {}})
    assert page._row(work.look(str(tmp_path)), job)["progress"] == 0.0


def test_an_interrupted_run_and_its_job_can_be_continued(cache, started, monkeypatch):
    resumed = []
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


def test_fields_come_with_their_defaults():
    study = Study(model="demo", primary="a", auxiliary="b")
    for section in settings_form.SECTIONS:
        for name, (_, default) in settings_form.fields(section).items():
            assert getattr(getattr(study, section), name) == default
