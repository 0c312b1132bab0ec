"""Run batches through teacher (dense) and student (masked), in portions if memory is short (section 3.3).

The gradients of the four subsets are sums over their sequences, and decisions such as the admission of the auxiliary
text use the complete sums. The division into portions therefore affects only rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from gprune.models.decoder import Decoder
from gprune.models.devices import AdaptiveBatches
from gprune.pruning.sparsity.activation_checkpointing import SUBSETS
from gprune.pruning.sparsity.batches import Teacher
from gprune.pruning.sparsity.mask_hooks import MaskHooks
from gprune.pruning.sparsity.masks import UnitMasks
from gprune.pruning.sparsity.objective import head_losses, read_signed_ids
from gprune.records import Array
from gprune.study import SparsitySettings
from gprune.system.errors import MethodError
from gprune.system.progress import Progress

_REMEDY = (
    "set a smaller calibration.length, sparsity.distillation_weight 0, dtype bfloat16, or a device with more memory"
)


@dataclass(frozen=True, slots=True)
class BatchSums:
    """Losses and mask gradients of a batch, summed over its sequences."""

    cross_entropy: Tensor
    """(subsets, sequences, tokens) float32 loss in nats of the next token; 0 at the last token"""
    distillation: Tensor
    """(subsets, sequences, tokens) float32; 0 without distillation"""
    cross_entropy_gradient: Tensor
    """(subsets, units) float32 gradient of the summed cross-entropy with respect to the masks"""
    distillation_gradient: Tensor | None
    """(units,) float32 gradient of the summed distillation; None without distillation"""

    @classmethod
    def empty(cls, ids: Tensor, units: int, distils: bool) -> BatchSums:
        """Return zero sums for (subsets, sequences, tokens) ids."""
        cross_entropy, distillation = (torch.zeros(ids.shape, device=ids.device) for _ in range(2))
        gradient = torch.zeros(units, device=ids.device) if distils else None
        return cls(cross_entropy, distillation, torch.zeros(len(ids), units, device=ids.device), gradient)


def portions(quarter: int, size: int) -> Iterator[tuple[slice, slice]]:
    """Yield a slice of the subsets and a slice of their sequences for each pass through the model.

    Args:
        quarter: sequences of each subset.
        size: sequences per pass; with fewer than SUBSETS, a pass has only some of the subsets.
    """
    # the largest power of two that is at most both numbers, so that it divides SUBSETS
    subsets = 1 << (min(size, SUBSETS).bit_length() - 1)
    sequences = max(size // SUBSETS, 1)
    for first in range(0, SUBSETS, subsets):
        for start in range(0, quarter, sequences):
            yield slice(first, first + subsets), slice(start, start + sequences)


class Passes:
    """Run the batches of a training, in smaller portions after memory has run out."""

    def __init__(
        self,
        decoder: Decoder,
        family: UnitMasks,
        hooks: MaskHooks,
        teacher: Teacher,
        ids: Array,
        settings: SparsitySettings,
        on_progress: Progress,
    ) -> None:
        """Store the inputs of every batch.

        Args:
            decoder: the frozen model with the hooks attached.
            family: computes masks from the learned values.
            hooks: apply the masks to the model.
            teacher: the dense model's hidden states.
            ids: (sequences, tokens) `Tokens.signed_ids` of both texts.
            settings: batch, distillation weight and temperature are used.
            on_progress: called with a notice when memory runs out.
        """
        self._decoder, self._family, self._hooks, self._teacher = decoder, family, hooks, teacher
        self._ids, self._settings = ids, settings
        # its size is part of a checkpoint, because the division into portions affects rounding
        self.sequences = AdaptiveBatches(
            size=settings.batch,
            length=ids.shape[1],
            setting="sparsity.batch",
            remedy=_REMEDY,
            device=decoder.device,
            on_progress=on_progress,
            error_class=MethodError,
        )

    def run(self, learned: Tensor, numbers: Array, step: int, steps: int) -> BatchSums:
        """Run the sequences of a step forward and backward and return the summed losses and gradients.

        Args:
            learned: (count,) values that determine the student's masks.
            numbers: (subsets, sequences) indices of the sequences.
            step: finished steps, for the progress report.
            steps: total steps.

        Raises:
            MethodError: not even one sequence fits in memory.
        """
        ids, weights = read_signed_ids(self._ids[numbers], self._decoder.device)
        distils = self._settings.distillation_weight > 0
        target = self._teacher_states(numbers, ids, (step, steps)) if distils else None
        return self.sequences.attempt(
            lambda size: self._sums(learned, ids, weights, target, size), numbers.size, step, steps
        )

    def _teacher_states(self, numbers: Array, ids: Tensor, progress: tuple[int, int]) -> Tensor:
        """Return (subsets, sequences, tokens, hidden) final states of the dense model."""
        states = self._teacher.states(self.sequences, numbers.ravel(), ids.flatten(0, 1), progress)
        return states.unflatten(0, numbers.shape)

    def _sums(
        self, learned: Tensor, ids: Tensor, weights: Tensor | None, target: Tensor | None, size: int
    ) -> BatchSums:
        """Return the sums over the (subsets, sequences, tokens) ids, run `size` sequences at a time.

        `target` has the teacher's hidden states; None for no distillation.
        """
        sums = BatchSums.empty(ids, len(self._family.share), target is not None)
        with self._decoder.restore_counts_on_error():
            for portion in portions(ids.shape[1], size):
                parts = (None if values is None else values[portion].flatten(0, 1) for values in (weights, target))
                self._accumulate_portion(sums, portion, learned, ids[portion], *parts)
        return sums

    def _accumulate_portion(
        self,
        sums: BatchSums,
        portion: tuple[slice, slice],
        learned: Tensor,
        ids: Tensor,
        weights: Tensor | None,
        target: Tensor | None,
    ) -> None:
        """Run a portion, (subsets, sequences, tokens) of the batch, and add its losses and gradients to `sums`."""
        flat, temperature = ids.flatten(0, 1), self._settings.distillation_temperature
        self._hooks.open(self._family, learned, len(ids))
        try:
            student = self._decoder.hidden_states(flat)
            losses = head_losses(self._decoder.logits, student, target, flat, temperature, weights)
            sums.cross_entropy[portion] = losses.cross_entropy.view(ids.shape)
            sums.distillation[portion] = losses.distillation.view(ids.shape)
            distillation, cross_entropy = losses.distillation_gradient, losses.cross_entropy_gradient
            gradient = self._unit_gradients(student, cross_entropy, retain=distillation is not None)
            sums.cross_entropy_gradient[portion[0]] += gradient
            if distillation is not None and sums.distillation_gradient is not None:
                sums.distillation_gradient.add_(self._unit_gradients(student, distillation, retain=False).sum(0))
        finally:
            self._hooks.close()

    def _unit_gradients(self, student: Tensor, hidden_gradient: Tensor, retain: bool) -> Tensor:
        """Return (subsets, units) mask gradients from the gradient of a loss at the final hidden states."""
        gradients = torch.autograd.grad(student, self._hooks.channels, hidden_gradient, retain_graph=retain)
        self._decoder.count_backward(student.shape[0] * student.shape[1])
        return self._hooks.unit_gradient(gradients)
