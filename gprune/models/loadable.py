"""Answers: can the dense model in a folder be loaded and pruned, as far as its files show without being read?

Reads ``config.json`` and the names and shapes of the tensors. Needs no torch.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from gprune.models import families, identity, weight_headers
from gprune.models.weight_headers import Tensor
from gprune.system.errors import ModelError

_HEAD = "lm_head.weight"
_SCORE = "score.weight"
_CLASSIFIER = re.compile("For[A-Za-z]*Classification|ForQuestionAnswering|RewardModel")
_WRAPPER = re.compile(
    r"(?:^|(?<=\.))(?:base_model\.model|_orig_mod|module|_fsdp_wrapped_module|_checkpoint_wrapped_module)\."
)
"""names that wrappers of modules add to those of a model's tensors: PEFT, torch.compile, DDP, FSDP"""
_QUANTIZED = (".qweight", ".weight_packed", ".weight_scale", ".weight_scale_inv", ".SCB", ".absmax")
_ATTENTION = "attn_implementation"


def require_loadable(folder: Path) -> families.Layout:
    """Return the layout of the dense model in a folder.

    Raises ModelError if the folder holds an adapter, a family that is not supported, quantized weights, a
    classifier, or tensors that do not fit the configuration.
    """
    values, name = identity.configuration(folder), f"the model {str(folder)!r}"
    if (folder / identity.ADAPTER_FILE).is_file():
        raise identity.adapter_error(folder)
    layout = families.require_prunable(values, name)
    require_unquantized(folder)
    tensors = _tensors(folder)
    architectures = [str(word) for word in values.get("architectures") or []]
    signs = [word for word in architectures if _CLASSIFIER.search(word)] + [word for word in tensors if word == _SCORE]
    if signs:
        raise ModelError(f"{name} is a classifier ({signs[0]}) and predicts no tokens: choose a causal language model")
    if tensors:
        _require_names(tensors, layout, folder)
    language = families.language_values(values)
    pad, vocabulary = language.get("pad_token_id"), language.get("vocab_size")
    if isinstance(pad, int) and isinstance(vocabulary, int) and not -vocabulary <= pad < vocabulary:
        raise ModelError(
            f"pad_token_id of {name} is {pad}, but it has {vocabulary} embeddings: set pad_token_id in "
            f"{identity.CONFIG_FILE} to null or to a token below {vocabulary}"
        )
    return layout


def require_unquantized(folder: Path) -> None:
    """Raise ModelError if the weights of a folder are quantized, by its configuration or by their names."""
    values, inner = identity.configuration(folder), "text_config"
    nested = values[inner] if isinstance(values.get(inner), Mapping) else {}
    keys = "quantization_config", "compression_config"
    settings = next((section[key] for section in (values, nested) for key in keys if section.get(key)), None)
    if isinstance(settings, Mapping):
        loaded = "bitsandbytes" if any(str(key).startswith("load_in_") for key in settings) else "of an unnamed method"
        method = str(settings.get("quant_method") or loaded)
    else:
        method = next((key for key, tensor in _tensors(folder).items() if _is_quantized(key, tensor)), "")
    if method:
        raise ModelError(
            f"the weights of the model {str(folder)!r} are quantized ({method}), which is not supported: use "
            "the unquantized checkpoint that they were made from"
        )


def headless(folder: Path) -> ModelError:
    """Return the error for an untied model whose files hold no head."""
    return ModelError(
        f"the model {str(folder)!r} has no lm_head; set tie_word_embeddings to true in {identity.CONFIG_FILE} if "
        "the head is tied, or copy the file that holds it"
    )


def unavailable_attention(folder: Path) -> str:
    """Return the attention implementation that a configuration asks for and this machine lacks, or ``""``."""
    from transformers import utils

    available = {
        "eager": lambda: True,
        "sdpa": lambda: True,
        "flex_attention": utils.is_torch_flex_attn_available,
        "flash_attention_2": utils.is_flash_attn_2_available,
        "flash_attention_3": utils.is_flash_attn_3_available,
    }
    names = _attention_names(identity.configuration(folder))
    return next((name for name in names if not available.get(name, lambda: False)()), "")


def attention_notice(folder: Path) -> str:
    """Return the sentence that says which attention replaces an unavailable one, or ``""``."""
    name = unavailable_attention(folder)
    return f"config.json asks for {name}, which is not installed here: the model runs with sdpa" if name else ""


def _attention_names(values: Mapping[str, Any]) -> Iterator[str]:
    for key, value in values.items():
        if key.removeprefix("_") == _ATTENTION:
            yield from (str(name) for name in (value.values() if isinstance(value, Mapping) else [value]) if name)
        elif isinstance(value, Mapping):
            yield from _attention_names(value)


def _require_names(tensors: dict[str, Tensor], layout: families.Layout, folder: Path) -> None:
    name = f"the model {str(folder)!r}"
    if any(".lora_A." in key for key in tensors):
        raise ModelError(f"{name} holds LoRA weights that are not merged: merge it first (`merge_and_unload`)")
    if prefixes := _prefixes(tensors, layout):
        words = " and ".join(map(repr, prefixes))
        renaming = "".join(f".replace({prefix!r}, '')" for prefix in prefixes)
        raise ModelError(
            f"the tensor names of {name} have the prefix {words}, which a wrapper around the model added: "
            f"rename every tensor to name{renaming} and save the weights again"
        )
    tied = families.language_values(identity.configuration(folder)).get("tie_word_embeddings")
    if tied is False and not any(key.endswith(_HEAD) for key in tensors):
        raise headless(folder)


def _prefixes(names: Iterable[str], layout: families.Layout) -> list[str]:
    """Return what stands in the tensor names besides those that the family has; nothing if these are there."""
    lists = {path.removeprefix(start) for path in layout.stored for start in ("", "model.")}
    anchors = sorted((f"{path}.0.{layout.down_proj}.weight" for path in lists), key=len, reverse=True)
    if not set(anchors).isdisjoint(names):
        return []
    for name in names:
        if _WRAPPER.sub("", name) in anchors:
            return list(dict.fromkeys(_WRAPPER.findall(name)))
        for anchor in anchors:
            if name.endswith(f".{anchor}"):
                return [name.removesuffix(anchor)]
    return []


def _is_quantized(name: str, tensor: Tensor) -> bool:
    return name.endswith(_QUANTIZED) or (name.endswith(".weight") and tensor.bytes < 2 * tensor.numbers)


def _tensors(folder: Path) -> dict[str, Tensor]:
    files = identity.weight_files(folder)
    return _read_headers(tuple((file, file.stat().st_size, file.stat().st_mtime_ns) for file in files))


@lru_cache(maxsize=8)
def _read_headers(stamps: tuple[tuple[Path, int, int], ...]) -> dict[str, Tensor]:
    return weight_headers.tensors(file for file, _, _ in stamps)
