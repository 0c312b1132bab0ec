"""Train thresholds or gates under a retention target: batches, losses, Adam and checkpoints.

The weights are frozen. A step runs the masked decoder once forward and twice backward: for the cross-entropy, with
separate gradients on the four subsets, and for the distillation from the dense model. Thresholds
(gprune.pruning.sparsity.learning) and gates (gprune.pruning.sparsity.gates) use these gradients differently.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from gprune.models.decoder import Decoder
from gprune.pruning.sparsity.activation_checkpointing import SUBSETS
from gprune.pruning.sparsity.batches import SubsetSampler, Teacher, common_ids
from gprune.pruning.sparsity.checkpoint import TrainingState, record_notices
from gprune.pruning.sparsity.learning_loop import LearningLoop
from gprune.pruning.sparsity.mask_hooks import MaskHooks, hook_decoder
from gprune.pruning.sparsity.masks import UnitMasks
from gprune.pruning.sparsity.objective import RetentionConstraint
from gprune.pruning.sparsity.passes import BatchSums, Passes
from gprune.records import Tokens
from gprune.store.resumption import Resumption
from gprune.study import SparsitySettings
from gprune.system.errors import NumericsError
from gprune.system.progress import Progress

M = TypeVar("M", bound=UnitMasks)
FIRST_COLUMNS = ("step", "epoch", "ce_primary", "ce_auxiliary", "distillation", "retention")
"""first columns of every history"""
LAST_COLUMN = "learning_rate"
"""last column of every history"""


@dataclass(frozen=True, slots=True)
class LearningInputs:
    """Inputs of a training of thresholds or gates."""

    decoder: Decoder
    """the dense decoder; it is not changed, and hooks are removed afterwards"""
    texts: tuple[Tokens, Tokens]
    """calibration sets A and B"""
    settings: SparsitySettings
    """gates use only batch, distillation and alignment; if memory runs out, a batch is split into portions"""
    seed: int
    """seed of the subsets and of the order of the sequences"""
    on_progress: Progress
    """called after every step; may raise to stop"""
    resumption: Resumption | None = None
    """reads and writes checkpoints"""


@dataclass(slots=True)
class LearnerState(TrainingState):
    """Mutable state of a training of thresholds or gates."""

    constraint: RetentionConstraint
    """retention constraint; its weight is zero if every mask meets the target"""
    sampler: SubsetSampler
    passes: Passes


class Learner(ABC, Generic[M]):
    """Training loop; subclasses define the initial values and their gradient."""

    EXTRA_COLUMNS: ClassVar[tuple[str, ...]] = ()
    """columns of a history between FIRST_COLUMNS and LAST_COLUMN"""

    def __init__(
        self, inputs: LearningInputs, family: M, epochs: int, rate: float, constraint: RetentionConstraint
    ) -> None:
        """Store the inputs of the training.

        Args:
            inputs: model, texts and settings.
            family: computes masks from the learned values.
            epochs: passes over both texts.
            rate: initial learning rate of Adam; it decays along half a cosine.
            constraint: initial state of the retention constraint.
        """
        self.family, self.settings, self._constraint = family, inputs.settings, constraint
        self._inputs, self._epochs, self._rate = inputs, epochs, rate
        self._ids = common_ids(inputs.texts)

    @classmethod
    def columns(cls) -> tuple[str, ...]:
        """Return the column names of a history."""
        return (*FIRST_COLUMNS, *cls.EXTRA_COLUMNS, LAST_COLUMN)

    @abstractmethod
    def start(self) -> Tensor:
        """Return (count,) float32 values before the first step."""

    @abstractmethod
    def gradient(self, step: int, training: LearnerState, sums: BatchSums) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the (count,) gradient of the objective with respect to the learned values.

        Args:
            step: finished steps.
            training: state with the current values.
            sums: losses and mask gradients of the batch.

        Returns:
            The gradient, and scalar tensors by name: the retention and the extra columns of the history.
        """

    def take_step(self, training: LearnerState, scalars: Mapping[str, float]) -> list[float]:
        """Take a step of Adam and return the extra columns of the history.

        Args:
            training: state with the gradient.
            scalars: values of the scalars that `gradient` returned.
        """
        training.optimizer.step()
        return []

    def learned(self) -> tuple[Tensor, list[list[float]]]:
        """Run the training and return the (count,) values and one history row per step."""
        values = self.start()
        if not self._epochs:
            return values, []
        with hook_decoder(self._inputs.decoder) as hooks:
            return values, self._run(values, hooks)

    def _run(self, values: Tensor, hooks: MaskHooks) -> list[list[float]]:
        """Train the (count,) values in place and return one history row per step."""
        training = self._start_state(values, hooks)

        def restart() -> LearnerState:
            return self._start_state(training.learned.copy_(self.start()), hooks)

        epoch_steps, listener = training.sampler.steps_per_epoch, self._inputs.on_progress
        steps = self._epochs * epoch_steps
        loop = LearningLoop(self.columns(), steps, epoch_steps, self._ids, restart, self._step, _describe_row, listener)
        return loop.run(training, self._inputs.resumption)

    def _start_state(self, values: Tensor, hooks: MaskHooks) -> LearnerState:
        """Return the state before the first step."""
        inputs, notices = self._inputs, list[str]()
        sampler = SubsetSampler(*inputs.texts, self.settings.batch, inputs.seed)
        teacher = Teacher.build(inputs.decoder, len(self._ids), self._ids.shape[1], self._epochs)
        listener = record_notices(notices, inputs.on_progress)
        passes = Passes(inputs.decoder, self.family, hooks, teacher, self._ids, self.settings, listener)
        optimizer = torch.optim.Adam([values], lr=self._rate)
        return LearnerState(values, optimizer, replace(self._constraint), sampler, teacher, passes, notices=notices)

    def _step(self, step: int, steps: int, training: LearnerState) -> list[float]:
        rate = training.decay_rate(self._rate, step, steps)
        numbers = training.sampler.draw().reshape(SUBSETS, -1)
        sums = training.passes.run(training.learned, numbers, step, steps)
        training.learned.grad, scalars = self.gradient(step, training, sums)
        losses, values = _read_losses(step, sums, training.learned.grad, scalars)
        extra = self.take_step(training, values)
        epoch = step // training.sampler.steps_per_epoch
        return [step, epoch, *losses, values["retention"], *extra, rate]


