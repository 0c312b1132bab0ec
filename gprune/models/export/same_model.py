"""Answers: are two models, or two tokenizers, the same, as far as their weights and answers tell?

A saved model is held against the live one by tensors and logits, and later against the logits that its plan
keeps.
"""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from gprune.models.export.plan_file import CutPlan
from gprune.models.loading import load_tokenizer
from gprune.system.errors import CheckpointError

_PROBE_TOKENS = 16
_PROBE_LOGITS = 64
_PROBE_TEXT = "In 1987, Zoë's <unk> weren't (quite)  done\n\n\tyet: 3.50 % — n't @-@"
# Largest difference of logits, relative to the largest logit: of two loads on one device in float32 and in
# 16 bits, and of two devices likewise.
_SAME_DEVICE = (1e-5, 1e-2)
_ANY_DEVICE = (1e-4, 5e-2)


def probe(model: Any, ids: tuple[int, ...] = ()) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Tokens spread over the vocabulary, and logits after the last of them, at tokens spread likewise."""
    vocabulary = model.get_input_embeddings().num_embeddings
    ids = ids or tuple(torch.linspace(0, vocabulary - 1, _PROBE_TOKENS).long().tolist())
    last = _logits(model, ids)[-1]
    chosen = torch.linspace(0, vocabulary - 1, min(_PROBE_LOGITS, vocabulary)).long()
    return ids, tuple(last[chosen].tolist())


@torch.inference_mode()
def _logits(model: Any, ids: tuple[int, ...]) -> torch.Tensor:
    """(tokens, vocabulary) float32 on the CPU."""
    batch = torch.tensor([ids], device=place_of(model))
    return model(input_ids=batch, use_cache=False).logits[0].float().cpu()


def require_same_tensors(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> None:
    """Compares two state dicts bit for bit; CheckpointError where a tensor is missing, extra or different."""
    for name in sorted(before.keys() | after.keys()):
        if name not in before or name not in after or not torch.equal(before[name].to(after[name].device), after[name]):
            raise CheckpointError(f"the saved model differs from the live one in {name}: check the disk and save again")


def require_same_logits(live: nn.Module, loaded: nn.Module, ids: tuple[int, ...] = ()) -> None:
    """Compares the logits of two models of one number type at all of some token ids; see `probe`.

    Raises CheckpointError where they differ by more than rounding.
    """
    ids, _ = probe(live, ids)
    tolerances = _SAME_DEVICE if place_of(live) == place_of(loaded) else _ANY_DEVICE
    _require_close(_logits(live, ids), _logits(loaded, ids), live, tolerances)


def require_plan_answer(model: nn.Module, plan: CutPlan) -> None:
    """Compares a model's answer with the one that the checkpoint of a plan gave when it was saved.

    Raises CheckpointError where they differ by more than rounding.
    """
    _, logits = probe(model, plan.probe_ids)
    _require_close(torch.tensor(plan.probe_logits), torch.tensor(logits), model, _ANY_DEVICE)


def require_same_tokens(tokenizer: Any, folder: Path) -> None:
    """Compares a tokenizer with the one that a folder holds, on a text with accents, spaces and signs.

    Raises CheckpointError where they split it differently.
    """
    if tokenizer is None:
        return
    expected = tokenizer(_PROBE_TEXT).input_ids
    actual = load_tokenizer(str(folder))(_PROBE_TEXT).input_ids
    if actual != expected:
        raise CheckpointError(
            f"the saved tokenizer splits {_PROBE_TEXT!r} into {actual} instead of {expected}: copy the dense "
            "model's tokenizer files into a folder of their own and load the model from there"
        )


def _require_close(
    expected: torch.Tensor, actual: torch.Tensor, model: nn.Module, tolerances: tuple[float, float]
) -> None:
    tolerance = tolerances[0] if number_type_of(model) == torch.float32 else tolerances[1]
    difference = float((expected - actual).abs().max() / expected.abs().max().clamp(min=1e-30))
    if not difference <= tolerance:
        raise CheckpointError(
            f"the saved model's logits differ from the live one's by {difference:.1e} of the largest (at "
            f"most {tolerance:.0e} is rounding): its weights or configuration have changed, save it again"
        )


def place_of(model: nn.Module) -> torch.device:
    """The device of a model's first weights."""
    return next(model.parameters()).device


def number_type_of(model: nn.Module) -> torch.dtype:
    """The number type of a model's first weights."""
    return next(model.parameters()).dtype
