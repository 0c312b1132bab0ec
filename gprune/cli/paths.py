"""Names of models, texts and files as they were typed, made whole: jobs run in a folder of their own."""

from dataclasses import replace
from typing import Any

from gprune.models import shapes
from gprune.study import Study
from gprune.study.fields import assignment
from gprune.system import safe_parsing


def model(name: str) -> str:
    """A model by its name, or with the whole path of its folder.

    Raises ModelError where it asks for random weights of no known shape.
    """
    if shapes.is_random(name):
        shapes.folder(name)
        return name
    return name if name == "demo" else located(name)


def located(name: str) -> str:
    """A name as it is, or the whole path of a file or folder."""
    path = safe_parsing.path(name, "the name of a model, a text or a task")
    return str(path.resolve()) if path.exists() else name


def text(value: Any) -> Any:
    """A text by name, or with the whole path of its file and its options; other values as they are."""
    if not isinstance(value, str):
        return value
    place, sign, options = value.partition("#")
    # a folder that happens to be called like a known text is not meant
    return located(place) + sign + options if set(place) & set("/.~") else value


def assigned(word: str) -> tuple[str, Any]:
    """A setting as it was typed; a text has the whole path of its file. For errors see `assignment`."""
    field, value = assignment(word)
    return field, text(value) if field.endswith("_text") else value


def task_folder(name: str) -> str:
    """The whole path of a folder of tasks; empty stays empty."""
    return str(safe_parsing.path(name, "the folder of tasks").resolve()) if name else ""


def study(given: Study) -> Study:
    """A study whose model, texts and tasks are found from any folder; for errors see `model`."""
    evaluation = replace(
        given.evaluation,
        texts=tuple(map(text, given.evaluation.texts)),
        tasks=tuple(map(text, given.evaluation.tasks)),
        task_folder=task_folder(given.evaluation.task_folder),
    )
    return replace(
        given,
        model=model(given.model),
        primary=text(given.primary),
        auxiliary=text(given.auxiliary),
        substitute=text(given.substitute),
        baselines=replace(given.baselines, taylor_text=text(given.baselines.taylor_text)),
        choice=replace(given.choice, check_text=text(given.choice.check_text)),
        evaluation=evaluation,
    )
