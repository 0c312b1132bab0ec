"""What a run's record says after a stop, a failure, a full disk: without other processes."""

import errno
import os
import shutil
import signal
from datetime import UTC, datetime

import pytest
import tiny_study
from run_starters import contents, starters
from tiny_study import record_of, silent
from unwritable import failing
from waiting import limit

from gprune import pipeline
from gprune.jobs import processes
from gprune.pipeline import runs
from gprune.store import Store
from gprune.study import from_dict, run_name
from gprune.system import files
from gprune.system.errors import Cancelled, StoreError
from gprune.system.files import Lock
from gprune.system.progress import Waiting

pytestmark = pytest.mark.slow


def raising(error, stage, message=""):
    """Raises an error where a stage says something."""

    def listener(name, done, total, words):
        if (name, words) == (stage, message):
            raise error

    return listener


@pytest.fixture(scope="module")
def values(tmp_path_factory):
    return tiny_study.made(tmp_path_factory.mktemp("keeper"))


@pytest.fixture(scope="module")
def study(values):
    return from_dict(values)


@pytest.fixture(scope="module")
def finished_run(study, tmp_path_factory):
    cache = tmp_path_factory.mktemp("whole") / "cache"
    pipeline.run(study, Store(cache), silent, "masks")
    return cache


@pytest.fixture
def done(finished_run, tmp_path):
    """A cache in which the study is done as far as its masks."""
    return Store(shutil.copytree(finished_run, tmp_path / "cache"))


@pytest.mark.parametrize("error", [Cancelled("stop"), KeyboardInterrupt(), RuntimeError("broken")])
def test_whoever_finds_all_done_and_is_stopped_leaves_the_record_alone(study, done, error):
    before = record_of(done, study)
    for until in ("drift", "masks"):
        with pytest.raises(type(error)):
            pipeline.run(study, done, raising(error, "drift", "reused"), until)
    assert pipeline.run(study, done, silent, "drift")["reused"] and record_of(done, study) == before


def test_whoever_wants_more_and_is_stopped_says_so(study, done):
    with pytest.raises(Cancelled):
        pipeline.run(study, done, raising(Cancelled("stop"), "perplexity.flap.0"), "perplexity")
    result = record_of(done, study)
    assert (result["state"], result["until"], result["owner"]) == ("cancelled", "perplexity", None)
    assert "masks_flap" in result["stages"] and "perplexity.dense.0" in result["stages"]


def test_a_damaged_record_is_written_anew(study, done):
    path = done.folder("runs", run_name(study)) / "run.json"
    path.write_text('{"stages": [1], "study": {"model": 3}}')
    assert runs.read(done, run_name(study)) is None
    pipeline.run(study, done, silent, "masks")
    assert record_of(done, study)["state"] == "done" and len(record_of(done, study)["stages"]) > 10


def test_a_full_disk_leaves_the_last_whole_record_and_the_next_run_ends(study, tmp_path, monkeypatch):
    store, stage = Store(tmp_path), "drift"

    def listener(name, done, total, words):
        if name == stage:
            monkeypatch.setattr(runs, "write_json", failing(errno.ENOSPC))

    with pytest.raises(StoreError, match="is full: free some space"):
        pipeline.run(study, store, listener, "masks")
    result = record_of(store, study)
    assert result["state"] == "running" and result["owner"]["pid"] == os.getpid()
    assert stage not in result["stages"] and "tokens_primary" in result["stages"]
    monkeypatch.setattr(runs, "write_json", files.write_json)
    pipeline.run(study, store, silent, "masks")
    assert (record_of(store, study)["state"], record_of(store, study)["error"]) == ("done", None)


def test_a_cache_that_cannot_be_written_serves_a_run_that_is_done(study, done, monkeypatch):
    before = record_of(done, study)
    runs.save(done, run_name(study), before | {"state": "cancelled"})

    monkeypatch.setattr("gprune.pipeline.record.make_folder", failing(errno.EROFS))
    assert set(pipeline.run(study, done, silent, "masks")["reused"]) <= set(before["stages"])
    assert record_of(done, study)["state"] == "cancelled"


def test_a_run_is_at_work_while_its_process_lives_or_on_another_machine_holds_the_lock(study, done):
    record, root = record_of(done, study) | {"state": "running", "owner": processes.identify_process()}, done.root
    assert runs.current_state(root, record) == "running"
    dead = record["owner"] | {"started": record["owner"]["started"] - 1.0}
    for owner in (dead, dead | {"pid": 2**22 - 1}, None):
        assert runs.current_state(root, record | {"owner": owner}) == "interrupted"
    far = record | {"owner": dead | {"host": "elsewhere"}}
    assert runs.other_host(far) == "elsewhere" != processes.host()
    assert runs.current_state(root, far) == "interrupted"
    lock = Lock(runs.lock_path(root, run_name(study)))
    assert lock.acquire(0) and runs.current_state(root, far) == "running"
    lock.release()
    assert runs.current_state(root, far) == "interrupted"


def test_a_second_start_follows_the_owner_until_the_lock_is_free(study, done):
    words: list[str] = []

    def listener(stage, _done, _total, message):
        if isinstance(message, Waiting):
            words.append(message)
            raise Cancelled("follows")

    lock, name = Lock(runs.lock_path(done.root, run_name(study))), run_name(study)
    assert lock.acquire(0)
    running = record_of(done, study) | {"state": "running", "owner": processes.identify_process()}
    runs.save(done, name, running | {"updated": datetime.now(UTC).isoformat()})
    before = record_of(done, study)
    for until in ("drift", "masks"):
        with pytest.raises(Cancelled, match="follows"):
            pipeline.run(study, done, listener, until)
    assert record_of(done, study) == before and f"waiting for process {os.getpid()} on {processes.host()}" in words[0]
    lock.release()
    pipeline.run(study, done, listener, "masks")
    assert record_of(done, study)["state"] == "done" and len(words) == 2


@pytest.mark.process
@pytest.mark.long
def test_of_four_starters_one_computes_at_a_time_and_the_record_ends_done(values, study, tmp_path):
    with starters(tmp_path / "starters", values, tmp_path / "cache") as several:
        first = several.start(held="partition")
        several.wait_until("computing.partition", first)
        rest = [several.start() for _ in range(3)]
        for other in rest:
            several.wait_until("waiting.*", other)
        assert record_of(Store(several.cache), study)["owner"]["pid"] == first.pid
        rest[0].send_signal(signal.SIGINT)
        rest[0].wait(limit(30))
        result = record_of(Store(several.cache), study)
        assert (result["state"], result["owner"]["pid"]) == ("running", first.pid)
        # the owner dies: one of those that follow goes on
        first.kill()
        assert [other.wait(limit(60)) for other in rest[1:]] == [0, 0], (several.folder / "log.txt").read_text()
        result = record_of(Store(several.cache), study)
        assert (result["state"], result["error"], result["owner"]) == ("done", None, None)
        assert result["result"]["perplexity"] and set(result["expected"]) == set(result["stages"])
    pipeline.run(study, Store(tmp_path / "undisturbed"), silent)
    assert contents(several.cache) == contents(tmp_path / "undisturbed")
