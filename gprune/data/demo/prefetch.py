"""Answers: can the demo's texts be built while this process does something else?

A run first imports torch and transformers, which keeps one core busy for seconds; building the texts needs
neither. So another process builds them meanwhile into the cache that this one reads. It is a saving and
nothing else: whatever it does not leave there is built where it is needed.
"""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from gprune.data.demo import texts
from gprune.system import installation

_TICK_SECONDS = 0.01

_started: dict[Path, subprocess.Popen[bytes]] = {}


def start(names: Iterable[str], cache: Path) -> None:
    """Starts a process that builds the ``texts.NAMES`` which a cache lacks, in order, and returns at once."""
    # a text that cannot be built says so where it is needed
    with contextlib.suppress(OSError, ModuleNotFoundError):
        missing = [name for name in dict.fromkeys(names) if not texts.path(name, cache).exists()]
        if missing and cache not in _started:
            _started[cache] = subprocess.Popen(
                installation.command(__name__, str(cache.absolute()), *missing),
                cwd=installation.CHILD_FOLDER,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )


def wait(name: str, cache: Path) -> None:
    """Waits until a text is in the cache or no process that was started for the cache still builds."""
    process = _started.get(cache)
    while process is not None and process.poll() is None and not texts.path(name, cache).exists():
        time.sleep(_TICK_SECONDS)


def main(arguments: list[str]) -> None:
    """Builds texts: the cache's folder, then their names."""
    for name in arguments[1:]:
        texts.documents(name, texts.SPLITS[0], Path(arguments[0]))


if __name__ == "__main__":
    main(sys.argv[1:])
