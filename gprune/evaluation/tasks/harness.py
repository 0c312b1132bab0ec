"""Answers: how do our models, documents and progress reports go into lm-eval, and its figures come out?

The only place that knows lm-eval. It is imported when a task is measured, not before: it takes seconds. The
documents are handed over in memory, so that no dataset is downloaded or cached on the way.
"""

import copy
import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from gprune.data.demo import questions
from gprune.data.texts import require_embedded
from gprune.evaluation.tasks import own
from gprune.evaluation.tasks.columns import Row
from gprune.evaluation.tasks.reading import TaskSource
from gprune.evaluation.tasks.standard import STANDARD_TASKS
from gprune.system.errors import CorpusError, NumericsError
from gprune.system.progress import Progress, silent

_METRICS = [{"metric": name, "aggregation": "mean", "higher_is_better": True} for name in ("acc", "acc_norm")]
# lm-eval tells what it is about by tqdm only; one of its bars has no words.
_PHASES = {
    "": "writing prompts",
    "Tokenizing inputs": "reading prompts",
    "Running loglikelihood requests": "answering",
}
_SHOWN = 60
_SHORTER = "leave the task of the longest questions out, or use dtype bfloat16 or a device with more memory"


def version() -> str:
    """The version of lm-eval."""
    import lm_eval

    return str(lm_eval.__version__)


def task(source: TaskSource, rows: list[Row]) -> Any:
    """An ``lm_eval.api.task.ConfigurableTask`` over checked documents in memory, at least one, zero-shot."""
    from lm_eval.api.task import ConfigurableTask

    definition = _standard(source.task) if source.kind == "standard" else _multiple_choice(source)
    return ConfigurableTask(config={**definition, "custom_dataset": _in_memory(rows, definition)})


def language_model(model: Any, tokenizer: Any, batch: int, on_progress: Progress = silent) -> Any:
    """An ``lm_eval`` model around one in memory, dense or cut, on the device where it is.

    Log-likelihoods are summed in float32 whatever the model's number type, because equal sums, which half
    precision makes frequent, always count for the first choice. `batch` is the choices of one forward pass;
    halved where memory runs out, of which `on_progress` is told. The ``HFLM`` refuses choices it cannot
    measure.
    """
    from lm_eval.models.huggingface import HFLM

    from gprune.models.oom_backoff import Sequences

    class Checked(HFLM):
        def _loglikelihood_tokens(self, requests: list[Any], **options: Any) -> list[tuple[float, bool]]:
            embeddings = self.model.get_input_embeddings().num_embeddings
            for (_, choice), context, tokens in requests:
                ids = np.array([*context, *tokens], dtype=np.int64)
                require_embedded(ids, f"the choice {_short(choice)}", embeddings, self.tokenizer)
                _require_fit(choice, len(tokens), self.max_length)
            answer = super()._loglikelihood_tokens
            longest = max((len(context) + len(tokens) for _, context, tokens in requests), default=0)

            def answered(size: int) -> list[tuple[float, bool]]:
                self.batch_size_per_gpu = size
                return answer(requests, **options)

            size, length = self.batch_size, min(longest, self.max_length)
            going = Sequences(size, length, "evaluation.batch", _SHORTER, self.device, on_progress)
            # the longest come first, so that memory runs out at the beginning if it does at all
            answers = going.fitting(answered, size)
            for ((_, choice), _, _), (likelihood, _) in zip(requests, answers, strict=True):
                _require_number(choice, likelihood)
            return answers

    return Checked(
        pretrained=model,
        # lm-eval gives a tokenizer without a padding token one.
        tokenizer=copy.deepcopy(tokenizer),
        backend="causal",
        batch_size=batch,
        softmax_dtype="float32",
    )


def measured(result: dict[str, Any], metric: str) -> tuple[float, float]:
    """A figure, acc or acc_norm, that lm-eval gives of one task, and its standard error.

    NaN where the task has no such figure; the error of a single document is infinite.
    """
    value = result.get(f"{metric},none")
    if value is None:
        return math.nan, math.nan
    error = result.get(f"{metric}_stderr,none")
    return float(value), float(error) if isinstance(error, int | float) else math.inf


