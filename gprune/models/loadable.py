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
from gprune.models.expert_families import ExpertLayout
from gprune.models.weight_headers import Tensor
from gprune.records import ModelShape
from gprune.system import machine
from gprune.system.errors import GpruneError, ModelError

# prefixes that PEFT, torch.compile, DDP and FSDP add to the names of tensors
_WRAPPER = re.compile(
    r"(?:^|(?<=\.))(?:base_model\.model|_orig_mod|module|_fsdp_wrapped_module|_checkpoint_wrapped_module|language_model)\."
)
# classes of transformers, and the head of a sequence classifier
_CLASSIFIER = re.compile(r"\w*For\w*Classification|\w*ForQuestionAnswering|\w*RewardModel|^score\.weight$")
_DTYPE = re.compile(r"(torch\.)?(auto|half|double|b?float\w*)")
_ATTENTIONS = ("eager", "sdpa")
_GPU_ATTENTIONS = {
    "flash_attention_2": "flash-attn",
    "flash_attention_3": "flash-attn-3",
    "flash_attention_4": "flash-attn-4",
    "flex_attention": "torch",
}
"""package of each attention implementation that needs a GPU; flex_attention has no backward pass on a CPU"""
_EXPERT_KERNELS = ("eager", "batched_mm")
"""values of experts_implementation that transformers accepts for a model without experts"""
_DOWN = re.compile(r"(?:^|\.)(\d+)\.(?:\w+\.)*down_proj\.weight$")
"""names of the down projections of unsupported families, with the number of the layer"""
_WIDTH_FIELDS = "ffn_widths", "key_value_groups"
_QUANTIZERS = {"quantization_config": "bitsandbytes", "compression_config": "compressed-tensors", "quantization": "MLX"}
"""quantization method by configuration field, for fields that do not name the method"""
_QUANTIZED = (".qweight", ".weight_packed", ".weight_scale", ".weight_scale_inv", ".SCB", ".absmax")
"""ends of the names of tensors that only quantized weights have"""


def require_loadable(folder: Path) -> families.Layout:
    """Return the layout of the dense model in a folder.

    Raises ModelError if the family is not supported, and the errors of `require_whole`.
    """
    layout = families.require_prunable(identity.configuration(folder), f"the model {str(folder)!r}")
    require_whole(folder)
    return layout


def require_expert_model(folder: Path) -> ExpertLayout:
    """Return the layout of the mixture-of-experts model in a folder.

    Raises ModelError if its experts cannot be pruned, its weights are quantized, or it cannot be loaded unchanged.
    """
    values, name = identity.configuration(folder), f"the model {str(folder)!r}"
    layout = families.expert_layout_of(values.get("model_type"), name)
    quantization = values.get("quantization_config")
    if isinstance(quantization, Mapping) and quantization.get("quant_method") == "mxfp4":
        raise ModelError(
            f"the weights of {name} are quantized (mxfp4): load it with Mxfp4Config(dequantize=True), save it in "
            "bfloat16, and use that folder"
        )
    require_whole(folder)
    return layout


