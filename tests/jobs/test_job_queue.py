"""Records and rules of jobs; no process is started."""

import errno
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from unwritable import failing

from gprune.jobs import cancel, get, jobs, queue, reconcile, resume, study_of, submit, worker
from gprune.jobs import folder as files
from gprune.jobs.folder import JobState, measures_speed, read_state, write_state
from gprune.system import machine
from gprune.system.errors import JobError

from .conftest import make_study, state_of

DEAD = {"pid": 2**22 - 1, "process_started": 5.0}


@pytest.fixture(autouse=True)
def unset(monkeypatch):
    for name in ("GPRUNE_JOB_DEVICES", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def job(cache, workers):
    """A job in the queue, without a process."""
    return submit(cache, make_study())


def put(job, state, **values):
    write_state(job.folder, JobState(state=state, **values))


def alive(state="running", **values):
    """A state whose process is this very one."""
    return JobState(state=state, started=1.0, **values).with_process(os.getpid())


def test_a_record_holds_what_was_submitted(cache, workers):
    job = submit(cache, make_study(3), label=" a\nlabel ", arguments=["--anyway"])
    assert (job.label, job.arguments, job.state, job.position) == ("a label", ("--anyway",), "queued", 1)
    assert job.command[-5:] == ("--job", str(job.folder), "--cache", str(cache), "--anyway")
    assert study_of(cache, job.id) == make_study(3) and workers == [job.folder]
    assert files.ID_PATTERN.fullmatch(job.id) and job.folder == files.root(cache) / job.id
    assert get(cache, job.id) == job and job.elapsed is None and job.active
    second = submit(cache, make_study(4))
    assert [(other.id, other.position) for other in jobs(cache)] == [(second.id, 2), (job.id, 1)]


def test_a_double_click_returns_the_same_job(cache, workers):
    first = submit(cache, make_study())
    assert submit(cache, make_study()).id == first.id
    assert submit(cache, make_study(name="another name changes no result")).id == first.id
    assert submit(cache, make_study(), arguments=["--anyway"]).id != first.id
    assert len(jobs(cache)) == len(workers) == 2


@pytest.mark.parametrize("state", ["cancelling", "cancelled", "failed", "done"])
def test_a_study_that_runs_no_more_can_be_submitted_again(cache, job, state):
    write_state(job.folder, alive(state, ended=None if state == "cancelling" else time.time()))
    assert submit(cache, make_study()).id != job.id


def test_a_dead_job_is_failed_and_its_study_starts_anew(cache, job):
    (job.folder / files.LOG).write_text("loading\nKilled by somebody\n")
    put(job, "running", started=1.0, **DEAD)
    assert submit(cache, make_study()).id != job.id
    failed = get(cache, job.id)
    assert failed.state == "failed" and failed.killed and "finished stages are kept" in failed.error
    assert failed.error.startswith("the process ended without a result")
    assert "its log ends with: Killed by somebody" in failed.error


@pytest.mark.parametrize(
    ("state", "values", "after"),
    [
        ("cancelling", DEAD | {"cancel_requested": 2.0}, "cancelled"),
        ("running", {"pid": os.getpid(), "process_started": 1e9}, "failed"),
        ("queued", DEAD, "failed"),
        ("done", DEAD, "done"),
    ],
)
def test_a_job_whose_process_is_gone_ends(cache, job, state, values, after):
    put(job, state, **values)
    assert state_of(cache, job) == after


def test_a_job_that_never_got_a_process_is_lost_after_a_while(cache, job):
    assert state_of(cache, job) == "queued"
    os.utime(job.folder, (1.0, 1.0))
    assert state_of(cache, job) == "failed"


def test_a_job_of_another_host_lives_as_long_as_its_lock_is_held(cache, job):
    put(job, "running", host="elsewhere", started=1.0, **DEAD)
    stored = queue.try_lock(job.folder / files.ALIVE)
    assert stored is not None and queue.try_lock(job.folder / files.ALIVE) is None
    assert state_of(cache, job) == "running"
    os.close(stored)
    assert state_of(cache, job) == "failed"


def test_cancel_of_a_running_job_signals_and_returns(cache, job, monkeypatch):
    sent = []
    monkeypatch.setattr(queue, "signal_process", lambda pid, started, number: sent.append((pid, number.name)))
    write_state(job.folder, alive())
    assert cancel(cache, job.id).state == "cancelling" and sent == [(os.getpid(), "SIGTERM")]
    state = read_state(job.folder)
    reconcile(cache)
    assert read_state(job.folder) == state and len(sent) == 1
    # it has not stopped for too long
    write_state(job.folder, replace(state, cancel_requested=time.time() - queue.GRACE_SECONDS - 1))
    reconcile(cache)
    assert sent[1:] == [(os.getpid(), "SIGKILL")]


@pytest.mark.parametrize("state", ["cancelled", "interrupted", "failed", "done"])
def test_cancel_of_an_ended_job_changes_nothing(cache, job, state):
    put(job, state, ended=2.0)
    before = read_state(job.folder)
    assert cancel(cache, job.id).state == state and read_state(job.folder) == before


def test_resume_submits_the_same_study(cache, workers):
    first = submit(cache, make_study(5), label="kept", arguments=["--anyway"], cwd="/")
    put(first, "failed", error="out of memory", ended=2.0)
    again = resume(cache, first.id)
    assert again.id != first.id and again.created > first.created
    assert again.fingerprint == first.fingerprint
    assert (again.label, again.arguments, again.cwd) == ("kept", ("--anyway",), "/")
    assert resume(cache, first.id).id == again.id
    (again.folder / files.STUDY).write_text('{"model": "demo", "epochs": 3}')
    with pytest.raises(JobError, match=f"{again.id} is not valid any more.*epochs"):
        resume(cache, again.id)


@pytest.mark.parametrize(
    "name", ["", "..", "../study", "20260131-120000-0123abc", "20260131-120000-0123ABCD", "x" * 99]
)
def test_what_is_no_id_reaches_no_file(cache, name):
    with pytest.raises(JobError, match="is not a job id"):
        get(cache, name)


def test_a_process_that_cannot_start_fails_the_job(cache, monkeypatch):
    monkeypatch.setattr(queue, "start_worker", failing(errno.ENOMEM))
    job = submit(cache, make_study())
    assert job.state == "failed" and "Cannot allocate memory" in job.error


def test_a_full_disk_is_told_and_leaves_no_job(cache, job, monkeypatch):
    monkeypatch.setattr("gprune.jobs.folder.write_json", failing(errno.ENOSPC))
    with pytest.raises(JobError, match="is full"):
        submit(cache, make_study(1))
    assert len(jobs(cache)) == 1 and len(list(files.root(cache).glob(".new-*"))) == 0


def test_many_threads_share_a_double_click(cache, workers):
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda seed: submit(cache, make_study(seed)).id, (0, 0, 0, 1, 1, 1, 2, 2)))
    assert len(set(results)) == 3 == len(jobs(cache)) == len(workers)
    assert [job.position for job in jobs(cache)] == [3, 2, 1]


