"""A run of a whole small study, made once through the API."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny_study

import gprune


def write_study(folder: Path) -> Path:
    """A study file in a folder of its own, called like the bundled one, so that examples find it there."""
    texts = tiny_study.write_texts(folder / "texts")
    model = tiny_study.write_model(folder / "model", texts)
    values = tiny_study.settings(model, texts, substitute=texts[2])
    path = folder / "demo"
    path.write_text(json.dumps(values), encoding="utf-8")
    return path


def _make(folder: Path) -> None:
    gprune.run(write_study(folder), cache=folder / "cache", progress=False)


@pytest.fixture(scope="session")
def finished(built_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """A folder with a study file `demo` and a cache in which it is done."""
    return built_once("api", _make)


@pytest.fixture
def at_home(finished: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a folder in which that study is the demo and its cache the default."""
    monkeypatch.chdir(finished)
    monkeypatch.setenv("GPRUNE_CACHE", str(finished / "cache"))
    return finished


@pytest.fixture
def run(at_home: Path) -> gprune.Run:
    """That run, opened."""
    return gprune.open(gprune.runs()["run"][0])
