"""Learn one factor per unit (its scale) and one bias per output channel, with frozen weights.

A scale multiplies a neuron's column of down_proj or a group's columns of o_proj. Scales start at 1 and biases at 0.
The losses are cross-entropy and distillation from the dense model. Scales are learned for the masks and repaired
weights of a pruned model, or together with the gates that determine the masks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from gprune.models.decoder import Decoder
from gprune.pruning.sparsity.activation_checkpointing import at_least_float32
from gprune.pruning.sparsity.equal_masks import EqualGates
from gprune.pruning.sparsity.gate_masks import GateMasks, starting_gates
from gprune.pruning.sparsity.mask_hooks import MaskHooks, hook_decoder
from gprune.pruning.sparsity.masks import split_units
from gprune.pruning.sparsity.rounding import require_reachable
from gprune.pruning.sparsity.tuning import COLUMNS, Tuner
from gprune.records import Array, GateLearning, LearnedScales, PruningMasks, Tokens, UnitScores
from gprune.store.resumption import Resumption
from gprune.study import GateSettings, ScaleSettings, SparsitySettings
from gprune.system.progress import Progress, silent


class Scales:
    """Scales and biases of a student model, as one flat tensor of numbers: every scale minus 1, then the biases."""

    def __init__(self, hooks: MaskHooks, masks: PruningMasks | None, student: Decoder, bias_rate: float) -> None:
        """Start at scales of 1 and biases of 0.

        Args:
            hooks: hooks with biases that are attached to the student.
            masks: kept units of the student; None if the student has all units.
            student: the model.
            bias_rate: step size of the biases relative to the learning rate.
        """
        self.hooks, shape, device = hooks, hooks.shape, student.device
        self.units = shape.layers * (shape.neurons + shape.kv_heads)
        factors = [torch.ones(self.units), torch.full((2 * shape.layers * shape.hidden,), bias_rate)]
        factors += self.extra_rate_factors()
        self.rate_factors = torch.cat(factors).to(device, at_least_float32(student.dtype))
        self.numbers, self.gradient = (torch.zeros_like(self.rate_factors) for _ in range(2))
        # indices of the kept inputs of every down_proj, and then of every o_proj; None if all are kept
        self._kept_inputs = None
        if masks is not None:
            rows = [*masks.ffn, *np.repeat(masks.heads, shape.group_channels, axis=1)]
            self._kept_inputs = hooks.place_on_layers([torch.from_numpy(np.flatnonzero(row)) for row in rows])

    def extra_rate_factors(self) -> list[Tensor]:
        """Return the relative step sizes of the numbers that follow scales and biases; none here."""
        return []

    def begin(self, _: int) -> Tensor:
        """Set the numbers to 0 and return them."""
        return self.numbers.zero_()

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Scale the student's units and shift its outputs while the context is open, with gradients."""
        # backward passes add to the gradient of this leaf, which is `self.gradient`
        leaf = self.numbers.detach().requires_grad_()
        leaf.grad = self.gradient
        neurons, groups = split_units(self.hooks.shape, self.factors(leaf))
        rows = self.hooks.place_on_layers([*neurons, *groups.repeat_interleave(self.hooks.shape.group_channels, dim=1)])
        if self._kept_inputs is not None:
            rows = [row[index] for row, index in zip(rows, self._kept_inputs, strict=True)]
        self.hooks.channels = [row[None] for row in rows]
        self.hooks.biases = self.hooks.place_on_layers(list(self.biases(leaf)))
        try:
            yield
        finally:
            self.hooks.close()

    def factors(self, numbers: Tensor) -> Tensor:
        """Return the (units,) factors of the units."""
        return 1 + numbers[: self.units]

    def biases(self, numbers: Tensor) -> Tensor:
        """Return (2 * layers, hidden) biases: all down_proj, then all o_proj."""
        shape = self.hooks.shape
        return numbers[self.units :][: 2 * shape.layers * shape.hidden].view(-1, shape.hidden)


class ScaledGates(Scales):
    """Gates that determine the masks of the dense model, together with scales and biases."""

    def __init__(
        self, hooks: MaskHooks, family: GateMasks, start: Array, settings: ScaleSettings, decoder: Decoder
    ) -> None:
        """Start the gates at `start` (units,); see Scales for the other arguments."""
        self.family, self._initial_gates = family, torch.from_numpy(start).to(decoder.device)
        self._gate_rate_factor = settings.gate_rate / settings.joint_rate
        super().__init__(hooks, None, decoder, settings.bias_rate)

    def extra_rate_factors(self) -> list[Tensor]:
        """See Scales."""
        return [torch.full((self.family.count,), self._gate_rate_factor)]

    def begin(self, seed: int) -> Tensor:
        """See Scales."""
        self.gates(super().begin(seed)).copy_(self._initial_gates)
        return self.numbers

    def gates(self, numbers: Tensor) -> Tensor:
        """Return the (units,) gates, which are the last entries of `numbers`."""
        return numbers[-self.family.count :]

    def factors(self, numbers: Tensor) -> Tensor:
        """Return (units,) mask times scale; the gradient of a mask is that of the sigmoid of its gate."""
        # soft - soft.detach() is 0, but has the gradient of the sigmoid (straight-through estimator)
        gates = self.gates(numbers)
        soft = torch.sigmoid(gates / self.family.temperature)
        mask = self.family.hard_masks(gates.detach()) + (soft - soft.detach())
        return mask * super().factors(numbers)


