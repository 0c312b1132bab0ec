"""What takes room in a cache: for which runs, what comes free with a run, and what no run needs."""

import os
import shutil

import pytest
from synthetic_run import a_study, read, write_run

from gprune.jobs import folder, queue
from gprune.jobs import folder as files
from gprune.jobs import folder as records
from gprune.jobs.folder import JobState, write_state
from gprune.pipeline import runs as run_records
from gprune.pipeline.cache import cache_entries, needed_by, overview, reason_to_keep, remove_run, remove_unneeded
from gprune.store import Store
from gprune.system.errors import StoreError


@pytest.fixture
def two(tmp_path):
    """Two runs that share all but what depends on the retention."""
    first, second = write_run(tmp_path), write_run(tmp_path, study=a_study(retention=0.7))
    return Store(tmp_path), first, second


def on_disk(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def of_name(store, run, name):
    return read(store.root, run)["stages"][name]["key"]


def test_a_result_is_needed_by_the_runs_that_name_it(two):
    store, first, second = two
    needed = needed_by(store)
    assert set(needed) == {(cache_entry.kind, cache_entry.key) for cache_entry in cache_entries(store)}
    assert needed["drift", of_name(store, first, "drift")] == {first, second}
    assert needed["masks", of_name(store, first, "masks_flap")] == {first}
    assert overview(store).unneeded == []


def test_the_room_of_runs_adds_up_to_that_of_the_results(two):
    store, first, second = two
    usage = {run: overview(store).runs[run] for run in (first, second)}
    records = {run: on_disk(store.root / "runs" / run) for run in (first, second)}
    all_values = sum(cache_entry.size for cache_entry in cache_entries(store))
    shared = [result.total - result.unshared for result in usage.values()]
    assert shared[0] == shared[1] > 0
    assert sum(usage[run].unshared - records[run] for run in usage) + shared[0] == all_values
    assert all_values == sum(on_disk(store.root / kind) for kind in {entry.kind for entry in cache_entries(store)})


def test_a_record_that_cannot_be_read_keeps_its_results(two):
    store, first, _ = two
    path = store.root / "runs" / first / "run.json"
    path.write_text("[" + path.read_text()[:-1])
    assert overview(store).unneeded == []


def test_a_run_that_goes_on_keeps_what_it_will_come_to(two):
    store, first, _ = two
    masks = of_name(store, first, "masks_flap")
    values = read(store.root, first)
    later = ("masks", "perplexity", "learning", "checkpoint")
    stages = {name: item for name, item in values["stages"].items() if not name.startswith(later)}
    for state, present in (("running", True), ("done", False)):
        run_records.save(store, first, values | {"state": state, "stages": stages, "result": None})
        assert (first in needed_by(store)["masks", masks]) is present


def test_what_only_a_deleted_run_needed_is_removed(two):
    store, first, _ = two
    masks = of_name(store, first, "masks_flap")
    shutil.rmtree(store.root / "runs" / first)
    assert masks in [entry.key for entry in remove_unneeded(store)] and not store.has("masks", masks)


def test_a_run_that_begins_meanwhile_keeps_its_results(two):
    store, first, _ = two
    folder = store.root / "runs" / first
    folder.rename(store.root / "kept")
    free = overview(store).unneeded
    (store.root / "kept").rename(folder)
    assert free and remove_unneeded(store, free) == []


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch):
    monkeypatch.setattr(queue, "start_worker", lambda *_: None)


def a_job(cache, state, arguments=()):
    home = files.root(cache)
    home.mkdir(exist_ok=True)
    job = records.create(home, a_study(seed=0), "mine", arguments, folder.worker_command)
    job_state = JobState(state=state, started=1.0)
    write_state(job.folder, job_state.with_process(os.getpid()) if state == "running" else job_state)
    return job


def refused(cache, run):
    with pytest.raises(StoreError) as caught:
        remove_run(Store(cache), run)
    assert str(caught.value) == reason_to_keep(Store(cache), run)
    return str(caught.value)


@pytest.mark.parametrize(("state", "does"), [("queued", "waits to compute it"), ("running", "is at work on it")])
def test_a_job_keeps_the_run_that_it_computes(tmp_path, state, does):
    run = write_run(tmp_path, stages="drift", state="interrupted")
    job = a_job(tmp_path, state)
    assert refused(tmp_path, run) == (
        f"the run {run!r} cannot be deleted, the job {job.id} (mine) {does}: cancel that job first (`gprune "
        f"jobs cancel {job.id}`, or on the page Runs & export)"
    )
    assert (tmp_path / "runs" / run).exists()


@pytest.mark.parametrize("state", ["interrupted", "failed", "cancelled", "done"])
def test_a_job_that_has_ended_keeps_nothing(tmp_path, state):
    run = write_run(tmp_path, stages="drift", state="interrupted")
    a_job(tmp_path, state)
    assert reason_to_keep(Store(tmp_path), run) == ""


def test_an_export_at_work_keeps_the_run_that_it_takes(tmp_path):
    run = write_run(tmp_path)
    a_job(tmp_path, "running", arguments=("export", run, "flap", "/out"))
    assert "is at work on it" in refused(tmp_path, run)
    other = write_run(tmp_path, study=a_study(seed=5))
    assert remove_run(Store(tmp_path), other) > 0
