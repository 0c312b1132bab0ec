"""The queue's records and rules; no process is started."""

import errno
import json
import os
import threading
import time

import pytest
from waiting import limit

from gprune.jobs import (
    cancel,
    get,
    jobs,
    local,
    log_tail,
    progress,
    queue,
    reconcile,
    resume,
    study_of,
    submit,
)
from gprune.jobs import folder as files
from gprune.jobs.state import JobState, read_state, write_state
from gprune.system.errors import JobError

from .conftest import make_study


def put(job, **values):
    write_state(job.folder, JobState(**values))


def here(state="running", **values):
    """A state under this very process, which is alive."""
    pid = os.getpid()
    return JobState(state=state, pid=pid, process_started=local.process_start(pid), started=1.0, **values)


def test_first_job_starts_and_the_next_ones_wait_in_order(cache, supervisors):
    first, second, third = (submit(cache, make_study(seed)) for seed in range(3))
    assert [first.state, second.state, third.state] == ["running", "queued", "queued"]
    assert [first.position, second.position, third.position] == [None, 1, 2]
    assert supervisors == [first.folder]
    assert [job.id for job in jobs(cache)] == [third.id, second.id, first.id]
    assert first.elapsed is not None and second.elapsed is None
    assert first.active and second.active


def test_record_holds_what_was_submitted(cache, supervisors):
    job = submit(cache, make_study(3), label=" a\nlabel ", arguments=["--fresh"])
    assert job.label == "a label"
    assert job.arguments == ("--fresh",)
    assert job.command[-5:] == ("--job", str(job.folder), "--cache", str(cache), "--fresh")
    assert study_of(cache, job.id) == make_study(3)
    assert files.ID_PATTERN.fullmatch(job.id) and job.folder == files.root(cache) / job.id
    assert get(cache, job.id) == job


def test_double_click_returns_the_same_job(cache, supervisors):
    first = submit(cache, make_study())
    assert submit(cache, make_study()).id == first.id
    assert submit(cache, make_study(name="another name changes no result")).id == first.id
    waiting = submit(cache, make_study(1))
    assert submit(cache, make_study(1)).id == waiting.id
    assert submit(cache, make_study(), arguments=["--fresh"]).id != first.id
    assert len(jobs(cache)) == 3


@pytest.mark.parametrize("state", ["cancelling", "cancelled", "failed", "done"])
def test_a_study_that_runs_no_more_can_be_submitted_again(cache, supervisors, state):
    first = submit(cache, make_study())
    write_state(first.folder, here(state))
    again = submit(cache, make_study())
    assert again.id != first.id
    # this process is still there under the first job's name, so the machine is not free
    assert again.state == "queued"


def test_double_click_on_a_dead_job_starts_a_new_one(cache, supervisors):
    first = submit(cache, make_study())
    put(first, state="running", pid=2**22 - 1, process_started=1.0, started=1.0)
    again = submit(cache, make_study())
    assert again.id != first.id and again.state == "running"
    assert get(cache, first.id).state == "failed"


def test_resume_submits_the_same_study(cache, supervisors):
    first = submit(cache, make_study(5), label="kept", arguments=["--fresh"])
    put(first, state="failed", error="out of memory", ended=2.0)
    again = resume(cache, first.id)
    assert again.id != first.id and again.state == "running"
    assert (again.label, again.arguments, again.fingerprint) == ("kept", ("--fresh",), first.fingerprint)
    assert resume(cache, first.id).id == again.id


@pytest.mark.parametrize(
    "bad",
    [
        "../../x",
        "..",
        "",
        "/etc/passwd",
        "20260131-120000-0123abcd/../../x",
        "20260131-120000-0123abcd\n",
        "20260131-120000-0123ABCD",
        "٢٠٢٦٠١٣١-120000-0123abcd",
        ".lock",
    ],
)
@pytest.mark.parametrize("call", [get, cancel, resume, progress, log_tail, study_of])
def test_malformed_id_is_refused(cache, supervisors, call, bad):
    submit(cache, make_study())
    with pytest.raises(JobError, match="is not a job id"):
        call(cache, bad)


def test_link_out_of_the_cache_is_no_job(cache, supervisors, tmp_path):
    job = submit(cache, make_study())
    outside = tmp_path / "outside"
    job.folder.rename(outside)
    job.folder.symlink_to(outside)
    assert jobs(cache) == []
    with pytest.raises(JobError, match="there is no job"):
        log_tail(cache, job.id)


def test_cancel_of_a_waiting_job_is_immediate(cache, supervisors):
    first, second, third = (submit(cache, make_study(seed)) for seed in range(3))
    assert cancel(cache, second.id).state == "cancelled"
    assert get(cache, third.id).position == 1
    put(first, state="done", ended=2.0)
    reconcile(cache)
    assert supervisors == [first.folder, third.folder]


def test_cancel_of_a_running_job_asks_and_returns(cache, supervisors):
    job = submit(cache, make_study())
    write_state(job.folder, here())
    before = time.time()
    assert cancel(cache, job.id, grace=60.0).state == "cancelling"
    state = read_state(job.folder)
    assert before <= state.cancel_requested <= time.time() and state.grace == 60.0
    assert (job.folder / files.CANCEL).exists()
    # a second click does not start the grace anew
    cancel(cache, job.id, grace=1.0)
    assert read_state(job.folder) == state


