"""Shared fixtures: where real texts and models may be found, and what is built once for all processes.

And what keeps the marker `process` true.
"""

import gc
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from waiting import LONGEST_TEST

os.environ.setdefault("OMP_NUM_THREADS", "1")
# UMAP's threads would otherwise become those of torch, which wait for each other by spinning
os.environ.setdefault("NUMBA_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # so a script starts what it does not wait for, and commands that tests interrupt would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

PROJECT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def project() -> Path:
    """The root of the checkout."""
    return PROJECT


@pytest.fixture(scope="session")
def shared() -> Path:
    """Real texts (data/) and trained models (models/): GPRUNE_SHARED, or a folder beside the checkout."""
    folder = Path(os.environ.get("GPRUNE_SHARED", PROJECT.parent / "shared"))
    if not (folder / "models").is_dir():
        pytest.skip(f"no real models and texts at {folder}: set GPRUNE_SHARED to such a folder")
    return folder


@pytest.fixture(scope="session", autouse=True)
def unflushed() -> Iterator[None]:
    """Leaves what tests write to the system's own time: a made run is flushed 300 times, for a second.

    No test takes the power away. Processes that a test starts flush as ever.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


BuiltOnce = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def built_once(tmp_path_factory: pytest.TempPathFactory) -> BuiltOnce:
    """Lets a function fill a folder the first time that any process of this run asks for that name.

    The folder belongs to all tests: they only read it, or copy it first.
    """
    location = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        # each worker has its own folder within that of the run
        location = location.parent

    def built(name: str, build: Callable[[Path], object]) -> Path:
        folder, full = location / "built" / name, location / "built" / f"{name}.whole"
        folder.parent.mkdir(exist_ok=True)
        with FileLock(location / "built" / f"{name}.lock"):
            if not full.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                build(folder)
                full.touch()
        return folder

    return built


# a trained model and its texts, the texts out of every installed package, a whole run
SLOW_FIXTURES = {"shared", "finished"}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Marks the tests that use a slow fixture, before `-m` looks; and ends any test that hangs.

    What `-m` has left is put in order: a worker that came to a test of minutes last would be waited for.
    """
    for item in items:
        if SLOW_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker("slow")
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LONGEST_TEST))
    yield
    items[:] = longest_first(items, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def longest_first(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """The tests with those that are marked `longest` dealt out to the beginnings of all workers' shares.

    `--dist worksteal` gives each worker an equal part of the list, from its beginning on, and a worker that
    has done all of its own takes over the end of another's.
    """
    longest = [item for item in items if item.get_closest_marker("longest")]
    rest = [item for item in items if item not in longest]
    ordered: list[pytest.Item] = []
    for worker in range(workers):
        share = longest[worker::workers]
        more = max(0, (len(items) - len(ordered)) // (workers - worker) - len(share))
        ordered += share + rest[:more]
        del rest[:more]
    return ordered + rest


def pytest_collection_finish() -> None:
    """Freezes what imports have left: code that runs out of memory collects, which takes a second over all of it."""
    gc.collect()
    gc.freeze()


_at_work: list[pytest.Item] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Remembers which test is at work, with its fixtures, and gives the next one the same `__main__`.

    Streamlit puts the script it runs in that place, and a process spawned later would run it again.
    """
    main = sys.modules["__main__"]
    _at_work.append(item)
    try:
        return (yield)
    finally:
        _at_work.pop()
        sys.modules["__main__"] = main


def _refuse_unmarked(event: str, arguments: tuple[Any, ...]) -> None:
    """Stops a test that starts a Python process and is not marked so: `make quick` would run it.

    Other programs may be started: every run asks Git for the commit.
    """
    if event != "subprocess.Popen" or arguments[0] != sys.executable or not _at_work:
        return
    if not any(mark.name in ("process", "browser") for mark in _at_work[-1].iter_markers()):
        raise RuntimeError(f"{_at_work[-1].nodeid} starts a process: mark it with pytest.mark.process")


sys.addaudithook(_refuse_unmarked)
