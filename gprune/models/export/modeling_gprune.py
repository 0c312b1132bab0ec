"""Load a model that GPrune Studio has pruned: a decoder whose layers differ in width.

A copy of this file is in every folder whose model needs it. The file needs torch and transformers only:

    AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)

The configuration is that of the dense family with additional fields. Its ``intermediate_size``,
``num_attention_heads`` and ``num_key_value_heads`` are those of the dense model. The classes of a family, such as
``GpruneLlamaConfig`` and ``GpruneLlamaForCausalLM``, are derived from the family's classes at first access. Each
layer is built as a dense layer and narrowed by a table of the positions of its units.
"""

import copy
from typing import Any

import torch
from torch import nn
from transformers.models.auto import configuration_auto

PREFIX = "gprune_"
FIELDS: dict[str, tuple[Any, Any]] = {
    # FFN neurons of each layer
    "ffn_widths": (list[int] | None, None),
    # key/value heads of each layer; the number of query heads for each of them is that of the dense model
    "key_value_groups": (list[int] | None, None),
    # True if the attention output projections have biases; True if the down projections have biases
    "o_proj_bias": (bool, False),
    "down_proj_bias": (bool, False),
    # weights along which the units of a layer lie: [path of the module, axis of its weight, kinds of units]
    "unit_slices": (list | None, None),
    # attributes of a layer that hold numbers of units: [path of the attribute, kind of unit]
    "unit_counts": (list | None, None),
}
"""Fields that the configuration adds to those of the dense model: type and default."""


class KeptUnits:
    """Indices of the kept units of a layer, by kind of unit; "keys" and "queries" are channels of heads."""

    def __init__(self, neurons: torch.Tensor, groups: torch.Tensor, dense_sizes: tuple[int, int, int, int]) -> None:
        """Derive the indices of every kind of unit from those of neurons and groups.

        Args:
            neurons: (kept,) int64 indices of FFN neurons.
            groups: (kept,) int64 indices of key/value groups.
            dense_sizes: neurons, groups, query heads of a group and channels of a head of the dense layer.
        """
        neuron_count, group_count, group_size, head_width = dense_sizes
        heads = _expand_blocks(groups, group_size)
        self.index = {
            "neurons": neurons,
            "key_heads": groups,
            "query_heads": heads,
            "keys": _expand_blocks(groups, head_width),
            "queries": _expand_blocks(heads, head_width),
        }
        head_counts = group_count, group_count * group_size
        # number of units of each kind in the dense layer, in the order of `index`
        counts = (neuron_count, *head_counts, *(count * head_width for count in head_counts))
        self.dense_counts = dict(zip(self.index, counts, strict=True))

    def joined(self, units: list[str]) -> torch.Tensor:
        """Return the (kept,) indices along an axis on which these kinds of units are concatenated."""
        parts, start = [], 0
        for unit in units:
            parts.append(self.index[unit] + start)
            start += self.dense_counts[unit]
        return torch.cat(parts)


def _expand_blocks(index: torch.Tensor, size: int) -> torch.Tensor:
    """Return the indices of all members of the blocks at `index`; each block has `size` members."""
    return (index[:, None] * size + torch.arange(size, device=index.device)).flatten()


