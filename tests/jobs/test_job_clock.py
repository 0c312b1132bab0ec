"""A clock that is set back, and files of jobs that are odd in any field: neither confuses the queue."""

import json
import time
from datetime import datetime

import pytest
from odd_records import ODD, places, with_field
from waiting import wait_for

from gprune.jobs import cancel, get, jobs, local, progress, queue, reconciliation, submit
from gprune.jobs import folder as files
from gprune.jobs.state import JobState, read_state, write_state
from gprune.system.errors import JobError

from .conftest import fake_command, make_study


class Clock:
    """The clock on the wall, which can be set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shift, real = 0.0, time.time
        monkeypatch.setattr(time, "time", lambda: real() + self.shift)


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue in which nothing is started."""
    monkeypatch.setattr(local, "start_supervisor", lambda _: None)


def test_the_order_of_jobs_survives_a_clock_that_is_set_back(cache, waiting, monkeypatch):
    clock, made = Clock(monkeypatch), []
    for seed in range(4):
        made.append(submit(cache, make_study(seed), build=fake_command).id)
        clock.shift -= 3600.0
    assert [job.id for job in jobs(cache)] == made[::-1]
    # the first has the machine; the others wait in the order in which they came
    assert [get(cache, job_id).position for job_id in made] == [None, 1, 2, 3]


def test_a_job_that_was_just_taken_is_not_given_up_when_the_clock_jumps(cache, waiting, monkeypatch):
    clock = Clock(monkeypatch)
    job = submit(cache, make_study(), build=fake_command)
    for shift in (-86400.0, 86400.0):
        clock.shift = shift
        queue.reconcile(cache)
        assert get(cache, job.id).state == "running" and reconciliation.at_work(cache)
        assert (get(cache, job.id).elapsed or 0.0) >= 0 <= (progress(cache, job.id).elapsed or 0.0)
    clock.shift = 0.0
    state = read_state(job.folder)
    write_state(job.folder, JobState(state="running", started=state.started, claimed=1.0))
    queue.reconcile(cache)
    assert get(cache, job.id).state == "failed"


@pytest.mark.process
def test_a_quiet_run_is_stopped_although_the_clock_was_set_back(cache):
    job = submit(cache, make_study(), arguments=["quiet"], build=fake_command)
    wait_for(lambda: progress(cache, job.id).stage == "calibrate")
    cancel(cache, job.id, grace=1.0)
    state = read_state(job.folder)
    if not state.finished:
        # asked an hour from now, as it seems once the clock has been set back
        asked = (state.cancel_requested or 0.0) + 3600.0
        write_state(job.folder, JobState(**{**_values(state), "cancel_requested": asked}))
    wait_for(lambda: get(cache, job.id).state == "cancelled")


def _values(state: JobState) -> dict[str, object]:
    return {name: getattr(state, name) for name in JobState.__dataclass_fields__}


def test_every_odd_field_of_a_job_is_told_and_the_others_stay(cache, waiting):
    good = submit(cache, make_study(), build=fake_command)
    job = submit(cache, make_study(1), build=fake_command)
    (job.folder / files.EVENTS).write_text(
        '{"ts": 10.0, "stage": "calibrate", "done": 1, "total": 3, "message": "a"}\n' * 5
    )
    left_out = 0
    for name in (files.JOB, files.STATE, files.EVENTS):
        path = job.folder / name
        whole = path.read_bytes()
        values = json.loads(whole.splitlines()[0] if name == files.EVENTS else whole)
        for place in places(values):
            for odd in ODD.values():
                path.write_text(with_field(values, place, odd) + "\n", errors="surrogatepass")
                shown = [one for one in jobs(cache) if one.id == job.id]
                left_out += not shown
                assert good.id in [one.id for one in jobs(cache)]
                for one in shown:
                    # what a page shows of it
                    datetime.fromtimestamp(one.created)
                    found = progress(cache, one.id)
                    assert 0.0 <= found.fraction <= 1.0 and (found.elapsed or 0.0) >= 0.0
                    assert " ".join((one.label, *one.command, one.error, found.message)).encode()
                if not shown:
                    with pytest.raises(JobError, match="submit its study anew"):
                        get(cache, job.id)
        path.write_bytes(whole)
    assert left_out > 50
