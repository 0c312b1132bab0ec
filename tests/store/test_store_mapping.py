"""What is mapped cannot be shortened under its reader, and is read where a disk has no room as well."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gprune.records import Tokens
from gprune.store import Store, array_files, checksums
from gprune.system.errors import DamagedError

KEY = "0123456789abcdef"
SHAPE = (512, 2048)
"""4 MiB, more than what is read into memory"""
READER = """
import sys
from pathlib import Path
from gprune.records import Tokens
from gprune.store import Store
found = Store(Path(sys.argv[1])).get("tokens", sys.argv[2], Tokens)
print("read", flush=True)
sys.stdin.readline()
print(int(found.ids.sum()), type(found.ids).__name__, flush=True)
"""


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "cache")
    ids = np.arange(np.prod(SHAPE), dtype=np.int32).reshape(SHAPE)
    made.put("tokens", KEY, Tokens(text="a text", fingerprint="f", ids=ids, available=9))
    return made


def file_of(store):
    return store.folder("tokens", KEY) / "ids.npy"


@pytest.mark.process
def test_a_file_that_is_cut_to_half_ends_nobody_who_reads_it(store):
    words = [sys.executable, "-c", READER, str(store.root), KEY]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout.readline() == "read\n"
        os.truncate(file_of(store), file_of(store).stat().st_size // 2)
        # the array is touched here for the first time
        told = reader.communicate("go\n")[0].split()
    count = int(np.prod(SHAPE))
    assert (reader.returncode, told) == (0, [str(count * (count - 1) // 2), "memmap"])
    with pytest.raises(DamagedError):
        store.get("tokens", KEY, Tokens)


@pytest.mark.parametrize("wrong", [errno.ENOSPC, errno.EOPNOTSUPP, errno.EACCES])
def test_a_disk_that_takes_no_copy_has_the_array_in_memory(store, monkeypatch, wrong):
    def refuse(*_):
        raise OSError(wrong, os.strerror(wrong))

    before = store.get("tokens", KEY, Tokens).ids
    if wrong == errno.ENOSPC:
        monkeypatch.setattr(array_files.shutil, "copyfileobj", refuse)
    else:
        real = os.open
        monkeypatch.setattr(
            array_files.os,
            "open",
            lambda path, flags, *more: refuse() if flags & os.O_TMPFILE == os.O_TMPFILE else real(path, flags, *more),
        )
    found = array_files.read(file_of(store), checksums.of_file(file_of(store)))
    assert type(found) is np.ndarray and isinstance(before, np.memmap)
    np.testing.assert_array_equal(found, before)


def test_a_file_that_changes_while_it_is_copied_is_told(store, monkeypatch):
    real = array_files.shutil.copyfileobj

    def cut(source, target, length):
        os.truncate(file_of(store), 2**20)
        real(source, target, length)

    monkeypatch.setattr(array_files.shutil, "copyfileobj", cut)
    with pytest.raises(DamagedError, match=r"ids.npy was changed while it was read"):
        store.get("tokens", KEY, Tokens)


def test_no_copy_has_a_name_or_outlives_its_array(store):
    names = sorted(store.root.rglob("*"))
    found = [store.get("tokens", KEY, Tokens).ids for _ in range(3)]
    assert sorted(store.root.rglob("*")) == names and unnamed() >= 3
    there = unnamed()
    del found
    assert unnamed() == there - 3


def unnamed():
    """Maps of this process whose files have no name any more."""
    return Path("/proc/self/maps").read_text().count("(deleted)")
