"""Train added numbers of a frozen model with Adam, by cross-entropy and distillation from the dense model.

The numbers are low-rank factors (gprune.pruning.recovery.training), scales, gates with scales
(gprune.pruning.sparsity.scales), or the weights of routers (gprune.pruning.experts.routers). Losses, the dense model's
states and checkpoints are shared with sparsity learning.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from gprune.models.devices import AdaptiveBatches
from gprune.models.language_model import LanguageModel
from gprune.pruning.sparsity.batches import Sampler, Teacher
from gprune.pruning.sparsity.checkpoint import TrainingState, record_notices
from gprune.pruning.sparsity.learning_loop import LearningLoop
from gprune.pruning.sparsity.objective import head_losses, read_signed_ids
from gprune.records import Array
from gprune.store.resumption import Resumption
from gprune.study import RecoverySettings, ScaleSettings
from gprune.system.errors import MethodError, NumericsError
from gprune.system.progress import Progress

COLUMNS = ("step", "distillation", "cross_entropy", "learning_rate")


TuningSettings = RecoverySettings | ScaleSettings


class Tunable(Protocol):
    """Trainable numbers that determine the output of a student model."""

    @property
    def gradient(self) -> Tensor:
        """Return the (numbers,) gradient, which backward passes accumulate."""

    @property
    def rate_factors(self) -> Tensor | None:
        """Return (numbers,) step sizes relative to the learning rate, or None if all are 1."""

    def begin(self, seed: int) -> Tensor:
        """Set the (numbers,) float32 numbers to their initial values and return them."""

    def applied(self) -> AbstractContextManager[None]:
        """Return a context in which the student uses the numbers."""


class TuningBatches:
    """Run batches through both models, forward and backward, in smaller portions after memory has run out."""

    def __init__(
        self,
        student: LanguageModel,
        tuned: Tunable,
        teacher: Teacher,
        ids: Array,
        settings: TuningSettings,
        on_progress: Progress,
    ) -> None:
        """Store the inputs; `teacher` has the dense model's hidden states, see Tuner for the other arguments."""
        self._student, self._tuned, self._teacher = student, tuned, teacher
        self._ids, self._settings = ids, settings
        # without distillation, the cross-entropy must be trained
        spare = f"{settings.WHERE}distillation_weight 0, " if settings.cross_entropy_weight else ""
        remedy = f"set a smaller calibration.length, {spare}dtype bfloat16, or a device with more memory"
        name, device = f"{settings.WHERE}batch", student.device
        self.sequences = AdaptiveBatches(settings.batch, ids.shape[1], name, remedy, device, on_progress, MethodError)

    def run(self, numbers: Array, step: int, steps: int) -> Tensor:
        """Set the gradient of the mean loss and return the (2,) mean distillation and cross-entropy, nats per token.

        Args:
            numbers: (sequences,) indices of the sequences.
            step: finished steps, for the progress report.
            steps: total steps.
        """
        ids, weights = read_signed_ids(self._ids[numbers], self._student.device)
        distils = self._settings.distillation_weight > 0
        target = self._teacher.states(self.sequences, numbers, ids, (step, steps)) if distils else None
        sums = self.sequences.attempt(lambda size: self._sum_losses(ids, target, weights, size), len(ids), step, steps)
        # the backward pass used sums, which are in the range of float16; convert to the mean here
        self._tuned.gradient.div_(ids.numel())
        return sums / sums.new_tensor([ids.numel(), len(ids) * (ids.shape[1] - 1)])

    def _sum_losses(self, ids: Tensor, target: Tensor | None, weights: Tensor | None, size: int) -> Tensor:
        """Return (2,) summed losses, run `size` sequences at a time; the gradient is summed as well."""
        self._tuned.gradient.zero_()
        sums = torch.zeros(2, device=ids.device)
        with self._teacher.decoder.restore_counts_on_error():
            for part in (slice(start, start + size) for start in range(0, len(ids), size)):
                with self._tuned.applied():
                    parts = (None if values is None else values[part] for values in (target, weights))
                    sums += self._backward(ids[part], *parts)
        return sums

    def _backward(self, ids: Tensor, target: Tensor | None, weights: Tensor | None) -> Tensor:
        settings, length = self._settings, ids.shape[1]
        student, dense = self._student, self._teacher.decoder
        states = student.hidden_states(ids)
        losses = head_losses(student.logits, states, target, ids, settings.distillation_temperature, weights)
        # `run` divides by all tokens, but the last token of a sequence has no prediction and so no cross-entropy
        slope = losses.cross_entropy_gradient * (settings.cross_entropy_weight * length / (length - 1))
        if losses.distillation_gradient is not None:
            slope += settings.distillation_weight * losses.distillation_gradient
        torch.autograd.backward(states, slope)
        # a pass of the pruned student counts as a pass of the dense model; a dense student has counted it already
        dense.count_forward(ids.numel() * (student is not dense))
        dense.count_backward(ids.numel())
        return torch.stack([losses.distillation.sum(), losses.cross_entropy.sum()])


