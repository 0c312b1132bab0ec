"""Measure a dense or pruned model on tasks of lm-eval (section 4: zero-shot accuracy).

An adapter passes the model in memory to lm-eval; it halves batches if memory runs out and reports progress. In
multiple choice, the model selects the choice with the highest log-likelihood (acc), or with the highest log-likelihood
divided by the choice's length in characters (acc_norm). Both accuracies are stored, and ``gprune.analysis.accuracy``
chooses one. For other tasks, all metrics are stored under lm-eval's names, and the first is the main one.
"""

import copy
import math
import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import CacheHook
from lm_eval.models.huggingface import HFLM
from torch import nn

from gprune.data.texts import require_embedded
from gprune.evaluation.tasks import TaskSource, fingerprint, loading, resolve
from gprune.models import devices
from gprune.models.devices import AdaptiveBatches
from gprune.records import Accuracy, Answers, GeneratedAnswers, Questions
from gprune.records.answers import MOST_OPTIONS, MOST_QUESTIONS
from gprune.study import EvaluationSettings
from gprune.system.errors import CorpusError, NumericsError
from gprune.system.progress import Notice, Progress, silent

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
    generated: GeneratedAnswers


def measure_tasks(
    model: nn.Module, tokenizer: Any, task: str, settings: EvaluationSettings, on_progress: Progress = silent
) -> TaskResult:
    """Measure a causal language model, dense or pruned, on a task.

    Args:
        model: The model, on the device where it is measured.
        tokenizer: Its tokenizer.
        task: Name of a task of lm-eval or of the demo, or the path of a file of own questions.
        settings: uses ``limit``, ``few_shot``, ``task_folder``, ``chat_template``, ``generated_tokens`` and ``batch``.
            The batch size affects speed only and is halved if memory runs out.
        on_progress: Called after every batch; may raise to stop.

    Raises:
        SettingsError: The task is unknown or cannot be run here, or not even one sequence fits in memory.
        CorpusError: The task has no data or a row of it cannot be used.
        NumericsError: A log-likelihood is NaN.
    """
    source = resolve(task, settings)
    with _adapt(model, tokenizer, settings, on_progress) as language_model:
        return _run_harness(language_model, source, settings)


def ask_openly(
    model: nn.Module, tokenizer: Any, task: str, settings: EvaluationSettings, on_progress: Progress = silent
) -> GeneratedAnswers:
    """Generate a model's answers to the questions of a multiple-choice task without their options.

    A question is left out if its prompt contains its options or depends on them, or if options are equal once
    normalized. The result is empty for other tasks. For arguments and errors see `measure_tasks`.
    """
    requests = dict[int, Any]()
    generation = loading.generation_settings(settings.generated_tokens, settings.chat_template, "\nQuestion:")
    with _adapt(model, tokenizer, settings, on_progress) as language_model:
        tasks = loading.build_requests(resolve(task, settings), settings, tokenizer)["tasks"]
        for number, (definition, options) in enumerate(_stored_questions(tasks) if has_options(tasks) else ()):
            prompt, texts = _with_options(options)
            if prompt.strip() and is_open(prompt, texts):
                gold = {"choices": texts, "right": _right_option(definition, options[0].doc) or 0}
                requests[number] = Instance("generate_until", gold, (prompt, generation), 0, (task, number, 1))
        for request, text in zip(requests.values(), language_model.generate_until([*requests.values()]), strict=True):
            request.resps.append(text)
        hits = {number for number, request in requests.items() if is_right(request.resps[0], **request.doc)}
        return _record_generated(task, requests, language_model.generations, hits)


def normalize_answer(text: str) -> str:
    """Return a text in lower case without punctuation and articles, with single spaces."""
    return " ".join(re.sub(r"[^\w\s]|_|\b(?:a|an|the)\b", " ", text.lower()).split())


