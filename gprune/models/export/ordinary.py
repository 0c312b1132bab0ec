"""Answers: which stock model is a pruned one whose layers all have the same width?

Ordinary families have one FFN width and one number of key/value groups for all layers. A pruned model that
has too is one of them, only narrower, and needs no code of ours. Biases that a repair has added stand where
the family's own switches put some, with zeros beside them. Where it has none, or takes no such number of
heads, a family that computes the same may.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from gprune.models.export import modeling_gprune
from gprune.models.export.writing import as_checkpoint_error
from gprune.models.families import PRUNED_PREFIX, Layout, dense_type
from gprune.models.parts import language_config
from gprune.system.errors import CheckpointError

_DERIVED_FIELDS = ("model_type", "architectures", "auto_map", "transformers_version")
_WINDOW_FIELDS = ("layer_types", "sliding_window", "use_sliding_window", "max_window_layers")
_LLAMA_FIELDS = ("attention_bias", "mlp_bias", "pretraining_tp")
_SIZES = ("intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim")
_TWINS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("mistral", {"sliding_window": None}),
    "mistral": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "qwen2": ("llama", {"attention_bias": True, "mlp_bias": True}),
}
"""The family that computes what another does where no window is in use, and what its configuration adds."""


@dataclass(frozen=True, slots=True)
class Fit:
    """How a pruned model is an ordinary one, or why not."""

    config: Any = None
    """of the ordinary model; None where none has these weights"""
    zeros: tuple[str, ...] = ()
    """biases that the ordinary model has beside those of the pruned one"""
    why: str = ""
    """why there is none, in words that follow a colon"""


def widths(model: Any, layout: Layout) -> tuple[list[int], list[int]]:
    """FFN neurons and key/value groups of every layer of a cut model; 1 group where its heads are one."""
    layers = list(model.get_submodule(layout.layers).children())
    neurons = [layer.get_submodule(layout.down_proj).in_features for layer in layers]
    if not layout.heads:
        return neurons, [1] * len(layers)
    size = _group_size(language_config(model)) * head_width(model, layout)
    return neurons, [layer.get_submodule(layout.o_proj).in_features // size for layer in layers]


def head_width(model: Any, layout: Layout) -> int:
    """Channels of a head."""
    first = next(iter(model.get_submodule(layout.layers).children()))
    return int(first.get_submodule(layout.attention).head_dim)


def equal(*widths: list[int]) -> bool:
    """Whether all layers have the same of each."""
    return all(len(set(one)) == 1 for one in widths)


def fit(model: Any, layout: Layout) -> Fit:
    """The ordinary model that has exactly the weights of a cut one, whose biases may have zeros beside them.

    `model` is of an own class of the family, or of ours.
    """
    neurons, groups = widths(model, layout)
    if layout.text:
        return Fit(why="other parts stand beside its language model")
    if not equal(neurons, groups):
        return Fit(why="its layers differ in width")
    config, own = model.config, dense_type(model.config.model_type)
    if layout.heads and not layout.free_heads and groups[0] != config.num_key_value_heads:
        return Fit(why=f"an ordinary {own} model derives the width of its heads from their number")
    sizes = {"intermediate_size": neurons[0], "head_dim": head_width(model, layout)}
    if layout.heads:
        sizes |= {"num_key_value_heads": groups[0], "num_attention_heads": groups[0] * _group_size(config)}
    why = ""
    for family, values in _candidates(model):
        try:
            found = _fit(model, configuration(family, values | sizes))
        except CheckpointError as error:
            found = Fit(why=str(error))
        if found.config is not None:
            return found
        why = found.why if family == own else why
    return Fit(why=why)


def formed(model: Any, layout: Layout) -> Any:
    """A cut model of its family's own class as an ordinary one, with a configuration that says its widths.

    The model itself where its family holds it, else another that shares its weights; None where there is
    none.
    """
    found = fit(model, layout)
    if found.config is None:
        return None
    if found.config.model_type != model.config.model_type:
        return _rebuilt(model, found)
    values = found.config.to_dict()
    for name in values:
        if name in _SIZES or name.endswith("_bias"):
            setattr(model.config, name, values[name])
    # of the dense model's folder, whose code is not in that of this one
    vars(model.config).pop("auto_map", None)
    for name, bias in _zeros(model, found.zeros).items():
        model.get_submodule(name.removesuffix(".bias")).bias = nn.Parameter(bias, requires_grad=False)
    return model


def is_own(model: Any) -> bool:
    """Whether a model is of a class of ours, which ordinary ones do not need."""
    return str(model.config.model_type).startswith(PRUNED_PREFIX)


def values_of(config: Any) -> dict[str, Any]:
    """What a configuration says beside our own fields and its family."""
    values: dict[str, Any] = config.to_dict()
    return {name: value for name, value in values.items() if name not in (*modeling_gprune.FIELDS, *_DERIVED_FIELDS)}


def windowless(values: dict[str, Any]) -> dict[str, Any]:
    """The same without what says of a window."""
    return {name: value for name, value in values.items() if name not in _WINDOW_FIELDS}


def windowed(config: Any) -> bool:
    """Whether a mistral or qwen2 model uses a window; without, it computes what llama computes."""
    window = getattr(config, "sliding_window", None)
    if dense_type(config.model_type) == "mistral":
        return window is not None and window < config.max_position_embeddings
    return "sliding_attention" in (getattr(config, "layer_types", None) or ())


def configuration(family: str, values: dict[str, Any]) -> Any:
    """An ordinary configuration; CheckpointError where the family does not take these values."""
    from transformers import AutoConfig

    with as_checkpoint_error(f"no ordinary {family} configuration holds this model"):
        return AutoConfig.for_model(family, **values)


def empty(config: Any, dtype: torch.dtype, **others: Any) -> Any:
    """An ordinary model without memory for its weights; `others` as of ``from_config``."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, dtype=dtype, **others)