def _read_losses(
    step: int, sums: BatchSums, gradient: Tensor, scalars: Mapping[str, Tensor]
) -> tuple[list[float], dict[str, float]]:
    """Return the mean cross-entropy on A and on B, the mean distillation loss, and the scalars, in one transfer."""
    # the first two subsets are of A, the others of B; the last token of a sequence has no prediction
    by_text = sums.cross_entropy.flatten(0, 1).unflatten(0, (2, -1)).sum((1, 2))
    predictions = SUBSETS // 2 * sums.cross_entropy.shape[1] * (sums.cross_entropy.shape[2] - 1)
    finite = torch.isfinite(gradient).all()
    values = [*(by_text / predictions), sums.distillation.mean(), *scalars.values(), finite]
    numbers = torch.stack([value.float() for value in values]).tolist()
    losses, is_finite = numbers[:3], numbers[-1]
    if not (is_finite and all(map(math.isfinite, losses))):
        raise NumericsError(
            f"step {step + 1} of sparsity learning gave a loss or gradient that is not finite "
            f"(cross-entropy on A and B, distillation: {losses}): use float32 or bfloat16 for the model"
        )
    return losses, dict(zip(scalars, numbers[3:-1], strict=True))


def _describe_row(row: list[float]) -> str:
    loss_primary, loss_auxiliary, distillation, retention = row[2:6]
    return (
        f"cross-entropy {loss_primary:.3f} on A, {loss_auxiliary:.3f} on B; "
        f"distillation {distillation:.3f}; retention {retention:.1%}"
    )
