"""Processes that run one study at the same time, are held at a stage, and are stopped from outside."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from waiting import limit, wait_for

PROJECT = Path(__file__).resolve().parents[1]

# Says where it is, and stays at the stage that it is told of until the file `go` appears: as a slow stage
# does, it listens to signals meanwhile.
STARTER = """
import json, os, signal, sys, time
from pathlib import Path
from gprune import pipeline
from gprune.store import Store
from gprune.study import from_file

def interrupt(*_):
    raise KeyboardInterrupt

# a shell starts what runs in its background deaf to the second
signal.signal(signal.SIGTERM, interrupt)
signal.signal(signal.SIGINT, interrupt)
study, cache, folder, until, held = sys.argv[1:]
folder = Path(folder)

def listener(stage, done, total, message):
    what = "waiting" if message.startswith("waiting") else "computing"
    (folder / f"{what}.{stage}.{os.getpid()}").touch()
    while stage == held and (done, what) == (0, "computing") and not (folder / "go").exists():
        time.sleep(0.02)

result = pipeline.run(from_file(study), Store(Path(cache)), listener, until)
(folder / f"done.{os.getpid()}").write_text(json.dumps(result.get("perplexity")))
"""


class Starters:
    """Some starters of one study, and where they leave what they have to say."""

    def __init__(self, folder: Path, study: dict[str, Any], cache: Path) -> None:
        folder.mkdir()
        self.folder, self.cache, self.study = folder, cache, folder / "study.json"
        self.study.write_text(json.dumps(study))
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, until: str = "all", held: str = "") -> subprocess.Popen[bytes]:
        """Starts one more.

        Args:
            until: the last thing wanted.
            held: the stage at which it stays until `go`.
        """
        arguments = [str(self.study), str(self.cache), str(self.folder), until, held]
        log = (self.folder / "log.txt").open("ab")
        paths = filter(None, (os.environ.get("PYTHONPATH"), str(PROJECT)))
        environment, command = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, [sys.executable, "-c", STARTER]
        process = subprocess.Popen([*command, *arguments], stderr=log, cwd=PROJECT, env=environment)
        self.processes.append(process)
        return process

    def said(self, event: str, process: subprocess.Popen[bytes] | None = None) -> list[int]:
        """Processes that have said something: `computing.drift`, `waiting.drift`, `done`."""
        results = [int(path.name.rpartition(".")[2]) for path in self.folder.glob(f"{event}.*")]
        return [pid for pid in results if process is None or pid == process.pid]

    def wait_until(self, event: str, process: subprocess.Popen[bytes]) -> None:
        """Waits until a process has said something; fails with its log where it ended before."""

        def has_happened() -> bool:
            ended = process.poll() is not None and not self.said(event, process)
            assert not ended, (self.folder / "log.txt").read_text()
            return bool(self.said(event, process))

        wait_for(has_happened, 60)

    def go(self) -> None:
        """Lets all go on."""
        (self.folder / "go").touch()

    def stop(self, process: subprocess.Popen[bytes], how: signal.Signals) -> None:
        """Sends a signal and waits until the process is gone."""
        process.send_signal(how)
        process.wait(limit(30))


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
