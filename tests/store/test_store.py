"""The store: whole results or none, read-only arrays, no way out of its folder, clear words for bad disks."""

import errno
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny_study
from unwritable import failing, unwritable

from gprune import pipeline
from gprune.__main__ import main
from gprune.jobs import submit
from gprune.pipeline import runs
from gprune.records import PruningMasks, Tokens
from gprune.store import Store, default_cache
from gprune.study import from_dict
from gprune.system.errors import DamagedError, StoreError
from gprune.system.files import temporary_path

KEY = "0123456789abcdef"


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "cache")


def tokens(samples=3):
    ids = np.arange(samples * 4, dtype=np.int32).reshape(samples, 4)
    return Tokens(text="a text", fingerprint="f", ids=ids, available=9)


def test_what_is_put_comes_back_equal_and_read_only(store):
    store.put("tokens", KEY, tokens(), {"seconds": 1.5})
    back = store.get("tokens", KEY, Tokens)
    np.testing.assert_array_equal(back.ids, tokens().ids)
    assert (back.text, back.available, back.ids.dtype) == ("a text", 9, np.int32)
    assert store.manifest("tokens", KEY)["seconds"] == 1.5
    with pytest.raises(ValueError, match="read-only"):
        back.ids[0, 0] = 1
    masks = PruningMasks("flap", np.eye(3, dtype=bool), np.ones((3, 1), dtype=bool), 0.5123, 0.5)
    store.put("masks", KEY, masks)
    back = store.get("masks", KEY, PruningMasks)
    assert back.ffn.dtype == bool and back.retention == 0.5123
    store.put("tokens", KEY, tokens())
    assert store.has("tokens", KEY, Tokens) and not store.has("tokens", KEY, PruningMasks)
    with pytest.raises(StoreError, match="it is not a PruningMasks"):
        store.get("tokens", KEY, PruningMasks)


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("ids.npy", lambda path: path.write_bytes(path.read_bytes()[:-4])),
        ("ids.npy", Path.unlink),
        ("meta.json", lambda path: path.write_text("{")),
        ("meta.json", lambda path: path.write_text("[]")),
        ("meta.json", lambda path: path.write_text(json.dumps(json.loads(path.read_text()) | {"seconds": 5.0}))),
    ],
)
def test_a_damaged_result_counts_as_absent_and_is_replaced(store, file, damage):
    store.put("tokens", KEY, tokens())
    damage(store.folder("tokens", KEY) / file)
    with pytest.raises(DamagedError, match=f"{KEY} is damaged .*: run the study again to recompute it"):
        store.get("tokens", KEY, Tokens)
    store.put("tokens", KEY, tokens(5))
    assert store.get("tokens", KEY, Tokens).ids.shape == (5, 4)


def test_large_arrays_are_read_as_maps_and_small_ones_into_memory(store):
    store.put("tokens", KEY, tokens(2**17))
    store.put("tokens", "f" * 16, tokens())
    large, small = store.get("tokens", KEY, Tokens).ids, store.get("tokens", "f" * 16, Tokens).ids
    assert isinstance(large, np.memmap) and not isinstance(small, np.memmap)
    np.testing.assert_array_equal(large, tokens(2**17).ids)


@pytest.mark.parametrize("values", [np.zeros((3, 4)), np.array([["a"]])])
def test_an_array_of_other_numbers_is_no_record(store, values):
    store.put("tokens", KEY, Tokens("a text", "f", values, 9))
    with pytest.raises(DamagedError, match=r"ids.npy is not an array of the expected type"):
        store.get("tokens", KEY, Tokens)


def test_a_writer_that_dies_leaves_nothing_under_the_final_name(store):
    def write(folder):
        (folder / "half.npy").write_bytes(b"x")
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        store.put_folder("checkpoint", KEY, write)
    assert not store.has("checkpoint", KEY)
    assert list((store.root / "checkpoint").iterdir()) == []


@pytest.mark.parametrize("name", ["../up", "a/b", "", ".hidden", "A", "x" * 200, "a\n"])
def test_names_cannot_leave_the_cache(store, name):
    with pytest.raises(StoreError, match="is not a name"):
        store.folder("tokens", name)
    with pytest.raises(StoreError, match="is not a name"):
        store.folder(name, KEY)


@pytest.mark.parametrize(
    ("number", "message"),
    [(errno.ENOSPC, "is full: free some space"), (errno.EROFS, "read-only"), (errno.EIO, "cannot be used")],
)
def test_disk_errors_become_one_sentence_and_keep_what_was_there(store, monkeypatch, number, message):
    store.put("tokens", KEY, tokens())

    monkeypatch.setattr(np, "save", failing(number))
    with pytest.raises(StoreError, match=message):
        store.put("tokens", "f" * 16, tokens())
    assert store.has("tokens", KEY) and not store.has("tokens", "f" * 16)


HOLDER = """
import sys, time
from pathlib import Path
from gprune.store import Store

with Store(Path(sys.argv[1])).lock("tokens", sys.argv[2]):
    print("holds", flush=True)
    time.sleep(600)
"""


