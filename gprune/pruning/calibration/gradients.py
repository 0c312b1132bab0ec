"""Gradients of the language-model loss, for LLM-Pruner and for contexts (section 4).

The LM head and its gradient are computed in chunks of tokens, so that the logits of a whole batch never exist at
once. For LLM-Pruner (without LoRA), the gradient of a weight matrix is summed over each unit as soon as it is
computed, so that at most one matrix's gradient exists at a time.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from gprune.models.decoder import Decoder
from gprune.records import Array, ModelShape, Tokens, UnitScores
from gprune.study.settings import BaselineSettings
from gprune.system.errors import MethodError, NumericsError
from gprune.system.progress import Progress, silent

# number of float32 logits in memory at a time (64 MiB)
_BLOCK_LOGITS = 2**24
# factor on the loss that keeps the gradients of a large vocabulary's logits above the smallest float16 number
_HEAD_SCALE = 2.0**8
# label of a target that does not count
_IGNORED = -100

# axis of a weight matrix that is summed: 1 if each unit has a row, 0 if it has a column
_SUMMED_AXIS = {"gate_proj": 1, "up_proj": 1, "down_proj": 0, "q_proj": 1, "k_proj": 1, "v_proj": 1, "o_proj": 0}

Reduced = dict[tuple[int, str], torch.Tensor]
"""(units,) float64 sums of |weight * gradient| over the rows or columns of each unit, by layer and projection"""


def loss_gradient(
    decoder: Decoder, hidden: torch.Tensor, ids: torch.Tensor, counted: Array | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradient of the summed next-token loss with respect to the final hidden states.

    The loss is a sum, so that the gradient of a sequence does not depend on its batch. In float16 the gradient is
    multiplied by a power of two that brings its largest entry to at most 1. This leaves room for entries a million
    times smaller, and for growth by a factor of 60,000 in the backward pass.

    Takes the (sequences, length, hidden) states of `Decoder.hidden_states`, (sequences, length) int64 ids, and which of
    them count as targets, (sequences, length) bool.
    Returns the gradient, in the shape and number type of `hidden` and zero at the last token of a sequence, and
    the power of two (scalar float64) by which it was multiplied.
    """
    if counted is not None:
        ids = ids.masked_fill(~torch.tensor(counted).to(ids.device), _IGNORED)
    states, targets = hidden.detach()[:, :-1].flatten(0, 1), ids[:, 1:].flatten().to(hidden.device)
    is_half = hidden.dtype == torch.float16
    gradient = torch.zeros_like(states, dtype=torch.float32)
    rows = max(1, _BLOCK_LOGITS // int(decoder.config.vocab_size))
    for start in range(0, len(states), rows):
        part = slice(start, start + rows)
        leaf = states[part].requires_grad_()
        with torch.enable_grad():
            scores = decoder.logits(leaf).float()
            loss = nn.functional.cross_entropy(scores, targets[part], reduction="sum", ignore_index=_IGNORED)
            (gradient[part],) = torch.autograd.grad(loss * _HEAD_SCALE if is_half else loss, leaf)
    scale = torch.ones((), dtype=torch.float64, device=hidden.device)
    if is_half:
        peak = gradient.abs().amax() if len(gradient) else scale
        # the lower limit keeps the logarithm of a gradient of 0 finite
        power = torch.exp2(-torch.ceil(torch.log2(peak.double().clamp(min=2.0**-100))))
        gradient *= power
        scale *= power * _HEAD_SCALE
    shaped = gradient.view(len(hidden), -1, hidden.shape[-1])
    # the last token of a sequence has no next token to predict
    return nn.functional.pad(shaped, (0, 0, 0, 1)).to(hidden.dtype), scale


def taylor_scores(
    decoder: Decoder, tokens: Tokens, settings: BaselineSettings, on_progress: Progress = silent
) -> UnitScores:
    """Return LLM-Pruner's unit scores: the sum of |weight * gradient| over the coupled matrices.

    The loss is the mean cross-entropy over the first `taylor_length` tokens of the first `taylor_samples` sequences,
    in one batch and one backward pass. A neuron's score is the sum over its rows of gate_proj and up_proj and its
    column of down_proj. An o_proj channel's score is the sum over its column, the matching row of q_proj, and the
    matching rows of k_proj and v_proj divided by the number of query heads that share them. A key/value group's
    score is the sum over its channels.

    Raises:
        MethodError: the calibration set is too small, or the batch does not fit on the GPU.
        SettingsError: layers are offloaded.
        NumericsError: an activation or a gradient is NaN or infinite.
    """
    ids, counted = _first_sequences(tokens, settings)
    decoder.require_whole("LLM-Pruner")
    on_progress(0, 1, "gradients of the weights")
    reduced: Reduced = {}
    with _reduce_gradients(decoder, reduced):
        try:
            scale = _run_backward(decoder, ids, counted)
        except torch.OutOfMemoryError as error:
            raise MethodError(
                f"baselines.taylor_samples is {len(ids)}: the gradient of so many sequences of "
                f"{ids.shape[1]} tokens does not fit in the GPU's memory, choose fewer or shorter ones"
            ) from error
    _require_finite_gradients(decoder, reduced)
    predictions = len(ids) * (ids.shape[1] - 1) if counted is None else int(counted[:, 1:].sum())
    divisor = scale * predictions
    values = {key: (total / divisor.to(total.device)).cpu().numpy() for key, total in reduced.items()}
    on_progress(1, 1, "gradients of the weights")
    return _unit_scores(decoder.shape, tokens.text, values)


def _first_sequences(tokens: Tokens, settings: BaselineSettings) -> tuple[torch.Tensor, Array | None]:
    """Return (taylor_samples, taylor_length) int64 ids from the beginning of the calibration set, and which count."""
    samples, length = settings.taylor_samples, settings.taylor_length
    available = tokens.ids.shape
    if available[0] < samples or available[1] < length:
        raise MethodError(
            f"{tokens.text!r} gives {available[0]} sequences of {available[1]} tokens, but LLM-Pruner's gradient "
            f"needs {samples} of {length}: lower baselines.taylor_samples and baselines.taylor_length, or "
            "raise calibration.samples and calibration.length"
        )
    counted = None if tokens.counted is None else tokens.counted[:samples, :length]
    return torch.from_numpy(tokens.ids[:samples, :length].astype(np.int64)), counted


def _run_backward(decoder: Decoder, ids: torch.Tensor, counted: Array | None) -> torch.Tensor:
    """Run the model forward and backward once; return the factor by which the gradients were multiplied."""
    with torch.enable_grad(), _check_layer_outputs(decoder):
        hidden = decoder.hidden_states(ids)
    gradient, scale = loss_gradient(decoder, hidden, ids, counted)
    hidden.backward(gradient)
    decoder.count_backward(ids.numel())
    return scale


@contextmanager
def _check_layer_outputs(decoder: Decoder) -> Iterator[None]:
    """Check layer outputs while the context is open; raise NumericsError on exit for the first non-finite one."""
    finite: list[torch.Tensor] = []

    def check(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        states = output[0] if isinstance(output, tuple) else output
        finite.append(torch.isfinite(states.detach()).all().to(decoder.device))

    with ExitStack() as stack:
        for layer in decoder.layers:
            stack.callback(layer.register_forward_hook(check).remove)
        yield
    # synchronizes with the device once for all layers
    for index, is_finite in enumerate(torch.stack(finite).tolist()):
        if not is_finite:
            raise NumericsError.of(f"the output of layer {index}")


@contextmanager
def _reduce_gradients(decoder: Decoder, reduced: Reduced) -> Iterator[None]:
    """Sum |weight * gradient| over the units of every projection in a backward pass, and free the gradients."""
    weights = {
        (layer, key): (linear.weight, slices)
        for layer in range(decoder.shape.layers)
        for key, (linear, slices) in enumerate(decoder.matrices(layer))
    }
    requires_grad = {key: weight.requires_grad for key, (weight, _) in weights.items()}
    handles = []
    try:
        for (layer, _), (weight, slices) in weights.items():
            weight.requires_grad_(True)
            handles.append(weight.register_post_accumulate_grad_hook(_reduction_hook(layer, slices, reduced)))
        yield
    finally:
        for handle in handles:
            handle.remove()
        for key, (weight, _) in weights.items():
            weight.grad = None
            weight.requires_grad_(requires_grad[key])


def _reduction_hook(layer: int, slices: dict[str, slice], reduced: Reduced) -> Callable[[torch.Tensor], None]:
    """Return a hook that reduces the gradient of a weight; `slices` are the rows of each projection in a fused one."""

    def hook(weight: torch.Tensor) -> None:
        gradient: Any = weight.grad
        # converted to float32 first, because a product of float16 numbers would underflow
        product = gradient.float().mul_(weight.detach()).abs_()
        total = product.sum(dim=_SUMMED_AXIS[next(iter(slices))], dtype=torch.float64)
        reduced.update({(layer, part): total[rows] for part, rows in slices.items()})
        weight.grad = None

    return hook


def _require_finite_gradients(decoder: Decoder, reduced: Reduced) -> None:
    """Raise NumericsError for the last layer with non-finite gradients, where the backward pass first met them."""
    finite = [torch.isfinite(total).all().to(decoder.device) for total in reduced.values()]
    is_finite = dict(zip(reduced, torch.stack(finite).tolist(), strict=True))
    for layer in reversed(range(decoder.shape.layers)):
        for name in _SUMMED_AXIS:
            if not is_finite[layer, name]:
                raise NumericsError(f"the gradient of {name} in layer {layer} is not finite: use float32 or bfloat16")


def _unit_scores(shape: ModelShape, text: str, values: dict[tuple[int, str], Array]) -> UnitScores:
    """Return unit scores from the (units,) sums of each matrix, by layer and projection."""
    part = {name: np.stack([values[layer, name] for layer in range(shape.layers)]) for name in _SUMMED_AXIS}
    shared = (part["k_proj"] + part["v_proj"]).reshape(shape.layers, shape.kv_heads, 1, shape.head_width)
    by_head = np.repeat(shared / shape.group_size, shape.group_size, axis=2)
    channels = part["q_proj"] + part["o_proj"] + by_head.reshape(shape.layers, -1)
    heads = channels.reshape(shape.layers, shape.kv_heads, shape.group_channels).sum(axis=-1)
    ffn = part["gate_proj"] + part["up_proj"] + part["down_proj"]
    return UnitScores("llm_pruner", text, ffn, heads, channels)
