"""Caches with synthetic runs, shared by the tests of the pages."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import browser
import pytest
from synthetic_run import LARGE, a_study, the_run, write_run

from gprune.jobs import Job, queue
from gprune.jobs.folder import JobState, write_state
from gprune.pipeline.runs.opened import Run
from gprune.study import CalibrationSettings, EvaluationSettings, Study
from scripts.served_app import Server


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache that the app uses, never that of the checkout; it starts nothing by itself."""
    monkeypatch.setenv("GPRUNE_CACHE", str(tmp_path))
    monkeypatch.setenv("GPRUNE_AUTOSTART", "0")
    return tmp_path


@pytest.fixture
def name(cache: Path) -> str:
    """The name of a finished run in that cache."""
    return write_run(cache)


@pytest.fixture
def run(cache: Path, name: str) -> Run:
    """That run."""
    return the_run(cache)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Study, tuple[str, ...]]]:
    """What would have been put into the queue."""
    result: list[tuple[Study, tuple[str, ...]]] = []

    class Accepted:
        id, label, state, active = "20260101-000000-00000000", "a run", "running", False

    def submit(_: Path, study: Study, *, label: str = "", arguments: tuple[str, ...] = ()) -> Any:
        result.append((study, tuple(arguments)))
        return Accepted()

    monkeypatch.setattr(queue, "submit", submit)
    return result


@pytest.fixture
def running_job(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Study], Job]:
    """Submits a study as a job that seems to run in this process."""
    monkeypatch.setattr(queue, "start_worker", lambda *_: None)

    def submit(study: Study) -> Job:
        job = queue.submit(cache, study)
        write_state(job.folder, JobState("running", started=1.0).with_process(os.getpid()))
        return job

    return submit


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run of 4 layers with 60 neurons and grouped key/value heads."""
    root = tmp_path_factory.mktemp("small")
    write_run(root)
    return the_run(root)


@pytest.fixture(scope="session")
def large_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run of the shape of LLaMA2-7B: 32 layers with 11008 neurons, 46 modules a layer."""
    root = tmp_path_factory.mktemp("large")
    study = a_study(
        model="/models/llama-2-7b",
        primary="wikitext2",
        auxiliary="ptb",
        substitute="c4",
        evaluation=EvaluationSettings(texts=("wikitext2", "ptb")),
        # statistics are kept by shard, and at this size each is tens of megabytes
        calibration=CalibrationSettings(samples=32, length=16, shards=2),
    )
    write_run(root, LARGE, modules=46, study=study)
    return the_run(root)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser without a window."""
    with browser.chromium() as started:
        yield started


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """A server over two finished runs, at which tests only look, and its cache."""
    cache = tmp_path_factory.mktemp("served")
    evaluation = EvaluationSettings(texts=("python-reference", "c4"), windows=96)
    for seed, name in enumerate(("Synthetic", "Second")):
        write_run(cache, study=a_study(evaluation=evaluation, seed=seed, name=name))
    with browser.served(cache) as server:
        yield server, cache


@pytest.fixture
def visit(chromium: Any, shared_server: tuple[Server, Path]) -> Iterator[browser.Visit]:
    """People who look at that server; no page of theirs complains."""
    with browser.looking(chromium, *shared_server) as visit:
        yield visit
