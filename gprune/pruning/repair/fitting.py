"""Fit the output maps of a pruned model to calibration texts, layer by layer, in closed form.

The masks are fixed. Two sets of hidden states are propagated: those of the dense model, and those of the pruned model
with repaired layers below. The missing output at an output map is the target minus the output of the dense weights on
the kept inputs; `least_squares` computes weights that reduce it. Moments exist for one map at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from gprune.models.decoder import Decoder
from gprune.models.devices import execution_device
from gprune.pruning.calibration.collection import batch_runner
from gprune.pruning.calibration.sequential import StopForward as StopForward
from gprune.pruning.calibration.sequential import embed_sequences
from gprune.pruning.masking import replace_forward
from gprune.pruning.repair import OutputMap, dense_maps
from gprune.pruning.repair.fitted import pack_maps
from gprune.pruning.repair.least_squares import FitMoments, solve
from gprune.records import PrunedModel, PruningMasks, RepairedWeights, Tokens
from gprune.study.settings import OwnRepair, RepairSettings
from gprune.system.errors import NumericsError
from gprune.system.progress import Progress, silent

_PROGRESS_LABEL = "repairing the kept weights"
_Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor | float]
"""(tokens, columns) inputs and (tokens, outputs) missing outputs of a batch, and its share of the `mean_energy`"""


@torch.no_grad()
def fit(
    decoder: Decoder,
    masks: PruningMasks,
    texts: Sequence[Tokens],
    settings: RepairSettings,
    batch: int,
    on_progress: Progress = silent,
) -> RepairedWeights:
    """Fit weights and biases of all output maps to the masks; the model is not changed.

    Every token has the same weight. Counts as three forward passes: the dense layer, the pruned attention, and the
    pruned FFN, which runs twice. Maps below the first removed unit stay bit for bit unchanged. With the target
    own_inputs, all maps without removed units stay unchanged.

    Raises SettingsError if not even one sequence fits in memory or the texts do not determine the weights,
    NumericsError if an activation is not finite.
    """
    samples, length = sum(len(text.ids) for text in texts), max(text.ids.shape[1] for text in texts)

    def walk(size: int) -> RepairedWeights:
        maps, errors = _LayerWalk(decoder, masks, texts, settings, size).run(on_progress)
        return pack_maps(maps, masks.method, settings.kind, np.array(errors))

    repaired = batch_runner(batch, length, decoder, on_progress).attempt(walk, samples)
    decoder.count_forward(3 * sum(text.ids.size for text in texts))
    on_progress(decoder.shape.layers, decoder.shape.layers, _PROGRESS_LABEL)
    return repaired


class _LayerWalk:
    """Propagate the hidden states of the dense and the pruned model through the layers, and fit the maps."""

    def __init__(
        self,
        decoder: Decoder,
        masks: PruningMasks,
        texts: Sequence[Tokens],
        settings: RepairSettings,
        batch: int,
    ) -> None:
        self.decoder, self.settings = decoder, settings
        self.maps = dense_maps(decoder, PrunedModel(masks))
        # copies per text: hidden states of both models, output of the attention and target of the layer
        copies = 4 * len(texts)
        self.dense = [block for text in texts for block in embed_sequences(decoder, text, batch, copies)]
        self.pruned = [replace(block) for block in self.dense]
        self.references: list[torch.Tensor | None] = [None] * len(self.dense)
        """outputs of the dense down_proj by batch, if these are the target of the fit"""
        self.attended: list[tuple[torch.Tensor, Any]] = []
        """by batch: kept inputs of o_proj (after the repair its output), and other outputs of the attention module"""
        self.has_removed_units = False
        """True from the first map with removed units on"""
        self.errors: list[tuple[float, float]] = []
        """mean square of the missing output of every map before and after the repair"""

    def run(self, on_progress: Progress) -> tuple[list[OutputMap], list[tuple[float, float]]]:
        """Return the repaired maps and their errors."""
        for layer in range(self.decoder.shape.layers):
            on_progress(layer, self.decoder.shape.layers, _PROGRESS_LABEL)
            attention, ffn = self.maps[2 * layer : 2 * layer + 2]
            self._fit(attention, self._attention_batches(attention, ffn))
            self._apply_repaired_attention(attention)
            self._fit(ffn, self._ffn_batches(ffn))
            self._advance(ffn)
        return self.maps, self.errors

    def _fit(self, output: OutputMap, batches: Iterator[_Batch]) -> None:
        """Repair a map from its (tokens, columns) inputs and the missing outputs of all batches."""
        kind, uses_own_inputs = self.settings.kind, self.settings.target == "own_inputs"
        self.has_removed_units |= not output.mask.all()
        weight, device = output.columns(), output.device
        moments = FitMoments(weight.shape[1], len(weight), device)
        is_needed = not output.mask.all() if uses_own_inputs else self.has_removed_units
        for x, r, mean_energy in batches:
            if is_needed:
                moments.add(x, r)
                moments.mean_energy += mean_energy
        bias = output.dense_bias()
        if is_needed:
            require_finite_moments(moments, output, "its weights are repaired")
            solution, bias, error = solve(weight, bias, moments, kind, self.settings.damping)
            output.weight = cast_weights(solution, weight.dtype, output)
            self.errors.append((float(moments.energy.sum()) / moments.tokens, error))
        else:
            self.errors.append((0.0, 0.0))
        if kind != "least_squares":
            output.bias = (torch.zeros(len(weight), device=device) if bias is None else bias).to(weight.dtype)

    def _attention_batches(self, output: OutputMap, ffn: OutputMap) -> Iterator[_Batch]:
        """Advance the dense states by a layer, run the pruned attention, and yield the batches for o_proj."""
        target, attention = self.settings.target, self._attention_of(output.layer)
        self.attended = []
        for index, (dense, pruned) in enumerate(zip(self.dense, self.pruned, strict=True)):
            dense_input = dense.states
            with record_call(output.dense) as dense_call, record_call(ffn.dense) as below:
                dense.states = dense.run(self.decoder, output.layer).to(dense_input.device)
            if target == "dense_inputs":
                self.references[index] = below.y.to(dense_input.device)
            with record_call(output.dense) as inner, record_call(attention, stop=True) as outer, suppress(StopForward):
                pruned.run(self.decoder, output.layer)
            x = inner.x[..., output.index()]
            y = nn.functional.linear(x, output.columns(), output.dense_bias())
            self.attended.append((x.to(dense_input.device), outer.y[1:] if isinstance(outer.y, tuple) else None))
            # the difference of the residual streams before the layer, in units of the map's output
            shift = dense_input.to(x.device).float() - pruned.states.to(x.device).float()
            shift /= self.decoder.residual_scale
            gap = dense_call.y.float() - y.float()
            yield self._batch(output, index, inner.x, x, gap + shift if target == "residual_stream" else gap)

    def _apply_repaired_attention(self, output: OutputMap) -> None:
        """Replace the stored inputs of o_proj by its repaired output for every batch."""
        weight, bias = output.pruned_parameters()
        for index, (x, residual) in enumerate(self.attended):
            y = nn.functional.linear(x.to(weight.device), weight, bias).to(x.device)
            self.attended[index] = (y, residual)

    def _ffn_batches(self, output: OutputMap) -> Iterator[_Batch]:
        """Run the pruned layer with the stored attention output and yield the batches for down_proj."""
        attention = self._attention_of(output.layer)
        for index, (dense, pruned) in enumerate(zip(self.dense, self.pruned, strict=True)):
            reference = self.references[index]
            with record_call(output.dense) as call, self._stored_attention(attention, index), output.applied():
                states = pruned.run(self.decoder, output.layer).float()
            if reference is not None:
                gap = reference.to(states.device).float() - call.y.float()
            else:
                gap = (dense.states.to(states.device).float() - states) / self.decoder.residual_scale
            yield self._batch(output, index, call.x, call.x[..., output.index()], gap)

    def _batch(self, output: OutputMap, index: int, full: torch.Tensor, x: torch.Tensor, gap: torch.Tensor) -> _Batch:
        """Return batch `index` from all inputs of a map, the kept inputs x and the missing output `gap`.

        Only the positions that count are returned. With the target own_inputs, the output of the removed columns
        replaces `gap`.
        """
        full, x, gap = (self.dense[index].counted_tokens(values) for values in (full, x, gap))
        if self.settings.target == "own_inputs":
            removed_inputs = full[..., output.index(removed=True)].float()
            gap = nn.functional.linear(removed_inputs, output.columns(removed=True).float())
        damp_by_all_inputs = isinstance(self.settings, OwnRepair) and self.settings.whole
        mean_energy = full.float().square().sum(dtype=torch.float64) / full.shape[-1] if damp_by_all_inputs else 0.0
        return x, gap, mean_energy

    def _advance(self, output: OutputMap) -> None:
        """Advance the pruned states by a layer; they equal the dense states below the first removed unit."""
        attention = self._attention_of(output.layer)
        for index, (dense, pruned) in enumerate(zip(self.dense, self.pruned, strict=True)):
            if not self.has_removed_units:
                pruned.states = dense.states
                continue
            with self._stored_attention(attention, index), output.applied():
                pruned.states = pruned.run(self.decoder, output.layer).to(pruned.states.device)

    def _stored_attention(self, attention: nn.Module, index: int) -> AbstractContextManager[None]:
        """Return a context in which the attention module returns its stored output for a batch."""
        y, residual = self.attended[index]
        y = y.to(execution_device(attention))
        output: Any = y if residual is None else (y, *residual)
        return replace_forward(attention, lambda *_, **__: output)

    def _attention_of(self, layer: int) -> nn.Module:
        """Return the attention module of a layer."""
        return self.decoder.layers[layer].get_submodule(self.decoder.layout.attention)


class ModuleCall:
    """Input and output of one call of a module."""

    x: Any
    y: Any


@contextmanager
def record_call(module: nn.Module, stop: bool = False) -> Iterator[ModuleCall]:
    """Record a module's output, and its input before later hooks mask it; `stop` ends the forward pass after it."""
    call = ModuleCall()

    def record_input(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        call.x = inputs[0] if inputs else None

    def record_output(_: nn.Module, __: Any, output: Any) -> None:
        call.y = output
        if stop:
            raise StopForward

    with ExitStack() as stack:
        stack.callback(module.register_forward_pre_hook(record_input).remove)
        stack.callback(module.register_forward_hook(record_output).remove)
        yield call


def cast_weights(weights: torch.Tensor, dtype: torch.dtype, output: OutputMap) -> torch.Tensor:
    """Return the weights in the model's number type. Raises NumericsError if they are too large for it."""
    rounded = weights.to(dtype)
    if not bool(torch.isfinite(rounded).all()):
        # the slice omits "torch." from the name of the number type
        raise NumericsError(
            f"the repaired weights of {output.name} in layer {output.layer} do not fit {str(dtype)[6:]}: use "
            "float32 or bfloat16, or a larger repair.damping"
        )
    return rounded


def require_finite_moments(moments: FitMoments, output: OutputMap, doing: str) -> None:
    """Raise NumericsError if the moments of a map are not finite; `doing` ends the clause "... not finite while"."""
    if not bool(torch.isfinite(moments.cross).all() and torch.isfinite(moments.square).all()):
        raise NumericsError(
            f"an activation at {output.name} of layer {output.layer} is not finite while {doing}: "
            "use float32 or bfloat16, or check the model's weights for NaN"
        )
