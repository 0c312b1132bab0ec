"""Write a model folder of a published shape with random weights, layer by layer to save memory."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

WEIGHT_DEVIATION = 0.02
"""standard deviation of the weights, as at the initialization of the published models"""


def write_random_model(folder: Path, configuration: dict[str, Any], dtype: torch.dtype) -> Path:
    """Write the folder unless it is complete, which the index shows because it is written last.

    Args:
        folder: the model folder.
        configuration: the fields of a published shape, one of ``gprune.models.sources.SHAPES``.
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
    files = {name: _file_name(name) for name in shapes}
    generator = torch.Generator().manual_seed(0)
    for file in dict.fromkeys(files.values()):
        weights = {name: _random_weight(shapes[name], dtype, generator) for name in shapes if files[name] == file}
        save_file(weights, folder / file, metadata={"format": "pt"})
    index.write_text(json.dumps({"metadata": {}, "weight_map": files}))
    return folder


def _file_name(weight: str) -> str:
    # a file per layer, and one for embeddings, final norm and head
    layer = next((part for part in weight.split(".") if part.isdigit()), None)
    return "outside-layers.safetensors" if layer is None else f"layer-{layer}.safetensors"


def _random_weight(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    if len(shape) == 1:
        return torch.ones(shape, dtype=dtype)
    return torch.empty(shape, dtype=dtype).normal_(0, WEIGHT_DEVIATION, generator=generator)
