"""What several machines do to one disk, operation by operation, and the locks that a disk may lack."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from shared_file_system import Disk
from waiting import SLEEPER, wait_for

from gprune.jobs import folder as job_files
from gprune.records import Tokens
from gprune.store import Store, array_files
from gprune.system import files, locks, network_files
from gprune.system.locks import Lock

KEY = "0" * 32
HOLDER = """
import sys
from pathlib import Path
from gprune.system.locks import Lock

lock = Lock(Path(sys.argv[1]))
lock._lock = lock._lease()
print(lock.acquire(0), flush=True)
"""


def tokens(seed=0):
    ids = np.random.default_rng(seed).integers(0, 100, (4, 8), dtype=np.int32)
    return Tokens(text="a text", fingerprint="f", ids=ids, available=9)


@pytest.fixture(autouse=True)
def no_disk_is_known(monkeypatch):
    monkeypatch.setattr(locks, "_without", set())


def test_a_file_that_is_replaced_under_its_reader_is_read_again(tmp_path):
    files.write_json(tmp_path / "a.json", {"state": "done"})
    with Disk(tmp_path, "stale").used() as disk:
        assert job_files.read_json(tmp_path / "a.json") == {"state": "done"}
        assert disk.told["stale"] == 2


def test_a_file_that_stays_stale_is_an_error_after_a_while(monkeypatch):
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)

    def gone():
        raise OSError(errno.ESTALE, "stale")

    with pytest.raises(OSError, match="stale"):
        network_files.again(gone)
    assert len(waits) == network_files.TRIES - 1 and sum(waits) < 1.0
    with pytest.raises(FileNotFoundError):
        network_files.again(lambda: os.stat("/not/there"))
    assert len(waits) == network_files.TRIES - 1


def test_what_was_not_there_is_believed_only_after_a_second_look(tmp_path):
    path = tmp_path / "a" / "b"
    with Disk(tmp_path, "unseen").used() as disk:
        assert not path.exists()
        with disk.elsewhere():
            files.make_folder(path)
        assert not path.exists(), "as NFS has it"
        assert network_files.there(path) and path.exists()
        assert not network_files.there(tmp_path / "c" / "d")


def test_a_rename_whose_reply_was_lost_is_done_and_one_that_failed_is_not(tmp_path):
    with Disk(tmp_path, "lost").used() as disk:
        for number in range(4):
            files.write_text(tmp_path / "file", str(number))
            files.make_folder(tmp_path / str(number) / "inner")
        assert (tmp_path / "file").read_text() == "3" and disk.told["lost"] >= 4
        assert len(list(tmp_path.iterdir())) == 5
    files.write_text(tmp_path / "one" if files.make_folder(tmp_path / "taken") else tmp_path / "one", "1")
    files.write_text(tmp_path / "taken" / "file", "2")
    with pytest.raises(OSError):
        network_files.move(tmp_path / "one", tmp_path / "taken")
    with pytest.raises(FileNotFoundError):
        network_files.move(tmp_path / "nothing", tmp_path / "one")
    assert (tmp_path / "one").read_text() == "1"


def test_a_rename_that_another_writer_has_replaced_since_was_done(tmp_path):
    files.write_text(tmp_path / "file", "theirs")
    real = Path.replace

    def lost(source, target):
        real(source, target)
        (tmp_path / "next").write_text("theirs")
        real(tmp_path / "next", target)
        raise FileNotFoundError(errno.ENOENT, "lost")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "replace", lost)
        files.write_text(tmp_path / "file", "ours")
        with pytest.raises(FileNotFoundError):
            network_files.move(tmp_path / "file", tmp_path / "other")
    assert (tmp_path / "other").read_text() == "theirs"


def test_a_new_file_is_ours_or_refused(tmp_path):
    with Disk(tmp_path, "lost").used() as disk:
        for number in range(4):
            array_files.write(tmp_path / f"{number}.npy", np.arange(3))
        assert disk.told["lost"] == 2
    with pytest.raises(FileExistsError):
        array_files.write(tmp_path / "0.npy", np.arange(4))
    assert np.load(tmp_path / "3.npy").tolist() == [0, 1, 2]


def test_what_cannot_be_removed_gets_a_name_that_is_swept(tmp_path):
    store = Store(tmp_path)
    store.put("tokens", KEY, tokens())
    files.make_folder(tmp_path / "damaged" / "tokens-1")
    files.write_text(tmp_path / "damaged" / "tokens-1" / "file", "x")
    with Disk(tmp_path, "open").used():
        store.discard("tokens", KEY)
        files.remove(tmp_path / "damaged" / "tokens-1")
    left = [*(tmp_path / "tokens").iterdir(), *(tmp_path / "damaged").iterdir()]
    assert len(left) == 2 and all(files.is_beside(path.name) for path in left)
    for path in left:
        os.utime(path, (1, 1))
    store.sweep()
    assert not [path for path in left if path.exists()]


def test_a_clock_that_is_wrong_removes_nothing_that_is_being_written(tmp_path, monkeypatch):
    young = tmp_path / "tokens" / files.beside(Path("x")).name
    files.make_folder(young)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3 * 24 * 3600)
    Store(tmp_path).sweep()
    assert young.exists() and list(young.parent.iterdir()) == [young]


def test_arrays_of_a_network_disk_are_not_mapped(tmp_path, monkeypatch):
    large = np.arange(array_files.LARGEST_IN_MEMORY, dtype=np.int32)
    digest = array_files.write(tmp_path / "a.npy", large)
    assert isinstance(array_files.read(tmp_path / "a.npy", digest), np.memmap)
    monkeypatch.setattr(network_files, "mount", lambda path: network_files.Mount("nfs4", ("rw",)))
    found = array_files.read(tmp_path / "a.npy", digest)
    assert type(found) is np.ndarray and np.array_equal(found, large)
    with pytest.raises(ValueError, match="does not hold what was written"):
        array_files.read(tmp_path / "a.npy", "0" * 64)


def test_the_mount_of_a_folder_is_the_innermost(monkeypatch, tmp_path):
    class Part:
        def __init__(self, mountpoint, fstype, opts):
            self.mountpoint, self.fstype, self.opts = mountpoint, fstype, opts

    parts = [
        Part("/", "ext4", "rw"),
        Part(str(tmp_path), "nfs", "rw,nolock"),
        Part(f"{tmp_path}x", "xfs", ""),
    ]
    monkeypatch.setattr(network_files.psutil, "disk_partitions", lambda all: parts)
    network_files._mount.cache_clear()
    found = network_files.mount(tmp_path)
    network_files._mount.cache_clear()
    assert found.network and found.local_locks and found.kind == "nfs"


@pytest.mark.parametrize("fault", ["", "lockless"])
def test_a_lock_or_its_lease_excludes_a_second_one(tmp_path, fault):
    with Disk(tmp_path, *filter(None, [fault])).used():
        one, two = Lock(tmp_path / "x.lock"), Lock(tmp_path / "x.lock")
        assert one.acquire(0) and one.held and one.leased == bool(fault)
        assert not two.acquire(0.1) and not two.held
        one.release()
        assert two.acquire(0)
        two.release()
        # what a lock has left keeps no lease waiting
        assert (tmp_path / "x.lock").exists() and Lock(tmp_path / "x.lock").acquire(0)


def test_a_lease_that_another_has_taken_meanwhile_is_not_held_and_can_be_had_again(tmp_path):
    with Disk(tmp_path, "lockless").used():
        mine, theirs = Lock(tmp_path / "x", lease=0.3), Lock(tmp_path / "y", lease=0.3)
        assert mine.acquire(0) and theirs.acquire(0)
        # as though this process had been suspended until another one took the lease
        os.replace(tmp_path / "y.lease", tmp_path / "x.lease")
        wait_for(lambda: not mine.held)
        assert not mine.acquire(0) and (tmp_path / "x.lease").exists(), "what is theirs stays"
        (tmp_path / "x.lease").unlink()
        assert mine.acquire(0) and mine.held
        mine.release()


@pytest.mark.parametrize(
    ("signed", "rested", "taken"),
    [(b"", 20, False), (b"", 40, True), (b"host 1", 40, False), (b"host 1", 999, True)],
)
def test_a_lease_without_a_sign_of_its_holder_is_waited_for_less_long(tmp_path, signed, rested, taken):
    lease = tmp_path / "x.lease"
    lease.write_bytes(signed)
    then = time.time() - rested
    os.utime(lease, (then, then))
    with Disk(tmp_path, "lockless").used():
        lock = Lock(tmp_path / "x", lease=30.0)
        assert lock.acquire(0) == taken
        lock.release()


@pytest.mark.process
def test_a_lease_whose_holder_was_killed_is_taken(tmp_path):
    words = f"{HOLDER}{SLEEPER}"
    child = subprocess.Popen([sys.executable, "-c", words, str(tmp_path / "x")], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None and child.stdout.readline() == b"True\n"
        with Disk(tmp_path, "lockless").used():
            lock = Lock(tmp_path / "x")
            assert not lock.acquire(0.1) and lock.leased
            child.send_signal(signal.SIGKILL)
            child.wait()
            wait_for(lambda: lock.acquire(0.5))
    finally:
        child.kill()
        child.wait()


def test_a_lock_that_the_disk_does_not_free_ends_in_no_error_and_keeps_nobody_out(tmp_path, monkeypatch):
    def refuse(number, how):
        if how == fcntl.LOCK_UN:
            refused.append(os.readlink(f"/proc/self/fd/{number}"))
            if refused[-1] != os.devnull:
                raise OSError(errno.EIO, "no")
        real(number, how)

    real, refused = fcntl.flock, list[str]()
    descriptors = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(fcntl, "flock", refuse)
    for _ in range(2):
        lock = Lock(tmp_path / "x.lock")
        assert lock.acquire(0)
        lock.release()
        assert not lock.held
    assert [Path(name).name for name in refused] == ["x.lock", "null"] * 2
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_two_that_make_the_same_result_without_a_lock_leave_one_whole(tmp_path):
    barrier, told = threading.Barrier(4), []

    def make(number):
        store = Store(tmp_path)
        try:
            with store.lock("tokens", KEY):
                barrier.wait(30)
                store.put("tokens", KEY, tokens(), {"maker": number})
        except Exception as error:
            told.append(error)

    with Disk(tmp_path, "free", "lost").used():
        threads = [threading.Thread(target=make, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert told == []
    store = Store(tmp_path)
    store.check("tokens", KEY, Tokens)
    assert np.array_equal(store.get("tokens", KEY, Tokens).ids, tokens().ids)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["locks", "tokens"]
    assert [path.name for path in (tmp_path / "tokens").iterdir()] == [KEY]


def test_under_the_lock_another_machine_s_result_is_seen(tmp_path):
    with Disk(tmp_path, "unseen").used() as disk:
        store = Store(tmp_path)
        assert not store.has("tokens", KEY, Tokens)
        with disk.elsewhere():
            Store(tmp_path).put("tokens", KEY, tokens())
        assert not store.has("tokens", KEY, Tokens), "as NFS has it"
        with store.lock("tokens", KEY):
            assert store.has("tokens", KEY, Tokens)
