"""Check whether the dense model in a folder can be loaded and pruned, before its weights are read.

Reads ``config.json`` and the names and shapes of the tensors. Needs no torch.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from gprune.models import families, identity, weight_headers
from gprune.models.weight_headers import Tensor
from gprune.records import ModelShape
from gprune.system import machine
from gprune.system.errors import GpruneError, ModelError

# what PEFT, torch.compile, DDP and FSDP add to the names of a model's tensors
_WRAPPER = re.compile(
    r"(?:^|(?<=\.))(?:base_model\.model|_orig_mod|module|_fsdp_wrapped_module|_checkpoint_wrapped_module|language_model)\."
)
_CLASSIFIER = re.compile(r"\w*For\w*Classification|\w*ForQuestionAnswering|\w*RewardModel|^score\.weight$")
_ATTENTIONS = ("eager", "sdpa")
_WIDTHS = "ffn_widths", "key_value_groups"
_METHODS = {"quantization_config": "bitsandbytes", "compression_config": "compressed-tensors", "quantization": "MLX"}
"""quantization methods of fields that name none"""
_QUANTIZED = (".qweight", ".weight_packed", ".weight_scale", ".weight_scale_inv", ".SCB", ".absmax")


def require_loadable(folder: Path) -> families.Layout:
    """Return the layout of the dense model in a folder.

    Raises ModelError if the family is not supported, or as `require_whole`.
    """
    layout = families.require_prunable(identity.configuration(folder), f"the model {str(folder)!r}")
    require_whole(folder)
    return layout


def require_whole(folder: Path) -> None:
    """Raise ModelError if a folder holds no causal language model of any family that loads as it is.

    An adapter, quantized weights, a classifier, or tensors that do not fit the configuration are none.
    """
    values, name = identity.configuration(folder), f"the model {str(folder)!r}"
    layout = families.FAMILIES.get(str(values.get("model_type")))
    is_adapter = (folder / identity.ADAPTER_FILE).is_file()
    tensors = {} if is_adapter else weight_headers.tensors(identity.weight_files(folder))
    if is_adapter or any(".lora_A." in key or ".base_layer." in key for key in tensors):
        raise identity.adapter_error(folder)
    require_unquantized(folder)
    for sign in filter(None, map(_CLASSIFIER.search, (str(values.get("architectures")), *tensors))):
        raise ModelError(f"{name} is a classifier ({sign[0]}) and predicts no tokens: choose a causal language model")
    lists = tuple(f"{path}." for path in (layout.stored if layout else ()))
    inner = [key for key in tensors if not key.startswith(lists) or "._" in key]
    wrapped = [key for key in inner if _WRAPPER.sub("", key).startswith(lists)]
    if lists and wrapped:
        prefixes = dict.fromkeys(prefix for key in wrapped for prefix in _WRAPPER.findall(key))
        renaming = "".join(f".replace({prefix!r}, '')" for prefix in prefixes)
        raise ModelError(
            f"the tensor names of {name} have the prefix {' and '.join(map(repr, prefixes))}, which a wrapper "
            f"around the model added: rename every tensor to name{renaming} and save the weights again"
        )
    language = families.language_values(values)
    untied = not language.get(families.TIED, layout.usual.get(families.TIED, False)) if layout else False
    if tensors and untied and not any(key.endswith("lm_head.weight") for key in tensors):
        raise ModelError(
            f"{name} has no lm_head; set tie_word_embeddings to true in {identity.CONFIG_FILE} if the head is tied, or "
            "copy the file that holds it"
        )
    if odd := stored_sizes(values, tensors).disagreement:
        raise ModelError(f"{name} does not fit its {identity.CONFIG_FILE}: {odd}. Copy both from the same model")
    _require_known_ids(language, name)


def _require_known_ids(values: Mapping[str, Any], name: str) -> None:
    vocabulary = values.get("vocab_size")
    for key in ("pad_token_id", "bos_token_id", "eos_token_id"):
        ids = values.get(key)
        for token in ids if isinstance(ids, list) else [ids]:
            if isinstance(token, int) and isinstance(vocabulary, int) and not -vocabulary <= token < vocabulary:
                raise ModelError(
                    f"{key} in {identity.CONFIG_FILE} of {name} is {token}, but it has {vocabulary} embeddings: "
                    "set it to null"
                )


def require_unquantized(folder: Path) -> None:
    """Raise ModelError if the weights of a folder are quantized, by its configuration or by their names."""
    methods = [
        str(section.get("quant_method") or usual)
        for key, usual in _METHODS.items()
        for section in _settings(folder, key)
        if isinstance(section, Mapping)
    ]
    for name, tensor in weight_headers.tensors(identity.weight_files(folder)).items():
        if name.endswith(_QUANTIZED) or (name.endswith(".weight") and tensor.bytes < 2 * tensor.numbers):
            methods.append(name)
    if methods:
        raise ModelError(
            f"the weights of the model {str(folder)!r} are quantized ({methods[0]}), which is not supported: use "
            "the unquantized checkpoint that they were made from"
        )


def attention_notice(folder: Path) -> str:
    """Return a sentence if the configuration asks for an attention that cannot run here, else ``""``."""
    for name in map(str, _settings(folder, "attn_implementation", "_attn_implementation")):
        can_run = name == "flash_attention_2" and machine.has_gpu() and any(distributions(name="flash-attn"))
        if not can_run and name not in _ATTENTIONS:
            return f"{identity.CONFIG_FILE} asks for {name}, which cannot run here: the model runs with sdpa"
    return ""


def _settings(folder: Path, *keys: str) -> list[Any]:
    values = identity.configuration(folder)
    sections = [values, *(section for section in values.values() if isinstance(section, Mapping))]
    return [section[key] for section in sections for key in keys if section.get(key)]


@dataclass(frozen=True, slots=True)
class StoredSizes:
    """Sizes of a model by the shapes of its tensors."""

    shape: ModelShape | None
    """what its configuration says; None where that names no sizes, as where widths are given by layer"""
    neurons: tuple[int, ...]
    """FFN neurons of each layer; empty if unknown"""
    groups: tuple[int, ...]
    """key/value groups of each layer; empty if unknown"""
    disagreement: str
    """the first size that differs from the configuration, in words; empty if none does"""


def stored_sizes(values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> StoredSizes:
    """Return the sizes of a model by its configuration and the shapes of its tensors."""
    layout = families.FAMILIES.get(families.dense_type(values.get("model_type")))
    try:
        shape = families.shape_of(values)
    except (KeyError, TypeError, ValueError, GpruneError):
        shape = None
    neurons = () if layout is None else _sizes(tensors, layout, layout.down_proj, 1)
    if layout is None or shape is None or shape.heads % shape.kv_heads:
        return StoredSizes(shape, neurons, (), "")
    keys = _sizes(tensors, layout, f"{layout.attention}.k_proj", 0) if layout.heads else ()
    groups = tuple(width // shape.head_width for width in keys)
    # one map of queries, keys and values, or heads that stay
    groups = groups or tuple(width // shape.group_channels for width in _sizes(tensors, layout, layout.o_proj, 1))
    disagreement = (
        _compare_layers(values, shape, neurons, groups)
        or _compare_vocabulary(families.language_values(values), tensors)
        or _find_missing(tensors, layout, shape.layers)
    )
    return StoredSizes(shape, neurons, groups, disagreement)


def _find_missing(tensors: Mapping[str, Tensor], layout: families.Layout, layers: int) -> str:
    """Describe the first linear map of a layer that is not stored; random weights have no files."""
    prefix = _layer_list(tensors, layout, layout.down_proj) or layout.stored[0]
    for layer in range(layers if tensors else 0):
        for piece in layout.slices:
            tensor_name = f"{prefix}.{layer}.{piece.path}.weight"
            if not piece.optional and tensor_name not in tensors:
                return f"its weights lack {tensor_name}, which {layout.label} has"
    return ""


def _layer_list(tensors: Mapping[str, Tensor], layout: families.Layout, path: str) -> str:
    return next((name for name in layout.stored if f"{name}.0.{path}.weight" in tensors), "")


def _sizes(tensors: Mapping[str, Tensor], layout: families.Layout, path: str, axis: int) -> tuple[int, ...]:
    """Rows or columns of a map in every layer."""
    widths: list[int] = []
    prefix = _layer_list(tensors, layout, path)
    while (tensor := tensors.get(f"{prefix}.{len(widths)}.{path}.weight")) and len(tensor.shape) == 2:
        widths.append(tensor.shape[axis])
    return tuple(widths)


def _compare_layers(
    values: Mapping[str, Any], shape: ModelShape, neurons: tuple[int, ...], groups: tuple[int, ...]
) -> str:
    dense = [shape.neurons] * shape.layers, [shape.kv_heads] * shape.layers
    configured = (values.get(name, default) for name, default in zip(_WIDTHS, dense, strict=True))
    for unit, widths, expected in zip(("neurons", "key/value groups"), (neurons, groups), configured, strict=True):
        if not widths or not isinstance(expected, list):
            continue
        if len(widths) != len(expected):
            return f"its weights have {len(widths)} layers, and its configuration says {len(expected)}"
        for layer, (width, expected_width) in enumerate(zip(widths, expected, strict=True)):
            if width != expected_width:
                return f"layer {layer} has {width} {unit}, and its configuration says {expected_width}"
    return ""


def _compare_vocabulary(values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    for name in ("embed_tokens.weight", "lm_head.weight"):
        rows = next((tensor.shape[0] for key, tensor in tensors.items() if key.endswith(name) and tensor.shape), None)
        if rows is not None and rows != values.get("vocab_size", rows):
            return f"{name} has {rows} rows, and its configuration says vocab_size {values['vocab_size']}"
    return ""
