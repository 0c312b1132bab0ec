"""Small things of the jobs page: no empty grid, stages in words, time left of those at work only."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest
from synthetic_run import a_study, names, read, write_run
from waiting import limit

from gprune.app.pages.jobs import page
from gprune.app.ui import job_runs, work
from gprune.jobs import JobProgress
from gprune.jobs.job import LOCAL
from gprune.pipeline import runs
from gprune.store import Store


def _no_stages(active: bool) -> None:
    import pandas as pd

    from gprune.app.pages.jobs import page as jobs

    jobs._times(pd.DataFrame({"stage": [], "seconds": [], "state": []}), active)


@pytest.mark.parametrize(("active", "sentence"), [(True, "No stage has begun"), (False, "It ended before")])
def test_a_job_without_stages_gets_a_sentence(active: bool, sentence: str) -> None:
    app = AppTest.from_function(_no_stages, args=(active,), default_timeout=limit(60)).run()
    assert app.info[0].value.startswith(sentence) and not app.dataframe


@pytest.mark.parametrize(("state", "told"), [("running", True), ("failed", False)])
def test_a_row_names_the_stage_and_the_time_left_of_a_job_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, told: bool
) -> None:
    name = write_run(tmp_path, stages=names()[:9], state="running")
    progress = JobProgress(stage="clusters", done=1, total=4, elapsed=3.0)
    monkeypatch.setattr(page.queue, "progress", lambda *_: progress)
    monkeypatch.setattr(job_runs, "study_of", lambda *_: a_study())
    job: Any = SimpleNamespace(
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
