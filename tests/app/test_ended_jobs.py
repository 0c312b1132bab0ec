"""A job that ends is reported: a toast, and a banner with its result against the run that it was started from."""

import pytest
from app_driver import open_page, opened, plain_words, words
from synthetic_run import a_study, the_run, write_run

from gprune.analysis import paired_test
from gprune.app.ui import derived_cache, frame, work
from gprune.jobs.folder import JobState, write_state


@pytest.fixture
def job(running_job):
    """A running job that prunes more than the finished run of the cache."""
    return running_job(a_study(name="Second", retention=0.4))


def end(job, state, error=""):
    write_state(job.folder, JobState("running", started=1.0).ended_as(state, error))


@pytest.mark.slow
def test_a_finished_job_says_its_result_against_its_origin_and_leads_there(cache, name, job):
    app = opened(run=name)
    app.session_state[work.ORIGINS] = {job.id: name}
    assert "is done" not in words(app)
    created = write_run(cache, study=a_study(name="Second", retention=0.4))
    end(job, "done")
    app.run()
    (toast,) = app.toast
    assert "is done" in toast.value and "Second" in toast.value
    text = plain_words(app)
    before, after = (
        {(cell.method, cell.text): cell for cell in derived_cache.measurements(the_run(cache, run))}
        for run in (name, created)
    )
    pair = ("gprune", "science-docs")
    change = paired_test.in_percent(paired_test.difference(after[pair], before[pair]))
    assert "Perplexity of GPrune against “Synthetic”: " in text
    assert f"science-docs {after[pair].perplexity:.4g} ({change})" in text
    # it stays until it is closed, and is told once
    app.run()
    assert "is done" in words(app) and not app.toast
    app.button(key=f"ended_compare_{job.id}").click().run()
    assert app.session_state["address_state"].values["cp_runs"] == [created, name]
    assert app.session_state["frame_shown_run"] == created and "is done" not in words(app)


def test_a_job_that_failed_gives_its_reason_and_one_that_ended_before_is_not_told(cache, name, job):
    app = opened(run=name)
    end(job, "failed", "the disk is full")
    app.run()
    assert "failed: the disk is full" in words(app)
    assert not [button for button in app.button if button.key == f"ended_compare_{job.id}"]
    app.button(key=f"ended_close_{job.id}").click().run()
    assert "the disk is full" not in words(app)
    assert "the disk is full" not in words(opened(run=name))


def test_the_settings_of_a_job_that_failed_are_edited_in_the_form(job):
    end(job, "failed", "there is no model")
    app = open_page("launch", jobs_tab="jobs", jobs_job=job.id)
    app.button(key=f"jobs_edit_{job.id}").click().run()
    assert "The settings of “Second” are in the form below" in app.success[0].value
    assert app.session_state["jobs_tab_tabs"] == "Start" and app.number_input(key="launch_retention").value == 0.4


def test_without_an_origin_or_a_shared_text_the_headline_is_the_result(cache, name):
    run = the_run(cache)
    headline = frame.describe_result(run, None)
    assert headline == frame.describe_result(run, run) and headline.endswith(".") and "perplexity" in headline
    # other windows of the same texts
    other = write_run(cache, study=a_study(name="Other", retention=0.3), seed=5)
    assert "against “" not in frame.describe_result(the_run(cache, other), run)


def test_a_running_job_stands_in_the_side_bar_in_one_line(cache, name, job):
    app = opened(run=name)
    (bar,) = app.sidebar.get("progress")
    assert "Second" in bar.proto.text and "starting" in bar.proto.text and not app.main.get("progress")