def is_open(prompt: str, options: list[str]) -> bool:
    """Return True if a question can be answered without its options: they differ, and the prompt does not list them."""
    choices, words = {normalize_answer(option) for option in options}, f" {normalize_answer(prompt)} "
    # the letters of listed options are not open either, because the letter A is an article, which is removed
    is_listed = all(f" {choice} " in words for choice in choices)
    return all(choices) and len(choices) == len(options) and not is_listed


def is_right(text: str, choices: list[str], right: int) -> bool:
    """Return True if an answer contains the right one of `choices` and no wrong one, all normalized, as whole words.

    A wrong choice that is part of the right choice does not count.
    """
    answer, gold, *options = (f" {normalize_answer(words)} " for words in (text, choices[right], *choices))
    return gold in answer and not any(option in answer for option in options if option not in gold)


@contextmanager
def _adapt(model: nn.Module, tokenizer: Any, settings: EvaluationSettings, on_progress: Progress) -> Iterator[Any]:
    """Wrap a model for lm-eval in the block, with silenced output; for errors see `measure_tasks`."""
    if tokenizer is None:
        raise CorpusError(
            "zero-shot accuracy needs a tokenizer and the model's folder has none: save the tokenizer's "
            "files beside the model"
        )
    if settings.chat_template:
        loading.require_template(tokenizer)
    training, report = model.training, loading.writes_to_caller(on_progress)
    try:
        with loading.silence_output():
            yield InMemoryModel(model, tokenizer, settings.batch, report)
    finally:
        model.train(training)


def questions(task: str, settings: EvaluationSettings, tokenizer: Any = None) -> Questions:
    """Return the questions of a task; for arguments and errors see `measure_tasks`."""
    return read_questions(task, loading.build_requests(resolve(task, settings), settings, tokenizer)["tasks"])


def _run_harness(language_model: Any, source: TaskSource, settings: EvaluationSettings) -> TaskResult:
    """Run a task with lm-eval and return its result in the records of this project."""
    import lm_eval

    data = fingerprint(source, settings)
    # load_task seeds the few-shot examples anew, because a fingerprint of the requests also draws random examples
    loaded = loading.load_task(source, settings)
    name, tasks = source.task, loaded["tasks"]
    # intervals are computed below, without lm-eval's bootstrap
    with loading.seed_random_numbers(), devices.preserve_random_state(language_model.device):
        # lm-eval's seed, for tasks that sample the generated text
        torch.manual_seed(1234)
        chat = {"apply_chat_template": settings.chat_template, "fewshot_as_multiturn": settings.chat_template}
        results = lm_eval.evaluate(language_model, loaded, limit=settings.limit, bootstrap_iters=0, **chat)
    # lm-eval's names have the form metric,filter, such as `acc,none` and `exact_match,strict-match`
    figures = {
        key.removesuffix(",none"): float(value)
        for key, value in results["results"][name].items()
        if "," in key and "_stderr," not in key and isinstance(value, int | float)
    }
    scores = {metric: _question_scores(results["samples"], tasks, metric) for metric in figures}
    main = next(iter(figures), "acc")
    main_scores = scores.get(main, [])
    first_requests = [requests[0] for task in tasks.values() for requests in _documents(task)][:MOST_QUESTIONS]
    generated = _record_generated(name, dict(enumerate(first_requests)), language_model.generations)
    columns = generated.tokens, generated.is_cut, generated.is_loop
    mean_tokens, cut_share, loop_share = (float(column.mean()) if column.size else math.nan for column in columns)
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
        ability=str((next(iter(tasks.values())).get_config("metadata") or {}).get("ability", "")),
        metrics=figures,
        is_share=bool(main_scores) and all(0 <= score <= 1 for score in main_scores),
        higher_is_better=bool(results["higher_is_better"].get(name, {}).get(main.partition(",")[0], True)),
        chat_template=settings.chat_template,
        decoding=language_model.decoding,
        mean_tokens=mean_tokens,
        cut_share=cut_share,
        loop_share=loop_share,
    )
    return TaskResult(accuracy, read_answers(name, tasks, main_scores), read_questions(name, tasks), generated)