def _candidates(model: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Families and values of their configurations, the nearest first."""
    config, family = model.config, dense_type(model.config.model_type)
    values = values_of(config)
    yield family, values
    yield family, values | {name: True for name in values if name.endswith("_bias")}
    # what lies over several GPUs is tied to its modules
    if family in _TWINS and not windowed(config) and not getattr(model, "hf_device_map", None):
        twin, added = _TWINS[family]
        plain = {name: value for name, value in windowless(values).items() if name not in _LLAMA_FIELDS}
        yield twin, plain | added


def _fit(model: Any, config: Any) -> Fit:
    with as_checkpoint_error(f"no ordinary {config.model_type} model holds this one"):
        places = empty(config, model.dtype).state_dict()
    tensors = model.state_dict()
    for name, tensor in tensors.items():
        if name not in places:
            return Fit(why=f"an ordinary {config.model_type} model has no {name}")
        if places[name].shape != tensor.shape:
            shapes = tuple(places[name].shape), tuple(tensor.shape)
            return Fit(why=f"{name} of an ordinary {config.model_type} model is {shapes[0]}, not {shapes[1]}")
    more = tuple(name for name in places if name not in tensors)
    lacking = next((name for name in more if not name.endswith(".bias")), None)
    if lacking is not None:
        return Fit(why=f"an ordinary {config.model_type} model needs {lacking}")
    return Fit(config, more)


def _zeros(model: Any, names: tuple[str, ...]) -> dict[str, torch.Tensor]:
    found = {}
    for name in names:
        weight = model.get_submodule(name.removesuffix(".bias")).weight
        found[name] = torch.zeros(len(weight), dtype=weight.dtype, device=weight.device)
    return found


def _rebuilt(model: Any, found: Fit) -> Any:
    """An ordinary model of another family with the weights of this one."""
    made = empty(found.config, model.dtype, attn_implementation=model.config._attn_implementation)
    made.load_state_dict(model.state_dict() | _zeros(model, found.zeros), assign=True)
    for name, buffer in model.named_buffers():
        path, _, last = name.rpartition(".")
        made.get_submodule(path).register_buffer(last, buffer, persistent=False)
    made.requires_grad_(False).tie_weights()
    made.generation_config, made.name_or_path = model.generation_config, model.name_or_path
    made.config.name_or_path = model.name_or_path
    return made.train(model.training)


def _group_size(config: Any) -> int:
    return int(config.num_attention_heads // config.num_key_value_heads)
