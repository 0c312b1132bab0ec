"""Measure a dense or pruned model on tasks of lm-eval (section 4: zero-shot accuracy).

An adapter passes the model in memory to lm-eval; it halves batches if memory runs out and reports progress. In
multiple choice, the model selects the choice with the highest log-likelihood (acc), or with the highest log-likelihood
divided by the choice's length in characters (acc_norm). Both accuracies are stored, and ``gprune.analysis.accuracy``
chooses one. For other tasks, all metrics are stored under lm-eval's names, and the first is the main one.
"""

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from lm_eval.api.model import CacheHook
from lm_eval.models.huggingface import HFLM
from torch import nn

from gprune.data.texts import require_embedded
from gprune.evaluation.tasks import TaskSource, fingerprint, loading, resolve
from gprune.models import devices
from gprune.models.devices import AdaptiveBatches
from gprune.records import Accuracy, Answers, Questions
from gprune.records.answers import MOST_OPTIONS, MOST_QUESTIONS
from gprune.study import EvaluationSettings
from gprune.system.errors import CorpusError, NumericsError
from gprune.system.progress import Progress, silent

T = TypeVar("T")
_QUOTED_CHARACTERS = 60
"""maximum length of a text that an error quotes"""
_REMEDY = "leave the task of the longest questions out, or use dtype bfloat16 or a device with more memory"
_GENERATED = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""names that a task can use for the maximum number of generated tokens"""


@dataclass(frozen=True, slots=True)
class TaskResult:
    """Result of a model on one task: accuracy and answers, and the questions of the task."""

    accuracy: Accuracy
    answers: Answers
    questions: Questions


def measure_tasks(
    model: nn.Module, tokenizer: Any, task: str, settings: EvaluationSettings, on_progress: Progress = silent
) -> TaskResult:
    """Measure a causal language model, dense or pruned, on a task.

    Args:
        model: The model, on the device where it is measured.
        tokenizer: Its tokenizer.
        task: Name of a task of lm-eval or of the demo, or the path of a file of own questions.
        settings: uses ``limit``, ``few_shot``, ``task_folder`` and ``batch``. The batch size affects speed only and is
            halved if memory runs out.
        on_progress: Called after every batch; may raise to stop.

    Raises:
        SettingsError: The task is unknown or cannot be run here, or not even one sequence fits in memory.
        CorpusError: The task has no data or a row of it cannot be used.
        NumericsError: A log-likelihood is NaN.
    """
    if tokenizer is None:
        raise CorpusError(
            "zero-shot accuracy needs a tokenizer and the model's folder has none: save the tokenizer's "
            "files beside the model"
        )

    source = resolve(task, settings)
    training, report = model.training, loading.writes_to_caller(on_progress)
    try:
        with loading.silence_output():
            language_model = InMemoryModel(model, tokenizer, settings.batch, report)
            return _run_harness(language_model, source, settings)
    finally:
        model.train(training)


def questions(task: str, settings: EvaluationSettings, on_progress: Progress = silent) -> Questions:
    """Return the questions of a task; for arguments and errors see `measure_tasks`."""
    loaded = loading.build_requests(resolve(task, settings), settings)
    on_progress(1, 1, "tasks: writing questions")
    return read_questions(task, loaded["tasks"])


def _run_harness(language_model: Any, source: TaskSource, settings: EvaluationSettings) -> TaskResult:
    """Run a task with lm-eval and return its result in the records of this project."""
    import lm_eval

    data = fingerprint(source, settings)
    # load_task seeds the few-shot examples anew, because a fingerprint of the requests also draws random examples
    loaded = loading.load_task(source, settings.few_shot)
    name, tasks = source.task, loaded["tasks"]
    # intervals are computed below, without lm-eval's bootstrap
    with loading.seed_random_numbers(), devices.preserve_random_state(language_model.device):
        # lm-eval's seed, for tasks that sample the generated text
        torch.manual_seed(1234)
        results = lm_eval.evaluate(language_model, loaded, limit=settings.limit, bootstrap_iters=0)
    # lm-eval's names have the form metric,filter, such as `acc,none` and `exact_match,strict-match`
    figures = {
        key.removesuffix(",none"): float(value)
        for key, value in results["results"][name].items()
        if "," in key and "_stderr," not in key and isinstance(value, int | float)
    }
    scores = {metric: _question_scores(results["samples"], tasks, metric) for metric in figures}
    main = next(iter(figures), "acc")
    main_scores = scores.get(main, [])
    accuracy = Accuracy(
        task=name,
        acc=figures.get(main, math.nan),
        acc_norm=figures.get("acc_norm", math.nan) if main == "acc" else math.nan,
        acc_error=_standard_error(figures, scores, main),
        acc_norm_error=_standard_error(figures, scores, "acc_norm") if main == "acc" else math.nan,
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
    return TaskResult(accuracy, read_answers(name, tasks, main_scores), read_questions(name, tasks))


def _question_scores(samples: dict[str, Any], tasks: Any, metric: str) -> list[float]:
    """Return the value of a metric for every question; tasks without values for single questions are left out."""
    name, _, filter_name = metric.partition(",")
    scores: list[float] = []
    for task in tasks:
        values = [sample.get(name) for sample in samples[task] if sample["filter"] == (filter_name or "none")]
        if all(isinstance(value, int | float) for value in values):
            scores += map(float, values)
    return scores


def _standard_error(figures: dict[str, float], scores: dict[str, list[float]], metric: str) -> float:
    """Return the standard error of a metric: infinite for one question, NaN if it is no mean over questions."""
    from lm_eval.api.metrics import mean_stderr

    values = scores.get(metric, [])
    if not values or not math.isclose(sum(values) / len(values), figures[metric], rel_tol=1e-9, abs_tol=1e-9):
        return math.nan
    return mean_stderr(values) if len(values) > 1 else math.inf


def read_answers(name: str, tasks: dict[str, Any], scores: list[float]) -> Answers:
    """Return a model's answers to the questions of a task.

    If all tasks are multiple choice by log-likelihood, the answers are the log-likelihoods of all options. Else they
    are `scores`, the values of the main metric by question, if all of these are 0 or 1, and empty if not.
    """
    scored = not has_options(tasks)
    if scored:
        values = scores[:MOST_QUESTIONS] if set(scores[:MOST_QUESTIONS]) <= {0, 1} else []
        counts = lengths = [1] * len(values)
        right = [0] * len(values)
    else:
        questions = list(_stored_questions(tasks))
        values = [option.resps[0][0] for _, options in questions for option in options]
        counts = [len(options) for _, options in questions]
        lengths = [len(choice) for task, options in questions for choice in task.doc_to_choice(options[0].doc)]
        right = [_right_option(task, options[0].doc) or 0 for task, options in questions]
    return Answers(
        task=name,
        documents=sum(len(_documents(task)) for task in tasks.values()),
        likelihoods=np.array(values, dtype=np.float32),
        lengths=np.array(lengths, dtype=np.int32),
        counts=np.array(counts, dtype=np.int32),
        right=np.array(right, dtype=np.int32),
        scored=scored,
    )


def read_questions(name: str, tasks: dict[str, Any]) -> Questions:
    """Return the prompts of a task with their options; a prompt without options is stored with its correct answer."""
    if has_options(tasks):
        return Questions.of(name, [_with_options(requests) for _, requests in _stored_questions(tasks)])
    groups = ((task, requests) for task in tasks.values() for requests in _documents(task))
    pairs = [(str(requests[0].args[0]), [_correct_answer(task, requests[0].doc)]) for task, requests in groups]
    return Questions.of(name, pairs[:MOST_QUESTIONS])


def has_options(tasks: dict[str, Any]) -> bool:
    """Return True if lm-eval answers every question by the option of highest likelihood, and one option is right."""
    return all(
        task.OUTPUT_TYPE == "multiple_choice"
        and task.get_config("process_results") is None
        and not getattr(task, "multiple_target", 0)
        and len(requests) == len(task.doc_to_choice(requests[0].doc))
        and _right_option(task, requests[0].doc) is not None
        for task in tasks.values()
        for requests in _documents(task)
    )


def chance(tasks: dict[str, Any]) -> float:
    """Return the accuracy of random guessing, the mean of 1 / number of options, or NaN if a task has no options."""
    if not has_options(tasks):
        return float("nan")
    shares = [1 / len(requests) for task in tasks.values() for requests in _documents(task)]
    return sum(shares) / len(shares)


def _documents(task: Any) -> list[list[Any]]:
    """Return the requests of each document, in order."""
    documents: dict[int, list[Any]] = {}
    for request in sorted(task.instances, key=lambda request: (request.doc_id, request.idx)):
        documents.setdefault(request.doc_id, []).append(request)
    return list(documents.values())


def _stored_questions(tasks: dict[str, Any]) -> Iterator[tuple[Any, list[Any]]]:
    """Yield the task and the requests of the first questions, as many as may be stored."""
    questions = options = 0
    for task in tasks.values():
        for requests in _documents(task):
            questions, options = questions + 1, options + len(requests)
            if questions > MOST_QUESTIONS or options > MOST_OPTIONS:
                return
            yield task, requests


def _right_option(task: Any, document: Any) -> int | None:
    """Return the index of the right option, or None if lm-eval counts no option as right."""
    choices = task.doc_to_choice(document)
    gold = task.doc_to_text(document) if task.multiple_input else task.doc_to_target(document)
    if isinstance(gold, str):
        return choices.index(gold) if gold in choices else None
    return int(gold) if isinstance(gold, int) and 0 <= gold < len(choices) else None


def _with_options(requests: list[Any]) -> tuple[str, list[str]]:
    """Return prompt and options; if the prompts of the options differ, return no prompt and the full texts."""
    pairs = [request.args for request in requests]
    if len({prompt for prompt, _ in pairs}) > 1:
        return "", ["".join(pair) for pair in pairs]
    return pairs[0][0], [option for _, option in pairs]


def _correct_answer(task: Any, document: Any) -> str:
    target = task.doc_to_target(document)
    return str(target[0] if isinstance(target, list) and target else target)


class InMemoryModel(HFLM):
    """Adapter of a dense or pruned model in memory to lm-eval; the model stays on its device.

    Log-likelihoods are summed in float32 for every number type of the model. In half precision, sums would often be
    equal, and lm-eval resolves ties in favour of the first choice.
    """

    def __init__(self, model: Any, tokenizer: Any, batch: int, on_progress: Progress) -> None:
        """Wrap a model; `batch` is the number of sequences per forward pass."""
        # lm-eval adds a padding token to a tokenizer without one
        tokenizer = copy.deepcopy(tokenizer)
        super().__init__(model, tokenizer=tokenizer, backend="causal", batch_size=batch, softmax_dtype="float32")
        self._report = on_progress

    def loglikelihood(self, requests: list[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Return the log-likelihood of each continuation. Raises CorpusError if a continuation is empty or too long."""
        for request in requests:
            self._require_readable(*request.args)
        return self._run_in_batches(super().loglikelihood, requests)

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
        """Return the log-likelihood of each text."""
        return self._run_in_batches(super().loglikelihood_rolling, requests)

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        """Return the continuation of each context."""
        for request in requests:
            settings = request.args[1]
            count = next((settings[name] for name in _GENERATED if name in settings), self.max_gen_toks)
            if count >= self.max_length:
                raise CorpusError(
                    f"the task {request.task_name!r} generates up to {count} tokens and the model reads at most "
                    f"{self.max_length}: leave it out"
                )
        return self._run_in_batches(super().generate_until, requests)

    def _run_in_batches(self, measure: Callable[..., list[T]], requests: list[Any]) -> list[T]:
        """Call `measure` on the requests with the largest batch size for which memory suffices."""
        texts = ("".join(part for part in request.args if isinstance(part, str)) for request in requests)
        longest = max(texts, key=len, default="")
        length = min(len(self.tok_encode(longest)) if longest else 0, self.max_length)
        sequences = AdaptiveBatches(self.batch_size, length, "evaluation.batch", _REMEDY, self.device, self._report)

        def attempt(size: int) -> list[T]:
            self.batch_size_per_gpu = size
            # the longest requests come first, so that memory runs out at the start if at all
            self.set_cache_hook(_ResponseHook(self._report, size, len(requests)))
            return measure(requests, disable_tqdm=True)

        return sequences.attempt(attempt, self.batch_size)

    def _require_readable(self, context: str, continuation: str) -> None:
        embeddings = self.model.get_input_embeddings().num_embeddings
        if len(self.tokenizer) > embeddings:
            text = context + continuation
            ids = np.array(self.tok_encode(text), dtype=np.int64)
            require_embedded(ids, text[:_QUOTED_CHARACTERS], embeddings, self.tokenizer)
        # a token has at least one byte, so a continuation with fewer bytes than the limit is not too long
        if continuation.strip() and len(continuation.encode(errors="replace")) < self.max_length:
            return
        tokens = len(self.tok_encode(continuation, add_special_tokens=False))
        if not 1 <= tokens <= self.max_length:
            problem = (
                f"has {tokens} tokens and the model reads at most {self.max_length}" if tokens else "has no tokens"
            )
            raise CorpusError(f"the choice {_short(continuation)} of a task {problem}: leave that question or task out")


class _ResponseHook(CacheHook):
    """Report progress for every response that lm-eval caches, and raise NumericsError if it is NaN."""

    def __init__(self, on_progress: Progress, interval: int, total: int) -> None:
        super().__init__(None)
        self._on_progress, self._every, self._done, self._total = on_progress, interval, 0, total

    def add_partial(self, attr: str, req: Any, res: Any) -> None:
        """Process the response `res` to the request `req`."""
        likelihood = {"loglikelihood": lambda: res[0], "loglikelihood_rolling": lambda: res}.get(attr, lambda: 0.0)()
        if math.isnan(likelihood):
            kind = "text" if attr == "loglikelihood_rolling" else "choice"
            raise NumericsError(
                f"the log-likelihood of the {kind} {_short(req[-1])} is NaN: the model overflows in its number "
                "type, so use float32 or bfloat16, or check its weights for NaN"
            )
        self._done += 1
        if self._done % self._every == 0 or self._done == self._total:
            self._on_progress(self._done, self._total, "tasks: answering")


def _short(text: str) -> str:
    return repr(text if len(text) <= _QUOTED_CHARACTERS else text[:_QUOTED_CHARACTERS] + "...")
