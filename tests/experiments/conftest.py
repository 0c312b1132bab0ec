"""A cache in which jobs of studies run, two at a time."""

import os
from collections.abc import Iterator
from pathlib import Path

import leftovers
import pytest

from gprune.store import Store

TESTS = Path(__file__).resolve().parents[1]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Its folder; whatever still runs in it is killed afterwards."""
    monkeypatch.setenv("GPRUNE_JOB_SLOTS", "2")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (TESTS / "experiments", TESTS, TESTS.parent))))
    folder = tmp_path / "cache"
    folder.mkdir()
    yield folder
    leftovers.kill(folder)