def test_at_work_are_jobs_that_wait_or_compute(cache, job):
    for state, counts in (
        (JobState("queued"), True),
        (alive(), True),
        (alive("cancelling"), True),
        (alive("done", ended=time.time()), False),
        (JobState("running", started=1.0, **DEAD), False),
        (JobState("queued", **DEAD), False),
    ):
        write_state(job.folder, state)
        assert bool(queue.at_work(cache)) == counts, state


@pytest.mark.parametrize("changes", [{"device": 3}, {"state": "odd"}])
def test_a_damaged_state_reads_as_failed(cache, job, changes):
    write_state(job.folder, JobState(**({"state": "running"} | changes)))
    assert get(cache, job.id).state == "failed" and "missing or damaged" in get(cache, job.id).error


@pytest.mark.parametrize(
    ("variable", "values", "rule"),
    [
        ("GPRUNE_JOB_SLOTS", ["0", "-1", "two", "", "1.5"], "must be a whole number of at least 1"),
        (
            "GPRUNE_JOB_DEVICES",
            ["cuda", "cpu", "cuda:0 cuda:0", "cuda:01", "0,1", "cuda:0,cuda:1"],
            "must name GPUs, each once, as 'cuda:0 cuda:1'",
        ),
        ("GPRUNE_JOB_DEVICES", ["cuda:1"], "names cuda:1, and this machine shows 1 GPUs"),
    ],
)
def test_invalid_slots_and_devices_are_refused(cache, workers, monkeypatch, variable, values, rule):
    monkeypatch.setattr(machine, "cards", lambda: ("a card",))
    for value in values:
        monkeypatch.setenv(variable, value)
        with pytest.raises(JobError, match=f"{variable} {rule}"):
            submit(cache, make_study())
    assert jobs(cache) == []


