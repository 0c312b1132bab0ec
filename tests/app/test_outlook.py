"""How far a run is, how long the rest takes, what its stages are called; and the rows of the jobs page."""

from datetime import datetime
from types import SimpleNamespace

import pytest
from app_driver import on, opened, words
from streamlit.testing.v1 import AppTest
from synthetic_run import a_study, change_record, names, the_run, write_run
from waiting import limit

from gprune.app.pages import jobs
from gprune.app.ui import live, run_status, work
from gprune.jobs import JobProgress, queue
from gprune.jobs import folder as files
from gprune.jobs import folder as records
from gprune.jobs.folder import JobState, worker_command, write_state
from gprune.pipeline.eta import Outlook
from gprune.study import EvaluationSettings
from gprune.study.methods import METHODS

EXPECTED = {"tokens": 2.0, "statistics": 10.0, "scores": 0.0, "learning": 28.0}


def test_the_time_left_follows_the_pace_of_the_run_and_counts_no_stage_that_nobody_expects():
    half = [Outlook.of(EXPECTED, ("tokens",), 2 + factor * 5, "statistics", 0.5).left for factor in (1, 2, 4)]
    assert half[0] == pytest.approx(33.0)
    assert half == sorted(half) and half[2] is not None and half[2] < 4 * 33.0
    for finished in (tuple(EXPECTED), (*EXPECTED, "a stage that nobody expects")):
        assert Outlook.of(EXPECTED, finished, 50.0) == Outlook(4, 4, 1.0, None)
    reused = dict.fromkeys(EXPECTED, 0.0)
    assert Outlook.of(reused, ("tokens",), 0.1) == Outlook(1, 4, 1.0, None)
    finished = ("tokens", "statistics")
    assert Outlook.of(EXPECTED, finished, 12.0, "statistics", 0.9) == Outlook.of(EXPECTED, finished, 12.0)
    assert Outlook.of(EXPECTED, finished, 12.0, "model", 0.9) == Outlook.of(EXPECTED, finished, 12.0)


def a_run(root, count, state="running"):
    """A run that has come through so many stages."""
    write_run(root, stages=names()[:count], state=state)
    return the_run(root)


def test_a_run_knows_how_far_it_is_whatever_was_read_earlier_or_the_clock_says(tmp_path):
    run = a_run(tmp_path, 9)
    result = run_status.run_outlook(run)
    assert (result.done, result.steps) == (9, len(names())) and 0 < result.share < 1
    seconds = run.expected_seconds
    assert result.share == pytest.approx(sum(seconds[name] for name in names()[:9]) / sum(seconds.values()))
    at = JobProgress(stage=names()[9], done=1, total=2, elapsed=result.share * sum(seconds.values()))
    further = run_status.run_outlook(run, at)
    assert further.share == pytest.approx(result.share + seconds[names()[9]] / 2 / sum(seconds.values()))
    assert further.done == 9 and further.left is not None
    full = run_status.run_outlook(a_run(tmp_path, len(names()), "done"))
    assert (full.done, full.share, full.left) == (full.steps, 1.0, None)
    run, late = a_run(tmp_path, 9), JobProgress(stage=names()[12], elapsed=10.0)
    result = run_status.run_outlook(run, late)
    assert result.done == 12 and result.share > run_status.run_outlook(run).share
    run.record["started"] = "2999-01-01T00:00:00+00:00"
    result = run_status.run_outlook(run, JobProgress(stage=names()[9], elapsed=30.0))
    assert result.left is not None and result.left > 0


@pytest.mark.parametrize("elapsed", [3.0, None])
def test_a_job_at_work_says_its_step_its_stage_and_the_time_left(tmp_path, monkeypatch, elapsed):
    finished = names().index("clusters")
    run = a_run(tmp_path, finished)
    at = JobProgress(stage="clusters", done=2, total=4, elapsed=elapsed)
    sentence, share = _described(run, at, monkeypatch)
    assert f"step {finished + 1} of {len(names())}, clusters of the neurons’ parameters 2/4" in sentence
    assert share == run_status.run_outlook(run, at).share and sentence.endswith(" remaining")


def test_a_job_that_waits_for_the_result_of_another_says_so(tmp_path, monkeypatch):
    run, words = a_run(tmp_path, names().index("clusters")), "waiting for another run that computes the same result"
    for message, output in ((words, True), ("seed 0", False)):
        waits = message if output else ""
        at = JobProgress(stage="clusters", done=0, total=1, message=message, waits=waits, elapsed=3.0)
        assert (f"neurons’ parameters, {words}, 3 s so far" in _described(run, at, monkeypatch)[0]) is output


def test_the_record_of_an_earlier_run_is_not_the_progress_of_a_job_that_has_just_begun(tmp_path, monkeypatch):
    run, progress = a_run(tmp_path, len(names()), "done"), JobProgress(stage="model", elapsed=2.0)
    began = datetime.fromisoformat(run.record["started"]).timestamp()
    early = _described(run, progress, monkeypatch, started=began + 60.0)
    assert early[0].endswith("loading the model, 2 s so far") and early[1] == 0.0
    late = _described(run, progress, monkeypatch, started=began - 5.0)
    assert f"step {len(names())} of {len(names())}" in late[0] and late[1] == 1.0


def _described(run, progress, monkeypatch, started=0.0):
    job = SimpleNamespace(id="1", label="a job", state="running", creates_no_run=False, device="", started=started)
    monkeypatch.setattr(live.queue, "study_of", lambda *_: run.study)
    monkeypatch.setattr(live.queue, "progress", lambda *_: progress)
    monkeypatch.setattr(run_status, "run_of_job", lambda *_: run.name)
    situation = live.work.Situation(run.root, [run], [], [job], "")
    sentence, share = live.describe(situation, job)
    return sentence.replace("\\", ""), share


