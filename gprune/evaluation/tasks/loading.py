"""Find and load tasks, and build their requests by lm-eval's definitions.

The rows of a registered task of lm-eval, such as the paper's seven, come from ``evaluation.task_folder`` if it is set
(``TASK.jsonl``, with the columns of the hub's rows), else from the hub. lm-eval is imported when it is first needed.
Reading the index of all its tasks takes further seconds. Neither loads torch or transformers.
"""

import hashlib
import json
import logging
import os
import random
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from gprune.data.demo import questions
from gprune.evaluation.tasks.rows import CHECKS, OWN_QUESTIONS, STANDARD_TASKS, Row, TaskSource, read_documents
from gprune.study import EvaluationSettings
from gprune.system import safe_parsing
from gprune.system.errors import CorpusError, GpruneError, SettingsError
from gprune.system.progress import Progress
from gprune.system.safe_parsing import closest, sentence

Loaded = dict[str, Any]
"""result of ``TaskManager.load``: tasks and groups by name"""
_METRICS = ("acc", "acc_norm")
"""metrics of own questions"""
PROMPTS = "prompts-"
"""beginning of the fingerprint of own prompts, so that their answers are known to be generated without the file"""
_OWN_SUFFIXES = (".jsonl", ".ndjson", ".json")
"""suffixes of files of own questions"""


def listed_tasks() -> tuple[str, ...]:
    """Return the names of the demo's tasks and of the paper's seven, without the other tasks of lm-eval."""
    return (*questions.NAMES, *STANDARD_TASKS)


def needs_index(task: str) -> bool:
    """Return True if the slow index of lm-eval must be read to determine whether a task exists."""
    return task not in listed_tasks() and not task.lower().endswith(_OWN_SUFFIXES)


def resolve(task: str, settings: EvaluationSettings) -> TaskSource:
    """Find a task by its name, or by the path of a file of own questions; nothing is downloaded.

    Raises:
        SettingsError: There is no such task, it executes generated code, or the task folder is not a folder.
        CorpusError: Its file does not exist.
    """
    if task in questions.NAMES:
        return TaskSource(task, "demo")
    if needs_index(task):
        require_runnable(task)
    elif task not in STANDARD_TASKS:
        with safe_parsing.reraise_as(SettingsError):
            file = safe_parsing.path(task, "a task")
        if not file.is_file():
            raise CorpusError(f"the task {task!r} has no data: there is no file {str(file)!r}")
        return TaskSource(task, "own", file)
    return _find_in_folder(task, settings.task_folder) if settings.task_folder else TaskSource(task, "registered")


def _find_in_folder(task: str, name: str) -> TaskSource:
    """Return the task with its rows in the folder `name`. Raises CorpusError if the folder has no file for it."""
    with safe_parsing.reraise_as(SettingsError):
        folder = safe_parsing.path(name, "evaluation.task_folder")
    if not folder.is_dir():
        raise SettingsError(f"evaluation.task_folder must be a folder (got {name!r})")
    if task not in STANDARD_TASKS:
        _require_single(task)
    file = folder / f"{task}.jsonl"
    if not file.is_file():
        raise CorpusError(
            f"the task {task!r} has no data in {str(folder)!r}: put {file.name} there, or leave "
            "evaluation.task_folder empty to use the hub"
        )
    return TaskSource(task, "registered", file)


def _require_single(task: str) -> None:
    """Raise SettingsError for a group, which has no rows, and for a task that reads its own data set."""
    if [name for name, _ in _single_tasks(task)] != [task]:
        raise SettingsError(
            f"{task!r} is a group of lm-eval without rows of its own: name its tasks, or leave "
            "evaluation.task_folder empty"
        )
    if "class" in task_definition(task):
        raise SettingsError(f"the task {task!r} reads its own data set: leave evaluation.task_folder empty for it")


def task_manager(name: str) -> Any:
    """Return a ``TaskManager`` with a task; for the paper's seven tasks it does not read the index of all tasks."""
    return _build_manager(name in STANDARD_TASKS)


