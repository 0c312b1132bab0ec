"""Answers: how does a pruned model load as an ordinary one, with no code of ours, and what does that cost?

Ordinary families have one FFN width and one number of key/value groups for all layers. Every layer is padded
with zeros to the widest: a padded neuron has zero weights, a padded group zero queries, keys, values and
output columns, so each contributes exactly nothing. Lossless; it gives back a part of what pruning has saved.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gprune.models.export import checkpoint, model_card, plan_file, same_model
from gprune.models.export.modeling_gprune import FIELDS, Kept
from gprune.models.export.writing import as_checkpoint_error, new_folder, require_room
from gprune.models.families import FAMILIES, PRUNED_PREFIX
from gprune.models.identity import VOCABULARY_FILES
from gprune.models.loading import load_tokenizer, quiet, read_model
from gprune.system.errors import CheckpointError
from gprune.system.progress import Progress, silent

_OWN_FIELDS = tuple(FIELDS)
_DERIVED_FIELDS = ("model_type", "architectures", "auto_map", "transformers_version")
_WINDOW_FIELDS = ("layer_types", "sliding_window", "use_sliding_window", "max_window_layers")
_KNOWN = ("llama", "mistral", "qwen2", "qwen3")
"""families whose places for biases are known here; others are asked"""
_STEPS = 4


@dataclass(frozen=True, slots=True)
class Size:
    """How much a model holds; tied weights count once."""

    parameters: int
    """weights and biases"""
    bytes: int
    """of the weights in the checkpoint's number type"""


@dataclass(frozen=True, slots=True)
class PaddedModel:
    """What padding made, beside what it was made from."""

    folder: Path
    """the ordinary model"""
    model_type: str
    """its family"""
    neurons: int
    """FFN width of every layer"""
    groups: int
    """key/value groups of every layer"""
    dense: Size
    """the model before pruning"""
    pruned: Size
    """the checkpoint that was padded"""
    padded: Size
    """the ordinary model"""


def save(folder_in: Path, folder_out: Path, on_progress: Progress = silent) -> PaddedModel:
    """Saves a pruned checkpoint as an ordinary model, reads it back and compares the two.

    `folder_in` is one that ``gprune.models.export.checkpoint.save`` made; `folder_out` must not exist, or be
    empty; `on_progress` is told each of the four steps. Raises CheckpointError where the checkpoint is
    damaged, no ordinary family can hold it, the target is taken, the disk is full, or the saved model does
    not give the same logits. Nothing is left behind.
    """
    folder_in, folder_out = Path(folder_in), Path(folder_out).absolute()
    on_progress(0, _STEPS, "reading the checkpoint")
    pruned: Any = checkpoint.load_verified(folder_in)
    config = _ordinary(pruned, plan_file.read(folder_in).pruned.repaired_by)
    on_progress(1, _STEPS, "padding")
    padded = _empty(config, pruned.dtype)
    sizes = _size(_empty(_dense(pruned.config), pruned.dtype)), _size(pruned), _size(padded)
    require_room(folder_out, sizes[2].bytes)
    _require_biases(pruned, padded, plan_file.read(folder_in).pruned.repaired_by)
    _fill(padded, pruned)
    padded.generation_config = pruned.generation_config
    with new_folder(folder_out) as partial:
        on_progress(2, _STEPS, "writing")
        _write(padded, folder_in, partial)
        on_progress(3, _STEPS, "reading back")
        _verify(pruned, padded, partial)
        model_card.write(partial, plan_file.read(folder_in), model_card.figures_of(folder_in), padded=True)
    on_progress(_STEPS, _STEPS, "padded")
    neurons, groups = config.intermediate_size, config.num_key_value_heads
    return PaddedModel(folder_out, config.model_type, neurons, groups, *sizes)


def _ordinary(pruned: Any, repaired_by: str) -> Any:
    """The configuration of the smallest ordinary model that can hold a pruned one."""
    config = pruned.config
    family = config.model_type.removeprefix(PRUNED_PREFIX)
    if FAMILIES[family].text:
        raise CheckpointError(
            f"a padded {FAMILIES[family].label} is not made here, as parts stand beside its language model: "
            "use the pruned folder itself"
        )
    present = {name for name, _ in pruned.named_parameters() if name.endswith(".bias")}
    attention = any(".self_attn." in name for name in present)
    output = any(name.endswith("self_attn.o_proj.bias") for name in present)
    feed_forward = any(".mlp." in name for name in present)
    values = _common_values(config)
    if not _can_hold(family, output, feed_forward):
        _require_full_attention(family, config, repaired_by)
        family = "llama"
        values = {name: value for name, value in values.items() if name not in _WINDOW_FIELDS}
    if family in ("llama", "qwen3"):
        values["attention_bias"] = attention
    if family == "llama":
        values["mlp_bias"] = feed_forward
    elif family not in _KNOWN and (output or feed_forward):
        # whichever switches the family has; what is beyond the pruned model's biases is zero
        values |= {name: True for name in values if name.endswith("_bias")}
    group_size = config.num_attention_heads // config.num_key_value_heads
    groups = _groups(family, config, group_size)
    values |= {
        "intermediate_size": max(config.ffn_widths),
        "num_key_value_heads": groups,
        "num_attention_heads": group_size * groups,
        "head_dim": _head_width(pruned, config),
    }
    if not FAMILIES[family].free_heads:
        values |= {"num_key_value_heads": config.num_key_value_heads}
        values |= {"num_attention_heads": config.num_attention_heads}
    return _configuration(family, values)


def _can_hold(family: str, output: bool, feed_forward: bool) -> bool:
    """Whether a family has a bias in o_proj and in the FFN, where one is needed."""
    if family == "llama" or family not in _KNOWN:
        return True
    return not feed_forward and (family == "qwen3" or not output)


