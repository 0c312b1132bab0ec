"""Files come whole or not at all, whoever writes at the same time and whatever goes wrong."""

import errno
import json
import os
import threading
from pathlib import Path

import pytest

from gprune import files


def full_disk(*_args, **_kwargs):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_what_is_written_comes_back_and_nothing_else_is_left(tmp_path):
    files.write_bytes(tmp_path / "bytes", b"\x00\r\n")
    files.write_text(tmp_path / "text", "Zürich\r\n")
    files.write_json(tmp_path / "values.json", {"name": "Zürich", "sizes": [1, 2]})
    assert (tmp_path / "bytes").read_bytes() == b"\x00\r\n"
    assert (tmp_path / "text").read_bytes() == "Zürich\r\n".encode()
    written = (tmp_path / "values.json").read_text(encoding="utf-8")
    assert json.loads(written) == {"name": "Zürich", "sizes": [1, 2]} and "Zürich" in written
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bytes", "text", "values.json"]


def test_a_name_beside_is_hidden_new_and_of_the_same_ending(tmp_path):
    names = {files.beside(tmp_path / "a.b.npz") for _ in range(100)}
    assert len(names) == 100
    for path in names:
        assert path.parent == tmp_path and path.name.startswith(".a.b-") and path.suffix == ".npz"


@pytest.mark.parametrize("before", [None, "old"])
def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch, before):
    path = tmp_path / "file"
    if before is not None:
        path.write_text(before)
    monkeypatch.setattr(Path, "write_bytes", full_disk)
    with pytest.raises(OSError, match="No space left"):
        files.write_text(path, "new")
    assert [(place.name, place.read_text()) for place in tmp_path.iterdir()] == (
        [] if before is None else [("file", "old")]
    )


@pytest.mark.parametrize("error", [OSError("disk"), KeyboardInterrupt()], ids=["disk", "interrupted"])
def test_a_writer_that_fails_half_way_leaves_the_old_file(tmp_path, error):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(type(error)), files.replaced(path) as temporary:
        temporary.write_text("half")
        raise error
    assert [(place.name, place.read_text()) for place in tmp_path.iterdir()] == [("file", "old")]


def test_a_file_that_cannot_be_moved_into_place_is_told_and_removed(tmp_path):
    (tmp_path / "taken" / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match="taken"):
        files.write_text(tmp_path / "taken", "text")
    assert [place.name for place in tmp_path.iterdir()] == ["taken"]


def test_a_missing_folder_is_an_error_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError):
        files.write_text(tmp_path / "absent" / "file", "text")


def test_readers_meet_whole_files_while_many_write(tmp_path):
    path = tmp_path / "file"
    texts = [letter * 200_000 for letter in "abcd"]
    files.write_text(path, texts[0])
    done = threading.Event()

    def write(text: str) -> None:
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
    assert [place.name for place in tmp_path.iterdir()] == ["file"]
