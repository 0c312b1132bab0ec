"""lm-eval's tasks over the data that was chosen: loaded, with their few-shot examples, and their requests built."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from gprune.data.demo import questions
from gprune.evaluation.tasks import registry
from gprune.evaluation.tasks.rows import OWN_QUESTIONS, STANDARD_TASKS, Row, check_of, read_rows
from gprune.evaluation.tasks.source import TaskSource, no_data, read_documents
from gprune.study import EvaluationSettings
from gprune.system.errors import CorpusError, GpruneError, SettingsError
from gprune.system.safe_parsing import sentence

Loaded = dict[str, Any]
"""as ``TaskManager.load`` returns it: tasks, and groups, by name"""
_EXAMPLES_SEED = 1234
"""seed of few-shot examples, lm-eval's default"""
_METRICS = ("acc", "acc_norm")


def load(source: TaskSource, few_shot: int | None) -> Loaded:
    """Load a task as lm-eval runs it, with `few_shot` examples, or None for as many as its definition has.

    Like lm-eval, a definition that fixes no examples keeps none. Raises CorpusError where the data cannot be had or
    does not fit the task, SettingsError where it is a collection without a figure of its own.
    """
    files = tuple((file, file.stat().st_mtime_ns) for file in (source.file, source.examples) if file)
    loaded = _load(source, few_shot, files)
    for task in loaded["tasks"].values():
        task.set_fewshot_seed(_EXAMPLES_SEED)
    return loaded


def build_requests(source: TaskSource, settings: EvaluationSettings) -> Loaded:
    """Load a task and build its requests, without a model."""
    loaded = load(source, settings.few_shot)
    with readable_faults(source.task):
        for task in loaded["tasks"].values():
            task.build_all_requests(limit=settings.limit)
    return loaded


def fingerprint(source: TaskSource, settings: EvaluationSettings | None = None, *, download: bool = True) -> str:
    """Return the SHA-256 of what decides the questions of a task.

    These are the rows, for the demo the version of its texts; for other tasks of lm-eval, and with few-shot
    examples, the requests as a model reads them. A dataset that would have to be downloaded is known by its name
    alone unless `download`. Raises CorpusError where the data cannot be used.
    """
    settings = settings or EvaluationSettings()
    if source.on_hub and not download and registry.uncached_datasets(source.task):
        return _digest({"task": source.task})
    if settings.few_shot or (source.kind == "registered" and source.task not in STANDARD_TASKS):
        tasks = build_requests(source, settings)["tasks"]
        return _digest([[name, task.VERSION, *_requests(task)] for name, task in tasks.items()])
    if source.kind == "demo":
        return _digest({"demo": source.task, "version": questions.VERSIONS[source.task]})
    if source.file is not None:
        status = source.file.stat()
        return _digest_rows(source, status.st_mtime_ns, status.st_size)
    standard = STANDARD_TASKS[source.task]
    (task,) = load(source, None)["tasks"].values()
    return _digest([standard.check_row(dict(row)) for row in task.dataset[standard.split]])


def _requests(task: Any) -> list[Any]:
    return [[request.args, request.doc_id, task.doc_to_target(request.doc)] for request in task.instances]


def _digest(content: object) -> str:
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@lru_cache(maxsize=64)
def _digest_rows(source: TaskSource, _modified: int, _size: int) -> str:
    return _digest(read_documents(source))


@contextmanager
def readable_faults(task: str) -> Iterator[None]:
    """Turn what lm-eval raises about a task's data into a CorpusError."""
    try:
        with registry.quiet(), registry.seeded():
            yield
    except GpruneError:
        raise
    except ImportError as error:
        package = error.name or "that the message names"
        raise CorpusError(
            f"the task {task!r} needs the package {package} ({sentence(error, 120)}): install it"
        ) from error
    except (OSError, RuntimeError) as error:
        raise CorpusError(no_data(task, sentence(error, 160))) from error
    except Exception as error:
        raise CorpusError(
            f"the task {task!r} cannot be built from its rows ({type(error).__name__}: {sentence(error, 160)}): "
            "give them as lm-eval's definition reads them"
        ) from error