def _require_full_attention(family: str, config: Any, repaired_by: str) -> None:
    """Without a window in use, mistral and qwen2 compute what llama computes, and llama has the biases."""
    window = getattr(config, "sliding_window", None)
    windowed = family == "mistral" and window is not None and window < config.max_position_embeddings
    windowed |= family == "qwen2" and "sliding_attention" in (config.layer_types or ())
    if family not in ("mistral", "qwen2") or windowed:
        raise _no_bias(family, "o_proj and down_proj", repaired_by)


def _groups(family: str, config: Any, group_size: int) -> int:
    """The most key/value groups of a layer, or the next number that the family's configuration accepts."""
    groups = max(config.key_value_groups)
    # llama's configuration refuses a hidden size that is no multiple of the query heads
    while family == "llama" and groups < config.num_key_value_heads:
        if config.hidden_size % (group_size * groups) == 0:
            break
        groups += 1
    return groups


def _head_width(pruned: Any, config: Any) -> int:
    layout = FAMILIES[config.model_type.removeprefix(PRUNED_PREFIX)]
    first = next(iter(pruned.get_submodule(layout.layers).children()))
    return int(first.get_submodule(layout.attention).head_dim)


def _dense(config: Any) -> Any:
    """The configuration of the model before pruning."""
    return _configuration(config.model_type.removeprefix(PRUNED_PREFIX), _common_values(config))


def _common_values(config: Any) -> dict[str, Any]:
    values: dict[str, Any] = config.to_dict()
    return {name: value for name, value in values.items() if name not in (*_OWN_FIELDS, *_DERIVED_FIELDS)}


def _configuration(family: str, values: dict[str, Any]) -> Any:
    from transformers import AutoConfig

    with as_checkpoint_error(f"no ordinary {family} configuration holds this model"):
        return AutoConfig.for_model(family, **values)


def _empty(config: Any, dtype: torch.dtype) -> Any:
    """An ordinary model without memory for its weights."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, dtype=dtype)


def _require_biases(pruned: Any, padded: Any, repaired_by: str) -> None:
    """Raises CheckpointError where the ordinary model has no place for a bias of the pruned one."""
    places = padded.state_dict().keys()
    if lacking := [name for name in pruned.state_dict() if name.endswith("bias") and name not in places]:
        raise _no_bias(padded.config.model_type, lacking[0].removesuffix(".bias"), repaired_by)


def _no_bias(family: str, where: str, repaired_by: str) -> CheckpointError:
    return CheckpointError(
        f"an ordinary {family} model has no bias in {where}, where {repaired_by} puts them: use the pruned "
        f"folder itself, or prune without {repaired_by}"
    )


def _fill(padded: Any, pruned: Any) -> None:
    """Gives an empty model the weights of the pruned one; what is beyond them, rows and columns, is zero."""
    tensors, filled, fused = pruned.state_dict(), {}, _fused(padded, pruned)
    layout = FAMILIES[pruned.config.model_type.removeprefix(PRUNED_PREFIX)]
    lists = tuple(f".{one.path}." for one in layout.slices if one.optional)
    for name, empty in padded.state_dict().items():
        known = tensors.get(name)
        if known is None and not name.endswith(".bias") and not any(one in name for one in lists):
            raise CheckpointError(f"the checkpoint has no {name}, which the padded model needs")
        if known is not None and known.shape == empty.shape:
            filled[name] = known
            continue
        filled[name] = torch.zeros(empty.shape, dtype=empty.dtype)
        if known is not None and name in fused:
            filled[name].index_copy_(0, fused[name], known)
        elif known is not None:
            filled[name][tuple(slice(size) for size in known.shape)] = known
    padded.load_state_dict(filled, assign=True)
    padded.requires_grad_(False).tie_weights()


def _fused(padded: Any, pruned: Any) -> dict[str, torch.Tensor]:
    """Where the rows of every map with several parts stand in the padded one, by the names of its weights."""
    config, wide, found = pruned.config, padded.config, {}
    layout = FAMILIES[config.model_type.removeprefix(PRUNED_PREFIX)]
    group_size = config.num_attention_heads // config.num_key_value_heads
    dense = wide.intermediate_size, wide.num_key_value_heads, group_size, _head_width(pruned, config)
    for layer, widths in enumerate(zip(config.ffn_widths, config.key_value_groups, strict=True)):
        neurons, groups = (torch.arange(width) for width in widths)
        kept = Kept(neurons, groups, dense)
        for path, axis, units in layout.table():
            for name in ("weight", "bias") if axis == 0 and len(units) > 1 else ():
                found[f"{layout.layers}.{layer}.{path}.{name}"] = kept.joined(units)
    return found


def _size(model: nn.Module) -> Size:
    return Size(
        sum(p.numel() for p in model.parameters()),
        sum(p.numel() * p.element_size() for p in model.parameters()),
    )


def _write(padded: Any, folder_in: Path, folder: Path) -> None:
    with quiet():
        padded.save_pretrained(folder)
    if not any((folder_in / name).is_file() for name in VOCABULARY_FILES):
        return
    tokenizer = load_tokenizer(str(folder_in))
    with quiet():
        tokenizer.save_pretrained(folder)
    same_model.require_same_tokens(tokenizer, folder)


def _verify(pruned: nn.Module, padded: nn.Module, folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    loaded = read_model(AutoModelForCausalLM, folder, dtype=pruned.dtype)
    same_model.require_same_tensors(padded.state_dict(), loaded.state_dict())
    same_model.require_same_logits(pruned, loaded)
