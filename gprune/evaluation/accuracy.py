"""Figures of a model, dense or pruned, on tasks of lm-eval (section 4: zero-shot accuracy).

The model's choice is the one of the highest log-likelihood (acc), or of the highest log-likelihood divided by the
choice's length in characters (acc_norm). Both are kept; which of them counts is decided when they are shown
(``gprune.analysis.accuracy``). Other tasks keep every metric under lm-eval's name, and count by the first.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from gprune.evaluation.tasks import TaskSource, fingerprint, registry, resolve
from gprune.evaluation.tasks.answers import chance, read_answers, read_questions
from gprune.evaluation.tasks.loading import build_requests, load
from gprune.models import devices
from gprune.records import Accuracy, Answers, Questions
from gprune.study import EvaluationSettings
from gprune.system.errors import CorpusError
from gprune.system.progress import Progress, silent


@dataclass(frozen=True, slots=True)
class Answered:
    """Figures of a model on one task, its answers, and the questions."""

    accuracy: Accuracy
    answers: Answers
    questions: Questions


def answered(
    model: nn.Module,
    tokenizer: Any,
    tasks: tuple[str, ...],
    settings: EvaluationSettings,
    on_progress: Progress = silent,
) -> dict[str, Answered]:
    """Measure a causal language model, dense or cut, on tasks, and return the results in their order.

    Args:
        model: The model, on the device where it is measured.
        tokenizer: Its tokenizer.
        tasks: Names of lm-eval's or the demo's tasks, or paths of files of own questions.
        settings: ``limit``, ``few_shot``, ``task_folder`` and ``batch`` count; the last changes speed, not results,
            and is halved where memory runs out.
        on_progress: Called after every batch; what it raises ends the measurement.

    Raises:
        SettingsError: A task is unknown or cannot be run here, or not even one sequence fits in memory.
        CorpusError: A task has no data or a row of it cannot be used.
        NumericsError: A log-likelihood is NaN.
    """
    if not tasks:
        return {}
    if tokenizer is None:
        raise CorpusError(
            "zero-shot accuracy needs a tokenizer and the model's folder has none: save the tokenizer's "
            "files beside the model"
        )
    from gprune.evaluation.tasks.language_model import InMemoryModel

    sources = {task: resolve(task, settings) for task in tasks}
    for source in sources.values():
        # nothing is measured before everything is there
        load(source, settings.few_shot)
    training, report = model.training, registry.writes_to_caller(on_progress)
    try:
        with registry.quiet():
            language_model = InMemoryModel(model, tokenizer, settings.batch, report)
            return {task: _measure(language_model, source, settings) for task, source in sources.items()}
    finally:
        model.train(training)


def questions(task: str, settings: EvaluationSettings, on_progress: Progress = silent) -> Questions:
    """Return the questions of a task as every model is asked them; for arguments and errors see `answered`."""
    loaded = build_requests(resolve(task, settings), settings)
    on_progress(1, 1, "tasks: writing questions")
    return read_questions(task, loaded["tasks"])


def _measure(language_model: Any, source: TaskSource, settings: EvaluationSettings) -> Answered:
    import lm_eval

    data = fingerprint(source, settings)
    # only now, since a fingerprint of requests draws the examples too
    loaded = load(source, settings.few_shot)
    name, tasks = source.task, loaded["tasks"]
    # intervals are computed below, without lm-eval's bootstrap
    with registry.seeded(), devices.kept_random(language_model.device):
        # lm-eval's seed, for tasks that sample what they generate
        torch.manual_seed(1234)
        results = lm_eval.evaluate(language_model, loaded, limit=settings.limit, bootstrap_iters=0)
    # lm-eval's names: `acc` is `acc,none`; one with a filter is `exact_match,strict-match`
    figures = {
        key.removesuffix(",none"): float(value)
        for key, value in results["results"][name].items()
        if "," in key and "_stderr," not in key and isinstance(value, int | float)
    }
    scores = {metric: _scores(results["samples"], tasks, metric) for metric in figures}
    main = next(iter(figures), "acc")
    main_scores = [score for task_scores in scores.get(main, {}).values() for score in task_scores]
    accuracy = Accuracy(
        task=name,
        acc=figures.get(main, math.nan),
        acc_norm=figures.get("acc_norm", math.nan) if main == "acc" else math.nan,
        acc_error=_error(figures, scores, main),
        acc_norm_error=_error(figures, scores, "acc_norm") if main == "acc" else math.nan,
        samples=sum(results["n-samples"][task]["effective"] for task in tasks),
        limit=settings.limit or 0,
        chance=chance(tasks),
        version=f"{results['versions'][name]}, lm-eval {lm_eval.__version__}",
        data=data,
        metric=main,
        few_shot=max(task.get_config("num_fewshot") for task in tasks.values()),
        metrics=figures,
        is_share=bool(main_scores) and all(0 <= score <= 1 for score in main_scores),
        higher_is_better=bool(results["higher_is_better"].get(name, {}).get(main.partition(",")[0], True)),
    )
    return Answered(accuracy, read_answers(name, tasks, scores.get(main, {})), read_questions(name, tasks))


def _scores(samples: dict[str, Any], tasks: Any, metric: str) -> dict[str, list[float]]:
    """Return the metric of every question, by task; of a task that has none by question, an empty list."""
    name, _, chosen = metric.partition(",")
    scores = {}
    for task in tasks:
        values = [sample.get(name) for sample in samples[task] if sample["filter"] == (chosen or "none")]
        numbers = [float(value) for value in values if isinstance(value, int | float)]
        scores[task] = numbers if len(numbers) == len(values) else []
    return scores


def _error(figures: dict[str, float], scores: dict[str, dict[str, list[float]]], metric: str) -> float:
    """Return the standard error of a mean over questions, infinite for one; NaN where the figure is no such mean."""
    from lm_eval.api.metrics import mean_stderr

    values = [score for task_scores in scores.get(metric, {}).values() for score in task_scores]
    if not values or not math.isclose(sum(values) / len(values), figures[metric], rel_tol=1e-9, abs_tol=1e-9):
        return math.nan
    return mean_stderr(values) if len(values) > 1 else math.inf
