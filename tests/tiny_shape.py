"""A shape with random weights that is made in no time, beside the published ones."""

import json
from pathlib import Path

import pytest

from gprune.models import sources

TINY = {
    "model_type": "llama",
    "dtype": "bfloat16",
    "hidden_size": 16,
    "intermediate_size": 27,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 4224,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}


def put(patch: pytest.MonkeyPatch, folder: Path, **configs: dict) -> None:
    """Makes `random:NAME` known, for each name with what its configuration has of its own."""
    for name, config in configs.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "config.json").write_text(json.dumps(TINY | config))
        patch.setitem(sources.SHAPES, name, TINY | config)
    patch.setattr(sources, "SHAPES_FOLDER", folder)