@pytest.mark.parametrize(
    ("metric", "methods", "third"),
    [("flap", ("dense",), ""), ("wanda_sp", ("fang", "flap_pooled"), ""), ("twflap", tuple(METHODS), "python-code")],
    ids=["few", "some", "all"],
)
def test_the_stages_of_every_study_have_words(metric, methods, third):
    study = a_study(metric=metric, methods=methods, substitute=third)
    expected = names("all", study)
    assert len(set(expected)) == len(expected) and ("masks_gprune" in expected) is ("gprune" in methods)
    words = [run_status.stage_title(study, name) for name in expected]
    assert len(set(words)) == len(words) and not any("_" in word for word in words)
    agreements = any(name.startswith("agreement") for name in expected)
    assert agreements is bool(third or "fang" in methods or metric == "twflap")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("model", "loading the model"),
        ("tokens_auxiliary", "drawing calibration text B"),
        ("contexts_substitute", "contexts of C"),
        ("context_statistics_auxiliary", "statistics by context on B under the contexts of A"),
        ("context_statistics_auxiliary_auxiliary", "statistics by context on B"),
        ("groups_primary_other_seed", "FANG’s functional groups on A, another seed"),
        ("scores_flap_auxiliary", "importance scores of FLAP on B"),
        ("drift_flap_primary_substitute", "rank drift of FLAP between A and C"),
        ("masks_fang_pooled", "masks of FANG, pooled"),
        ("accuracy.flap.0", "accuracy of FLAP, task 1"),
        ("perplexity.dense.1", "perplexity of dense, text 2"),
        ("partition_auxiliary_primary_first", "the first modules of B and A"),
        ("agreement_swap", "module agreement, swap: A and B"),
        ("a stage that nobody knows", "a stage that nobody knows"),
    ],
)
def test_titles(name, words):
    evaluation = EvaluationSettings(texts=("c4", "ptb"), tasks=("demo_order",))
    study = a_study(metric="twflap", methods=tuple(METHODS), evaluation=evaluation)
    assert run_status.stage_title(study, name) == words


def test_a_page_rests_the_longer_the_longer_its_run_takes(monkeypatch):
    class Running:
        started = 1000.0

    for elapsed, rest in ((5.0, live.SOONEST), (100.0, 10.0), (9000.0, live.LATEST)):
        monkeypatch.setattr(live.time, "time", lambda moment=1000.0 + elapsed: moment)
        assert live.redraw_interval([Running()]) == pytest.approx(rest)
    assert live.redraw_interval([]) == live.SOONEST


def _no_stages(active):
    import pandas as pd

    from gprune.app.pages import jobs

    jobs._draw_times(pd.DataFrame({"stage": [], "seconds": [], "state": []}), active)


def test_a_job_without_stages_gets_a_sentence():
    for active, sentence in ((True, "No stage has started"), (False, "The job ended before")):
        app = AppTest.from_function(_no_stages, args=(active,), default_timeout=limit(60)).run()
        assert app.info[0].value.startswith(sentence) and not app.dataframe


@pytest.mark.parametrize(("state", "is_at_work"), [("running", True), ("failed", False)])
def test_a_row_names_the_stage_and_the_time_left_of_a_job_at_work(tmp_path, monkeypatch, state, is_at_work):
    name = write_run(tmp_path, stages=names()[:9], state="running")
    progress = JobProgress(stage="clusters", done=1, total=4, elapsed=3.0)
    monkeypatch.setattr(jobs.queue, "progress", lambda *_: progress)
    monkeypatch.setattr(run_status, "study_of_job", lambda *_: a_study())
    job = SimpleNamespace(
        id="1", label="a job", state=state, active=state == "running", arguments=(), created=0.0, started=0.0
    )
    job.position, job.elapsed = None, 3.0
    job.creates_no_run, job.device = False, ""
    situation = work.read_situation(str(tmp_path))
    assert situation.run_named(name) is not None
    row = jobs._job_row(situation, job)
    assert 0 < row["progress"] < 1
    assert row["stage"] == ("clusters of the neurons’ parameters" if is_at_work else "")
    assert bool(row["time left"]) is is_at_work
    change_record(tmp_path, name, expected={})
    assert jobs._job_row(work.read_situation(str(tmp_path)), job)["progress"] == 0.0


def test_an_interrupted_run_and_its_job_can_be_continued(cache, started, monkeypatch):
    resumed = []
    monkeypatch.setattr(queue, "resume", lambda _, name: resumed.append(name) or queue.get(cache, name))
    write_run(cache, stages=names()[:9], state="interrupted")
    home = files.root(cache)
    home.mkdir()
    job = records.create(home, a_study(), "an interrupted job", (), worker_command)
    write_state(job.folder, JobState(state="running", started=1.0).ended_as("interrupted"))
    app = opened()
    assert ":orange-badge[interrupted]" in words(app)
    assert f"This run stopped after 9 of {len(names())} steps" in words(app)
    app.button(key="frame_continue").click().run()
    assert len(started) == 1
    app.query_params["jobs_tab"] = "jobs"
    on(app, "launch")
    (table,) = (item.value for item in app.dataframe if {"job", "state"} <= set(item.value.columns))
    assert list(table["state"]) == ["interrupted"]
    app.button(key=f"jobs_resume_{job.id}").click().run()
    assert resumed == [job.id] and not app.exception and not app.error
