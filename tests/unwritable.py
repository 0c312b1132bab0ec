"""A folder that refuses every change, as a read-only disk does, also to the system's administrator.

What a process opens, makes, moves or removes is announced to audit hooks, and a hook can refuse it.
"""

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "os.chmod", "os.link", "os.symlink")
_refused: dict[str, list[str]] = {}
"""what was refused, by folder"""


def failing(number: int) -> Callable[..., None]:
    """Return a function that fails with an error of the operating system."""

    def fail(*_arguments: Any, **_options: Any) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@contextlib.contextmanager
def unwritable(folder: Path) -> Iterator[list[str]]:
    """Refuses every change below a folder; gives what was tried, each with its path."""
    location = str(folder.resolve())
    tried = _refused[location] = []
    try:
        yield tried
    finally:
        del _refused[location]


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if not _refused or (event != "open" and event not in _CHANGES):
        return
    if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & _WRITING):
        return
    for path in arguments[:2]:
        if not isinstance(path, str | bytes | os.PathLike):
            continue
        name = os.path.abspath(os.fsdecode(path))
        for location, tried in _refused.items():
            if name == location or name.startswith(location + os.sep):
                tried.append(f"{event} {name}")
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), name)


sys.addaudithook(_refuse)
