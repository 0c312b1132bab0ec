"""A disk as several machines share it, with what goes wrong there: in this process, or in a test's children.

Below one folder the operations are the real ones, but for the faults that are chosen:

    stale    what is opened to be read is gone as often as `STALE` (ESTALE), and again once it was replaced
    unseen   what was once not there stays so until its folder is opened, or this machine makes it itself
    lost     of the renames, new folders and new files every second is done and told to have failed
    open     of the files of a folder that is removed one stays, as `.nfs…`
    free     every lock is granted, to whoever asks
    lockless there are no locks (ENOLCK)
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import fcntl
import io
import json
import os
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gprune.system import network_files

VARIABLE = "GPRUNE_TEST_DISK"
STALE = 2
FAULTS = ("stale", "unseen", "lost", "open", "free", "lockless")
_OS = ("open", "stat", "lstat", "rename", "replace", "mkdir", "unlink", "scandir", "listdir")


class Disk:
    """The faults of the disk that holds one folder."""

    def __init__(self, root: Path, *faults: str) -> None:
        assert set(faults) <= set(FAULTS), faults
        self.root, self.faults = str(root.resolve()) + os.sep, set(faults)
        self.told: Counter[str] = Counter()
        """how often each fault has come"""
        self._stale: Counter[str] = Counter()
        self._lost: Counter[str] = Counter()
        self._missing: set[str] = set()
        self._elsewhere = threading.local()
        self._guard = threading.RLock()
        self._real = {name: getattr(os, name) for name in _OS} | {"file": builtins.open, "flock": fcntl.flock}

    @contextlib.contextmanager
    def used(self) -> Iterator[Disk]:
        """This process uses the disk while the context lasts."""
        pause = network_files.PAUSE_SECONDS
        self.install()
        try:
            yield self
        finally:
            for name in _OS:
                setattr(os, name, self._real[name])
            builtins.open = io.open = self._real["file"]
            fcntl.flock = self._real["flock"]
            network_files.PAUSE_SECONDS = pause

    def install(self) -> None:
        """From now on this process uses the disk."""
        for name in _OS:
            setattr(os, name, getattr(self, f"_{'rename' if name == 'replace' else name}"))
        builtins.open = io.open = self._file
        fcntl.flock = self._flock
        network_files.PAUSE_SECONDS = 0.0

    @contextlib.contextmanager
    def elsewhere(self) -> Iterator[None]:
        """What this thread does meanwhile is done by another machine."""
        self._elsewhere.now = True
        try:
            yield
        finally:
            self._elsewhere.now = False

    def _place(self, path: Any, options: dict[str, Any]) -> str:
        """The absolute path of what lies on the disk; empty for what does not, and for another machine's."""
        if isinstance(path, int) or options.get("dir_fd") is not None or getattr(self._elsewhere, "now", 0):
            return ""
        place = os.path.abspath(os.fsdecode(path))
        return place if f"{place}{os.sep}".startswith(self.root) else ""

    def _look(self, place: str, real: Any) -> Any:
        """A look-up, of whose failure is remembered what was missing."""
        if not place or "unseen" not in self.faults:
            return real()
        with self._guard:
            above = [place, *map(str, Path(place).parents)]
            if not self._missing.isdisjoint(above):
                self.told["unseen"] += 1
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), place)
            try:
                return real()
            except FileNotFoundError:
                self._missing.add(self._first_missing(above))
                raise

    def _first_missing(self, above: list[str]) -> str:
        last = above[0]
        for place in above:
            try:
                self._real["lstat"](place)
                return last
            except OSError:
                last = place
        return last

    def _made(self, *places: str) -> None:
        with self._guard:
            for place in filter(None, places):
                self._missing.discard(place)
                self._stale.pop(place, None)

    def _reply(self, kind: str, error: type[OSError], number: int, place: str) -> None:
        if place and "lost" in self.faults:
            with self._guard:
                self._lost[kind] += 1
                lost = self._lost[kind] % 2 == 0
                self.told["lost"] += lost
            if lost:
                raise error(number, os.strerror(number), place)

    def _stat(self, path: Any, **options: Any) -> Any:
        return self._look(self._place(path, options), lambda: self._real["stat"](path, **options))

    def _lstat(self, path: Any, **options: Any) -> Any:
        return self._look(self._place(path, options), lambda: self._real["lstat"](path, **options))

    def _names(self, name: str, path: Any) -> Any:
        place = self._place(path, {}) + os.sep
        found = self._look(place.rstrip(os.sep), lambda: self._real[name](path))
        with self._guard:
            self._missing = {one for one in self._missing if os.path.dirname(one) + os.sep != place}
        return found

    def _scandir(self, path: Any = ".") -> Any:
        return self._names("scandir", path)

    def _listdir(self, path: Any = ".") -> Any:
        return self._names("listdir", path)

    def _open(self, path: Any, flags: int, mode: int = 0o777, **options: Any) -> int:
        place = self._place(path, options)
        if flags & os.O_CREAT:
            number = self._real["open"](path, flags, mode, **options)
            self._made(place)
            # a lease is signed at once, and what is made for it is known again by the client (NFS version 3)
            if flags & os.O_EXCL and not place.endswith(".lease"):
                try:
                    self._reply("open", FileExistsError, errno.EEXIST, place)
                except OSError:
                    os.close(number)
                    raise
            return int(number)
        return int(self._look(place, lambda: self._real["open"](path, flags, mode, **options)))

    def _file(self, path: Any, mode: str = "r", *rest: Any, **options: Any) -> Any:
        place = self._place(path, {})
        if set(mode) & set("wax"):
            found = self._real["file"](path, mode, *rest, **options)
            self._made(place)
            return found
        # what has a hidden name is being written here, and nobody replaces it
        mine = f"{os.sep}." in place[len(self.root) - 1 :]
        if place and not mine and "stale" in self.faults and os.path.lexists(place):
            with self._guard:
                self._stale[place] += 1
                gone = self._stale[place] <= STALE
                self.told["stale"] += gone
            if gone:
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), place)
        return self._look(place, lambda: self._real["file"](path, mode, *rest, **options))

    def _rename(self, source: Any, target: Any, **options: Any) -> None:
        self._real["rename"](source, target, **options)
        places = self._place(source, {}), self._place(target, {})
        self._made(*places)
        self._reply("rename", FileNotFoundError, errno.ENOENT, places[0])

    def _mkdir(self, path: Any, mode: int = 0o777, **options: Any) -> None:
        place = self._place(path, options)
        self._real["mkdir"](path, mode, **options)
        self._made(place)
        self._reply("mkdir", FileExistsError, errno.EEXIST, place)

    def _unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        # only of a folder that is removed as a whole: so does shutil.rmtree name its files
        if "open" in self.faults and dir_fd is not None:
            inside = os.readlink(f"/proc/self/fd/{dir_fd}") + os.sep
            if inside.startswith(self.root) and not str(path).startswith(".nfs"):
                self.told["open"] += 1
                hidden = f".nfs{self.told['open']:08x}"
                self._real["rename"](path, hidden, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
                return
        self._real["unlink"](path, dir_fd=dir_fd)

    def _flock(self, file: Any, how: int) -> None:
        if "lockless" in self.faults:
            self.told["lockless"] += 1
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
        if "free" not in self.faults:
            self._real["flock"](file, how)


def environment(folder: Path, root: Path, *faults: str) -> dict[str, str]:
    """Variables with which children of a test use a disk with faults.

    Args:
        folder: of the test, for what every Python reads when it starts.
        root: the folder on the disk.
        faults: what goes wrong there.
    """
    tests = Path(__file__).resolve().parent
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text("import shared_file_system\nshared_file_system.from_environment()\n")
    paths = os.pathsep.join(map(str, (folder, tests, tests.parent)))
    return {VARIABLE: json.dumps([str(root), *faults]), "PYTHONPATH": paths}


def from_environment() -> None:
    """In a child: uses the disk that the test has named."""
    if VARIABLE in os.environ:
        root, *faults = json.loads(os.environ[VARIABLE])
        Disk(Path(root), *faults).install()
