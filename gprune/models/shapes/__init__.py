"""Answers: which published models can be had with random weights, and from which configuration?

`random:llama2-7b` is a model like any other, but its weights are made where it is loaded: what a stage takes
in time and memory depends on shapes, not on what the weights are. Each folder here holds the configuration of
one. The tokenizer is that of the bundled demo, whose vocabulary is smaller than any of theirs, so that every
token has a row in the embeddings.

Needs no torch, so that `--help` can name them and the app can ask.
"""

from pathlib import Path
from typing import Any

from gprune.system import safe_parsing
from gprune.system.errors import ModelError

RANDOM = "random:"
"""what the name of a model with random weights starts with"""
WEIGHTS = "random weights 1"
"""how they are made, with a version: whoever changes that (`random_weights.make`) counts it up"""
FOLDER = Path(__file__).parent
_NAMES = ("llama2-7b", "llama2-13b", "llama3-8b", "mistral-7b", "qwen2.5-7b", "qwen3-8b")


def _values(name: str) -> dict[str, Any]:
    return safe_parsing.json_object((FOLDER / name / "config.json").read_bytes(), f"the shape {name}")


SHAPES: dict[str, dict[str, Any]] = {name: _values(name) for name in _NAMES}
"""Configurations of published models that can be had with random weights."""


def is_random(name: str) -> bool:
    """Whether a model's name asks for random weights."""
    return name.startswith(RANDOM)


def folder(name: str) -> Path:
    """The folder of ``random:SHAPE``.

    Raises ModelError where there is no such shape, or a retention follows it, which only `speed` takes.
    """
    shape, sign, _ = name.removeprefix(RANDOM).partition("@")
    if sign and shape in SHAPES:
        raise ModelError(
            f"{safe_parsing.quoted(name)} names a retention, which only `speed` takes: a study has one of "
            f"its "
            f"own, give {RANDOM}{shape}"
        )
    if shape not in SHAPES or sign:
        raise ModelError(
            f"{safe_parsing.quoted(name)} is no model with random weights: after {RANDOM} comes one of "
            f"{', '.join(SHAPES)}"
        )
    return FOLDER / shape


def holds(place: Path) -> bool:
    """Whether a folder is that of a shape, whose weights are in no files."""
    return place.name in SHAPES and place.resolve().parent == FOLDER.resolve()
