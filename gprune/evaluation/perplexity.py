"""Measure the perplexity of a model on a text, and the divergence of a pruned model from the dense one.

The measure of section 4. The text's token stream is split into windows of equal length that do not overlap;
the remainder is dropped. Perplexity is exp of the mean negative log-likelihood over length - 1
predictions per window.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from gprune.data.texts.corpus_relation import cut
from gprune.data.texts.tokens import require_embedded
from gprune.models.devices import AdaptiveBatches
from gprune.models.families import FAMILIES, dense_type
from gprune.models.language_model import logits as logits_of
from gprune.models.parts import language_config
from gprune.records import Array, Perplexity
from gprune.study import PRESET_LENGTHS, EvaluationSettings
from gprune.system.errors import CheckpointError, CorpusError, NumericsError, SettingsError
from gprune.system.progress import Progress, silent

# number of float32 logits in memory at a time (64 MiB)
_BLOCK_LOGITS = 2**24
# largest relative difference of a window's loss between two machines; float16 has that of bfloat16
_ROUNDING = {"float32": 1e-3, "bfloat16": 3e-2}


def perplexity(
    model: nn.Module, tokens: Array, text: str, settings: EvaluationSettings, on_progress: Progress = silent
) -> Perplexity:
    """Measure a causal language model, dense or pruned, on the (tokens,) ids of a whole text.

    `settings` has length and number of the windows; its ``batch`` affects speed only and is halved if memory runs out.
    `on_progress` is called after every batch. The perplexity is infinite if exp overflows, never NaN. The standard
    error is infinite for a single window or an infinite perplexity. Raises CorpusError if the stream is shorter than
    one window or of another tokenizer, SettingsError if a window is longer than the model's positions or not even one
    fits in memory, NumericsError if a loss is not finite.
    """
    token_windows = windows(model, tokens, text, settings)
    training = model.training
    model.eval()
    try:
        losses = window_losses(model, token_windows, text, settings, on_progress)
    finally:
        model.train(training)
    value, error = _perplexity_with_error(losses)
    preset = settings.preset if settings.preset in PRESET_LENGTHS else "custom"
    return Perplexity(text, preset, settings.length, len(losses), value, error, losses)


def windows(model: nn.Module, tokens: Array, text: str, settings: EvaluationSettings) -> Array:
    """Return the first (windows, length) windows of a token stream; see `perplexity`."""
    stream, length = np.asarray(tokens).reshape(-1), settings.length
    positions = getattr(language_config(model), "max_position_embeddings", None)
    if positions is not None and length > positions:
        raise SettingsError(
            f"evaluation.preset means windows of {length} tokens, but the model reads at most {positions}: "
            "choose a shorter window"
        )
    if len(stream) < length:
        raise CorpusError(
            f"{text!r} has {len(stream)} tokens, less than one window of {length}: choose a longer text or a "
            "shorter window"
        )
    used = cut(stream, length, settings.windows)
    vocabulary = model.get_input_embeddings().num_embeddings  # type: ignore[operator]
    require_embedded(used, text, vocabulary)
    return used


def require_measured(model: nn.Module, window: Array, value: float, text: str, precision: str) -> None:
    """Compare a model's loss on the (length,) ids of a text's first window with the `value` of a run.

    `precision` is the number type that the run computed in. Raises CheckpointError if the two differ by
    more than rounding.
    """
    ids = torch.as_tensor(window[None].astype(np.int64), device=next(model.parameters()).device)
    loss, rounding = float(token_losses(model, ids).double().mean()), _ROUNDING.get(precision, _ROUNDING["bfloat16"])
    if not abs(loss - value) <= rounding * max(1.0, value):
        raise CheckpointError(
            f"the saved model's loss on the first window of {text!r} is {loss:.5f} and the run measured "
            f"{value:.5f}: it is not the model that was measured. Run the study again"
        )


def window_losses(
    model: nn.Module,
    windows: Array,
    text: str,
    settings: EvaluationSettings,
    on_progress: Progress = silent,
    numbers: Array | None = None,
    counted: Array | None = None,
) -> Array:
    """Return (windows,) float64 mean negative log-likelihoods of (windows, length) ids.

    `numbers` (windows,) are the indices of the windows in the text, for messages; 0, 1, ... by default. Only the tokens
    `counted` (windows, length) enter the mean; all by default. Raises the errors of `perplexity`.
    """
    losses, window_numbers = np.empty(len(windows)), np.arange(len(windows)) if numbers is None else numbers
    device = next(model.parameters()).device

    def measure(batch: slice) -> None:
        ids = torch.as_tensor(windows[batch].astype(np.int64), device=device)
        losses[batch] = _mean_over_counted(token_losses(model, ids), counted, batch)
        _require_finite(losses[batch], window_numbers[batch], text, model)
        on_progress(batch.stop, len(windows), f"perplexity on {text}")

    remedy = "choose a preset of shorter windows, dtype bfloat16, or a device with more memory"
    batches = AdaptiveBatches(settings.batch, settings.length, "evaluation.batch", remedy, device, on_progress)
    batches.run_batches(len(windows), measure)
    return losses


def _mean_over_counted(values: torch.Tensor, counted: Array | None, rows: slice) -> Array:
    """Return (rows,) means over the predictions of counted tokens, from (rows, length - 1) values."""
    wide = values.double()
    if counted is not None:
        weights = torch.tensor(counted[rows, 1:]).to(wide)
        mean: Array = ((wide * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)).cpu().numpy()
        return mean
    mean = wide.mean(dim=1).cpu().numpy()
    return mean


@torch.inference_mode()
def token_losses(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """Return (batch, length - 1) float32 losses in nats of every token except each sequence's first."""
    targets = ids[:, 1:].reshape(-1)
    blocks = list[torch.Tensor]()
    for logits in logit_blocks(model, ids):
        start = sum(map(len, blocks))
        # if the model is spread over several GPUs, the logits are on the last one
        expected = targets[start : start + len(logits)].to(logits.device)
        blocks.append(nn.functional.cross_entropy(logits.float(), expected, reduction="none"))
    return torch.cat(blocks).view(len(ids), -1)