@pytest.mark.parametrize(
    ("device", "arguments", "expected"),
    [
        ("auto", (), (("cuda:0", "cuda:1"), 1)),
        ("cuda:1", (), (("cuda:1",), 1)),
        ("cpu", (), (("cpu",), 1)),
        ("auto", ("gguf", "in", "out"), (("cpu",), 1)),
        # all speeds of a machine are of its first GPU, unless the command says the CPU
        ("auto", ("speed", "a", "b"), (("cuda:0",), 1)),
        ("auto", ("speed", "a", "b", "--preset=cpu"), (("cpu",), 1)),
        ("auto", ("sweep", "lines.json"), ((), 0)),
    ],
)
def test_a_job_waits_for_a_device_that_it_can_use(cache, workers, monkeypatch, device, arguments, expected):
    monkeypatch.setattr(machine, "cards", lambda: ("a card", "a card"))
    monkeypatch.setenv("GPRUNE_JOB_DEVICES", "cuda:0 cuda:1")
    job = submit(cache, replace(make_study(), device=device), "", arguments)
    assert queue.device_candidates(job.asks, job.timed) == expected


def test_without_named_gpus_slots_decide_and_a_measurement_takes_all(monkeypatch):
    monkeypatch.setenv("GPRUNE_JOB_SLOTS", "2")
    assert queue.device_candidates("cuda:3", False) == (("slot0", "slot1"), 1)
    assert queue.device_candidates("auto", True) == (("slot0", "slot1"), 2)


def test_only_a_run_that_comes_to_its_measurement_is_timed(cache, workers):
    study = make_study().with_settings({"evaluation.speed": "cpu"})
    assert [measures_speed(study, until) for until in ("all", "perplexity", "masks")] == [True, True, False]
    assert not measures_speed(make_study())
    for arguments, expected in (((), True), (("--until", "masks"), False), (("gguf", "a", "b"), False)):
        assert submit(cache, study, "", arguments).timed == expected


def test_a_gpu_is_counted_among_those_that_are_seen(monkeypatch):
    assert queue.visible_device("cuda:1") == {"CUDA_VISIBLE_DEVICES": "1"}
    assert queue.visible_device("cpu") == queue.visible_device("slot0") == {}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5, 7")
    assert queue.visible_device("cuda:1") == {"CUDA_VISIBLE_DEVICES": "7"}
    with pytest.raises(JobError, match="no cuda:2 among CUDA_VISIBLE_DEVICES=5, 7"):
        queue.visible_device("cuda:2")


def test_two_caches_share_the_lock_of_a_gpu_and_not_that_of_the_cpu(tmp_path, monkeypatch):
    monkeypatch.setattr("gprune.jobs.worker.tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(machine, "cards", lambda: ())
    first, second = tmp_path / "first", tmp_path / "second"
    assert worker.lock_path(first, "cuda:1") == worker.lock_path(second, "cuda:1")
    assert worker.lock_path(first, "cuda:1") != worker.lock_path(first, "cuda:0")
    assert worker.lock_path(first, "cpu").parent == worker.lock_path(first, "slot0").parent == first
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert worker.lock_path(first, "cuda:0").name.endswith("-1")
    # a slot of a machine with GPUs computes on one of them
    monkeypatch.setattr(machine, "cards", lambda: ("H100",))
    assert worker.lock_path(first, "slot0") == worker.lock_path(second, "slot0")
    assert worker.lock_path(first, "cpu").parent == first
