"""Digests of large files: known while a file cannot have changed, also in another process."""

import hashlib
import json
import os
import time
from pathlib import Path

import pytest
from damage import fresh_process

from gprune.store import checksums

SIZE = 3 << 20


@pytest.fixture
def files_and_memory(tmp_path):
    """Three large files that have stood there for a while, and the folder that remembers."""
    files = [tmp_path / f"part-{index}" for index in range(3)]
    for index, file in enumerate(files):
        file.write_bytes(bytes([index]) * SIZE)
    (tmp_path / "cache").mkdir()
    time.sleep(0.06)
    return files, tmp_path / "cache" / checksums.DIGEST_FOLDER


@pytest.fixture
def read(monkeypatch):
    """Names of the files that are read; nothing is known to begin with."""
    names: list[str] = []
    original = hashlib.file_digest

    def noting_digest(file, *arguments):
        names.append(Path(file.name).name)
        return original(file, *arguments)

    monkeypatch.setattr(hashlib, "file_digest", noting_digest)
    fresh_process()
    return names


def plain(file, salt=b""):
    return hashlib.sha256(salt + file.read_bytes()).hexdigest()


def test_digests_are_those_of_the_contents_in_order(files_and_memory):
    files, memory = files_and_memory
    for salt in (b"", b"text"):
        assert checksums.of_files(files[::-1], memory, salt) == [plain(file, salt) for file in files[::-1]]
        fresh_process()
        assert checksums.of_files(files, memory, salt) == [plain(file, salt) for file in files]


def test_another_process_reads_nothing_that_is_remembered(files_and_memory, read):
    files, memory = files_and_memory
    first = checksums.of_files(files, memory)
    assert sorted(read) == ["part-0", "part-1", "part-2"]
    fresh_process()
    assert checksums.of_files(files, memory) == first
    assert len(read) == 3


def test_a_file_of_the_same_size_and_time_is_read_again(files_and_memory, read):
    files, memory = files_and_memory
    first = checksums.of_files(files, memory)
    status = files[1].stat()
    files[1].write_bytes(b"x" * SIZE)
    # whoever changes a file can set its time back, but not the time of that
    os.utime(files[1], ns=(status.st_atime_ns, status.st_mtime_ns))
    fresh_process()
    second = checksums.of_files(files, memory)
    assert second == [first[0], plain(files[1]), first[2]] and read[3:] == ["part-1"]


def test_a_file_so_young_that_it_could_change_unseen_is_not_remembered(tmp_path, read, monkeypatch):
    file, memory = tmp_path / "young", tmp_path / "digests"
    file.write_bytes(b"y" * SIZE)
    monkeypatch.setattr("gprune.store.checksums.time.time_ns", lambda: file.stat().st_ctime_ns)
    for _ in range(2):
        assert checksums.of_files([file], memory) == [plain(file)]
    assert read == ["young", "young"] and not memory.exists()


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"stamp": [1, 2, 3], "sha256": "00"}', '{"sha256": "' + "0" * 64 + '"}']
)
def test_a_damaged_memory_counts_as_none(files_and_memory, read, content):
    files, memory = files_and_memory
    checksums.of_files(files[:1], memory)
    (retained,) = memory.iterdir()
    retained.write_text(content)
    fresh_process()
    assert checksums.of_files(files[:1], memory) == [plain(files[0])] and len(read) == 2
    assert json.loads(retained.read_text())["sha256"] == plain(files[0])
