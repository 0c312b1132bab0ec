"""Gradients of the language-model loss, for LLM-Pruner and for contexts (section 4).

The LM head is run in chunks of tokens and its gradients are taken there and then, so that neither the logits
of a batch nor a graph through the head exist at once. LLM-Pruner (without LoRA) reduces the gradient of every
weight to its units as soon as it is there, so that never more than one matrix's gradient exists.
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

# logits in float32 that exist at a time: 64 MiB
_BLOCK_LOGITS = 2**24
# Keeps the softmax of a large vocabulary above the smallest number of float16 on its way through the head.
_HEAD_SCALE = 2.0**8

# A unit's share of a matrix lies in a row (dimension 1 is summed away) or in a column (0).
_SUMMED = {"gate_proj": 1, "up_proj": 1, "down_proj": 0, "q_proj": 1, "k_proj": 1, "v_proj": 1, "o_proj": 0}

Reduced = dict[tuple[int, str], torch.Tensor]
"""(rows or columns,) float64 sums of |w * gradient|, by layer and projection."""


def loss_gradient(decoder: Decoder, hidden: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradient of the summed next-token loss with respect to the final hidden states.

    A sum and not a mean, so that a sequence's gradient does not depend on the others of its batch. In float16
    it comes multiplied by a power of two that brings its largest entry to at most 1, the loss being computed
    in float32: entries a million times smaller survive then, and layers may enlarge it 60000 times.

    Takes the (sequences, length, hidden) states of `Decoder.hidden_states` and (sequences, length) int64 ids.
    Gives the gradient, in the shape and number type of `hidden` and zero at the last token of a sequence, and
    the power of two (scalar float64) that it is to be divided by.
    """
    states, targets = hidden.detach()[:, :-1].flatten(0, 1), ids[:, 1:].flatten().to(hidden.device)
    half = hidden.dtype == torch.float16
    gradient = torch.zeros_like(states, dtype=torch.float32)
    rows = max(1, _BLOCK_LOGITS // int(decoder.config.vocab_size))
    for start in range(0, len(states), rows):
        part = slice(start, start + rows)
        leaf = states[part].requires_grad_()
        with torch.enable_grad():
            scores = decoder.logits(leaf).float()
            loss = nn.functional.cross_entropy(scores, targets[part], reduction="sum")
            (gradient[part],) = torch.autograd.grad(loss * _HEAD_SCALE if half else loss, leaf)
    scale = torch.ones((), dtype=torch.float64, device=hidden.device)
    if half:
        peak = gradient.abs().amax() if len(gradient) else scale
        power = torch.exp2(-torch.ceil(torch.log2(peak.double().clamp(min=2.0**-100))))
        gradient *= power
        scale *= power * _HEAD_SCALE
    shaped = gradient.view(len(hidden), -1, hidden.shape[-1])
    # the last token of a sequence predicts nothing
    return nn.functional.pad(shaped, (0, 0, 0, 1)).to(hidden.dtype), scale


def taylor_scores(
    decoder: Decoder, tokens: Tokens, settings: BaselineSettings, on_progress: Progress = silent
) -> UnitScores:
    """Return LLM-Pruner's unit scores: the sum of |weight * gradient| over the coupled matrices.

    The loss is the mean cross-entropy of all predictions of the first sequences' first tokens, and there is
    one backward pass of one batch. A neuron sums its gate row, up row and down column. A key/value group sums
    the rows of its query heads, of its key and of its value head, and the columns of o_proj that belong to
    it. Of these an o_proj channel's score holds its column, the row of q_proj of the same place, and the rows
    of k_proj and v_proj of the same place divided by the query heads that share them; a group is the sum of
    its channels.

    The weights are frozen again afterwards. Raises MethodError if the calibration set is smaller than
    that or the batch does not fit on the GPU. Raises SettingsError if layers are offloaded. Raises NumericsError if an
    activation or a gradient is NaN or infinite.
    """
    ids = _first(tokens, settings)
    decoder.require_whole("LLM-Pruner")
    on_progress(0, 1, "gradients of the weights")
    reduced: Reduced = {}
    with _reduced_gradients(decoder, reduced):
        try:
            scale = _backward(decoder, ids)
        except torch.OutOfMemoryError as error:
            raise MethodError(
                f"baselines.taylor_samples is {len(ids)}: the gradient of so many sequences of "
                f"{ids.shape[1]} tokens does not fit in the GPU's memory, choose fewer or shorter ones"
            ) from error
    _require_finite_gradients(decoder, reduced)
    predictions = len(ids) * (ids.shape[1] - 1)
    divisor = scale * predictions
    values = {key: (total / divisor.to(total.device)).cpu().numpy() for key, total in reduced.items()}
    on_progress(1, 1, "gradients of the weights")
    return _unit_scores(decoder.shape, tokens.text, values)


def _first(tokens: Tokens, settings: BaselineSettings) -> torch.Tensor:
    """Return (taylor_samples, taylor_length) int64 ids from the start of the calibration set."""
    samples, length = settings.taylor_samples, settings.taylor_length
    available = tokens.ids.shape
    if available[0] < samples or available[1] < length:
        raise MethodError(
            f"{tokens.text!r} gives {available[0]} sequences of {available[1]} tokens, but LLM-Pruner's gradient "
            f"wants {samples} of {length}: lower baselines.taylor_samples and baselines.taylor_length, or "
            "raise calibration.samples and calibration.length"
        )
    return torch.from_numpy(tokens.ids[:samples, :length].astype(np.int64))


def _backward(decoder: Decoder, ids: torch.Tensor) -> torch.Tensor:
    """Run the model forward and backward once; return the factor on the gradients."""
    with torch.enable_grad(), _checked_outputs(decoder):
        hidden = decoder.hidden_states(ids)
    gradient, scale = loss_gradient(decoder, hidden, ids)
    hidden.backward(gradient)
    decoder.count_backward(ids.numel())
    return scale


@contextmanager
def _checked_outputs(decoder: Decoder) -> Iterator[None]:
    """Raise NumericsError on exit for the first layer whose output is not finite."""
    finite: list[torch.Tensor] = []

    def check(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        states = output[0] if isinstance(output, tuple) else output
        finite.append(torch.isfinite(states.detach()).all().to(decoder.device))

    with ExitStack() as undone:
        for layer in decoder.layers:
            undone.callback(layer.register_forward_hook(check).remove)
        yield
    # synchronizes with the device once for all layers
    for index, is_finite in enumerate(torch.stack(finite).tolist()):
        if not is_finite:
            raise NumericsError.of(f"the output of layer {index}")


@contextmanager
def _reduced_gradients(decoder: Decoder, reduced: Reduced) -> Iterator[None]:
    """Reduce the gradient of every projection to its units as soon as it exists, and free it."""
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
            handles.append(weight.register_post_accumulate_grad_hook(_reduce(layer, slices, reduced)))
        yield
    finally:
        for handle in handles:
            handle.remove()
        for key, (weight, _) in weights.items():
            weight.grad = None
            weight.requires_grad_(requires_grad[key])


def _reduce(layer: int, slices: dict[str, slice], reduced: Reduced) -> Callable[[torch.Tensor], None]:
    def hook(weight: torch.Tensor) -> None:
        gradient: Any = weight.grad
        # widened first: a product of float16 numbers would underflow
        product = gradient.float().mul_(weight.detach()).abs_()
        total = product.sum(dim=_SUMMED[next(iter(slices))], dtype=torch.float64)
        reduced.update({(layer, part): total[rows] for part, rows in slices.items()})
        weight.grad = None

    return hook


def _require_finite_gradients(decoder: Decoder, reduced: Reduced) -> None:
    """Raise NumericsError for the last layer whose gradients are not finite."""
    finite = [torch.isfinite(total).all().to(decoder.device) for total in reduced.values()]
    sound = dict(zip(reduced, torch.stack(finite).tolist(), strict=True))
    for layer in reversed(range(decoder.shape.layers)):
        for name in _SUMMED:
            if not sound[layer, name]:
                raise NumericsError(f"the gradient of {name} in layer {layer} is not finite: use float32 or bfloat16")


def _unit_scores(shape: ModelShape, text: str, values: dict[tuple[int, str], Array]) -> UnitScores:
    """Sum the values of the matrices over each unit."""
    part = {name: np.stack([values[layer, name] for layer in range(shape.layers)]) for name in _SUMMED}
    shared = (part["k_proj"] + part["v_proj"]).reshape(shape.layers, shape.kv_heads, 1, shape.head_width)
    spread = np.repeat(shared / shape.group_size, shape.group_size, axis=2)
    channels = part["q_proj"] + part["o_proj"] + spread.reshape(shape.layers, -1)
    heads = channels.reshape(shape.layers, shape.kv_heads, shape.group_channels).sum(axis=-1)
    ffn = part["gate_proj"] + part["up_proj"] + part["down_proj"]
    return UnitScores("llm_pruner", text, ffn, heads, channels)