def require_runnable(name: str) -> None:
    """Raise SettingsError if lm-eval has no such task, or it executes generated code."""
    index = task_manager(name).task_index
    if name not in index:
        suggestion = closest(name, listed_tasks()) or closest(name, index)
        hint = (
            f": did you mean {suggestion}?"
            if suggestion
            else f" here or in lm-eval; known: {', '.join(listed_tasks())}."
        )
        raise SettingsError(f"there is no task {name!r}{hint} A file of your own questions ends in .jsonl")
    unsafe = [task for task, config in _single_tasks(name) if config.get("unsafe_code", False) is not False]
    if unsafe:
        unsafe_names = "" if unsafe == [name] else f" ({', '.join(unsafe[:3])})"
        raise SettingsError(
            f"the task {name!r} executes code that the model writes{unsafe_names}, which is not done here: "
            "run it with lm-eval's own command on an exported folder, in a sandbox"
        )


def uncached_datasets(name: str) -> list[str]:
    """Return the hub datasets of a registered task that are not in the cache of the datasets library."""
    from datasets import config

    cached = {_letters_and_digits(folder.name) for folder in Path(config.HF_DATASETS_CACHE).glob("*___*")}
    settings = [settings for _, settings in _single_tasks(name) if not settings.get("custom_dataset")]
    datasets = dict.fromkeys(str(task.get("dataset_path") or "") for task in settings)
    return [dataset for dataset in datasets if "/" in dataset and _letters_and_digits(dataset) not in cached]


def task_definition(name: str) -> dict[str, Any]:
    """Return the settings in the file of one registered task, without resolving functions."""
    return dict(task_manager(name).task_index[name].cfg or {})


@contextmanager
def silence_output() -> Iterator[None]:
    """Suppress warnings of lm-eval and progress bars of all libraries while the context is open."""
    logger = logging.getLogger("lm_eval")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with open(os.devnull, "w", encoding="utf-8") as sink, redirect_stderr(sink):
            yield
    finally:
        logger.setLevel(level)


@contextmanager
def seed_random_numbers() -> Iterator[None]:
    """Seed the global generators as lm-eval does, because some tasks shuffle options; restore them on exit."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    random.seed(0)
    np.random.seed(1234)  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002


def writes_to_caller(on_progress: Progress) -> Progress:
    """Return a progress callback that writes to the current stderr even while `silence_output` redirects it."""
    stream = sys.stderr

    def report(done: int, total: int, message: str) -> None:
        with redirect_stderr(stream):
            on_progress(done, total, message)

    return report


def _single_tasks(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and settings of a task, or of each task in a group or tag."""
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


@lru_cache(maxsize=2)
def _build_manager(only_standard: bool) -> Any:
    """Return a ``TaskManager`` of the paper's seven tasks, or of all tasks of lm-eval."""
    import lm_eval.tasks

    root = Path(lm_eval.tasks.__file__).parent
    folders = dict.fromkeys(str(root / task.folder) for task in STANDARD_TASKS.values())
    with silence_output():
        return lm_eval.tasks.TaskManager(
            include_path=list(folders) if only_standard else None, include_defaults=not only_standard
        )