def logit_blocks(model: Any, ids: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield blocks of (rows, vocabulary) logits at every position except each sequence's last."""
    model_type = dense_type(model.config.model_type)
    if model_type not in FAMILIES:
        # backbone and head of an unknown family may not be callable separately, so all logits are in one block
        logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
        yield logits.flatten(0, 1)
        return
    hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1].flatten(0, 1)
    rows = max(1, _BLOCK_LOGITS // model.get_output_embeddings().out_features)
    for block in hidden.split(rows):
        yield logits_of(model, block)


def window_divergences(
    dense: Any,
    pruned: Any,
    windows: Array,
    batch: int,
    on_progress: Progress = silent,
    counted: Array | None = None,
) -> Array:
    """Return (windows,) float64 mean divergence KL(dense | pruned) of (windows, length) ids, in nats per token.

    The distributions of the next token are compared after every token of a window but the last, or before every token
    that is `counted` (windows, length). `batch` is the number
    of windows per pass; it affects speed only and is halved if memory runs out. Raises NumericsError if the logits of
    a model are not finite, SettingsError if not even one window fits in memory.
    """
    divergences, device = np.empty(len(windows)), next(pruned.parameters()).device

    def measure(rows: slice) -> None:
        ids = torch.as_tensor(windows[rows].astype(np.int64), device=device)
        divergences[rows] = _mean_over_counted(token_divergences(dense, pruned, ids), counted, rows)
        if not np.isfinite(divergences[rows]).all():
            raise NumericsError(
                "the divergence from the dense model is not finite: a model overflows in its number type, so "
                "use float32 or bfloat16"
            )
        on_progress(rows.stop, len(windows), "divergence from the dense model")

    remedy = "use dtype bfloat16, or a device with more memory"
    batches = AdaptiveBatches(batch, windows.shape[1], "evaluation.batch", remedy, device, on_progress)
    batches.run_batches(len(windows), measure)
    return divergences


@torch.inference_mode()
def token_divergences(dense: Any, pruned: Any, ids: torch.Tensor) -> torch.Tensor:
    """Return (batch, length - 1) float32 KL(dense | pruned) in nats at every position but the last."""
    blocks = []
    for dense_logits, pruned_logits in zip(logit_blocks(dense, ids), logit_blocks(pruned, ids), strict=True):
        dense_log = dense_logits.float().log_softmax(dim=-1)
        pruned_log = pruned_logits.to(dense_logits.device).float().log_softmax(dim=-1)
        blocks.append((dense_log.exp() * (dense_log - pruned_log)).sum(dim=-1))
    return torch.cat(blocks).view(len(ids), -1)


def _require_finite(losses: Array, numbers: Array, text: str, model: nn.Module) -> None:
    faults = np.flatnonzero(~np.isfinite(losses))
    if faults.size:
        fault, dtype = int(faults[0]), str(next(model.parameters()).dtype).removeprefix("torch.")
        raise NumericsError(
            f"the loss on {text!r} is {losses[fault]} in window {numbers[fault]}: the model overflows in "
            f"{dtype}, so use float32 or bfloat16, or check its weights for NaN"
        )


def _perplexity_with_error(losses: Array) -> tuple[float, float]:
    """Return the perplexity of (windows,) losses and its standard error by the delta method."""
    with np.errstate(over="ignore"):
        value = float(np.exp(losses.mean()))
    if len(losses) < 2 or not np.isfinite(value):
        return value, float("inf")
    return value, float(value * losses.std(ddof=1) / np.sqrt(len(losses)))
