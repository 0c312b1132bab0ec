"""Files come whole or not at all, whoever writes at the same time and whatever goes wrong; locks have one holder."""

import errno
import fcntl
import json
import os
import stat
import threading
from pathlib import Path

import pytest
from unwritable import failing

from gprune.system import files
from gprune.system.errors import StoreError


def test_what_is_written_comes_back_and_nothing_else_is_left(tmp_path):
    files.write_bytes(tmp_path / "bytes", b"\x00\r\n")
    files.write_text(tmp_path / "text", "Zürich\r\n")
    files.write_json(tmp_path / "values.json", {"name": "Zürich", "sizes": [1, 2]})
    assert (tmp_path / "bytes").read_bytes() == b"\x00\r\n"
    assert (tmp_path / "text").read_bytes() == "Zürich\r\n".encode()
    saved = (tmp_path / "values.json").read_text(encoding="utf-8")
    assert json.loads(saved) == {"name": "Zürich", "sizes": [1, 2]} and "Zürich" in saved
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bytes", "text", "values.json"]


def test_a_name_beside_is_hidden_new_and_of_the_same_ending(tmp_path):
    names = {files.temporary_path(tmp_path / "a.b.npz") for _ in range(100)}
    assert len(names) == 100
    for path in names:
        assert path.parent == tmp_path and path.name.startswith(".a.b-") and path.suffix == ".npz"


@pytest.mark.parametrize("before", [None, "old"])
def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch, before):
    path = tmp_path / "file"
    if before is not None:
        path.write_text(before)
    monkeypatch.setattr(Path, "write_bytes", failing(errno.ENOSPC))
    with pytest.raises(OSError, match="No space left"):
        files.write_text(path, "new")
    assert [(location.name, location.read_text()) for location in tmp_path.iterdir()] == (
        [] if before is None else [("file", "old")]
    )


@pytest.mark.parametrize("error", [OSError("disk"), KeyboardInterrupt()], ids=["disk", "interrupted"])
def test_a_writer_that_fails_half_way_leaves_the_old_file(tmp_path, error):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(type(error)), files.replace_file(path) as temporary:
        temporary.write_text("half")
        raise error
    assert [(location.name, location.read_text()) for location in tmp_path.iterdir()] == [("file", "old")]


def test_readers_meet_whole_files_while_many_write(tmp_path):
    path = tmp_path / "file"
    texts = [letter * 200_000 for letter in "abcd"]
    files.write_text(path, texts[0])
    done = threading.Event()

    def write(text):
        while not done.is_set():
            files.write_text(path, text)

    writers = [threading.Thread(target=write, args=(text,)) for text in texts]
    for writer in writers:
        writer.start()
    try:
        assert all(path.read_text() in texts for _ in range(200))
    finally:
        done.set()
        for writer in writers:
            writer.join()
    assert [location.name for location in tmp_path.iterdir()] == ["file"]


def test_a_file_and_its_folder_have_reached_the_disk_before_and_after_the_move(tmp_path, monkeypatch):
    order = []
    move, flush = Path.replace, os.fsync

    def fsync(number):
        order.append(os.path.basename(os.readlink(f"/proc/self/fd/{number}")))
        flush(number)

    def replace(path, target):
        order.append("moved")
        return move(path, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    files.write_text(tmp_path / "file.txt", "text")
    assert [files.is_temporary_name(name) for name in order] == [True, False, False]
    assert order[1:] == ["moved", tmp_path.name]


def test_a_new_folder_is_its_owners_alone_and_one_that_is_there_stays(tmp_path):
    tmp_path.chmod(0o755)
    files.make_folder(tmp_path / "a" / "b")
    files.make_folder(tmp_path / "a" / "b")
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("", "a", "a/b")] == [0o755, 0o700, 0o700]
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError):
        files.make_folder(tmp_path / "file")
    with pytest.raises(NotADirectoryError):
        files.make_folder(tmp_path / "file" / "below")


def test_a_lock_excludes_a_second_holder_until_it_is_released(tmp_path):
    first, second = files.Lock(tmp_path / "a.lock"), files.Lock(tmp_path / "a.lock")
    assert not files.is_locked(tmp_path / "a.lock")
    assert first.acquire(0) and first.is_held and files.is_locked(tmp_path / "a.lock")
    assert not second.acquire(0.1) and not second.is_held
    first.release()
    assert second.acquire(0) and not first.is_held
    second.release()
    assert not files.is_locked(tmp_path / "a.lock")
    assert stat.S_IMODE((tmp_path / "a.lock").stat().st_mode) == 0o600


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_disk_without_locks_is_named_with_the_remedy(tmp_path, monkeypatch, number):
    monkeypatch.setattr(fcntl, "flock", failing(number))
    with pytest.raises(StoreError, match=r"has no file locks .*: mount it with flock, or set GPRUNE_CACHE") as error:
        files.Lock(tmp_path / "a.lock").acquire(0)
    assert str(tmp_path) in str(error.value)
    assert not list(tmp_path.glob("*.lease"))
