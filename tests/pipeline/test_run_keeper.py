"""What a run's record says after a stop, a failure, a full disk: without other processes."""

import os
import shutil
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import tiny_study
from run_starters import contents, starters
from tiny_study import silent
from waiting import limit, wait_for

from gprune import pipeline
from gprune.pipeline import record, run_owner, runs
from gprune.store import Store
from gprune.study import from_dict, run_name
from gprune.system import files, processes
from gprune.system.errors import Cancelled, StoreError
from gprune.system.progress import Waiting

Listener = Callable[[str, int, int, str], None]


def raising(error, stage, message=""):
    """Raises an error where a stage says something."""

    def listener(name, done, total, words):
        if (name, words) == (stage, message):
            raise error

    return listener


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keeper")
    return from_dict(tiny_study.made(folder))


@pytest.fixture(scope="module")
def whole(study, tmp_path_factory):
    cache = tmp_path_factory.mktemp("whole") / "cache"
    pipeline.run(study, Store(cache), silent, "masks")
    return cache


@pytest.fixture
def done(whole, tmp_path):
    """A cache in which the study is done as far as its masks."""
    shutil.copytree(whole, tmp_path / "cache")
    return Store(tmp_path / "cache")


def of(store, study):
    found = runs.read(store, run_name(study))
    assert found is not None
    return found


@pytest.mark.slow
@pytest.mark.parametrize("error", [Cancelled("stop"), KeyboardInterrupt(), RuntimeError("broken")])
def test_whoever_finds_all_done_and_is_stopped_leaves_the_record_alone(study, done, error):
    before = of(done, study)
    for until in ("drift", "masks"):
        with pytest.raises(type(error)):
            pipeline.run(study, done, raising(error, "drift", "reused"), until)
    assert pipeline.run(study, done, silent, "drift")["reused"] and of(done, study) == before


@pytest.mark.slow
def test_whoever_wants_more_and_is_stopped_says_so(study, done):
    with pytest.raises(Cancelled):
        pipeline.run(study, done, raising(Cancelled("stop"), "perplexity.flap.0"), "perplexity")
    found = of(done, study)
    assert (found["state"], found["until"], found["owner"]) == ("cancelled", "perplexity", None)
    assert "masks_flap" in found["stages"] and "perplexity.dense.0" in found["stages"]


@pytest.mark.slow
def test_a_method_that_is_tried_again_in_vain_leaves_a_done_run_done(study, done, monkeypatch):
    """What could not be had is tried at every start; a stop on the way takes nothing from what is there."""
    name, before = "masks_wanda_sp", of(done, study)
    entry = before["stages"].pop(name)
    reason = {"key": entry["key"], "reason": "it did not fit"}
    runs.save(done, run_name(study), before | {"unavailable": {name: reason}})
    done.discard("masks", entry["key"])
    with pytest.raises(Cancelled):
        pipeline.run(study, done, raising(Cancelled("stop"), name), "masks")
    found = of(done, study)
    assert (found["state"], found["error"], found["unavailable"]) == ("done", None, {name: reason})


@pytest.mark.slow
def test_a_damaged_record_is_written_anew(study, done):
    path = done.folder("runs", run_name(study)) / "run.json"
    path.write_text('{"stages": [1], "study": {"model": 3}}')
    assert runs.read(done, run_name(study)) is None
    pipeline.run(study, done, silent, "masks")
    assert of(done, study)["state"] == "done" and len(of(done, study)["stages"]) > 10


class FullDisk:
    """Let records be written until the disk is full."""

    def __init__(self, monkeypatch):
        self.full = False
        replaced = files.write_json

        def write(path, data):
            if self.full:
                raise OSError(28, "No space left on device")
            replaced(path, data)

        monkeypatch.setattr(runs.writing, "write_json", write)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["drift", "masks_wanda_sp"])
def test_a_full_disk_leaves_the_last_whole_record_and_the_next_run_ends(study, tmp_path, monkeypatch, stage):
    store, disk = Store(tmp_path), FullDisk(monkeypatch)

    def listener(name, done, total, words):
        disk.full = disk.full or name == stage

    with pytest.raises(StoreError, match="is full: free some space"):
        pipeline.run(study, store, listener, "masks")
    found = of(store, study)
    assert found["state"] == "running" and found["owner"]["pid"] == os.getpid()
    assert stage not in found["stages"] and "tokens_primary" in found["stages"]
    disk.full = False
    pipeline.run(study, store, silent, "masks")
    assert (of(store, study)["state"], of(store, study)["error"]) == ("done", None)


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_serves_a_run_that_is_done(study, done, monkeypatch):
    before = of(done, study)
    runs.save(done, run_name(study), before | {"state": "cancelled"})

    def refuse(*_):
        raise PermissionError(30, "Read-only file system")

    monkeypatch.setattr("gprune.pipeline.runs.writing.make_folder", refuse)
    assert set(pipeline.run(study, done, silent, "masks")["reused"]) <= set(before["stages"])
    assert of(done, study)["state"] == "cancelled"


@pytest.mark.slow
def test_a_clock_that_is_set_back_gives_no_negative_time(study, tmp_path, monkeypatch):
    class Clock(datetime):
        moment = datetime(2026, 11, 21, 11, tzinfo=UTC)

        @classmethod
        def now(cls, zone=None):
            # an hour less each time that anyone looks
            cls.moment -= timedelta(hours=1)
            return cls.moment

    monkeypatch.setattr(record, "datetime", Clock)
    pipeline.run(study, Store(tmp_path), silent, "drift")
    found = of(Store(tmp_path), study)
    assert found["updated"] < found["started"] and 0 <= found["seconds"] < 600
    assert all(stage["seconds"] >= 0 for stage in found["stages"].values())


