"""Registered tasks of lm-eval: their names, what each needs, and whether its data is here.

lm-eval is imported on the first question about it, and the index of all its tasks takes seconds more. It imports
neither torch nor transformers.
"""

import logging
import os
import random
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from gprune.evaluation.tasks.rows import STANDARD_TASKS
from gprune.system.errors import SettingsError
from gprune.system.nearest import closest
from gprune.system.progress import Progress


def task_manager(name: str) -> Any:
    """Return the ``TaskManager`` that knows a task; the paper's seven do not wait for the index of all tasks."""
    return _paper_manager() if name in STANDARD_TASKS else _full_manager()


def require_runnable(name: str, further: tuple[str, ...]) -> None:
    """Raise SettingsError if lm-eval has no such task, or it executes generated code.

    `further` are names that are not lm-eval's, for a suggestion.
    """
    index = task_manager(name).task_index
    if name not in index:
        near = closest(name, further) or closest(name, index)
        meant = (
            f": did you mean {near}?" if near else f"; lm-eval and this package have none; known: {', '.join(further)}."
        )
        raise SettingsError(f"there is no task {name!r}{meant} A file of your own questions ends in .jsonl")
    unsafe = [task for task, config in _single_tasks(name) if config.get("unsafe_code", False) is not False]
    if unsafe:
        which = "" if unsafe == [name] else f" ({', '.join(unsafe[:3])})"
        raise SettingsError(
            f"the task {name!r} executes code that the model writes{which}, which is not done here: "
            "run it with lm-eval's own command on an exported folder, in a sandbox"
        )


def uncached_datasets(name: str) -> list[str]:
    """Return the hub datasets of a registered task that the cache of the datasets library does not hold."""
    from datasets import config

    cached = {_letters(folder.name) for folder in Path(config.HF_DATASETS_CACHE).glob("*___*")}
    settings = [settings for _, settings in _single_tasks(name) if not settings.get("custom_dataset")]
    datasets = dict.fromkeys(str(task.get("dataset_path") or "") for task in settings)
    return [dataset for dataset in datasets if "/" in dataset and _letters(dataset) not in cached]


def definition(name: str) -> dict[str, Any]:
    """Return the settings of one registered task as its file has them, functions unresolved."""
    return dict(task_manager(name).task_index[name].cfg or {})


def is_single(name: str) -> bool:
    """Return True for a task, False for a group or a tag of tasks."""
    return [task for task, _ in _single_tasks(name)] == [name]


@contextmanager
def quiet() -> Iterator[None]:
    """Keep warnings of lm-eval, and the bars of its loops and of datasets, off the terminal."""
    import datasets

    logger, had_bars = logging.getLogger("lm_eval"), not datasets.are_progress_bars_disabled()
    level = logger.level
    logger.setLevel(logging.ERROR)
    datasets.disable_progress_bars()
    try:
        with open(os.devnull, "w", encoding="utf-8") as sink, redirect_stderr(sink):
            yield
    finally:
        logger.setLevel(level)
        if had_bars:
            datasets.enable_progress_bars()


@contextmanager
def seeded() -> Iterator[None]:
    """Start the random numbers of Python and numpy where lm-eval does: some tasks shuffle their options by them."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    random.seed(0)
    np.random.seed(1234)  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002


def writes_to_caller(on_progress: Progress) -> Progress:
    """Return a listener that writes where stderr is now, whatever `quiet` does to it."""
    stream = sys.stderr

    def report(done: int, total: int, message: str) -> None:
        with redirect_stderr(stream):
            on_progress(done, total, message)

    return report


def _single_tasks(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every task of a task, group or tag with its settings."""
    index = task_manager(name).task_index
    pending: list[Any] = [name]
    while pending:
        item = pending.pop(0)
        overrides = item if isinstance(item, dict) else {}
        entry = index.get(overrides.get("task") or overrides.get("group") if overrides else item)
        config = {**((entry and entry.cfg) or {}), **overrides}
        if isinstance(config.get("task"), list):
            pending = [*config["task"], *pending]
        elif entry is not None and entry.cfg is None and entry.tags:
            pending = [*sorted(entry.tags), *pending]
        else:
            yield str(config.get("task", item)), config


@lru_cache(maxsize=1)
def _paper_manager() -> Any:
    import lm_eval
    from lm_eval.tasks import TaskManager

    root = Path(lm_eval.__file__).parent / "tasks"
    folders = dict.fromkeys(str(root / task.folder) for task in STANDARD_TASKS.values())
    with quiet():
        return TaskManager(include_path=list(folders), include_defaults=False)


@lru_cache(maxsize=1)
def _full_manager() -> Any:
    from lm_eval.tasks import TaskManager

    with quiet():
        return TaskManager()


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