class ConfigView:
    """View of a configuration with some values replaced, for a layer that reads its sizes from the configuration."""

    def __init__(self, config: Any, values: dict[str, int]) -> None:
        """Store the configuration and the values that replace those of the configuration."""
        self.__dict__.update(_config=config, **values)

    def __getattr__(self, name: str) -> Any:
        """Return a value of the configuration that is not replaced."""
        # copy and pickle look up names before `_config` is set
        if name.startswith("__") or "_config" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.__dict__["_config"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a value of the configuration."""
        setattr(self.__dict__["_config"], name, value)


def narrow(layer: nn.Module, slices: list[Any], counts: list[Any], remaining: KeptUnits) -> None:
    """Remove all but the remaining units of a layer in place; narrowed weights become new parameters.

    `slices` and `counts` are the configuration's ``unit_slices`` and ``unit_counts``.
    """
    for path, axis, units in slices:
        module: Any = _find_module(layer, path)
        if module is None:
            continue
        index = remaining.joined(units)
        if isinstance(module, nn.ModuleList):
            *parent, name = path.split(".")
            members = nn.ModuleList(module[position] for position in index.tolist())
            setattr(layer.get_submodule(".".join(parent)), name, members)
        else:
            _narrow_weights(module, axis, index)
    for path, unit in counts:
        _set_count(layer, path, len(remaining.index[unit]))


def _narrow_weights(module: Any, axis: int, index: torch.Tensor) -> None:
    """Keep the rows (axis 0) or columns (axis 1) at `index` of a module's parameters."""
    for name, weight in list(module.named_parameters(recurse=False)):
        # the bias of a map whose columns are narrowed does not change
        if weight.ndim <= axis:
            continue
        narrowed = weight.detach().index_select(axis, index.to(weight.device))
        setattr(module, name, nn.Parameter(narrowed, requires_grad=weight.requires_grad))
    if isinstance(module, nn.Linear):
        setattr(module, ("out_features", "in_features")[axis], len(index))


def _set_count(layer: nn.Module, path: str, count: int) -> None:
    """Set the attribute at a dotted path to a number of units; `mlp.config.x` replaces x for that module only."""
    *parent, name = path.split(".")
    is_in_config = parent[-1] == "config"
    module: Any = _find_module(layer, ".".join(parent[:-1] if is_in_config else parent))
    if module is None:
        return
    if is_in_config:
        module.config = ConfigView(module.config, {name: count})
    elif hasattr(module, name):
        setattr(module, name, count)


def _find_module(layer: nn.Module, path: str) -> nn.Module | None:
    try:
        return layer.get_submodule(path)
    except AttributeError:
        return None


class UnequalLayers:
    """Base class that builds each decoder layer at its own width; it precedes the family's class among the bases."""

    dense_class: Any
    model: Any
    post_init: Any

    def __init__(self, config: Any) -> None:
        """Build the family's model without layers, then the layers one by one.

        Raises:
            ValueError: the widths are missing or their number is not that of the layers.
        """
        text = config.get_text_config()
        layers = text.num_hidden_layers
        for name in ("ffn_widths", "key_value_groups"):
            widths = getattr(config, name)
            if widths is None or len(widths) != layers or min(widths) < 1:
                raise ValueError(f"{name} must hold {layers} positive numbers, one for each layer (got {widths})")
        # a dense model of one layer without memory has the class of the layers
        with torch.device("meta"):
            layer_class: Any = type(_decoder(self.dense_class(_with_layers(config, 1))).layers[0])
        text.num_hidden_layers = 0
        try:
            super().__init__(config)  # type: ignore[call-arg]
        finally:
            text.num_hidden_layers = layers
        _decoder(self).layers = nn.ModuleList(_build_layer(layer_class, config, index) for index in range(layers))
        self.post_init()


def _decoder(model: Any) -> Any:
    """Return the part of a causal language model that has the layers; a multimodal model has other parts too."""
    return getattr(model.model, "language_model", model.model)


def _with_layers(config: Any, count: int) -> Any:
    """Return a copy of a configuration with another number of layers."""
    config_copy = copy.copy(config)
    if config.get_text_config() is not config:
        config_copy.text_config = copy.copy(config.text_config)
    config_copy.get_text_config().num_hidden_layers = count
    return config_copy


def _build_layer(layer_class: Any, config: Any, index: int) -> Any:
    """Return a layer of the family, narrowed to the widths in the configuration."""
    text = config.get_text_config()
    layer = layer_class(text, index)
    group_size = text.num_attention_heads // text.num_key_value_heads
    dense_sizes = text.intermediate_size, text.num_key_value_heads, group_size, layer.self_attn.head_dim
    widths = config.ffn_widths[index], config.key_value_groups[index]
    # the weights are loaded later, so the first units are as good as any
    neurons, groups = (torch.arange(width, device="cpu") for width in widths)
    remaining = KeptUnits(neurons, groups, dense_sizes)
    narrow(layer, config.unit_slices, config.unit_counts, remaining)
    for module, name in ((layer.self_attn, "o_proj"), (layer.mlp, "down_proj")):
        linear = getattr(module, name)
        if getattr(config, f"{name}_bias") and linear.bias is None:
            setattr(module, name, nn.Linear(linear.in_features, linear.out_features))
    return layer


def classes_of(family: str) -> Any:
    """Return the causal language model class of a pruned family; its ``config_class`` is the configuration class.

    Raises:
        KeyError: this version of transformers has no such family.
    """
    from transformers.models.auto import modeling_auto

    if family not in _CLASSES:
        config: Any = configuration_auto.CONFIG_MAPPING[family]
        # a class with a language model and other parts is often not registered as a causal language model
        mappings = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING, modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
        model: Any = next(mapping[config] for mapping in mappings if config in mapping)
        fields = {name: default for name, (_, default) in FIELDS.items()}
        # every saved folder gets a copy of this file, and its configuration refers to it
        attributes = {"model_type": PREFIX + family, "__module__": __name__, "_auto_class": "AutoConfig", **fields}
        attributes |= {"__annotations__": {name: kind for name, (kind, _) in FIELDS.items()}}
        config_class = type(f"Gprune{config.__name__}", (config,), attributes)
        attributes = {"config_class": config_class, "dense_class": model, "__module__": __name__}
        attributes |= {"_auto_class": "AutoModelForCausalLM"}
        pruned_class = type(f"Gprune{model.__name__}", (UnequalLayers, model), attributes)
        for new_class in (config_class, pruned_class):
            new_class.__doc__ = f"A pruned {family}."
            globals()[new_class.__name__] = new_class
        _CLASSES[family] = pruned_class
    return _CLASSES[family]


_CLASSES: dict[str, Any] = {}


def __getattr__(name: str) -> Any:
    """Create the classes of a family at the first access to one of their names."""
    config_names = vars(configuration_auto)["CONFIG_MAPPING_NAMES"] if name.startswith("Gprune") else {}
    for family, config in config_names.items():
        stem = config.removesuffix("Config")
        names = (f"{stem}ForConditionalGeneration", f"{stem.removesuffix('Text')}ForCausalLM", config)
        if name.removeprefix("Gprune") in names:
            classes_of(family)
            if name in globals():
                return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
