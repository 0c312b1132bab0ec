"""Make the paths of a command line absolute, because jobs run in another working directory."""

from operator import attrgetter
from typing import Any

from gprune.data.demo import MODEL_FOLDERS
from gprune.models import sources
from gprune.study import Study
from gprune.study.fields import assignment
from gprune.study.study import split_text_name
from gprune.system import safe_parsing


def model(name: str) -> str:
    """Return the name of a model, or the absolute path of its folder.

    Raises ModelError if it names random weights of an unknown shape.
    """
    if sources.is_random(name):
        sources.shape_folder(name)
        return name
    return name if name in MODEL_FOLDERS else absolute_path(name)


def absolute_path(name: str) -> str:
    """Return the absolute path of an existing file or folder, or the name unchanged."""
    path = safe_parsing.path(name, "the name of a model, a text or a task")
    return str(path.resolve()) if path.exists() else name


def text(value: Any) -> Any:
    """Return the name of a text, with the path of its file made absolute; for a list, convert each entry.

    Values of other types are returned unchanged.
    """
    if isinstance(value, list | tuple):
        return tuple(map(text, value))
    if not isinstance(value, str):
        return value
    name, value = split_text_name(value)
    if name:
        return f"{name}={text(value)}"
    location, sign, options = value.partition("#")
    # a name without one of these characters is a known text, even if there is a folder of that name
    return absolute_path(location) + sign + options if set(location) & set("/.~") else value


def parse_setting(argument: str) -> tuple[str, Any]:
    """Parse FIELD=VALUE and make the path of a text absolute; for errors see `assignment`."""
    field, value = assignment(argument)
    return field, text(value) if field.endswith("_text") else value


def task_folder(name: str) -> str:
    """Return the absolute path of a folder of tasks; empty for an empty name."""
    return str(safe_parsing.path(name, "the folder of tasks").resolve()) if name else ""


_TEXTS = ("primary", "auxiliary", "substitute", "baselines.taylor_text", "choice.check_text")
"""fields of a study with the name of one text"""


def study(original: Study) -> Study:
    """Return a study with absolute paths of its model, texts and tasks; for errors see `model`."""
    names = (*_TEXTS, "evaluation.texts", "evaluation.tasks")
    changes = {name: text(attrgetter(name)(original)) for name in names}
    changes["model"] = model(original.model)
    changes["evaluation.task_folder"] = task_folder(original.evaluation.task_folder)
    changes["text_names"] = tuple(f"{name}={text(value)}" for value, name in original.names_of_texts.items())
    return original.with_settings(changes)
