"""Documentation and types of a study's fields, for the command-line options and the form.

A field's documentation is the string after it in the source of the settings.
"""

import ast
import inspect
import typing
from functools import cache
from itertools import pairwise
from typing import Any, cast

from gprune.study import Study, field_names
from gprune.system import safe_parsing
from gprune.system.errors import SettingsError, UnreadableError

OPTIONS = {
    "model": "model",
    "primary": "primary",
    "auxiliary": "auxiliary",
    "substitute": "substitute",
    "metric": "metric",
    "retention": "retention",
    "samples": "calibration.samples",
    "length": "calibration.length",
    "epochs": "sparsity.epochs",
    "widths": "sparsity.widths",
    "seed": "seed",
    "methods": "methods",
    "repair": "repair.kind",
    "recover": "recovery.kind",
    "check-text": "choice.check_text",
    "tasks": "evaluation.tasks",
    "few-shot": "evaluation.few_shot",
    "limit": "evaluation.limit",
    "evaluate": "evaluation.texts",
    "preset": "evaluation.preset",
    "windows": "evaluation.windows",
    "device": "device",
    "dtype": "dtype",
    "name": "name",
}
"""fields of a study by command-line option; `--set` sets the other fields by dotted name"""


@cache
def documentation() -> dict[str, str]:
    """Return the documentation of each field by dotted name, and of each section by its name."""
    texts, hints = dict(_parse_field_texts(Study)), typing.get_type_hints(Study)
    for name in field_names():
        section, _, field = name.rpartition(".")
        if section:
            texts[name] = _parse_field_texts(hints[section])[field]
    return texts


@cache
def hint(name: str) -> Any:
    """Return the type of a field by its dotted name."""
    section, _, field = name.rpartition(".")
    return typing.get_type_hints(typing.get_type_hints(Study)[section] if section else Study)[field]


@cache
def _parse_field_texts(kind: type) -> dict[str, str]:
    """Return the string after each field in the source of a class."""
    (node,) = ast.parse(inspect.getsource(kind)).body
    texts: dict[str, str] = {}
    for field, after in pairwise(cast(ast.ClassDef, node).body):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            texts[field.target.id] = str(after.value.value)
    return texts


def assignment(argument: str) -> tuple[str, Any]:
    """Parse FIELD=VALUE; the value is JSON, or a string if it is not valid JSON.

    Raises SettingsError if there is no equals sign, or a list or object is not valid JSON.
    """
    field, sign, value = argument.partition("=")
    if not sign:
        quoted = safe_parsing.quote(argument)
        raise SettingsError(f"--set takes FIELD=VALUE (got {quoted}), for example reliability.drift_quantile=0.85")
    try:
        return field, safe_parsing.json_value(value, f"the value of {safe_parsing.quote(field)}")
    except UnreadableError as error:
        if value.lstrip().startswith(("[", "{")):
            raise SettingsError(str(error)) from error
        return field, value
