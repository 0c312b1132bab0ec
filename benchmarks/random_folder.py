"""A model folder of a published shape with random weights, a file a layer: the model is never held whole."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

SPREAD = 0.02
"""standard deviation of the weights, as the published models are initialized"""


def write(folder: Path, configuration: dict[str, Any], dtype: torch.dtype) -> Path:
    """Writes the folder where it is not there; its index is written last.

    Args:
        folder: where it belongs.
        configuration: of a published shape, one of ``gprune.models.shapes.SHAPES``.
        dtype: number type of the weights.

    Returns:
        The folder.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    index = folder / "model.safetensors.index.json"
    if index.is_file():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    config = AutoConfig.for_model(**configuration)
    config.dtype = dtype
    config.save_pretrained(folder)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    places = {name: f"{_part(name)}.safetensors" for name in shapes}
    generator = torch.Generator().manual_seed(0)
    for file in dict.fromkeys(places.values()):
        made = {name: _weight(shapes[name], dtype, generator) for name in shapes if places[name] == file}
        save_file(made, folder / file, metadata={"format": "pt"})
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return folder


def _part(name: str) -> str:
    """The file of a weight: that of its layer, or that of what lies around the layers."""
    words = name.split(".")
    number = next((word for word in words if word.isdigit()), None)
    return "around" if number is None else f"layer-{number}"


def _weight(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    if len(shape) == 1:
        return torch.ones(shape, dtype=dtype)
    return torch.empty(shape, dtype=dtype).normal_(0, SPREAD, generator=generator)
