"""Find the stock model that equals a pruned model with layers of one width.

Stock models have one FFN width and one number of key/value groups for all layers. A pruned model with equal widths is a
narrower stock model and needs no custom code. If a repair has added biases, the stock model needs a configuration of
its family with biases in these maps; those of its biases that the pruned model lacks are zero. If the family has no
such configuration, or does not allow the number of heads, another family with the same computation may hold the model.
"""

import contextlib
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
"""by family: another family with the same computation if no sliding window is used, and values of its fields that the
first family lacks"""


@dataclass(frozen=True, slots=True)
class StockModel:
    """A stock model that equals a pruned one."""

    config: Any
    added_biases: tuple[str, ...]
    """biases of the stock model that the pruned one lacks"""


def widths(model: Any, layout: Layout) -> tuple[list[int], list[int]]:
    """Return the FFN neurons and key/value groups of every layer; 1 group if `layout.prunes_heads` is False."""
    layers = list(model.get_submodule(layout.layers).children())
    neurons = [layer.get_submodule(layout.down_proj).in_features for layer in layers]
    if not layout.prunes_heads:
        return neurons, [1] * len(layers)
    size = group_size(language_config(model)) * head_width(model, layout)
    return neurons, [layer.get_submodule(layout.o_proj).in_features // size for layer in layers]


def head_width(model: Any, layout: Layout) -> int:
    """Return the number of channels of a head."""
    first_layer = next(iter(model.get_submodule(layout.layers).children()))
    return int(first_layer.get_submodule(layout.attention).head_dim)


def group_size(config: Any) -> int:
    """Return the number of query heads of a key/value group."""
    return int(config.num_attention_heads // config.num_key_value_heads)


def find_stock_model(model: Any, layout: Layout) -> StockModel | None:
    """Find the stock model that has exactly the weights of a pruned one, apart from biases of zero.

    The class of `model` is the stock class of its family or one of ours. Returns None if layers differ in width, the
    model has parts besides the language model, or no stock class has exactly these tensors.
    """
    neurons, groups = widths(model, layout)
    if layout.inner_types or len(set(neurons)) > 1 or len(set(groups)) > 1:
        return None
    config = model.config
    if layout.prunes_heads and not layout.free_heads and groups[0] != config.num_key_value_heads:
        return None
    sizes = {"intermediate_size": neurons[0], "head_dim": head_width(model, layout)}
    if layout.prunes_heads:
        sizes |= {"num_key_value_heads": groups[0], "num_attention_heads": groups[0] * group_size(config)}
    for family, values in stock_candidates(model):
        # some configurations reject a number of heads
        with contextlib.suppress(CheckpointError):
            stock = stock_config(family, values | sizes)
            biases = _added_biases(model, stock)
            if biases is not None:
                return StockModel(stock, biases)
    return None


def to_stock_model(model: Any, layout: Layout) -> Any:
    """Return the pruned model as a stock transformers model, or None if no stock family fits.

    May modify `model` in place or share its weights.
    """
    stock = find_stock_model(model, layout)
    if stock is None:
        return None
    if stock.config.model_type != model.config.model_type:
        return _rebuild(model, stock)
    for name, value in stock.config.to_dict().items():
        if name in _SIZES or name.endswith("_bias"):
            setattr(model.config, name, value)
    # auto_map refers to code in the dense model's folder, which the folder of the pruned model will lack
    vars(model.config).pop("auto_map", None)
    for name, bias in _zeros(model, stock.added_biases).items():
        model.get_submodule(name.removesuffix(".bias")).bias = nn.Parameter(bias, requires_grad=False)
    return model


def has_own_class(model: Any) -> bool:
    """Return True if the class of a model is one of ours, not a stock class."""
    return str(model.config.model_type).startswith(PRUNED_PREFIX)


def stock_candidates(model: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield families that may hold a model, with the values of their configurations; its own family is first."""
    config, family = model.config, dense_type(model.config.model_type)
    ignored = (*modeling_gprune.FIELDS, *_DERIVED_FIELDS)
    values = {name: value for name, value in config.to_dict().items() if name not in ignored}
    yield family, values
    # the same family with all biases that its configuration allows
    yield family, values | {name: True for name in values if name.endswith("_bias")}
    # a model on several GPUs cannot be moved to another class, because its hooks belong to its modules
    if family in _TWINS and not _uses_window(config) and not getattr(model, "hf_device_map", None):
        twin, fields = _TWINS[family]
        yield twin, {name: values[name] for name in values if name not in (*_WINDOW_FIELDS, *_LLAMA_FIELDS)} | fields


def _uses_window(config: Any) -> bool:
    """Return True if a model uses a sliding window; without it, mistral and qwen2 compute the same as llama."""
    window = getattr(config, "sliding_window", None)
    if dense_type(config.model_type) == "mistral":
        return window is not None and window < config.max_position_embeddings
    return "sliding_attention" in (getattr(config, "layer_types", None) or ())


def stock_config(family: str, values: dict[str, Any]) -> Any:
    """Return a stock configuration. Raise CheckpointError if the family does not accept these values."""
    from transformers import AutoConfig

    with as_checkpoint_error(f"no stock {family} configuration fits this model"):
        return AutoConfig.for_model(family, **values)


def empty_model(config: Any, dtype: torch.dtype, **options: Any) -> Any:
    """Return a stock model on the meta device; `options` are passed to ``from_config``."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, dtype=dtype, **options)


def _added_biases(model: Any, config: Any) -> tuple[str, ...] | None:
    """Return the biases that only the stock model has, or None if any other tensors differ."""
    with as_checkpoint_error(f"no stock {config.model_type} model fits this model"):
        expected = empty_model(config, model.dtype).state_dict()
    tensors = model.state_dict()
    added = tuple(name for name in expected if name not in tensors)
    is_rest_equal = all(name in expected and expected[name].shape == tensor.shape for name, tensor in tensors.items())
    return added if is_rest_equal and all(name.endswith(".bias") for name in added) else None


def _zeros(model: Any, biases: tuple[str, ...]) -> dict[str, torch.Tensor]:
    """Return a bias of zeros by its name for each name in `biases`, with the number type of the map's weight."""
    weights = {name: model.get_submodule(name.removesuffix(".bias")).weight for name in biases}
    return {name: weight.new_zeros(len(weight)) for name, weight in weights.items()}


def _rebuild(model: Any, stock: StockModel) -> Any:
    """Return a stock model of another family that shares the weights of `model`."""
    rebuilt = empty_model(stock.config, model.dtype, attn_implementation=model.config._attn_implementation)
    rebuilt.load_state_dict(model.state_dict() | _zeros(model, stock.added_biases), assign=True)
    for name, buffer in model.named_buffers():
        path, _, last = name.rpartition(".")
        rebuilt.get_submodule(path).register_buffer(last, buffer, persistent=False)
    rebuilt.requires_grad_(False).tie_weights()
    rebuilt.generation_config, rebuilt.name_or_path = model.generation_config, model.name_or_path
    rebuilt.config.name_or_path = model.name_or_path
    return rebuilt.train(model.training)