def chance(built: Any) -> float:
    """Accuracy of guessing on the documents that a task has asked: the mean of 1 / choices."""
    choices: dict[int, int] = {}
    for instance in built.instances:
        choices[instance.doc_id] = choices.get(instance.doc_id, 0) + 1
    return sum(1 / count for count in choices.values()) / len(choices)


@contextmanager
def reporting(on_progress: Progress, every: int) -> Iterator[None]:
    """Sends lm-eval's progress bars to a listener, which may raise ``Cancelled``."""
    import lm_eval.api.model
    import lm_eval.api.task
    import lm_eval.models.huggingface

    modules: list[Any] = [lm_eval.api.task, lm_eval.api.model, lm_eval.models.huggingface]
    kept = [module.tqdm for module in modules]

    def bar(items: Any = None, total: int | None = None, desc: str = "", **unused: Any) -> _Bar:
        return _Bar(items, total, f"zero-shot accuracy: {_PHASES.get(desc, desc)}", on_progress, every)

    try:
        for module in modules:
            module.tqdm = bar
        yield
    finally:
        for module, former in zip(modules, kept, strict=True):
            module.tqdm = former


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps lm-eval's warnings about models in memory, and bars of the datasets library, off the terminal."""
    import datasets

    logger, bars = logging.getLogger("lm_eval"), not datasets.are_progress_bars_disabled()
    level = logger.level
    logger.setLevel(logging.ERROR)
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        logger.setLevel(level)
        if bars:
            datasets.enable_progress_bars()


class _Bar:
    """Stands where lm-eval expects a tqdm bar."""

    def __init__(self, items: Any, total: int | None, message: str, on_progress: Progress, every: int) -> None:
        self._items = items
        self._total = len(items) if total is None else total
        self._message, self._on_progress, self._every = message, on_progress, every
        self._done = 0

    def __iter__(self) -> Iterator[Any]:
        for item in self._items:
            yield item
            self.update()

    def update(self, steps: int = 1) -> None:
        self._done += steps
        if self._done % self._every == 0 or self._done == self._total:
            self._on_progress(self._done, self._total, self._message)

    def close(self) -> None:
        """Nothing is left to draw."""


def _standard(name: str) -> dict[str, Any]:
    """lm-eval's own definition of one of the seven, without its dataset on the hub."""
    import lm_eval
    from lm_eval.tasks._yaml_loader import load_yaml

    entry = STANDARD_TASKS[name]
    definition = load_yaml(Path(lm_eval.__file__).parent / "tasks" / entry.definition)
    left_out = ("tag", "dataset_path", "dataset_name", "training_split", "validation_split", "test_split")
    kept = {key: value for key, value in definition.items() if key not in left_out}
    return copy.deepcopy(kept) | {"task": name, f"{entry.split}_split": entry.split, "num_fewshot": 0}


def _multiple_choice(source: TaskSource) -> dict[str, Any]:
    """Questions with the columns question, choices and answer; the names of columns are no templates."""
    return {
        "task": source.task,
        "output_type": "multiple_choice",
        "validation_split": "validation",
        "doc_to_text": "question",
        "doc_to_choice": "choices",
        "doc_to_target": "answer",
        "target_delimiter": questions.DELIMITERS[source.task] if source.kind == "demo" else " ",
        "metric_list": copy.deepcopy(_METRICS),
        "num_fewshot": 0,
        "metadata": {"version": own.VERSION},
    }


def _in_memory(rows: list[Row], definition: dict[str, Any]) -> Callable[..., Any]:
    split = "test" if "test_split" in definition else "validation"

    def load(**unused: Any) -> Any:
        import datasets

        return datasets.DatasetDict({split: datasets.Dataset.from_list(rows)})

    return load


def _require_fit(choice: str, tokens: int, longest: int) -> None:
    if 1 <= tokens <= longest:
        return
    problem = f"has {tokens} tokens and the model reads at most {longest}" if tokens else "has no tokens"
    raise CorpusError(f"the choice {_short(choice)} of a task {problem}: leave that question or task out")


def _require_number(choice: str, likelihood: float) -> None:
    if math.isnan(likelihood):
        raise NumericsError(
            f"the log-likelihood of the choice {_short(choice)} is NaN: the model overflows in its number "
            "type, so use float32 or bfloat16, or check its weights for NaN"
        )


def _short(choice: str) -> str:
    return repr(choice if len(choice) <= _SHOWN else choice[:_SHOWN] + "...")
