"""What takes room in a cache: for which runs, what comes free with a run, and what no run needs."""

import os
import shutil
from pathlib import Path

import pytest
from synthetic_run import a_study, read, write_run

from gprune.pipeline import runs as run_records
from gprune.pipeline.cache import removal
from gprune.pipeline.cache.usage import needed_by, of_run, remove_unneeded, stored, unneeded
from gprune.store import Store


@pytest.fixture
def two(tmp_path):
    """Two runs that share all but what depends on the retention."""
    first, second = write_run(tmp_path), write_run(tmp_path, study=a_study(retention=0.7))
    return Store(tmp_path), first, second


def on_disk(place: Path) -> int:
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())


def of_name(store, run, name):
    return read(store.root, run)["stages"][name]["key"]


def test_a_result_is_needed_by_the_runs_that_name_it(two):
    store, first, second = two
    needed = needed_by(store)
    assert set(needed) == {(one.stage, one.key) for one in stored(store)}
    assert needed["drift", of_name(store, first, "drift")] == {first, second}
    assert needed["masks", of_name(store, first, "masks_flap")] == {first}
    assert unneeded(store) == []


def test_the_room_of_runs_adds_up_to_that_of_the_results(two):
    store, first, second = two
    usage = {run: of_run(store, run) for run in (first, second)}
    records = {run: on_disk(store.root / "runs" / run) for run in (first, second)}
    everything = sum(one.size for one in stored(store))
    shared = [found.total - found.own for found in usage.values()]
    assert shared[0] == shared[1] > 0
    assert sum(usage[run].own - records[run] for run in usage) + shared[0] == everything
    assert everything == sum(on_disk(store.root / kind) for kind in {one.stage for one in stored(store)})


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
    assert removal.remove(store, "a-folder") == removal.remove(store, "a-pipe") == 0
