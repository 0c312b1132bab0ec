"""Save a model without some of its experts as a stock folder, read it back, and compare both.

The folder holds safetensors, a configuration, the tokenizer, a model card, and ``experts.json``. Plain
``AutoModelForCausalLM.from_pretrained`` loads it without this package.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import transformers
from torch import nn

from gprune.models import identity
from gprune.models.export.checkpoint import (
    move_like,
    probe,
    require_same_model,
)
from gprune.models.export.model_card import EXPERTS_FILE, ExpertRecord, Figure, write_expert_card
from gprune.models.export.writing import new_folder, require_free_space, save_model
from gprune.models.loading import read_model
from gprune.records.experts import PrunedExperts

_OLDER_NAME = {"qwen3_moe": "num_experts"}
"""field for the number of experts in transformers 4.x, for families in which version 5 writes another"""


def save_experts(
    model: Any,
    tokenizer: Any,
    folder: Path,
    pruned: PrunedExperts,
    *,
    figures: Sequence[Figure] = (),
    ids: Sequence[int] = (),
    accept: Callable[[nn.Module], None] | None = None,
    **facts: Any,
) -> Path:
    """Save a pruned model and compare it with its copy on disk; if anything fails, no folder is left behind.

    Args:
        model: the model that ``gprune.pruning.experts.surgery.cut_experts`` returned.
        tokenizer: the tokenizer of the dense model, or None.
        folder: a folder that does not exist or is empty.
        pruned: masks and refitted routers of the model.
        figures: perplexities for the model card.
        ids: tokens of the input at which logits are compared; by default spread over the vocabulary.
        accept: further check; it is called with the model that was read back and raises CheckpointError if it fails.
        facts: fields of `ExpertRecord`: source and fingerprint of the dense model, run, study.

    Returns the absolute path of the folder. Raises CheckpointError if the folder is not empty, the disk is full, or
    the model that is read back differs from the saved one.
    """
    folder = Path(folder).absolute()
    require_free_space(folder, sum(p.numel() * p.element_size() for p in model.parameters()))
    with new_folder(folder) as partial:
        save_model(model, tokenizer, partial)
        masks, is_refitted = pruned.masks, pruned.routers is not None
        _add_older_count(partial, masks.count)
        tokens, logits = probe(model, ids)
        experts = [np.flatnonzero(layer).tolist() for layer in masks.experts]
        numbers = masks.retention, masks.target, masks.experts.shape[1]
        record = ExpertRecord(masks.method, *numbers, experts, tokens, logits, refitted_routers=is_refitted, **facts)
        (partial / EXPERTS_FILE).write_text(json.dumps(asdict(record)) + "\n", encoding="utf-8")
        write_expert_card(partial, record, figures)
        loaded = move_like(read_model(transformers.AutoModelForCausalLM, partial, dtype=model.dtype), model)
        require_same_model(model, loaded, tokens, tokenizer, partial)
        if accept is not None:
            accept(loaded)
    return folder


def _add_older_count(folder: Path, count: int) -> None:
    path, values = folder / identity.CONFIG_FILE, identity.configuration(folder)
    if older := _OLDER_NAME.get(str(values.get("model_type"))):
        path.write_text(json.dumps(values | {older: count}, indent=2) + "\n", encoding="utf-8")
