"""Answers: can the dense model in a folder be loaded and pruned, as far as its files show without being read?

Reads ``config.json`` and the names and shapes of the tensors. Needs no torch.
"""

import re
from collections.abc import Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from gprune.models import families, identity, weight_headers
from gprune.system import machine
from gprune.system.errors import ModelError

# what PEFT, torch.compile, DDP and FSDP add to the names of a model's tensors
_WRAPPER = re.compile(r"(?:^|(?<=\.))(?:base_model\.model|_orig_mod|module|_fsdp_wrapped_module)\.")
_CLASSIFIER = re.compile(r"\w*For\w*Classification|\w*ForQuestionAnswering|\w*RewardModel|^score\.weight$")
_FLASH = {"flash_attention_2": "flash-attn", "flash_attention_3": "flash-attn-3", "flash_attention_4": "flash-attn-4"}
_QUANTIZED = (".qweight", ".weight_packed", ".weight_scale", ".weight_scale_inv", ".SCB", ".absmax")


def require_loadable(folder: Path) -> families.Layout:
    """Return the layout of the dense model in a folder.

    Raises ModelError if the family is not supported, or as `require_whole`.
    """
    layout = families.require_prunable(identity.configuration(folder), f"the model {str(folder)!r}")
    require_whole(folder)
    return layout


def require_whole(folder: Path, *, quantized: bool = False) -> None:
    """Raise ModelError if a folder holds no causal language model of any family that loads as it is.

    An adapter, a classifier, or tensors that do not fit the configuration are none, nor are weights that are
    quantized where they are not allowed to be.
    """
    values, name = identity.configuration(folder), f"the model {str(folder)!r}"
    layout = families.FAMILIES.get(str(values.get("model_type")))
    is_adapter = (folder / identity.ADAPTER_FILE).is_file()
    tensors = {} if is_adapter else weight_headers.tensors(identity.weight_files(folder))
    if is_adapter or any(".lora_A." in key for key in tensors):
        raise identity.adapter_error(folder)
    if not quantized:
        require_unquantized(folder)
    for sign in filter(None, map(_CLASSIFIER.search, (str(values.get("architectures")), *tensors))):
        raise ModelError(f"{name} is a classifier ({sign[0]}) and predicts no tokens: choose a causal language model")
    # a model that was saved without its head has no "model." in front
    lists = {path.removeprefix(start) for path in layout.stored for start in ("", "model.")} if layout else set()
    prefixes = dict.fromkeys(prefix for key in tensors for prefix in _WRAPPER.findall(key))
    if layout and prefixes and {f"{path}.0.{layout.down_proj}.weight" for path in lists}.isdisjoint(tensors):
        renaming = "".join(f".replace({prefix!r}, '')" for prefix in prefixes)
        raise ModelError(
            f"the tensor names of {name} have the prefix {' and '.join(map(repr, prefixes))}, which a wrapper "
            f"around the model added: rename every tensor to name{renaming} and save the weights again"
        )
    language = families.language_values(values)
    untied = language.get("tie_word_embeddings") is False
    if tensors and untied and not any(key.endswith("lm_head.weight") for key in tensors):
        raise headless(folder)
    pad, vocabulary = language.get("pad_token_id"), language.get("vocab_size")
    if isinstance(pad, int) and isinstance(vocabulary, int) and not -vocabulary <= pad < vocabulary:
        raise ModelError(f"pad_token_id of {name} is {pad}, but it has {vocabulary} embeddings: set it to null")


def require_unquantized(folder: Path) -> None:
    """Raise ModelError if the weights of a folder are quantized, by its configuration or by their names."""
    settings = _settings(folder, "quantization_config", "compression_config")
    # without a method, transformers reads the first settings of bitsandbytes
    methods = [
        str(section.get("quant_method") or "bitsandbytes") for section in settings if isinstance(section, Mapping)
    ]
    for name, tensor in weight_headers.tensors(identity.weight_files(folder)).items():
        if name.endswith(_QUANTIZED) or (name.endswith(".weight") and tensor.bytes < 2 * tensor.numbers):
            methods.append(name)
    if methods:
        raise ModelError(
            f"the weights of the model {str(folder)!r} are quantized ({methods[0]}), which is not supported: use "
            "the unquantized checkpoint that they were made from"
        )


def headless(folder: Path) -> ModelError:
    """Return the error for an untied model whose files hold no head."""
    return ModelError(
        f"the model {str(folder)!r} has no lm_head; set tie_word_embeddings to true in {identity.CONFIG_FILE} if "
        "the head is tied, or copy the file that holds it"
    )


def attention_notice(folder: Path) -> str:
    """Return a sentence if the configuration asks for an attention that is not installed here, else ``""``."""
    for name in map(str, _settings(folder, "attn_implementation", "_attn_implementation")):
        installed = name in _FLASH and machine.has_gpu() and any(distributions(name=_FLASH[name]))
        if not installed and name not in ("eager", "sdpa", "flex_attention"):
            return f"{identity.CONFIG_FILE} asks for {name}, which is not installed here: the model runs with sdpa"
    return ""


def _settings(folder: Path, *keys: str) -> list[Any]:
    values = identity.configuration(folder)
    sections = [values, *(section for section in values.values() if isinstance(section, Mapping))]
    return [section[key] for section in sections for key in keys if section.get(key)]
