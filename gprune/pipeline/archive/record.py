"""The record of a run that comes from elsewhere: what of it is taken, and what follows from it."""

from __future__ import annotations

from typing import Any

from gprune.pipeline.runs.form import check
from gprune.pipeline.stages import Graph
from gprune.pipeline.stages.inputs import from_plain, lacking
from gprune.study import from_dict, methods
from gprune.system.errors import SettingsError, UnreadableError
from gprune.system.safe_parsing import sentence

FIELDS = (
    *("run", "study", "state", "until", "error", "started", "updated", "seconds", "expected", "stages"),
    *("unavailable", "missing_tasks", "doubtful_tasks", "texts", "provenance", "result"),
)
"""what a pack takes along of a run's record; not who made it, nor what a person notes on it"""


def checked(values: dict[str, Any], what: str) -> dict[str, Any]:
    """The fields of a run's record that a pack takes along, each of the form that the program relies on.

    Raises:
        UnreadableError: a field is missing or of another form.
    """
    try:
        found = check(values)
    except UnreadableError as error:
        raise UnreadableError(sentence(f"{what} {error}")) from error
    methods.remember(found)
    return {name: found[name] for name in FIELDS if name in found}


def graph_of(values: dict[str, Any], what: str) -> Graph:
    """The stages of a run under the digests of what it has read, without model or texts.

    Args:
        values: what run.json holds.
        what: what to call it in an error.

    Raises:
        UnreadableError: the record does not say what the run has read, or holds no study of today.
    """
    try:
        study = from_dict(values["study"])
    except SettingsError as error:
        raise UnreadableError(sentence(f"{what} holds a study of another version: {error}")) from error
    inputs = from_plain((values.get("provenance") or {}).get("inputs"))
    if inputs is None or lacking(study, inputs):
        raise UnreadableError(
            f"{what} does not say what the run has read: run the study again, finished stages are kept"
        )
    return Graph(study, inputs)
