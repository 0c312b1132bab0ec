"""Answers: which published models can be had with random weights, and from which configuration?

`random:llama2-7b` is a model like any other, but its weights are made where it is loaded: what a stage takes
in time and memory depends on shapes, not on what the weights are. Each folder here holds the configuration of
one. The tokenizer is that of the bundled demo, whose vocabulary is smaller than any of theirs, so that every
token has a row in the embeddings. `random:llama2-7b#layers=2` has two of its layers, all as wide as they are.

Needs no torch, so that `--help` can name them and the app can ask.
"""

import re
from pathlib import Path
from typing import Any

from gprune.system import safe_parsing
from gprune.system.errors import ModelError

RANDOM = "random:"
"""what the name of a model with random weights starts with"""
WEIGHTS = "random weights 1"
"""how they are made, with a version: whoever changes that (`random_weights.make`) counts it up"""
MOST_LAYERS = 512
"""of a model with random weights; the deepest published ones have some hundred"""
FOLDER = Path(__file__).parent
_NAMES = ("llama2-7b", "llama2-13b", "llama3-8b", "mistral-7b", "qwen2.5-7b", "qwen3-8b")


SHAPES: dict[str, dict[str, Any]] = {
    name: safe_parsing.json_object((FOLDER / name / "config.json").read_bytes(), f"the shape {name}") for name in _NAMES
}
"""Configurations of published models that can be had with random weights."""


def is_random(name: str) -> bool:
    """Whether a model's name asks for random weights."""
    return name.startswith(RANDOM)


def folder(name: str) -> Path:
    """The folder of ``random:SHAPE``, or of ``random:SHAPE#layers=N`` with so many of its layers.

    The latter is a name only: `values` has its configuration, `base` the folder that is there. Raises
    ModelError where there is no such shape or depth, or a retention follows it, which only `speed` takes.
    """
    whole, sign, _ = name.removeprefix(RANDOM).partition("@")
    shape, mark, depth = whole.partition("#")
    if shape not in SHAPES:
        raise ModelError(
            f"{safe_parsing.quoted(name)} is no model with random weights: after {RANDOM} comes one of "
            f"{', '.join(SHAPES)}"
        )
    if sign:
        raise ModelError(
            f"{safe_parsing.quoted(name)} names a retention, which only `speed` takes: a study has one of "
            f"its own, give {RANDOM}{whole}"
        )
    if not mark:
        return FOLDER / shape
    layers = _depth(depth)
    if layers is None:
        raise ModelError(
            f"{safe_parsing.quoted(name)} names no depth: after # comes layers=N, with N from 1 to "
            f"{MOST_LAYERS}, as in {RANDOM}{shape}#layers=2"
        )
    # under its own depth it is the same model
    own = SHAPES[shape].get("num_hidden_layers") == layers
    return FOLDER / (shape if own else f"{shape}#{depth}")


def _depth(text: str) -> int | None:
    found = re.fullmatch(r"layers=([1-9][0-9]{0,3})", text)
    return int(found[1]) if found and int(found[1]) <= MOST_LAYERS else None


def layers(place: Path) -> int | None:
    """The depth that a shape's folder has of its own; None for that of the published model."""
    return _depth(place.name.partition("#")[2])


def base(place: Path) -> Path:
    """The folder of a shape that is there, whatever its depth."""
    return place.with_name(place.name.partition("#")[0])


def deepened(values: dict[str, Any], count: int) -> dict[str, Any]:
    """A configuration with another number of layers; what it says layer by layer is repeated or cut."""
    own = values["num_hidden_layers"]
    each = {name: one for name, one in values.items() if isinstance(one, list) and len(one) == own}
    listed = {name: (one * count)[:count] for name, one in each.items()}
    return {**values, **listed, "num_hidden_layers": count}


def holds(place: Path) -> bool:
    """Whether a folder is that of a shape, whose weights are in no files."""
    shape, mark, _ = place.name.partition("#")
    known = shape in SHAPES and (not mark or layers(place) is not None)
    return known and place.parent.resolve() == FOLDER.resolve()