@pytest.mark.parametrize("state", ["cancelled", "failed", "done"])
def test_cancel_of_an_ended_job_changes_nothing(cache, supervisors, state):
    job = submit(cache, make_study())
    put(job, state=state, ended=2.0, run_id="key")
    assert cancel(cache, job.id).state == state
    assert not (job.folder / files.CANCEL).exists()


def test_stale_process_fails_and_frees_the_machine(cache, supervisors):
    first, second = (submit(cache, make_study(seed)) for seed in range(2))
    put(first, state="running", pid=2**22 - 1, process_started=5.0, started=1.0)
    reconcile(cache)
    failed = get(cache, first.id)
    assert failed.state == "failed"
    assert failed.error.startswith("the process ended without a result (killed or the machine restarted)")
    assert "finished stages are kept" in failed.error
    assert supervisors == [first.folder, second.folder]


def test_reused_process_number_is_not_taken_for_the_run(cache, supervisors):
    job = submit(cache, make_study())
    started = local.process_start(os.getpid())
    put(job, state="running", pid=os.getpid(), process_started=started - 1.0, started=1.0)
    reconcile(cache)
    assert get(cache, job.id).state == "failed"


def test_ended_run_keeps_its_place_until_its_process_has_left(cache, supervisors):
    first, second = (submit(cache, make_study(seed)) for seed in range(2))
    write_state(first.folder, here("done", ended=time.time()))
    reconcile(cache)
    assert get(cache, second.id).state == "queued"
    put(first, state="done", started=1.0, ended=2.0)
    reconcile(cache)
    assert get(cache, second.id).state == "running"


@pytest.mark.parametrize("value", ["0", "-1", "two", "", "1.5"])
def test_slots_must_be_a_count(cache, supervisors, monkeypatch, value):
    monkeypatch.setenv("GPRUNE_JOB_SLOTS", value)
    with pytest.raises(JobError, match="GPRUNE_JOB_SLOTS must be a whole number of at least 1"):
        submit(cache, make_study())
    assert jobs(cache) == []


def test_full_queue_refuses(cache, supervisors, monkeypatch):
    monkeypatch.setattr(queue, "MOST_OPEN", 2)
    submit(cache, make_study(0))
    submit(cache, make_study(1))
    assert submit(cache, make_study(1)).position == 1
    with pytest.raises(JobError, match="2 jobs wait or run already"):
        submit(cache, make_study(2))


def test_process_that_cannot_start_fails_the_job(cache, monkeypatch):
    def refuse(_):
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(local, "start_supervisor", refuse)
    job = submit(cache, make_study())
    assert job.state == "failed" and "Cannot allocate memory" in job.error


def test_queue_held_by_another_is_an_error_and_not_a_wait_without_end(cache, supervisors, monkeypatch):
    job = submit(cache, make_study())
    entered, leave = threading.Event(), threading.Event()

    def hold():
        with files.locked(files.root(cache)):
            entered.set()
            leave.wait(limit(20))

    thread = threading.Thread(target=hold)
    thread.start()
    assert entered.wait(limit(20))
    try:
        with pytest.raises(JobError, match=r"another process has held .*\.lock for 0.05 seconds"):
            with files.locked(files.root(cache), seconds=0.05):
                pytest.fail("the lock is taken")
        # looking needs no lock
        assert [other.id for other in jobs(cache)] == [job.id]
    finally:
        leave.set()
        thread.join()


def test_many_threads_start_one_job_and_share_a_double_click(cache, supervisors):
    results: list[str] = []

    def click(seed):
        results.append(submit(cache, make_study(seed)).id)

    threads = [threading.Thread(target=click, args=(seed,)) for seed in (0, 0, 0, 1, 1, 1, 2, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(results)) == 3 == len(jobs(cache))
    assert len(supervisors) == 1
    assert sorted(job.state for job in jobs(cache)) == ["queued", "queued", "running"]


def test_progress_reads_the_events_of_the_job(cache, supervisors):
    job = submit(cache, make_study())
    assert progress(cache, job.id).stage == "" and progress(cache, job.id).elapsed >= 0
    event = {"ts": time.time(), "stage": "score", "done": 1, "total": 2, "message": "flap"}
    files.append(job.folder / files.EVENTS, json.dumps(event).encode() + b"\n" + b'{"ts": 1')
    shown = progress(cache, job.id)
    assert (shown.stage, shown.fraction, shown.message, shown.eta) == ("score", 0.5, "flap", None)


def test_resume_of_a_damaged_study_is_an_error(cache, supervisors):
    job = submit(cache, make_study())
    (job.folder / files.STUDY).write_text('{"model": "demo", "epochs": 3}')
    with pytest.raises(JobError, match=f"{job.id} is not valid any more.*epochs"):
        resume(cache, job.id)


def test_stale_process_of_a_cancelled_job_is_cancelled(cache, supervisors):
    job = submit(cache, make_study())
    put(job, state="cancelling", pid=2**22 - 1, process_started=5.0, started=1.0, cancel_requested=2.0)
    reconcile(cache)
    assert (get(cache, job.id).state, get(cache, job.id).error) == ("cancelled", "")
