"""Configurations of published models that load with random weights, for measurements of time and memory.

`random:llama2-7b` has the shape of LLaMA-2 7B and the tokenizer of the bundled demo, whose vocabulary is smaller, so
that every token has a row in the embeddings. Needs no torch.
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


SHAPES: dict[str, dict[str, Any]] = {
    name: safe_parsing.json_object((FOLDER / name / "config.json").read_bytes(), f"the shape {name}") for name in _NAMES
}
"""Configurations of published models that can be had with random weights."""


def is_random(name: str) -> bool:
    """Return True if a model's name asks for random weights."""
    return name.startswith(RANDOM)


def folder(name: str) -> Path:
    """Return the folder of ``random:SHAPE``.

    Raises ModelError where there is no such shape, or a retention follows it, which only `speed` takes.
    """
    shape, sign, _ = name.removeprefix(RANDOM).partition("@")
    if shape not in SHAPES:
        raise ModelError(
            f"{safe_parsing.quoted(name)} is no model with random weights: after {RANDOM} comes one of "
            f"{', '.join(SHAPES)}"
        )
    if sign:
        raise ModelError(
            f"{safe_parsing.quoted(name)} names a retention, which only `speed` takes: a study has one of "
            f"its own, give {RANDOM}{shape}"
        )
    return FOLDER / shape


def holds(folder: Path) -> bool:
    """Return True for the folder of a shape, whose weights are in no files."""
    return folder.name in SHAPES and folder.parent.resolve() == FOLDER.resolve()
