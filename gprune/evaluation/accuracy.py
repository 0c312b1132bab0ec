"""Answers: how often does a model, dense or pruned, choose the right answer without being shown an example?

Zero-shot accuracy as in section 4: the model's choice is the one of the highest log-likelihood (acc), or of
the highest log-likelihood divided by the choice's length in characters (acc_norm). Both are kept; which of
them counts is decided when they are shown (``gprune.analysis.accuracy``; appendix, robustness to the
evaluation protocol).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from gprune.evaluation.tasks import TaskSource, documents, fingerprint, resolve
from gprune.evaluation.tasks.columns import Row
from gprune.records import Accuracy, Answers, Questions
from gprune.records.answers import MOST_QUESTIONS
from gprune.study import EvaluationSettings
from gprune.system.errors import CorpusError
from gprune.system.progress import Progress, silent


@dataclass(frozen=True, slots=True)
class Answered:
    """What a model was asked of one task, and what came of it."""

    accuracy: Accuracy
    answers: Answers
    questions: Questions


def answered(
    model: nn.Module,
    tokenizer: Any,
    tasks: tuple[str, ...],
    settings: EvaluationSettings,
    on_progress: Progress = silent,
    cache: Path | None = None,
) -> dict[str, Answered]:
    """Measures a causal language model, dense or cut, on multiple-choice tasks, all of them in one pass.

    `tasks` are names in ``gprune.evaluation.tasks.known()``, or paths of files of one's own. Of `settings`
    count ``limit``, the first documents of a task, where the seven tasks are, and ``batch``, which changes
    speed, not results, and is halved where memory runs out. `on_progress` is told after every batch; what it
    raises ends the measurement. `cache` keeps the demo's texts from call to call. Gives the accuracy of each
    task, its answers and questions, in the order asked for; standard errors of a single document are
    infinite. Raises SettingsError where a task is unknown or not even a single choice fits in memory,
    CorpusError where a task has no data or a row of it cannot be used (nothing has been measured then),
    NumericsError where a log-likelihood is NaN.
    """
    if not tasks:
        return {}
    if tokenizer is None:
        raise CorpusError(
            "zero-shot accuracy needs a tokenizer and the model's folder has none: save the tokenizer's "
            "files beside the model"
        )
    sources = {task: resolve(task, settings, download=True) for task in tasks}
    rows = {task: documents(source, cache)[: settings.limit] for task, source in sources.items()}
    training = model.training
    try:
        return _measure(model, tokenizer, sources, rows, settings, on_progress)
    finally:
        model.train(training)


def questions(
    task: str, settings: EvaluationSettings, on_progress: Progress = silent, cache: Path | None = None
) -> Questions:
    """The questions of a task as every model is asked them; no model takes part.

    For arguments see `answered`. Raises SettingsError where the task is unknown, CorpusError where it has no
    data or a row of it cannot be used.
    """
    from gprune.evaluation.tasks import asked, harness

    source = resolve(task, settings, download=True)
    rows = documents(source, cache)[: settings.limit]
    with harness.quiet(), harness.reporting(on_progress, settings.batch):
        built = harness.task(source, rows[:MOST_QUESTIONS])
        built.build_all_requests()
    return asked.questions(task, built)


def _measure(
    model: nn.Module,
    tokenizer: Any,
    sources: dict[str, TaskSource],
    rows: dict[str, list[Row]],
    settings: EvaluationSettings,
    on_progress: Progress,
) -> dict[str, Answered]:
    from lm_eval import evaluate

    from gprune.evaluation.tasks import asked, harness

    with harness.quiet(), harness.reporting(on_progress, settings.batch):
        built = {task: harness.task(source, rows[task]) for task, source in sources.items()}
        answering = harness.language_model(model, tokenizer, settings.batch, on_progress)
        # The errors of means are closed formulas, so bootstrapping is named and never done.
        found = evaluate(answering, {"tasks": built}, bootstrap_iters=1, log_samples=False)
    results = {}
    for task, source in sources.items():
        acc, acc_error = harness.measured(found["results"][task], "acc")
        acc_norm, acc_norm_error = harness.measured(found["results"][task], "acc_norm")
        measured = Accuracy(
            task=task,
            acc=acc,
            acc_norm=acc_norm,
            acc_error=acc_error,
            acc_norm_error=acc_norm_error,
            samples=len(rows[task]),
            limit=settings.limit or 0,
            chance=harness.chance(built[task]),
            version=f"{built[task].VERSION}, lm-eval {harness.version()}",
            data=fingerprint(source),
        )
        results[task] = Answered(measured, asked.answers(task, built[task]), asked.questions(task, built[task]))
    return results
