"""What takes room in a cache: for which runs, what comes free with a run, and what no run needs."""

import os
import shutil

import pytest
from synthetic_run import a_study, read, write_run

from gprune import jobs
from gprune.jobs import folder as files
from gprune.jobs import job as records
from gprune.jobs import local, queue
from gprune.jobs.state import JobState, write_state
from gprune.pipeline import runs as run_records
from gprune.pipeline.cache import (
    cache_entries,
    needed_by,
    overview,
    reason_to_keep,
    remove_run,
    remove_unneeded,
    unneeded,
)
from gprune.store import Store
from gprune.system.errors import StoreError


@pytest.fixture
def two(tmp_path):
    """Two runs that share all but what depends on the retention."""
    first, second = write_run(tmp_path), write_run(tmp_path, study=a_study(retention=0.7))
    return Store(tmp_path), first, second


def on_disk(place):
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())


def of_name(store, run, name):
    return read(store.root, run)["stages"][name]["key"]


def test_a_result_is_needed_by_the_runs_that_name_it(two):
    store, first, second = two
    needed = needed_by(store)
    assert set(needed) == {(one.kind, one.key) for one in cache_entries(store)}
    assert needed["drift", of_name(store, first, "drift")] == {first, second}
    assert needed["masks", of_name(store, first, "masks_flap")] == {first}
    assert unneeded(store) == []


def test_the_room_of_runs_adds_up_to_that_of_the_results(two):
    store, first, second = two
    usage = {run: overview(store).runs[run] for run in (first, second)}
    records = {run: on_disk(store.root / "runs" / run) for run in (first, second)}
    everything = sum(one.size for one in cache_entries(store))
    shared = [found.total - found.own for found in usage.values()]
    assert shared[0] == shared[1] > 0
    assert sum(usage[run].own - records[run] for run in usage) + shared[0] == everything
    assert everything == sum(on_disk(store.root / kind) for kind in {one.kind for one in cache_entries(store)})


def test_a_record_that_cannot_be_read_keeps_its_results(two):
    store, first, _ = two
    path = store.root / "runs" / first / "run.json"
    path.write_text("[" + path.read_text()[:-1])
    assert unneeded(store) == []


def test_a_run_that_goes_on_keeps_what_it_will_come_to(two):
    store, first, _ = two
    masks = of_name(store, first, "masks_flap")
    values = read(store.root, first)
    later = ("masks", "perplexity", "learning", "checkpoint")
    stages = {name: one for name, one in values["stages"].items() if not name.startswith(later)}
    for state, there in (("running", True), ("done", False)):
        run_records.save(store, first, values | {"state": state, "stages": stages, "result": None})
        assert (first in needed_by(store)["masks", masks]) is there


def test_what_a_process_is_at_work_on_stays(two, monkeypatch):
    store, first, _ = two
    masks = of_name(store, first, "masks_flap")
    shutil.rmtree(store.root / "runs" / first)
    with store.lock("masks", masks):
        gone = remove_unneeded(store)
    assert gone and store.has("masks", masks)
    assert [one.key for one in remove_unneeded(store)] == [masks]


def test_a_run_that_begins_meanwhile_keeps_its_results(two):
    store, first, _ = two
    folder = store.root / "runs" / first
    folder.rename(store.root / "kept")
    free = unneeded(store)
    (store.root / "kept").rename(folder)
    assert free and remove_unneeded(store, free) == []


def test_what_is_no_record_is_waited_for_by_nobody_and_keeps_nothing(two):
    store, first, second = two
    (store.root / "runs" / "a-folder" / "run.json").mkdir(parents=True)
    (pipe := store.root / "runs" / "a-pipe").mkdir()
    os.mkfifo(pipe / "run.json")
    (long := store.root / "runs" / "long").mkdir()
    with open(long / "run.json", "wb") as file:
        # has room for itself on no machine
        file.truncate(2**42)
    assert {run for runs in needed_by(store).values() for run in runs} == {first, second}
    assert remove_run(store, "a-folder") == remove_run(store, "a-pipe") == 0


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch):
    monkeypatch.setattr(local, "start_worker", lambda *_: None)


def a_job(
    cache,
    state,
    number=1,
    *,
    arguments=(),
    seed=0,
):
    home = files.root(cache)
    home.mkdir(exist_ok=True)
    study = a_study(seed=seed)
    job = records.create(home, study, "mine", arguments, local.worker_command, number)
    pid = os.getpid()
    at_work = {"pid": pid, "process_started": local.process_start(pid), "started": 1.0}
    values = at_work if state == "running" else {}
    write_state(job.folder, JobState(state=state, **values))
    return job


def refused(cache, run):
    with pytest.raises(StoreError) as caught:
        remove_run(Store(cache), run)
    assert str(caught.value) == reason_to_keep(Store(cache), run)
    return str(caught.value)


@pytest.mark.parametrize(
    ("state", "does"),
    [
        ("queued", "waits to compute it"),
        ("running", "is at work on it"),
        ("interrupted", "was interrupted and can be resumed"),
    ],
)
def test_a_job_keeps_the_run_that_it_computes(tmp_path, state, does):
    run = write_run(tmp_path, stages="drift", state="interrupted")
    job = a_job(tmp_path, state)
    assert refused(tmp_path, run) == (
        f"the run {run!r} cannot be deleted, the job {job.id} (mine) {does}: cancel that job first (`gprune "
        f"jobs cancel {job.id}`, or on the page Runs & export)"
    )
    assert (tmp_path / "runs" / run).exists()


def test_a_run_is_free_once_its_interrupted_job_is_given_up(tmp_path):
    run = write_run(tmp_path, stages="drift", state="interrupted")
    job = a_job(tmp_path, "interrupted")
    assert "can be resumed" in refused(tmp_path, run)
    assert jobs.cancel(tmp_path, job.id).state == "cancelled"
    assert remove_run(Store(tmp_path), run) > 0


def test_what_went_on_or_came_to_its_end_otherwise_keeps_nothing(tmp_path):
    run = write_run(tmp_path)
    # of a run that is done nobody goes on with an interrupted job, nor where a later one has failed
    a_job(tmp_path, "interrupted", 1)
    assert reason_to_keep(Store(tmp_path), run) == ""
    unfinished = write_run(tmp_path, study=a_study(seed=1), stages="drift", state="failed")
    a_job(tmp_path, "interrupted", 2, seed=1)
    assert reason_to_keep(Store(tmp_path), unfinished)
    a_job(tmp_path, "failed", 3, seed=1)
    assert reason_to_keep(Store(tmp_path), unfinished) == ""


def test_asking_for_a_run_reads_no_study(tmp_path, monkeypatch):
    run = write_run(tmp_path, stages="drift", state="interrupted")
    job = a_job(tmp_path, "queued")
    # of 300 jobs their studies took more than a second each time
    monkeypatch.setattr(queue, "study_of", lambda *_: pytest.fail("a study was read"))
    assert job.id in reason_to_keep(Store(tmp_path), run)


def test_an_export_at_work_keeps_the_run_that_it_takes(tmp_path):
    run = write_run(tmp_path)
    a_job(tmp_path, "running", arguments=("export", run, "flap", "/out"))
    assert "is at work on it" in refused(tmp_path, run)
    other = write_run(tmp_path, study=a_study(seed=5))
    assert remove_run(Store(tmp_path), other) > 0