@pytest.mark.process
def test_a_lock_is_waited_for_and_freed_when_its_holder_is_killed(store, project):
    command = [sys.executable, "-c", HOLDER, str(store.root), KEY]
    holder = subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "holds\n"
    waited = []

    def on_wait():
        waited.append(True)
        holder.kill()

    with store.lock("tokens", KEY, on_wait):
        pass
    holder.wait()
    assert waited


def test_runs_are_listed_latest_first_and_unreadable_ones_left_out(store):
    for index, name in enumerate(("one", "two")):
        runs.save(store, name, {"study": {}, "stages": {}, "n": index})
        os.utime(store.folder("runs", name) / "run.json", (index, index))
    runs.save(store, "broken", {"study": {}, "stages": {}})
    (store.folder("runs", "broken") / "run.json").write_text("{")
    assert list(dict(runs.read_all(store))) == ["two", "one"]
    assert runs.read(store, "broken") is None and runs.read(store, "absent") is None


def test_sweep_removes_half_written_files_wherever_they_lie_and_nothing_else(store):
    (folder := store.root / "runs" / "a-run").mkdir(parents=True)
    (job := store.root / "jobs" / "20260101-000000-01234567").mkdir(parents=True)
    half = [
        temporary_path(folder / "run.json"),
        temporary_path(job / "state.json"),
        temporary_path(store.root / "texts.json"),
    ]
    retained = [folder / "run.json", job / ".lock", store.root / "jobs" / ".lock", folder / ".hidden.json"]
    for path in (*half, *retained):
        path.write_text("{}")
        os.utime(path, (0, 0))
    young = temporary_path(folder / "run.json")
    young.write_text("{}")
    store.sweep()
    # right in the cache nothing is written under a temporary name
    assert [path.exists() for path in half] == [False, False, True]
    assert all(path.exists() for path in (*retained, young))


def test_sweep_leaves_what_others_keep_in_a_folder_that_was_named_as_the_cache(store, tmp_path):
    hidden = [store.root / "my-project" / ".git", store.root / "tokens" / ".ssh", store.root / "a" / "b" / ".c"]
    (outside := tmp_path / "outside").mkdir()
    linked = [temporary_path(outside / "file"), temporary_path(outside / "deeper" / "file")]
    for folder in (*hidden, *linked):
        folder.mkdir(parents=True)
        (folder / "config").write_text("mine")
        os.utime(folder, (0, 0))
    (store.root / "texts").symlink_to(outside)
    store.sweep()
    assert all((folder / "config").read_text() == "mine" for folder in (*hidden, *linked))


def test_a_disk_that_does_not_answer_is_no_damage(store, monkeypatch):
    store.put("tokens", KEY, tokens())

    monkeypatch.setattr(Path, "stat", failing(errno.EIO))
    with pytest.raises(StoreError, match="cannot be read .*Input/output error.*: check the disk") as message:
        store.get("tokens", KEY, Tokens)
    assert not isinstance(message.value, DamagedError)
    with pytest.raises(StoreError, match="cannot be read"):
        store.set_aside("tokens", KEY, Tokens)
    monkeypatch.undo()
    assert store.folder("tokens", KEY).exists()


def test_cache_folder_follows_the_environment(monkeypatch, tmp_path, project):
    monkeypatch.setenv("GPRUNE_CACHE", str(tmp_path))
    assert default_cache() == tmp_path
    monkeypatch.delenv("GPRUNE_CACHE")
    assert default_cache() == project / "cache"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run made under the usual mask: its study and its cache."""
    folder, mask = tmp_path_factory.mktemp("closed"), os.umask(0o022)
    study = from_dict(tiny_study.made(folder))
    (folder / "study.json").write_text(study.to_json(), encoding="utf-8")
    pipeline.run(study, Store(folder / "cache"), lambda *_: None)
    yield study, folder / "cache"
    os.umask(mask)


@pytest.mark.slow
def test_a_cache_is_readable_by_its_owner_only(finished, monkeypatch):
    study, root = finished
    monkeypatch.setattr("gprune.jobs.queue.start_worker", lambda *_: None)
    submit(root, study)
    assert len([path for path in root.rglob("*") if path.is_file()]) > 100
    folders = [path for path in root.iterdir() if path.is_dir()]
    assert [path for path in folders if stat.S_IMODE(path.stat().st_mode) & 0o077] == []


@pytest.mark.slow
def test_a_finished_run_is_done_again_from_a_cache_that_cannot_be_written(finished, capsys):
    study, root = finished
    before = sorted(str(path) for path in root.rglob("*"))
    with unwritable(root) as tried:
        messages = []
        result = pipeline.run(study, Store(root), lambda stage, *rest: messages.append(rest[-1]))
        run = ["run", str(root.parent / "study.json")]
        commands = (["runs"], ["cache", "list"], ["cache", "verify"], [*run, "--json"], [*run, "--dry-run"])
        codes = [main([*command, "--cache", str(root)]) for command in commands]
    assert set(messages) == {"reused"} and result["perplexity"] and codes == [0] * 5
    # each of the two runs has tried to become the owner of the record, and nothing else
    assert {Path(item.split()[1]).relative_to(root).parts[0] for item in tried} == {"locks"}
    assert [item for item in tried if item.endswith(".lock") and not item.endswith(".run.lock")] == []
    assert sorted(str(path) for path in root.rglob("*")) == before
