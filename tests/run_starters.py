"""Processes that run one study at the same time, are held at a stage, and are stopped from outside."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from waiting import wait_for

PROJECT = Path(__file__).resolve().parents[1]

# Says where it is, and stays at the stage that it is told of. As a slow stage does, it listens to signals
# meanwhile, to which a shell makes deaf what it starts in its background.
STARTER = """
import os, signal, sys, time
from pathlib import Path
from gprune import pipeline
from gprune.store import Store
from gprune.study import from_file

signal.signal(signal.SIGINT, signal.default_int_handler)
study, cache, folder, held = sys.argv[1:]

def listener(stage, done, total, message):
    event = "waiting" if message.startswith("waiting") else "computing"
    Path(folder, f"{event}.{stage}.{os.getpid()}").touch()
    while (stage, event) == (held, "computing"):
        time.sleep(0.02)

pipeline.run(from_file(study), Store(Path(cache)), listener)
"""


class Starters:
    """Some starters of one study, and where they leave what they have to say."""

    def __init__(self, folder: Path, study: dict[str, Any], cache: Path) -> None:
        folder.mkdir()
        self.folder, self.cache = folder, cache
        (folder / "study.json").write_text(json.dumps(study))
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, held: str = "") -> subprocess.Popen[bytes]:
        """Start one more, which stays at a stage if one is named."""
        command = [sys.executable, "-c", STARTER, str(self.folder / "study.json"), str(self.cache), str(self.folder)]
        log = (self.folder / "log.txt").open("ab")
        paths = filter(None, (os.environ.get("PYTHONPATH"), str(PROJECT)))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        self.processes.append(subprocess.Popen([*command, held], stderr=log, cwd=PROJECT, env=environment))
        return self.processes[-1]

    def wait_until(self, event: str, process: subprocess.Popen[bytes]) -> None:
        """Wait until a process has said something, as `computing.drift`; fail with the log where it ended before."""

        def has_happened() -> bool:
            assert process.poll() is None, (self.folder / "log.txt").read_text()
            return bool(list(self.folder.glob(f"{event}.{process.pid}")))

        wait_for(has_happened, 60)


@contextmanager
def starters(folder: Path, study: dict[str, Any], cache: Path) -> Iterator[Starters]:
    """Some starters; whatever still runs is killed afterwards."""
    created = Starters(folder, study, cache)
    try:
        yield created
    finally:
        for process in created.processes:
            process.kill()
            process.wait()


def contents(cache: Path) -> dict[str, str]:
    """What every array of a cache holds, by its place: equal for caches of equal results."""
    return {
        str(path.relative_to(cache)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(cache.glob("*/*/*.npy"))
        if not path.parent.name.startswith(".")
    }