@pytest.mark.slow
def test_an_owner_shows_that_it_lives_and_a_dead_one_is_told_at_once(study, done, monkeypatch):
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(run_owner, "BEAT_SECONDS", 0.0)
    monkeypatch.setattr(runs, "save", _counted(runs.save, seen))
    pipeline.run(study, done, silent, "perplexity")
    beats = [one for one in seen if one["state"] == "running"]
    assert len(beats) > 2 * len(set(beats[-1]["stages"]) - set(beats[0]["stages"]))
    running, now = beats[-1], datetime.now(UTC).isoformat()
    assert running["owner"]["pid"] == os.getpid() and runs.standing(running) == "running"
    dead = running["owner"] | {"started": running["owner"]["started"] - 1.0}
    for owner in (dead, running["owner"] | {"boot": "another"}, dead | {"pid": 2**22 - 1}):
        assert runs.standing(running | {"owner": owner, "updated": now}) == "interrupted"
    # of a process on another machine only its word can be taken
    far = running | {"owner": dead | {"host": "elsewhere"}}
    assert runs.elsewhere(far) == "elsewhere" != processes.host()
    assert runs.standing(far | {"updated": now}) == "running"
    for old in ("2026-01-01T00:00:00+00:00", "2999-01-01T00:00:00+00:00", "yesterday", None):
        assert runs.standing(far | {"updated": old}) == "interrupted"


@pytest.mark.slow
def test_a_second_start_follows_the_owner_until_the_lock_is_free(study, done):
    words: list[str] = []

    def listener(stage, _done, _total, message):
        if isinstance(message, Waiting):
            words.append(message)
            raise Cancelled("follows")

    owner, name = runs.Ownership(done, run_name(study)), run_name(study)
    assert owner.take()
    running = of(done, study) | {"state": "running", "owner": processes.this_one()}
    runs.save(done, name, running | {"updated": datetime.now(UTC).isoformat()})
    before = of(done, study)
    for until in ("drift", "masks"):
        with pytest.raises(Cancelled, match="follows"):
            pipeline.run(study, done, listener, until)
    assert of(done, study) == before and f"waiting for process {os.getpid()} on {processes.host()}" in words[0]
    owner.give_up()
    pipeline.run(study, done, listener, "masks")
    assert of(done, study)["state"] == "done" and len(words) == 2


def _counted(save, seen):
    def counted(store, run, values):
        seen.append(values)
        save(store, run, values)

    return counted


@pytest.fixture(scope="module")
def values(tmp_path_factory):
    folder = tmp_path_factory.mktemp("owner")
    return tiny_study.made(folder)


@pytest.fixture(scope="module")
def undisturbed(values, tmp_path_factory):
    cache = tmp_path_factory.mktemp("undisturbed")
    pipeline.run(from_dict(values), Store(cache), lambda *_: None)
    return contents(cache)


@pytest.fixture
def several(values, tmp_path):
    with starters(tmp_path / "starters", values, tmp_path / "cache") as made:
        yield made


def record_of(made, values):
    found = runs.read(Store(made.cache), run_name(from_dict(values)))
    assert found is not None
    return found


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.long
def test_of_four_starters_one_computes_at_a_time_and_the_record_ends_done(several, values, undisturbed):
    first = several.start(held="partition")
    several.wait_until("computing.partition", first)
    others = [several.start() for _ in range(3)]
    for other in others:
        wait_for(lambda pid=other.pid: list(several.folder.glob(f"waiting.*.{pid}")))
    assert record_of(several, values)["owner"]["pid"] == first.pid
    several.stop(others[0], signal.SIGINT)
    found = record_of(several, values)
    assert (found["state"], found["owner"]["pid"]) == ("running", first.pid)
    # the owner dies: one of those that follow goes on
    several.stop(first, signal.SIGKILL)
    assert [other.wait(limit(60)) for other in others[1:]] == [0, 0], (several.folder / "log.txt").read_text()
    found = record_of(several, values)
    assert (found["state"], found["error"], found["owner"]) == ("done", None, None)
    assert found["result"]["perplexity"] and set(found["expected"]) == set(found["stages"])
    assert contents(several.cache) == undisturbed


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_starter_that_is_stopped_on_its_way_is_told_as_such_and_gone_on_with(several, values, how):
    assert several.start("masks").wait(limit(60)) == 0
    before = record_of(several, values)
    assert before["state"] == "done" and before["until"] == "masks"
    # the second starts to compute what the first has no result of any more, and is stopped on its way
    again = several.start("masks", held="drift")
    assert again.wait(limit(60)) == 0 and record_of(several, values) == before
    Store(several.cache).discard("drift", before["stages"]["drift"]["key"])
    third = several.start("masks", held="drift")
    several.wait_until("computing.drift", third)
    assert record_of(several, values)["state"] == "running"
    several.stop(third, how)
    found = record_of(several, values)
    assert runs.standing(found) == ("interrupted" if how == signal.SIGKILL else "cancelled")
    several.go()
    assert several.start("masks").wait(limit(60)) == 0
    assert record_of(several, values)["state"] == "done"
