"""The zero-shot tasks that a study reads, as digests: which have data here, and whose data is doubtful.

What measures them is imported only where a study has tasks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from importlib import metadata

from gprune.study import Study
from gprune.system.errors import CorpusError


def task_digests(study: Study, missing: dict[str, str], download: bool) -> dict[str, str]:
    """Digests of the tasks that have data, by task; the others join the missing ones with the reason.

    What is on the hub only is fetched if `download`. Raises SettingsError where there is no such task.
    """
    if not study.evaluation.tasks:
        return {}
    from gprune.evaluation import tasks

    settings = study.evaluation
    for task in settings.tasks:
        # a task that has no data is left out; one that does not exist is a slip
        with contextlib.suppress(CorpusError):
            tasks.resolve(task, settings)
    missing |= {task: reason for task, reason in tasks.available(settings.tasks, settings).items() if reason}
    found = {}
    for task in settings.tasks:
        if task not in missing:
            try:
                found[task] = tasks.fingerprint(tasks.resolve(task, settings, download=download))
            except CorpusError as error:
                missing[task] = str(error)
    return found


def doubtful_tasks(study: Study, missing: Collection[str] = ()) -> dict[str, str]:
    """Why the data of tasks, if not missing, is probably another split than they are measured on, by task."""
    if not study.evaluation.tasks:
        return {}
    from gprune.evaluation import tasks

    found = {}
    for task in study.evaluation.tasks:
        if task not in missing:
            # a file that has gone meanwhile is told when the task is measured
            with contextlib.suppress(CorpusError):
                found[task] = tasks.doubt(tasks.resolve(task, study.evaluation))
    return {task: reason for task, reason in found.items() if reason}


def scoring_of(study: Study) -> str:
    """What asks and scores the tasks, with its version; empty without tasks.

    A change of either makes other figures of the same documents.
    """
    if not study.evaluation.tasks:
        return ""
    from gprune.evaluation.tasks import own

    return f"lm-eval {metadata.version('lm_eval')}, own questions {own.VERSION}"
