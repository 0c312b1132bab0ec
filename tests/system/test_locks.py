"""Locks: one holder at a time, free again after a release, and a sentence where the disk has none."""

import errno
import fcntl
import stat

import pytest
from unwritable import failing

from gprune.system.errors import StoreError
from gprune.system.files import Lock, is_locked


def test_a_lock_excludes_a_second_holder_until_it_is_released(tmp_path):
    first, second = Lock(tmp_path / "a.lock"), Lock(tmp_path / "a.lock")
    assert not is_locked(tmp_path / "a.lock")
    assert first.acquire(0) and first.is_held and is_locked(tmp_path / "a.lock")
    assert not second.acquire(0.1) and not second.is_held
    first.release()
    assert second.acquire(0) and not first.is_held
    second.release()
    assert not is_locked(tmp_path / "a.lock")
    assert stat.S_IMODE((tmp_path / "a.lock").stat().st_mode) == 0o600


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_disk_without_locks_is_named_with_the_remedy(tmp_path, monkeypatch, number):
    monkeypatch.setattr(fcntl, "flock", failing(number))
    with pytest.raises(StoreError, match=r"has no file locks .*: mount it with flock, or set GPRUNE_CACHE") as error:
        Lock(tmp_path / "a.lock").acquire(0)
    assert str(tmp_path) in str(error.value)
    assert not list(tmp_path.glob("*.lease"))
