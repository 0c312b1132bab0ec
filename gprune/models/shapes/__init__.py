"""Configurations of published models that load with random weights, for measurements of time and memory.

`random:llama2-7b` has the shape of LLaMA-2 7B and the tokenizer of the bundled demo, whose vocabulary is smaller, so
that every token has a row in the embeddings. `random:llama2-7b#layers=2` has two of its layers. Needs no torch.
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
    """Return True if a model's name asks for random weights."""
    return name.startswith(RANDOM)


def folder(name: str) -> Path:
    """Return the folder of ``random:SHAPE``, or of ``random:SHAPE#layers=N``, see `base_folder`.

    Raises ModelError if there is no such shape or depth, or a retention follows it, which only `speed` takes.
    """
    model, sign, _ = name.removeprefix(RANDOM).partition("@")
    shape, mark, depth = model.partition("#")
    if shape not in SHAPES:
        raise ModelError(
            f"{safe_parsing.quote(name)} is no model with random weights: after {RANDOM} comes one of "
            f"{', '.join(SHAPES)}"
        )
    if sign:
        raise ModelError(
            f"{safe_parsing.quote(name)} names a retention, which only `speed` takes: a study has one of "
            f"its own, give {RANDOM}{model}"
        )
    if not mark:
        return FOLDER / shape
    layers = _depth(depth)
    if layers is None:
        raise ModelError(
            f"{safe_parsing.quote(name)} names no depth: after # comes layers=N, with N from 1 to "
            f"{MOST_LAYERS}, as in {RANDOM}{shape}#layers=2"
        )
    # with its original depth it is the same model
    is_published = SHAPES[shape].get("num_hidden_layers") == layers
    return FOLDER / (shape if is_published else f"{shape}#{depth}")


def _depth(text: str) -> int | None:
    match = re.fullmatch(r"layers=([1-9][0-9]{0,3})", text)
    return int(match[1]) if match and int(match[1]) <= MOST_LAYERS else None


def layers(folder: Path) -> int | None:
    """Return the depth in a folder's name; None for that of the published model."""
    return _depth(folder.name.partition("#")[2])


def base_folder(folder: Path) -> Path:
    """Return the existing folder of a shape, whatever its depth."""
    return folder.with_name(folder.name.partition("#")[0])


def with_layers(values: dict[str, Any], count: int) -> dict[str, Any]:
    """Return a configuration with another number of layers; lists by layer are repeated or cut."""
    depth = values["num_hidden_layers"]
    lists = {name: value for name, value in values.items() if isinstance(value, list) and len(value) == depth}
    return {**values, **{name: (value * count)[:count] for name, value in lists.items()}, "num_hidden_layers": count}


def is_shape(folder: Path) -> bool:
    """Return True for the folder of a shape, which has no weight files."""
    shape, mark, _ = folder.name.partition("#")
    is_known = shape in SHAPES and (not mark or layers(folder) is not None)
    return is_known and folder.parent.resolve() == FOLDER.resolve()