@lru_cache(maxsize=32)
def _load(source: TaskSource, few_shot: int | None, _files: tuple[tuple[Path, int], ...]) -> Loaded:
    """Files and their times make changed rows another task."""
    rows = [] if source.on_hub else read_documents(source)
    with readable_faults(source.task):
        if source.kind == "registered":
            manager = registry.task_manager(source.task)
            loaded = manager.load(_with_rows(source, rows) if rows else source.task)
        else:
            from lm_eval.api.task import ConfigurableTask

            loaded = {"tasks": {source.task: ConfigurableTask(config=_multiple_choice(source, rows))}}
    if rows:
        loaded["groups"] = {}
    _require_figure(source.task, loaded)
    for task in loaded["tasks"].values():
        if (process := task.get_config("process_docs")) is not None:
            task.set_config("process_docs", _process_once(process))
        fixed = task.get_config("num_fewshot")
        task.set_config("num_fewshot", fixed if few_shot is None or fixed == 0 else few_shot)
        count = task.get_config("num_fewshot") or 0
        task.set_config("num_fewshot", count)
        if rows and source.examples is None and count >= len(rows):
            raise CorpusError(
                f"the task {source.task!r} has {len(rows)} rows, too few for {count} examples beside each question: "
                f"add rows, give {source.task}/train.jsonl, or set evaluation.few_shot to less"
            )
    return loaded


def _process_once(process: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return what processes a split once: of rows in memory lm-eval would shuffle options anew before it scores."""
    processed: dict[int, tuple[Any, Any]] = {}

    def process_split(split: Any) -> Any:
        if id(split) not in processed:
            with registry.seeded():
                processed[id(split)] = split, process(split)
        return processed[id(split)][1]

    return process_split


def _require_figure(name: str, loaded: Loaded) -> None:
    group = (loaded.get("groups") or {}).get(name)
    if name not in loaded["tasks"] and not (group is not None and group.has_aggregation):
        members = sorted(loaded["tasks"])
        more = f" and {len(members) - 8} more" if len(members) > 8 else ""
        raise SettingsError(
            f"{name!r} is a collection of lm-eval's tasks without a figure of its own: name those that you want "
            f"({', '.join(members[:8])}{more})"
        )
    if any(getattr(task, "MULTIMODAL", False) for task in loaded["tasks"].values()):
        raise SettingsError(f"the task {name!r} shows images or plays sound: only tasks of text are measured")


def _with_rows(source: TaskSource, rows: list[Row]) -> dict[str, Any]:
    """Return lm-eval's definition of a task over local rows; examples come from the rows of the split train."""
    shots = registry.definition(source.task).get("fewshot_config") or {}
    splits = {"test": rows}
    if source.examples is not None:
        splits["train"] = read_rows(source.examples, source.task, check_of(source.task))
    examples = "train" if "train" in splits else "test"
    overrides: dict[str, Any] = {
        "task": source.task,
        "custom_dataset": _in_memory(splits),
        "training_split": "train" if "train" in splits else None,
        "validation_split": None,
        "test_split": "test",
        # the questions themselves, but for the one that is asked, where there is no split for examples
        "fewshot_split": None if "samples" in shots else examples,
    }
    if "split" in shots:
        overrides["fewshot_config"] = {"sampler": shots.get("sampler", "default")}
    return {"group": "local", "task": [overrides]}


def _multiple_choice(source: TaskSource, rows: list[Row]) -> dict[str, Any]:
    """Return a definition of questions with the columns question, choices and answer."""
    return {
        "task": source.task,
        "output_type": "multiple_choice",
        "validation_split": "validation",
        "doc_to_text": "question",
        "doc_to_choice": "choices",
        "doc_to_target": "answer",
        "target_delimiter": questions.DELIMITERS[source.task] if source.kind == "demo" else " ",
        "metric_list": [{"metric": name, "aggregation": "mean", "higher_is_better": True} for name in _METRICS],
        "metadata": {"version": OWN_QUESTIONS},
        "custom_dataset": _in_memory({"validation": rows}),
    }


def _in_memory(splits: dict[str, list[Row]]) -> Callable[..., Any]:
    def load_rows(**_: Any) -> Any:
        import datasets

        return datasets.DatasetDict({name: datasets.Dataset.from_list(rows) for name, rows in splits.items()})

    return load_rows
