"""Are texts built beside the run, read from there, and built here where that fails?"""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from waiting import SLEEPER, limit

from gprune.data import texts as corpora
from gprune.data.demo import prefetch, texts
from gprune.data.texts.source import documents, resolve

pytestmark = pytest.mark.process

NAME = "python-reference"


@pytest.fixture(autouse=True)
def started(monkeypatch):
    """The processes of one test."""
    processes: dict[Path, subprocess.Popen] = {}
    monkeypatch.setattr(prefetch, "_started", processes)
    return processes


def refuse(name):
    raise AssertionError(f"built {name} in this process")


def read(cache):
    return list(documents(resolve(NAME, "calibration"), cache))


@pytest.mark.process
def test_text_is_built_by_the_other_process(tmp_path, text_cache, monkeypatch):
    monkeypatch.setattr(texts, "_build", refuse)
    corpora.build_ahead([f"{NAME}#split=test", "no text", NAME, "a#b=c", ""], tmp_path)
    assert read(tmp_path) == texts.documents(NAME, "train", text_cache)
    assert [file.name for file in tmp_path.iterdir()] == [texts.path(NAME, tmp_path).name]


@pytest.mark.process
def test_reading_waits_no_longer_than_for_its_own_text(tmp_path, started):
    started[tmp_path] = subprocess.Popen([sys.executable, "-c", SLEEPER])
    file = texts.path(NAME, tmp_path)
    file.touch()
    begun = time.perf_counter()
    try:
        prefetch.wait(NAME, tmp_path)
        assert time.perf_counter() - begun < limit(30)
        assert started[tmp_path].poll() is None
    finally:
        started[tmp_path].kill()
        started[tmp_path].wait()


def test_nothing_is_started_for_texts_that_are_there_or_not_embedded(tmp_path, text_cache, started):
    corpora.build_ahead(texts.NAMES, text_cache)
    corpora.build_ahead(["wikitext2", "hub:a/b", str(tmp_path)], tmp_path)
    assert started == {}


def test_run_builds_where_its_session_reads(tmp_path, monkeypatch, capsys):
    from gprune.__main__ import main

    asked = []
    monkeypatch.setattr(corpora, "build_ahead", lambda names, cache: asked.append((list(names), cache)))
    monkeypatch.setattr("gprune.pipeline.run", lambda *arguments: asked.append(arguments) or {})
    monkeypatch.setattr("gprune.cli.progress.summary", lambda result: None)
    assert main(["run", "demo", "--cache", str(tmp_path), "--set", "seed=3"]) == 0
    (names, cache), (study, store, *_) = asked
    assert names[:2] == [study.primary, study.auxiliary] and set(names) == set(texts.TRAINED)
    assert cache == store.texts