def _record_generated(
    name: str, requests: dict[int, Any], generations: dict[str, Any], hits: Collection[int] = ()
) -> GeneratedAnswers:
    """Return the responses to requests by number, with their `InMemoryModel.generations`; `hits` are right."""
    pairs = [(number, request) for number, request in requests.items() if repr(request.args) in generations]
    rows = [(i, str(request.resps[0]), *generations[repr(request.args)], i in hits) for i, request in pairs]
    return GeneratedAnswers.of(name, rows)


def is_periodic(tokens: Sequence[int]) -> bool:
    """Return True if an answer ends in a sequence of tokens, three times or more, that fills its last quarter.

    Answers of fewer than 24 tokens, with six tokens in the last quarter, do not count.
    """
    periods = range(1, len(tokens) // 3 + 1) if len(tokens) >= 24 else ()
    tails = ((period, tokens[-max(len(tokens) // 4, 3 * period) :]) for period in periods)
    return any(tail[period:] == tail[:-period] for period, tail in tails)


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
        self._last_decoded: list[int] = []
        self.decoding = ""
        """how answers are generated; empty if none are"""
        self.generations: dict[str, tuple[int, bool, bool]] = {}
        """tokens, is_cut and is_loop of every generated answer, by request"""

    def tok_decode(self, tokens: Any, skip_special_tokens: bool = True) -> str:
        """Decode tokens and remember them, because lm-eval reports a response without its tokens."""
        self._last_decoded = tokens if isinstance(tokens, list) else [tokens]
        return super().tok_decode(tokens, skip_special_tokens)

    def token_limit(self, settings: dict[str, Any]) -> int:
        """Return the maximum number of generated tokens of a request's settings."""
        return int(next((settings[name] for name in _GENERATED if name in settings), self.max_gen_toks))

    def note_generation(self, context: str, settings: dict[str, Any], text: str) -> None:
        """Store length, cut-off and repetition of the response whose tokens were decoded last."""
        tokens, decode = self._last_decoded, super().tok_decode
        # the fewest tokens that spell the text, which ends before a stop sequence
        count = bisect_left(range(len(tokens)), len(text), key=lambda end: len(decode(tokens[:end])))
        # a response that stopped ends in special tokens, or its stop sequence is missing from the text
        has_stopped = len(tokens) < self.token_limit(settings) or tokens[-1] in self.tokenizer.all_special_ids
        is_cut = not has_stopped and len(decode(tokens)) == len(text)
        self.generations[repr((context, settings))] = count, is_cut, is_periodic(tokens[:count])

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
        longest = 0
        for request in requests:
            count = self.token_limit(request.args[1])
            if count >= self.max_length:
                raise CorpusError(
                    f"the task {request.task_name!r} generates up to {count} tokens and the model reads at most "
                    f"{self.max_length}: leave it out, or lower evaluation.generated_tokens if the prompts are your own"
                )
            longest = max(longest, len(self.tok_encode(request.args[0])) + count)
            self.decoding = f"{'sampled' if request.args[1].get('do_sample') else 'greedy'}, at most {count} tokens"
        if longest > self.max_length:
            size = f"the longest prompt and its answer have {longest} tokens and the model reads {self.max_length}"
            self._report(0, 1, Notice(f"{size}: the beginnings of such prompts are cut off, as in lm-eval"))
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
            self.set_cache_hook(_ResponseHook(self._report, size, len(requests), self.note_generation))
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

    def __init__(self, on_progress: Progress, interval: int, total: int, on_text: Callable[..., None]) -> None:
        super().__init__(None)
        self._on_text = on_text
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
        if attr == "generate_until":
            self._on_text(*req, res)
        self._done += 1
        if self._done % self._every == 0 or self._done == self._total:
            self._on_progress(self._done, self._total, "tasks: answering")


def _short(text: str) -> str:
    return repr(text if len(text) <= _QUOTED_CHARACTERS else text[:_QUOTED_CHARACTERS] + "...")