def learn_scales(
    decoder: Decoder,
    model: nn.Module,
    masks: PruningMasks,
    method: str,
    texts: Sequence[Tokens],
    settings: ScaleSettings,
    seed: int,
    on_progress: Progress = silent,
    resumption: Resumption | None = None,
) -> LearnedScales:
    """Learn scales and biases for a pruned model; nothing is learned if nothing was removed.

    Args:
        decoder: the dense decoder, which is the teacher; it is not changed.
        model: the pruned and repaired model from ``gprune.pruning.surgery.cut``; it is not changed.
        masks: masks of the model.
        method: name of the method that made the model.
        texts: calibration sets with sequences of the same length.
        settings: settings of this stage; if memory runs out, a batch is split into portions.
        seed: seed of the selection and order of the sequences.
        on_progress: called after every step; may raise to stop.
        resumption: reads and writes checkpoints.

    Raises:
        SettingsError: layers are offloaded.
        MethodError: not even one sequence fits in memory.
        NumericsError: a loss or a gradient is not finite.
    """
    decoder.require_whole("learning scales")
    shape, student = decoder.shape, Decoder(model, None, decoder.shape, decoder.layout)
    if masks.ffn.all() and masks.heads.all():
        settings = replace(settings, steps=0)
    ids, sets = _draw_sequences(texts, settings.samples, seed)
    with hook_decoder(student, biased=True) as hooks:
        scales = Scales(hooks, masks, student, settings.bias_rate)
        rows = Tuner(decoder, student, scales, ids, sets, settings, seed, on_progress).run(resumption)
    ffn, heads = (part.cpu().numpy() for part in split_units(shape, scales.factors(scales.numbers).float()))
    down, out = scales.biases(scales.numbers).float().cpu().numpy().reshape(2, shape.layers, shape.hidden)
    biases = np.stack([out, down], axis=1)
    return LearnedScales(method, ffn * masks.ffn, heads * masks.heads, biases, rows, COLUMNS)


def learn_scaled_gates(
    decoder: Decoder,
    scores: Sequence[UnitScores],
    texts: Sequence[Tokens],
    settings: tuple[ScaleSettings, GateSettings, SparsitySettings],
    target: float,
    seed: int,
    on_progress: Progress = silent,
    resumption: Resumption | None = None,
) -> GateLearning:
    """Learn gates together with scales and biases, and turn the gates into masks that meet the target.

    Args:
        decoder: the dense decoder; it is not changed, and hooks are removed afterwards.
        scores: importance scores on one or more texts, from whose ranks the gates start.
        texts: calibration sets with sequences of the same length.
        settings: settings of scales, gates (temperature only) and sparsity (widths and alignment only).
        target: R*, the fraction of the decoder's linear weights to keep, in (0, 1).
        seed: seed of the selection and order of the sequences.
        on_progress: called after every step; may raise to stop.
        resumption: reads and writes checkpoints.

    Raises:
        SettingsError: layers are offloaded, or the target cannot be met.
        MethodError: not even one sequence fits in memory.
        NumericsError: a loss or a gradient is not finite.
    """
    scale_settings, gates, sparsity = settings
    decoder.require_whole("learning gates")
    require_reachable(decoder.shape, target, sparsity.alignment)
    family_type = EqualGates if sparsity.equal else GateMasks
    family = family_type.of(decoder.shape, target, sparsity.alignment, gates.temperature, decoder.device)
    joint = replace(scale_settings, steps=scale_settings.joint_steps, learning_rate=scale_settings.joint_rate)
    ids, sets = _draw_sequences(texts, scale_settings.samples, seed)
    with hook_decoder(decoder, biased=True) as hooks:
        scaled_gates = ScaledGates(hooks, family, starting_gates(scores), joint, decoder)
        rows = Tuner(decoder, decoder, scaled_gates, ids, sets, joint, seed, on_progress).run(resumption)
    learned = scaled_gates.gates(scaled_gates.numbers).float()
    masks = family.exact(learned)
    neurons, groups = (part.cpu().numpy() for part in family.split(learned))
    return GateLearning(masks.ffn, masks.heads, masks.retention, target, rows, COLUMNS, neurons, groups)


def _draw_sequences(texts: Sequence[Tokens], samples: int, seed: int) -> tuple[Array, list[Array]]:
    """Return signed ids of up to `samples` random sequences of each text, and the indices of the sequences of each."""
    generator = np.random.default_rng(seed)
    ids_by_text = [text.signed_ids[generator.permutation(len(text.ids))[:samples]] for text in texts]
    ends = np.cumsum([len(ids) for ids in ids_by_text])
    return np.concatenate(ids_by_text), np.split(np.arange(ends[-1]), ends[:-1])