def require_whole(folder: Path) -> None:
    """Raise ModelError if a folder does not hold a causal language model that can be loaded unchanged.

    The error covers any family: adapters, quantized weights, classifiers, and tensors that do not fit the
    configuration.
    """
    values, name = identity.configuration(folder), f"the model {str(folder)!r}"
    layout = families.FAMILIES.get(str(values.get("model_type")))
    is_adapter = (folder / identity.ADAPTER_FILE).is_file()
    tensors = {} if is_adapter else weight_headers.tensors(identity.weight_files(folder))
    if is_adapter or any(".lora_A." in key or ".base_layer." in key for key in tensors):
        raise identity.adapter_error(folder)
    require_unquantized(folder)
    for match in filter(None, map(_CLASSIFIER.search, (str(values.get("architectures")), *tensors))):
        raise ModelError(f"{name} is a classifier ({match[0]}) and predicts no tokens: choose a causal language model")
    layer_prefixes = tuple(f"{path}." for path in (layout.layer_lists if layout else ()))
    # FSDP and torch.compile also add prefixes inside a layer, which start with an underscore
    unexpected = [key for key in tensors if not key.startswith(layer_prefixes) or "._" in key]
    wrapped = [key for key in unexpected if _WRAPPER.sub("", key).startswith(layer_prefixes)]
    if layer_prefixes and wrapped:
        prefixes = dict.fromkeys(prefix for key in wrapped for prefix in _WRAPPER.findall(key))
        renaming = "".join(f".replace({prefix!r}, '')" for prefix in prefixes)
        raise ModelError(
            f"the tensor names of {name} have the prefix {' and '.join(map(repr, prefixes))}, added by a wrapper "
            f"around the model: rename every tensor to name{renaming} and save the weights again"
        )
    if (attention := values.get("_attn_implementation")) and attention not in _ATTENTIONS:
        raise ModelError(
            f"{identity.CONFIG_FILE} of {name} has the field _attn_implementation with {attention!r}: rename it "
            "attn_implementation, without the first underscore, or remove it"
        )
    for kernel in _find_settings(folder, "experts_implementation"):
        if layout and kernel not in _EXPERT_KERNELS:
            raise ModelError(f"experts_implementation of {name} is {kernel!r}, but it has no experts: remove it")
    for dtype in _find_settings(folder, "dtype", "torch_dtype"):
        if not _DTYPE.fullmatch(str(dtype)):
            raise ModelError(f"dtype of {name} is {dtype!r}, which torch lacks: use bfloat16, float16 or float32")
    language = families.language_values(values)
    untied = not language.get(families.TIED, layout.defaults.get(families.TIED, False)) if layout else False
    if tensors and untied and not any(key.endswith("lm_head.weight") for key in tensors):
        raise ModelError(
            f"{name} has no lm_head: set tie_word_embeddings to true in {identity.CONFIG_FILE} if the head is tied, "
            "else add the missing weight file"
        )
    if mismatch := stored_sizes(values, tensors).disagreement:
        raise ModelError(f"{name} does not fit its {identity.CONFIG_FILE}: {mismatch}. Copy both from the same model")
    _require_known_ids(identity.CONFIG_FILE, language, name, language.get("vocab_size"))
    identity.require_matching_class(folder)
    generation, file = identity.optional_values(folder, identity.GENERATION_FILE), identity.GENERATION_FILE
    _require_known_ids(file, generation, name, language.get("vocab_size"))
    if generation.get("compile_config") is not None:
        raise ModelError(f"compile_config in {file} of {name} cannot be read by transformers: remove it")


def _require_known_ids(file: str, values: Mapping[str, Any], name: str, vocabulary: Any) -> None:
    """Raise ModelError if a special token in the `values` of a JSON file is not an id of the vocabulary."""
    for key in ("pad_token_id", "bos_token_id", "eos_token_id"):
        ids = values.get(key)
        for token in ids if key.startswith("eos") and isinstance(ids, list) else [ids]:
            if not isinstance(token, int | None):
                raise ModelError(f"{key} in {file} of {name} is {token!r}, which is not an integer: set it to null")
            # torch also accepts negative indices, which count from the end
            if isinstance(token, int) and isinstance(vocabulary, int) and not -vocabulary <= token < vocabulary:
                raise ModelError(
                    f"{key} in {file} of {name} is {token}, but it has {vocabulary} embeddings: set it to null"
                )


