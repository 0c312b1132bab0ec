"""Pad a pruned model with zeros, so that it loads as a stock transformers model without custom code.

Stock models have one FFN width and one number of key/value groups for all layers. Every layer is padded to the
widest. A padded neuron has zero weights; a padded group has zero queries, keys, values and output columns. Each adds
exactly zero, so the outputs do not change, but part of the saved memory and time is lost. A model whose layers all have
the same width is saved as a stock model without padding (`ordinary`).
"""

from pathlib import Path
from typing import Any

import torch

from gprune.models.export import checkpoint, model_card, ordinary
from gprune.models.export.model_card import read_record, write_record
from gprune.models.export.modeling_gprune import KeptUnits
from gprune.models.export.writing import new_folder, require_free_space, save_model
from gprune.models.families import FAMILIES, dense_layout, dense_type
from gprune.models.identity import VOCABULARY_FILES
from gprune.models.loading import load_tokenizer, read_model
from gprune.system.errors import CheckpointError
from gprune.system.progress import Progress, silent

_STEPS = 4  # of the progress report


def save_padded(folder_in: Path, folder_out: Path, on_progress: Progress = silent) -> Path:
    """Save a pruned checkpoint as a padded stock model, read it back and compare both; return the absolute path.

    `folder_in` was written by ``gprune.models.export.checkpoint.save``; `folder_out` must be empty or not exist. Raises
    CheckpointError if the checkpoint is damaged, no stock model can have its weights, `folder_out` is not empty, the
    disk is full, or the saved model computes other logits. After an error no file is left behind.
    """
    from transformers import AutoModelForCausalLM

    folder_in, folder_out = Path(folder_in), Path(folder_out).absolute()
    on_progress(0, _STEPS, "reading the checkpoint")
    pruned: Any = checkpoint.load_verified(folder_in)
    record, needs_padding = read_record(folder_in), ordinary.has_own_class(pruned)
    config = _padded_config(pruned, record.pruned.repaired_by) if needs_padding else pruned.config
    on_progress(1, _STEPS, "padding")
    padded = ordinary.empty_model(config, pruned.dtype)
    require_free_space(folder_out, sum(p.numel() * p.element_size() for p in padded.parameters()))
    _fill(padded, pruned)
    padded.generation_config = pruned.generation_config
    with new_folder(folder_out) as partial:
        on_progress(2, _STEPS, "writing")
        has_tokenizer = any((folder_in / name).is_file() for name in VOCABULARY_FILES)
        tokenizer = load_tokenizer(str(folder_in)) if has_tokenizer else None
        save_model(padded, tokenizer, partial)
        record = record.model_copy(update={"padded": record.padded or needs_padding})
        write_record(partial, record)
        on_progress(3, _STEPS, "reading back")
        loaded = read_model(AutoModelForCausalLM, partial, dtype=pruned.dtype)
        checkpoint.require_same_tensors(padded, loaded)
        checkpoint.require_same_logits(pruned, loaded, record.probe_tokens)
        checkpoint.require_same_tokens(tokenizer, partial)
        model_card.write(partial, record, model_card.figures_of(folder_in))
    on_progress(_STEPS, _STEPS, "padded")
    return folder_out


def _padded_config(pruned: Any, repaired_by: str) -> Any:
    """Return the configuration of the smallest stock model that can hold the weights of a pruned one.

    Raises CheckpointError if there is none; `repaired_by` names the repair that added biases, for the message.
    """
    config, layout = pruned.config, dense_layout(pruned)
    if layout.inner_types:
        raise CheckpointError(
            f"{layout.label} cannot be padded, because it has parts other than its language model: use the "
            "pruned folder itself"
        )
    biases = {name for name in pruned.state_dict() if name.endswith(".bias")}
    for family, values in ordinary.stock_candidates(pruned):
        widths = {"intermediate_size": max(config.ffn_widths), "head_dim": ordinary.head_width(pruned, layout)}
        padded = ordinary.stock_config(family, values | widths | _head_counts(family, config))
        if biases <= ordinary.empty_model(padded, pruned.dtype).state_dict().keys():
            return padded
    raise CheckpointError(
        f"a stock {dense_type(config.model_type)} model has no biases in o_proj and down_proj, which {repaired_by} "
        f"adds: use the pruned folder itself, or prune without {repaired_by}"
    )


def _head_counts(family: str, config: Any) -> dict[str, int]:
    """Return the head counts of the padded model: those of the widest layer, or the next larger accepted ones."""
    groups, group_size = max(config.key_value_groups), ordinary.group_size(config)
    if not FAMILIES[family].free_heads:
        groups = config.num_key_value_heads
    # llama's configuration requires a hidden size that is a multiple of the query heads
    while family == "llama" and groups < config.num_key_value_heads and config.hidden_size % (group_size * groups):
        groups += 1
    return {"num_key_value_heads": groups, "num_attention_heads": group_size * groups}


def _fill(padded: Any, pruned: Any) -> None:
    """Copy the weights of the pruned model into an empty one; additional rows and columns are zero."""
    layout = dense_layout(pruned)
    tensors, padded_tensors, fused_rows = pruned.state_dict(), {}, _fused_rows(padded, pruned)
    optional = tuple(f".{entry.path}." for entry in layout.slices if entry.optional)
    for name, empty in padded.state_dict().items():
        tensor = tensors.get(name)
        if tensor is None and not name.endswith(".bias") and not any(path in name for path in optional):
            raise CheckpointError(f"the checkpoint has no {name}, which the padded model needs")
        if tensor is not None and tensor.shape == empty.shape:
            padded_tensors[name] = tensor
            continue
        padded_tensors[name] = torch.zeros(empty.shape, dtype=empty.dtype)
        if tensor is not None and name in fused_rows:
            padded_tensors[name].index_copy_(0, fused_rows[name], tensor)
        elif tensor is not None:
            padded_tensors[name][tuple(slice(size) for size in tensor.shape)] = tensor
    padded.load_state_dict(padded_tensors, assign=True)
    padded.requires_grad_(False).tie_weights()


def _fused_rows(padded: Any, pruned: Any) -> dict[str, torch.Tensor]:
    """Return, by the name of each fused weight or bias, its rows in the padded model that the pruned rows fill."""
    padded_config, rows = padded.config, {}
    layout = dense_layout(pruned)
    head_sizes = ordinary.group_size(pruned.config), ordinary.head_width(pruned, layout)
    padded_sizes = padded_config.intermediate_size, padded_config.num_key_value_heads, *head_sizes
    for layer, widths in enumerate(zip(*ordinary.widths(pruned, layout), strict=True)):
        # the pruned units are the first units of the padded layer
        neurons, groups = (torch.arange(width) for width in widths)
        remaining = KeptUnits(neurons, groups, padded_sizes)
        for path, axis, units in layout.unit_slices():
            for name in ("weight", "bias") if axis == 0 and len(units) > 1 else ():
                rows[f"{layout.layers}.{layer}.{path}.{name}"] = remaining.joined(units)
    return rows
