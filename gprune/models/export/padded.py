"""Answers: how does a pruned model load as an ordinary one, with no code of ours, and what does that cost?

Ordinary families have one FFN width and one number of key/value groups for all layers. Every layer is padded
with zeros to the widest: a padded neuron has zero weights, a padded group zero queries, keys, values and
output columns, so each contributes exactly nothing. Lossless; it gives back a part of what pruning has saved.
A model whose layers all have the same width is an ordinary one already (`ordinary`): nothing is added to it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gprune.models.export import checkpoint, model_card, ordinary, plan_file, same_model
from gprune.models.export.modeling_gprune import Kept
from gprune.models.export.older_versions import add_older_rope_fields, save_tokenizer
from gprune.models.export.writing import new_folder, require_room
from gprune.models.families import FAMILIES, Layout, dense_type
from gprune.models.identity import VOCABULARY_FILES
from gprune.models.loading import load_tokenizer, quiet, read_model
from gprune.system.errors import CheckpointError
from gprune.system.progress import Progress, silent

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
    dense: Size | None
    """the model before pruning; None where the folder was an ordinary model already, which does not tell"""
    pruned: Size
    """the checkpoint that was padded"""
    padded: Size
    """the ordinary model"""

    @property
    def zeros(self) -> int:
        """Numbers that were added, all of them zero."""
        return self.padded.parameters - self.pruned.parameters


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
    plan = plan_file.read(folder_in)
    own, by = ordinary.is_own(pruned), plan.pruned.repaired_by
    config = _ordinary(pruned, by) if own else pruned.config
    on_progress(1, _STEPS, "padding")
    padded = ordinary.empty(config, pruned.dtype)
    dense = _size(ordinary.empty(_dense(pruned.config), pruned.dtype)) if own else None
    sizes = dense, _size(pruned), _size(padded)
    require_room(folder_out, sizes[2].bytes)
    _require_biases(pruned, padded, by)
    _fill(padded, pruned)
    padded.generation_config = pruned.generation_config
    with new_folder(folder_out) as partial:
        on_progress(2, _STEPS, "writing")
        _write(padded, folder_in, partial)
        on_progress(3, _STEPS, "reading back")
        _verify(pruned, padded, partial, plan.probe_ids)
        model_card.write(partial, plan, model_card.figures_of(folder_in), padded=own)
    on_progress(_STEPS, _STEPS, "padded")
    neurons, groups = config.intermediate_size, config.num_key_value_heads
    return PaddedModel(folder_out, config.model_type, neurons, groups, *sizes)


def _ordinary(pruned: Any, repaired_by: str) -> Any:
    """The configuration of the smallest ordinary model that can hold a pruned one."""
    config = pruned.config
    family = dense_type(config.model_type)
    if FAMILIES[family].text:
        raise CheckpointError(
            f"a padded {FAMILIES[family].label} is not made here, as parts stand beside its language model: "
            "use the pruned folder itself"
        )
    present = {name for name, _ in pruned.named_parameters() if name.endswith(".bias")}
    attention = any(".self_attn." in name for name in present)
    output = any(name.endswith("self_attn.o_proj.bias") for name in present)
    feed_forward = any(".mlp." in name for name in present)
    values = ordinary.values_of(config)
    if not _can_hold(family, output, feed_forward):
        _require_full_attention(family, config, repaired_by)
        family, values = "llama", ordinary.windowless(values)
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
        "head_dim": ordinary.head_width(pruned, _layout(config)),
    }
    if not FAMILIES[family].free_heads:
        values |= {"num_key_value_heads": config.num_key_value_heads}
        values |= {"num_attention_heads": config.num_attention_heads}
    return ordinary.configuration(family, values)


def _can_hold(family: str, output: bool, feed_forward: bool) -> bool:
    """Whether a family has a bias in o_proj and in the FFN, where one is needed."""
    if family == "llama" or family not in _KNOWN:
        return True
    return not feed_forward and (family == "qwen3" or not output)


def _require_full_attention(family: str, config: Any, repaired_by: str) -> None:
    """Without a window in use, mistral and qwen2 compute what llama computes, and llama has the biases."""
    if family not in ("mistral", "qwen2") or ordinary.windowed(config):
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


def _layout(config: Any) -> Layout:
    return FAMILIES[dense_type(config.model_type)]


def _dense(config: Any) -> Any:
    """The configuration of the model before pruning."""
    return ordinary.configuration(dense_type(config.model_type), ordinary.values_of(config))


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
    layout = _layout(pruned.config)
    tensors, filled, fused = pruned.state_dict(), {}, _fused(padded, pruned)
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
    layout = _layout(config)
    group_size = config.num_attention_heads // config.num_key_value_heads
    width = ordinary.head_width(pruned, layout)
    dense = wide.intermediate_size, wide.num_key_value_heads, group_size, width
    for layer, widths in enumerate(zip(*ordinary.widths(pruned, layout), strict=True)):
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
    add_older_rope_fields(folder)
    if not any((folder_in / name).is_file() for name in VOCABULARY_FILES):
        return
    tokenizer = load_tokenizer(str(folder_in))
    save_tokenizer(tokenizer, folder)
    same_model.require_same_tokens(tokenizer, folder)


def _verify(pruned: nn.Module, padded: nn.Module, folder: Path, ids: tuple[int, ...]) -> None:
    from transformers import AutoModelForCausalLM

    loaded = read_model(AutoModelForCausalLM, folder, dtype=pruned.dtype)
    same_model.require_same_tensors(padded.state_dict(), loaded.state_dict())
    same_model.require_same_logits(pruned, loaded, ids)
