"""Jobs come first: which of them the preview waits for."""

import os
import time

import pytest

from gprune.app.preview.worker_manager import hindrance
from gprune.jobs import folder as files
from gprune.jobs import local, queue, reconciliation
from gprune.jobs.state import JobState, write_state
from gprune.study import Study


@pytest.fixture
def cache(tmp_path, monkeypatch):
    # jobs are claimed from the queue, and nothing is started
    monkeypatch.setattr(local, "start_supervisor", lambda folder: None)
    return tmp_path


def submitted(cache, device="auto", arguments=(), number=0):
    study = Study(model="demo", primary="a", auxiliary="b", device=device, seed=number)
    return queue.submit(cache, study, label=f"job {number}", arguments=arguments)


WAITS = [("auto", "cpu"), ("cpu", "cpu"), ("auto", "cuda"), ("cuda", "cuda:0"), ("cuda:1", "cuda:1")]
GOES_ON = [("cpu", "cuda"), ("cuda:1", "cuda")]


@pytest.mark.parametrize(("job", "preview"), WAITS + GOES_ON)
def test_a_job_stops_the_preview_on_its_own_device(cache, job, preview):
    submitted(cache, job)
    expected = "the preview waits while a job is at work: job 0" if (job, preview) in WAITS else ""
    assert hindrance(cache, preview) == expected


def test_a_model_over_several_gpus_takes_the_first_ones(cache):
    submitted(cache, "auto", ("--model-gpus", "2"))
    assert hindrance(cache, "cuda") and hindrance(cache, "cuda:1") and not hindrance(cache, "cuda:2")


def test_an_export_needs_no_gpu(cache):
    submitted(cache, "cuda", ("gguf", "folder", "out"))
    assert hindrance(cache, "cuda") == "" != hindrance(cache, "cpu")


def test_waiting_running_and_leaving_jobs_count_and_those_that_are_gone_do_not(cache):
    assert hindrance(cache, "cpu") == hindrance(cache, "cuda") == ""
    first, second = submitted(cache), submitted(cache, number=1)
    assert second.state == "queued" and len(reconciliation.at_work(cache)) == 2
    queue.cancel(cache, second.id)
    assert [job.id for job in reconciliation.at_work(cache)] == [first.id]
    here = {"pid": os.getpid(), "process_started": local.process_start(os.getpid())}
    for state, counts in (
        (JobState("running", started=1.0, **here), True),
        (JobState("cancelling", started=1.0, **here), True),
        # it has reported its end and still holds its memory
        (JobState("done", started=1.0, ended=time.time(), **here), True),
        (JobState("running", started=1.0, pid=here["pid"], process_started=1.0), False),
        (JobState("done", started=1.0, ended=2.0), False),
    ):
        write_state(cache / "jobs" / first.id, state)
        assert bool(hindrance(cache, "cpu")) == counts, state
    (cache / "jobs" / first.id / files.STATE).write_text("damaged")
    assert hindrance(cache, "cpu") == ""