def require_unquantized(folder: Path) -> None:
    """Raise ModelError if configuration or tensor names of a folder show that its weights are quantized."""
    methods = [
        str(section.get("quant_method") or default)
        for key, default in _QUANTIZERS.items()
        for section in _find_settings(folder, key)
        if isinstance(section, Mapping)
    ]
    for name, tensor in weight_headers.tensors(identity.weight_files(folder)).items():
        # a weight with less than two bytes per number is of an 8-bit type or packed
        if name.endswith(_QUANTIZED) or (name.endswith(".weight") and tensor.bytes < 2 * tensor.numbers):
            methods.append(name)
    if methods:
        raise ModelError(
            f"the weights of the model {str(folder)!r} are quantized ({methods[0]}), which is not supported: use "
            "the original checkpoint without quantization"
        )


def attention_notice(folder: Path) -> str:
    """Return a notice if the configuration requests an attention implementation that cannot run here, else ``""``."""
    for name in map(str, _find_settings(folder, "attn_implementation", "_attn_implementation")):
        can_run = name in _GPU_ATTENTIONS and machine.has_gpu() and any(distributions(name=_GPU_ATTENTIONS[name]))
        if not can_run and name not in _ATTENTIONS:
            return f"{identity.CONFIG_FILE} requests {name}, which cannot run here: the model runs with sdpa"
    return ""


def _find_settings(folder: Path, *keys: str) -> list[Any]:
    """Return all non-empty values of some fields in a model's configuration and in its sections."""
    values = identity.configuration(folder)
    sections = [values, *(section for section in values.values() if isinstance(section, Mapping))]
    return [section[key] for section in sections for key in keys if section.get(key)]


@dataclass(frozen=True, slots=True)
class StoredSizes:
    """Sizes of a model from its configuration and from the shapes of its tensors."""

    shape: ModelShape | None
    """sizes in the configuration, or None if it has none, for example because it lists the widths by layer"""
    neurons: tuple[int, ...]
    """FFN neurons of each layer; empty if unknown"""
    groups: tuple[int, ...]
    """key/value groups of each layer; empty if unknown"""
    disagreement: str
    """description of the first difference from the configuration; empty if there is none"""