@dataclass(slots=True)
class _TuningState(TrainingState):
    """Mutable state of a tuning."""

    passes: TuningBatches


class Tuner:
    """Training loop for the numbers of a Tunable."""

    def __init__(
        self,
        decoder: LanguageModel,
        student: LanguageModel,
        tuned: Tunable,
        ids: Array,
        sets: Sequence[Array],
        settings: TuningSettings,
        seed: int,
        on_progress: Progress,
    ) -> None:
        """Store the inputs.

        Args:
            decoder: the dense decoder, which is the teacher; its weights are not changed.
            student: the model that uses the numbers; its weights are not changed.
            tuned: the trainable numbers.
            ids: (sequences, tokens) `Tokens.signed_ids` of all texts.
            sets: (sequences,) int64 indices of sequences; a step takes the same number of sequences from each set.
            settings: steps, batch, learning rate and losses; if memory runs out, a batch is split into portions.
            seed: seed of the numbers and of the order of the sequences.
            on_progress: called after every step; may raise to stop.
        """
        self._decoder, self._student, self._tuned = decoder, student, tuned
        self._ids, self._sets = ids, sets
        self._settings, self._seed, self._on_progress = settings, seed, on_progress

    def run(self, resumption: Resumption | None) -> Array:
        """Train the numbers and return the (steps, COLUMNS) float64 history.

        `resumption` reads and writes checkpoints. Raises MethodError if not even one sequence fits in memory,
        NumericsError if a loss or a gradient is not finite.
        """
        steps, listener = self._settings.steps, self._on_progress
        epoch_steps = max(len(self._ids) // self._settings.batch, 1)
        loop = LearningLoop(COLUMNS, steps, epoch_steps, self._ids, self._start_state, self._step, _message, listener)
        rows = loop.run(self._start_state(), resumption)
        return np.array(rows, dtype=np.float64).reshape(-1, len(COLUMNS))

    def _start_state(self) -> _TuningState:
        """Return the state before the first step."""
        settings, notices, ids = self._settings, list[str](), self._ids
        per_set = max(min(settings.batch // len(self._sets), *map(len, self._sets)), 1)
        sampler = Sampler(np.random.default_rng(self._seed), self._sets, per_set)
        epochs = math.ceil(settings.steps * per_set / min(map(len, self._sets)))
        teacher = Teacher.build(self._decoder, len(ids), ids.shape[1], epochs)
        listener = record_notices(notices, self._on_progress)
        passes = TuningBatches(self._student, self._tuned, teacher, ids, settings, listener)
        numbers = self._tuned.begin(self._seed)
        optimizer = torch.optim.Adam([numbers], lr=settings.learning_rate)
        numbers.grad = self._tuned.gradient
        return _TuningState(numbers, optimizer, None, sampler, teacher, passes, notices=notices)

    def _step(self, step: int, steps: int, training: _TuningState) -> list[float]:
        # the section of the settings with a dot, as "scales."
        prefix = self._settings.WHERE
        rate = training.decay_rate(self._settings.learning_rate, step, steps)
        losses = training.passes.run(training.sampler.draw(), step, steps)
        # reading the values synchronizes with the device once a step
        finite = torch.isfinite(self._tuned.gradient).all()
        *values, is_finite = [*losses.tolist(), bool(finite)]
        if not (is_finite and all(map(math.isfinite, values))):
            raise NumericsError(
                f"step {step + 1} of {prefix[:-1]} gave a loss or gradient that is not finite (distillation, "
                f"cross-entropy: {values}): use float32 or bfloat16 for the model, or a smaller "
                f"{prefix}learning_rate"
            )
        if self._tuned.rate_factors is None:
            training.optimizer.step()
        else:
            # multiplies the step of Adam by the factors
            values_before = training.learned.clone()
            training.optimizer.step()
            training.learned.sub_(values_before).mul_(self._tuned.rate_factors).add_(values_before)
        return [step, *values, rate]


def _message(row: list[float]) -> str:
    return f"distillation {row[1]:.3f}, cross-entropy {row[2]:.3f}"