def _letters_and_digits(name: str) -> str:
    """Return a name as it can be compared between the hub and the cache of datasets."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _has_prompts(source: TaskSource) -> bool:
    return source.kind == "own" and "check" in read_documents(source)[0]


def load_task(source: TaskSource, settings: EvaluationSettings) -> Loaded:
    """Load a task with `few_shot` examples per question; None uses the number in its definition.

    As in lm-eval, a definition with zero examples ignores `few_shot`. The limit and the end of generated answers apply
    to own prompts only. Raises CorpusError if the data is not available or does not fit the task, SettingsError if it
    is a collection without a score of its own.
    """
    modified = source.file.stat().st_mtime_ns if source.file else 0
    limit = settings.generated_tokens if _has_prompts(source) else 0
    loaded = _load_cached(source, settings.few_shot, limit, settings.chat_template, modified)
    for task in loaded["tasks"].values():
        # lm-eval's default
        task.set_fewshot_seed(1234)
    return loaded


def build_requests(source: TaskSource, settings: EvaluationSettings, tokenizer: Any = None) -> Loaded:
    """Load a task and build its requests, without a model.

    If `settings.chat_template` is on, the chat template of the tokenizer writes them; without a tokenizer, none does.
    """
    loaded, options = load_task(source, settings), dict[str, Any]()
    if settings.chat_template and tokenizer is not None:
        require_template(tokenizer)

        def render(messages: list[dict[str, str]], add_generation_prompt: bool = True) -> Any:
            ends = {"add_generation_prompt": add_generation_prompt, "continue_final_message": not add_generation_prompt}
            return tokenizer.apply_chat_template(messages, tokenize=False, **ends)

        options = {"apply_chat_template": True, "fewshot_as_multiturn": True, "chat_template": render}
    with readable_faults(source.task):
        for task in loaded["tasks"].values():
            task.build_all_requests(limit=settings.limit, **options)
    return loaded


def require_template(tokenizer: Any) -> None:
    """Raise SettingsError if a tokenizer has no chat template."""
    if not getattr(tokenizer, "chat_template", None):
        remedy = "use a chat model, or set evaluation.chat_template=false"
        raise SettingsError(f"evaluation.chat_template is true, but the tokenizer has no chat template: {remedy}")


def generation_settings(limit: int, chat_template: bool, *ends: str) -> dict[str, Any]:
    """Return lm-eval's settings of a greedy answer of at most `limit` tokens; with a chat template, only EOS ends it.

    Without a template it ends at a blank line or at one of `ends`.
    """
    return {"until": [] if chat_template else ["\n\n", *ends], "do_sample": False, "max_gen_toks": limit}


def fingerprint(source: TaskSource, settings: EvaluationSettings | None = None, *, download: bool = True) -> str:
    """Return the SHA-256 of everything that determines the questions of a task.

    It hashes the rows of the paper's tasks and of own questions, and the version of the demo's questions. For other
    tasks of lm-eval, and with few-shot examples, it hashes the complete requests. If `download` is False, a task
    whose dataset is not on this machine is hashed by its name only. Raises CorpusError if the data cannot be used.
    """
    settings = settings or EvaluationSettings()
    if source.on_hub and not download and uncached_datasets(source.task):
        return _digest({"task": source.task})
    prefix = PROMPTS if _has_prompts(source) else ""
    if settings.few_shot or (source.kind == "registered" and source.task not in STANDARD_TASKS):
        tasks = build_requests(source, settings)["tasks"]
        return prefix + _digest([[name, task.VERSION, *_requests(task)] for name, task in tasks.items()])
    if source.kind == "demo":
        return _digest({"demo": source.task, "version": questions.VERSIONS[source.task]})
    if source.file is not None:
        return prefix + _digest(read_documents(source))
    standard = STANDARD_TASKS[source.task]
    (task,) = load_task(source, EvaluationSettings())["tasks"].values()
    return _digest([standard.check_row(dict(row)) for row in task.dataset[standard.split]])


def _requests(task: Any) -> list[Any]:
    """Return the arguments, the index of the question and the right answer of every request."""
    return [[request.args, request.doc_id, task.doc_to_target(request.doc)] for request in task.instances]


def _digest(content: object) -> str:
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@contextmanager
def readable_faults(task: str) -> Iterator[None]:
    """Convert lm-eval's errors about a task's data in the block into CorpusError."""
    try:
        with silence_output(), seed_random_numbers():
            yield
    except GpruneError:
        raise
    except ImportError as error:
        raise CorpusError(f"the task {task!r} needs another package, install it: {sentence(error, 120)}") from error
    except (OSError, RuntimeError) as error:
        raise CorpusError(
            f"the task {task!r} has no data: {sentence(error, 160)}. Run it once with a network, set "
            f"evaluation.task_folder to a folder with {task}.jsonl, or leave the task out"
        ) from error
    except Exception as error:
        raise CorpusError(
            f"the task {task!r} cannot be built from its rows ({type(error).__name__}: {sentence(error, 160)}): "
            "give them as lm-eval's definition reads them"
        ) from error


@lru_cache(maxsize=32)
def _load_cached(source: TaskSource, few_shot: int | None, tokens: int, chat_template: bool, _modified: int) -> Loaded:
    """Load a task; the time of its file's last modification is part of the cache key."""
    rows = [] if source.on_hub else read_documents(source)
    with readable_faults(source.task):
        if source.kind == "registered":
            manager = task_manager(source.task)
            loaded = manager.load(_define_over_rows(source, rows) if rows else source.task)
        else:
            from lm_eval.api.task import ConfigurableTask

            definition = _define_own_questions(source, rows)
            if "check" in rows[0]:
                definition |= {
                    "output_type": "generate_until",
                    "doc_to_text": "prompt",
                    "doc_to_choice": None,
                    "generation_kwargs": generation_settings(tokens, chat_template),
                    "process_results": lambda row, texts: {
                        "exact_match": CHECKS[row["check"]](texts[0], row["answer"])
                    },
                    "metric_list": [definition["metric_list"][0] | {"metric": "exact_match"}],
                }
            loaded = {"tasks": {source.task: ConfigurableTask(config=definition)}}
    if rows:
        loaded["groups"] = {}
    _require_score(source.task, loaded)
    for task in loaded["tasks"].values():
        if (process := task.get_config("process_docs")) is not None:
            task.set_config("process_docs", _process_once(process))
        fixed_count = task.get_config("num_fewshot")
        count = (fixed_count if few_shot is None or fixed_count == 0 else few_shot) or 0
        task.set_config("num_fewshot", count)
        if rows and count >= len(rows):
            raise CorpusError(
                f"the task {source.task!r} has {len(rows)} rows, too few for {count} few-shot examples per question: "
                "add rows, or lower evaluation.few_shot"
            )
    return loaded


