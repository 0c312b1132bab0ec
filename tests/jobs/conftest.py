"""Fake runs: small scripts that report as a real run does, misbehave, or die."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import leftovers
import pytest

from gprune.jobs import Job, get, queue, reconcile
from gprune.jobs import folder as files
from gprune.study import Study

# A run is told by its first argument how to behave; `hold` and `quiet` go on until the file `go` appears.
WORKER = """
import os, signal, subprocess, sys, time
from pathlib import Path
from gprune.jobs import JobReporter

folder, behaviour = Path(sys.argv[1]), sys.argv[2]
print("worker", behaviour, flush=True)
with JobReporter(folder) as report:
    if behaviour == "finish":
        for step in range(3):
            report("calibrate", step + 1, 3, f"batch {step + 1}")
        report("score", 1, 1, "flap")
    elif behaviour == "hold":
        while not (folder / "go").exists():
            report("calibrate", 1, 3, "holding")
            time.sleep(0.02)
    elif behaviour in ("quiet", "stubborn"):
        if behaviour == "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1200)"])
            (folder / "child").write_text(str(child.pid))
        report("calibrate", 1, 3, behaviour)
        while not (folder / "go").exists():
            time.sleep(0.02)
"""


def fake_command(folder: Path, arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-c", WORKER, str(folder), *arguments]


def make_study(number: int = 0, name: str = "") -> Study:
    return Study(model="demo", primary="first.txt", auxiliary="second.txt", seed=number, name=name)


def state_of(cache: Path, job: Job) -> str:
    """The state of a job once it was compared with its process."""
    reconcile(cache)
    return get(cache, job.id).state


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder; whatever still runs in it is killed afterwards."""
    monkeypatch.delenv("GPRUNE_JOB_SLOTS", raising=False)
    folder = tmp_path / "cache"
    yield folder
    leftovers.kill(folder)
    for job in files.all_folders(files.root(folder)):
        with contextlib.suppress(OSError, ValueError, ProcessLookupError):
            os.kill(int((job / "child").read_text()), signal.SIGKILL)


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Replaces the start of processes by a list of the folders of their jobs."""
    started: list[Path] = []
    monkeypatch.setattr(queue, "start_worker", lambda folder, cwd="": started.append(folder))
    return started