def stored_sizes(values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> StoredSizes:
    """Return the sizes of a model from its configuration and from the shapes of its tensors."""
    layout = families.FAMILIES.get(families.dense_type(values.get("model_type")))
    try:
        shape = families.shape_of(values)
    except (KeyError, TypeError, ValueError, GpruneError):
        shape = None
    if layout is None:
        # the layers of a mixture of experts have no common width
        dense = {} if any(".experts." in key for key in tensors) else tensors
        by_layer = {int(match[1]): tensor.shape for key, tensor in dense.items() if (match := _DOWN.search(key))}
        neurons = tuple(by_layer[layer][-1] for layer in sorted(by_layer) if len(by_layer[layer]) == 2)
        return StoredSizes(shape, neurons, (), _compare_layers(values, shape, neurons, ()))
    neurons = _find_sizes(tensors, layout, layout.down_proj, 1)
    if shape is None or shape.heads % shape.kv_heads:
        return StoredSizes(shape, neurons, (), "")
    groups = tuple(width // shape.group_channels for width in _find_sizes(tensors, layout, layout.o_proj, 1))
    key_rows = _find_sizes(tensors, layout, f"{layout.attention}.k_proj", 0) if layout.prunes_heads else ()
    # the number of groups follows from keys and from queries; a fused map has no separate keys
    disagreement = (
        _compare_layers(values, shape, neurons, tuple(rows // shape.head_width for rows in key_rows) or groups)
        or _compare_layers(values, shape, neurons, groups)
        or _compare_vocabulary(families.language_values(values), tensors)
        or _compare_names(families.language_values(values), tensors, layout, shape.layers)
    )
    return StoredSizes(shape, neurons, groups, disagreement)


def _compare_names(
    values: Mapping[str, Any], tensors: Mapping[str, Tensor], layout: families.Layout, layers: int
) -> str:
    """Describe the first tensor that the weights lack or should not have; empty if there is none."""
    if not tensors:  # random weights have no files
        return ""
    prefix = _find_layer_list(tensors, layout, layout.down_proj) or layout.layer_lists[0]
    backbone, is_dense = prefix.removesuffix("layers"), values.get("model_type") in families.FAMILIES
    flags = {f"{layout.slice_of(part).path}.bias": flag for flag, parts in layout.biases.items() for part in parts}
    paths = *layout.norms, *(entry.path for entry in layout.slices if not entry.optional)
    names = [f"{path}.weight" for path in paths]
    # biases are not checked in a pruned model, because bias compensation may have added them
    names += [path for path, flag in flags.items() if is_dense and (not flag or values.get(flag))]
    expected = {f"{prefix}.{layer}.{name}" for layer in range(layers) for name in names}
    if layout.norms:
        expected.add(f"{backbone}norm.weight")
    accepted = {name for name in tensors if name.endswith("lm_head.weight")}
    # of tied weights, either the head or the embedding may be stored
    (accepted if accepted and values.get(families.TIED) else expected).add(f"{backbone}embed_tokens.weight")
    unexpected = {
        name
        for name in tensors.keys() - expected - accepted
        if name.endswith((".weight", ".bias") if is_dense else ".weight")
        and (name.startswith(f"{prefix}.") or not layout.inner_types)
    }
    # in families with optional modules, these are norms that the configuration enables
    unexpected = set() if any(entry.optional for entry in layout.slices) else unexpected
    for verb, denial, tensor_names in (
        ("lack", "has", expected - tensors.keys()),
        ("have", "does not have", unexpected),
    ):
        if tensor_names:
            name = min(tensor_names)
            flag = next((flag for path, flag in flags.items() if flag and name.endswith(f".{path}")), "")
            reason = f"and {flag} is {bool(values.get(flag))}" if flag else f"which {layout.label} {denial}"
            return f"its weights {verb} {name}, {reason}"
    return ""


def _find_layer_list(tensors: Mapping[str, Tensor], layout: families.Layout, path: str) -> str:
    """Return the name of the list of layers that has the map `path` in its first layer; empty if there is none."""
    return next((name for name in layout.layer_lists if f"{name}.0.{path}.weight" in tensors), "")


def _find_sizes(tensors: Mapping[str, Tensor], layout: families.Layout, path: str, axis: int) -> tuple[int, ...]:
    """Return the number of rows (axis 0) or columns (axis 1) of a map in every layer, up to the first without it."""
    widths: list[int] = []
    prefix = _find_layer_list(tensors, layout, path)
    while (tensor := tensors.get(f"{prefix}.{len(widths)}.{path}.weight")) and len(tensor.shape) == 2:
        widths.append(tensor.shape[axis])
    return tuple(widths)


def _compare_layers(
    values: Mapping[str, Any], shape: ModelShape | None, neurons: tuple[int, ...], groups: tuple[int, ...]
) -> str:
    """Describe the first width that differs from the configuration; empty if there is none."""
    if shape is None:
        return ""
    dense = [shape.neurons] * shape.layers, [shape.kv_heads] * shape.layers
    configured = (values.get(name, default) for name, default in zip(_WIDTH_FIELDS, dense, strict=True))
    for unit, widths, expected in zip(("neurons", "key/value groups"), (neurons, groups), configured, strict=True):
        if not widths or not isinstance(expected, list):
            continue
        if len(widths) != len(expected):
            return f"its weights have {len(widths)} layers, but its configuration says {len(expected)}"
        for layer, (width, expected_width) in enumerate(zip(widths, expected, strict=True)):
            if width != expected_width:
                return f"layer {layer} has {width} {unit}, but its configuration says {expected_width}"
    return ""


def _compare_vocabulary(values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    for name in ("embed_tokens.weight", "lm_head.weight"):
        rows = next((tensor.shape[0] for key, tensor in tensors.items() if key.endswith(name) and tensor.shape), None)
        if rows is not None and rows != values.get("vocab_size", rows):
            return f"{name} has {rows} rows, but its configuration says vocab_size {values['vocab_size']}"
    return ""