def _process_once(process: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return `process` with cached results, because lm-eval would call it again and reshuffle the options."""
    processed: dict[int, tuple[Any, Any]] = {}

    def process_split(split: Any) -> Any:
        if id(split) not in processed:
            with seed_random_numbers():
                processed[id(split)] = split, process(split)
        return processed[id(split)][1]

    return process_split


def _require_score(name: str, loaded: Loaded) -> None:
    """Raise SettingsError if a group of tasks has no score of its own, or a task is not text only."""
    group = (loaded.get("groups") or {}).get(name)
    if name not in loaded["tasks"] and not (group is not None and group.has_aggregation):
        members = ", ".join(sorted(loaded["tasks"]))
        raise SettingsError(
            f"{name!r} is a collection of lm-eval's tasks without a score of its own: name some of them "
            f"({sentence(members, 120)})"
        )
    if any(getattr(task, "MULTIMODAL", False) for task in loaded["tasks"].values()):
        raise SettingsError(f"the task {name!r} has images or sound: only text tasks are measured")


def _define_over_rows(source: TaskSource, rows: list[Row]) -> dict[str, Any]:
    """Return lm-eval's definition of a task over local rows; few-shot examples come from the same rows."""
    shots = task_definition(source.task).get("fewshot_config") or {}
    overrides: dict[str, Any] = {
        "task": source.task,
        "custom_dataset": _rows_loader("test", rows),
        "training_split": None,
        "validation_split": None,
        "test_split": "test",
        "fewshot_split": None if "samples" in shots else "test",
    }
    if "split" in shots:
        overrides["fewshot_config"] = {"sampler": shots.get("sampler", "default")}
    return {"group": "local", "task": [overrides]}


def _define_own_questions(source: TaskSource, rows: list[Row]) -> dict[str, Any]:
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
        "metadata": {"version": OWN_QUESTIONS, "ability": rows[0].get("ability", "")},
        "custom_dataset": _rows_loader("validation", rows),
    }


def _rows_loader(split: str, rows: list[Row]) -> Callable[..., Any]:
    """Return a function that lm-eval calls for the dataset of a task; it returns the rows as one split."""

    def load_rows(**_: Any) -> Any:
        import datasets

        return datasets.DatasetDict({split: datasets.Dataset.from_list(rows)})

    return load_rows
