"""Data of a study's tasks: which can be had here, and their digests. lm-eval is imported only where it is needed."""

from __future__ import annotations

import contextlib
from importlib import metadata

from gprune.study import Study
from gprune.system.errors import CorpusError


def require_tasks(study: Study) -> None:
    """Raise CorpusError if the data of a task cannot be had here, SettingsError if a task cannot be run.

    Nothing is downloaded and no row is read.
    """
    if study.evaluation.tasks:
        require_all(_unavailable(study))


def require_all(missing: dict[str, str]) -> None:
    """Raise CorpusError with the reasons if tasks are missing."""
    if missing:
        raise CorpusError("; ".join(missing.values()))


def require_task_names(study: Study) -> None:
    """Raise SettingsError if lm-eval has no such task, it executes generated code, or has no folder."""
    if study.evaluation.tasks:
        from gprune.evaluation import tasks

        for task in study.evaluation.tasks:
            with contextlib.suppress(CorpusError):
                tasks.resolve(task, study.evaluation)


def _unavailable(study: Study) -> dict[str, str]:
    """Return by task why its data cannot be had here. Raises SettingsError if a task cannot be run."""
    from gprune.evaluation import tasks

    require_task_names(study)
    reasons = tasks.available(study.evaluation.tasks, study.evaluation)
    return {task: reason for task, reason in reasons.items() if reason}


def task_digests(study: Study, missing: dict[str, str], download: bool) -> dict[str, str]:
    """Return the digests of the tasks that have data, by task, and add the reason of each other to `missing`.

    A dataset of the hub is fetched if `download`. Raises SettingsError if a task cannot be run.
    """
    if not study.evaluation.tasks:
        return {}
    from gprune.evaluation import tasks

    settings, digests = study.evaluation, dict[str, str]()
    missing |= _unavailable(study)
    for task in settings.tasks:
        if task not in missing:
            try:
                digests[task] = tasks.fingerprint(tasks.resolve(task, settings), settings, download=download)
            except CorpusError as error:
                missing[task] = str(error)
    return digests


def scoring_of(study: Study) -> str:
    """Return what asks and scores the tasks, with its version; empty without tasks.

    A change of either makes other figures of the same documents.
    """
    if not study.evaluation.tasks:
        return ""
    from gprune.evaluation.tasks.rows import OWN_QUESTIONS

    return f"lm-eval {metadata.version('lm_eval')}, own questions {OWN_QUESTIONS}"
