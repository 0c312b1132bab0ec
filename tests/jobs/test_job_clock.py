"""Clocks that are set back, odd files, other machines and other starts: none confuses the queue."""

import json
import os
import signal
import time
from dataclasses import replace
from datetime import datetime

import pytest
from odd_records import ODD, places, with_field
from waiting import wait_for

from gprune.jobs import cancel, get, jobs, local, progress, queue, reconciliation, submit
from gprune.jobs import folder as files
from gprune.jobs.state import JobState, read_state, update, write_state
from gprune.system import files as whole
from gprune.system import processes
from gprune.system.errors import JobError
from gprune.system.processes import QUIET_SECONDS

from .conftest import fake_command, make_study


class Clock:
    """The clock on the wall, which can be set."""

    def __init__(self, monkeypatch):
        self.shift, real = 0.0, time.time
        monkeypatch.setattr(time, "time", lambda: real() + self.shift)


@pytest.fixture
def waiting(monkeypatch):
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
        write_state(job.folder, replace(state, cancel_requested=asked))
    wait_for(lambda: get(cache, job.id).state == "cancelled")


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


def running(cache, **changes):
    """The folder of a job whose process has the number and the start of this very process."""
    job = submit(cache, make_study(1))
    start, me = processes.process_start(os.getpid()), os.getpid()
    state = JobState("running", me, start, me, start, processes.host(), processes.boot(), time.time(), time.time())
    write_state(job.folder, replace(state, **changes))  # type: ignore[arg-type]
    return job.folder


def test_a_job_of_another_machine_is_at_work_until_it_has_been_silent(cache, supervisors):
    # no process of this machine has that number
    folder = running(cache, host="elsewhere", pid=2**31 - 1, supervisor=2**31 - 1)
    queue.reconcile(cache)
    assert read_state(folder).state == "running"
    silent = time.time() - QUIET_SECONDS - 1
    update(folder, lambda state: replace(state, beat=silent, started=silent))
    queue.reconcile(cache)
    state = read_state(folder)
    assert state.state == "failed" and "nothing was heard for 15 minutes from elsewhere" in state.error


def test_the_number_of_another_machines_process_is_never_signalled(cache, supervisors, monkeypatch):
    sent: list[int] = []
    monkeypatch.setattr(local, "send", lambda pid, started, number: sent.append(number))
    folder = running(cache, host="elsewhere", cancel_requested=time.time() - 60, state="cancelling")
    queue.reconcile(cache)
    assert sent == [] and read_state(folder).state == "cancelling"
    # the same job, were it one of this machine
    update(folder, lambda state: replace(state, host=processes.host(), supervisor=None))
    queue.reconcile(cache)
    assert sent == [signal.SIGKILL]


@pytest.mark.skipif(not processes.boot(), reason="this system does not say when it was started anew")
def test_a_job_of_an_earlier_start_of_this_machine_is_gone(cache, supervisors):
    folder = running(cache, boot="another start")
    queue.reconcile(cache)
    assert read_state(folder).state == "failed"


def test_a_job_that_ended_elsewhere_takes_no_place_here(cache, supervisors):
    running(cache, host="elsewhere", state="done", ended=time.time())
    assert submit(cache, make_study(2)).state == "running"


def test_a_process_that_was_suspended_puts_no_older_state_over_a_newer_one(tmp_path, monkeypatch):
    """Without locks it goes on with what it had read, when others have had the lease for long."""
    write_state(tmp_path, JobState(state="running", pid=7))
    newer = JobState(state="done", run_id="a-run", summary={"perplexity": 3.0}, ended=5.0)
    asked, settle = [], whole.settle

    def lost(state):
        """What whoever gives up on a job does, unless it has ended."""
        asked.append(state.state)
        return state if state.finished else state.ended_as("failed", "nothing was heard")

    def suspended(path):
        # between reading and the moment in which the file takes its place
        settle(path)
        if asked == ["running"]:
            monkeypatch.setattr(whole, "settle", settle)
            write_state(tmp_path, newer)

    monkeypatch.setattr(whole, "settle", suspended)
    assert update(tmp_path, lost) == newer == read_state(tmp_path)
    assert asked == ["running", "done"]
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".state")]
