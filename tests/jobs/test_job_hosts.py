"""Jobs of other machines, and of an earlier start of this one: no process here is taken for theirs."""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gprune import jobs
from gprune.jobs import local
from gprune.jobs.state import JobState, read_state, update, write_state
from gprune.system import processes
from gprune.system.processes import QUIET_SECONDS

from .conftest import make_study


def running(cache: Path, **changes: object) -> Path:
    """The folder of a job whose process has the number and the start of this very process."""
    job = jobs.submit(cache, make_study(1))
    start, me = processes.process_start(os.getpid()), os.getpid()
    state = JobState(
        "running", me, start, me, start, processes.host(), processes.boot(), time.time(), time.time()
    )
    write_state(job.folder, replace(state, **changes))  # type: ignore[arg-type]
    return job.folder


def test_a_job_of_another_machine_is_at_work_until_it_has_been_silent(cache, supervisors):
    # no process of this machine has that number
    folder = running(cache, host="elsewhere", pid=2**31 - 1, supervisor=2**31 - 1)
    jobs.reconcile(cache)
    assert read_state(folder).state == "running"
    silent = time.time() - QUIET_SECONDS - 1
    update(folder, lambda state: replace(state, beat=silent, started=silent))
    jobs.reconcile(cache)
    state = read_state(folder)
    assert state.state == "failed" and "nothing was heard for 15 minutes from elsewhere" in state.error


def test_the_number_of_another_machines_process_is_never_signalled(cache, supervisors, monkeypatch):
    sent: list[int] = []
    monkeypatch.setattr(local, "send", lambda pid, started, number: sent.append(number))
    folder = running(cache, host="elsewhere", cancel_requested=time.time() - 60, state="cancelling")
    jobs.reconcile(cache)
    assert sent == [] and read_state(folder).state == "cancelling"
    # the same job, were it one of this machine
    update(folder, lambda state: replace(state, host=processes.host(), supervisor=None))
    jobs.reconcile(cache)
    assert sent == [signal.SIGKILL]


@pytest.mark.skipif(not processes.boot(), reason="this system does not say when it was started anew")
def test_a_job_of_an_earlier_start_of_this_machine_is_gone(cache, supervisors):
    folder = running(cache, boot="another start")
    jobs.reconcile(cache)
    assert read_state(folder).state == "failed"


def test_a_job_that_ended_elsewhere_takes_no_place_here(cache, supervisors):
    running(cache, host="elsewhere", state="done", ended=time.time())
    assert jobs.submit(cache, make_study(2)).state == "running"
