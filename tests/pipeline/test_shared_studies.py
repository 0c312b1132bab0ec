"""Studies and jobs on a disk that several machines share, with each of its faults: the same bits."""

import pytest
import shared_file_system
import tiny_study
from run_starters import contents, starters
from shared_file_system import Disk
from waiting import limit

from gprune import pipeline
from gprune.pipeline import runs
from gprune.store import DAMAGED, Store
from gprune.study import from_dict, run_name
from gprune.system import locks, network_files

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def no_disk_is_known(monkeypatch):
    monkeypatch.setattr(locks, "_without", set())
    # this disk answers at once, however often it is asked
    monkeypatch.setattr(network_files, "PAUSE_SECONDS", 0.001)


@pytest.fixture(scope="module")
def values(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shared")
    made = tiny_study.made(folder)
    return made | {"methods": ["dense", "gprune"]}


@pytest.fixture(scope="module")
def undisturbed(values, tmp_path_factory):
    cache = tmp_path_factory.mktemp("undisturbed")
    pipeline.run(from_dict(values), Store(cache), lambda *_: None)
    return cache


class Told:
    """What a run has said."""

    def __init__(self):
        self.words: list[tuple[str, str]] = []

    def __call__(self, stage, done, total, message):
        self.words.append((stage, message))


@pytest.mark.parametrize(
    "faults",
    [
        ("stale", "lost", "open", "free"),
        pytest.param(("lockless", "unseen"), marks=pytest.mark.long),
    ],
    ids=" ".join,
)
def test_a_study_ends_with_the_same_bits_whatever_its_disk_does(values, undisturbed, tmp_path, faults):
    study, told = from_dict(values), Told()
    with Disk(tmp_path, *faults).used() as disk:
        store = Store(tmp_path / "cache")
        pipeline.run(study, store, told)
        assert all(disk.told[fault] for fault in set(faults) & {"stale", "lost", "lockless"}), disk.told
        again = Told()
        pipeline.run(study, store, again)
    assert {message for _, message in again.words} == {"reused"}
    assert contents(tmp_path / "cache") == contents(undisturbed)
    record = runs.read(Store(tmp_path / "cache"), run_name(study)) or {}
    assert (record["state"], record["error"]) == ("done", None)
    assert not (tmp_path / "cache" / DAMAGED).exists()


def test_what_another_machine_has_made_meanwhile_is_taken_and_not_made_again(values, undisturbed, tmp_path):
    """This machine believes of every result that it is missing: it has looked before the other one began."""
    study, told = from_dict(values), Told()
    with Disk(tmp_path, "unseen", "stale").used() as disk:
        store, done = Store(tmp_path / "cache"), []

        def listener(stage, *rest):
            # the first word of this run comes after it has looked for all of its stages
            if not done:
                done.append(stage)
                with disk.elsewhere():
                    pipeline.run(study, Store(tmp_path / "cache"), lambda *_: None)
            told(stage, *rest)

        pipeline.run(study, store, listener)
        assert disk.told["unseen"]
    computed = {
        stage for stage, message in told.words if message not in ("reused", "") and stage in _stages(store, study)
    }
    assert not computed, told.words
    assert contents(tmp_path / "cache") == contents(undisturbed)


def _stages(store, study):
    return set((runs.read(store, run_name(study)) or {})["stages"])


@pytest.mark.long
@pytest.mark.process
def test_two_processes_that_hold_one_lock_leave_what_one_leaves(values, undisturbed, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    for name, value in shared_file_system.environment(tmp_path / "site", cache, "free", "lost").items():
        monkeypatch.setenv(name, value)
    with starters(tmp_path / "starters", values, cache) as both:
        # both are held at the same stage, each with its lock
        first, second = both.start(held="partition"), both.start(held="partition")
        for process in (first, second):
            both.wait_until("computing.partition", process)
        both.go()
        assert [process.wait(limit(60)) for process in (first, second)] == [0, 0], (both.folder / "log.txt").read_text()
    assert contents(cache) == contents(undisturbed)
    record = runs.read(Store(cache), run_name(from_dict(values))) or {}
    assert (record["state"], record["error"]) == ("done", None)
    assert not (cache / DAMAGED).exists()
