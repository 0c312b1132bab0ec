"""The loop of a learning under a retention target, whatever learns: batches, losses, Adam, checkpoints.

The weights stay frozen. A step runs the masked decoder once forward and twice backward: for the
cross-entropy, whose gradients are known on each of four subsets, and for the distillation from the dense
model. What becomes of these gradients is for thresholds (gprune.pruning.sparsity.learning) and gates
(gprune.pruning.sparsity.gates) to say.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from gprune.models.decoder import Decoder
from gprune.pruning.sparsity.activation_checkpointing import SUBSETS
from gprune.pruning.sparsity.batches import SubsetSampler, Teacher
from gprune.pruning.sparsity.checkpoint import Running, noting
from gprune.pruning.sparsity.learning_loop import LearningLoop
from gprune.pruning.sparsity.mask_hooks import MaskGate, gate_decoder
from gprune.pruning.sparsity.masks import UnitMasks
from gprune.pruning.sparsity.objective import RetentionConstraint
from gprune.pruning.sparsity.passes import BatchSums, Passes
from gprune.records import Tokens
from gprune.store.resumption import Resumption
from gprune.study import SparsitySettings
from gprune.system.errors import NumericsError
from gprune.system.progress import Progress

M = TypeVar("M", bound=UnitMasks)
FIRST = ("step", "epoch", "ce_primary", "ce_auxiliary", "distillation", "retention")
"""the columns that every history begins with"""
LAST = "learning_rate"
"""the column that every history ends with"""


@dataclass(frozen=True, slots=True)
class Setting:
    """Inputs that every learning needs, of thresholds and of gates."""

    decoder: Decoder
    """the dense decoder; its weights are not changed, and no hook is left on it"""
    texts: tuple[Tokens, Tokens]
    """calibration sets A and B"""
    settings: SparsitySettings
    """of which batch, distillation and alignment count for all; where memory runs out, a batch goes through
    the model in portions"""
    seed: int
    """seed of the subsets and of the order of the sequences"""
    on_progress: Progress
    """called after every step; may raise to stop"""
    resumption: Resumption | None = None
    """where it leaves what it can go on from, and finds what an earlier process has left"""


@dataclass(slots=True)
class LearnerRunning(Running):
    """The parts of this learning that change from step to step."""

    constraint: RetentionConstraint
    """without force where every mask meets the target by itself"""
    sampler: SubsetSampler
    passes: Passes


class Learner(ABC, Generic[M]):
    """The loop, of which a kind of masks says how its values start and follow the gradients."""

    BESIDE: ClassVar[tuple[str, ...]] = ()
    """columns of a history between FIRST and LAST"""

    def __init__(self, setting: Setting, family: M, epochs: int, rate: float, constraint: RetentionConstraint) -> None:
        """Start a learning at step 0.

        Args:
            setting: what it works with.
            family: the masks that follow from what learns.
            epochs: passes over both texts.
            rate: Adam's, at the first step; it falls as half a cosine.
            constraint: what holds the retention at its target, before the first step.
        """
        self.family, self.settings, self._constraint = family, setting.settings, constraint
        self._setting, self._epochs, self._rate = setting, epochs, rate
        self._ids = np.concatenate([tokens.ids for tokens in setting.texts]).astype(np.int64)

    @classmethod
    def columns(cls) -> tuple[str, ...]:
        """Return the column names of a history."""
        return (*FIRST, *cls.BESIDE, LAST)

    @abstractmethod
    def start(self) -> Tensor:
        """Return (count,) float32 values before the first step."""

    @abstractmethod
    def gradient(self, step: int, running: LearnerRunning, sums: BatchSums) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the (count,) gradient of the objective with respect to the learned values.

        Args:
            step: finished steps.
            running: with the present values.
            sums: what a batch says of their masks.

        Returns:
            The gradient, and scalars that are read with it: the retention, and what else a row tells.
        """

    def take_step(self, running: LearnerRunning, scalars: Mapping[str, float]) -> list[float]:
        """Take a step of Adam and return the columns of BESIDE.

        Args:
            running: with the gradient.
            scalars: the scalars of `gradient`.
        """
        running.optimizer.step()
        return []

    def learned(self) -> tuple[Tensor, list[list[float]]]:
        """Learn and return the (count,) values and one history row for each step."""
        values = self.start()
        if not self._epochs:
            return values, []
        with gate_decoder(self._setting.decoder) as gate:
            return values, self._run(values, gate)

    def _run(self, values: Tensor, gate: MaskGate) -> list[list[float]]:
        """Learn the (count,) values in place and return one history row for each step."""
        running = self._start_state(values, gate)

        def again() -> LearnerRunning:
            return self._start_state(running.learned.copy_(self.start()), gate)

        epoch_steps, listener = running.sampler.steps_per_epoch, self._setting.on_progress
        steps = self._epochs * epoch_steps
        loop = LearningLoop(self.columns(), steps, epoch_steps, self._ids, again, self._step, _message, listener)
        return loop.run(running, self._setting.resumption)

    def _start_state(self, values: Tensor, gate: MaskGate) -> LearnerRunning:
        """Return the state of a learning before its first step."""
        setting, notices = self._setting, list[str]()
        sampler = SubsetSampler(*setting.texts, self.settings.batch, setting.seed)
        teacher = Teacher.build(setting.decoder, len(self._ids), self._ids.shape[1], self._epochs)
        listener = noting(notices, setting.on_progress)
        passes = Passes(setting.decoder, self.family, gate, teacher, self._ids, self.settings, listener)
        optimizer = torch.optim.Adam([values], lr=self._rate)
        return LearnerRunning(values, optimizer, replace(self._constraint), sampler, teacher, passes, notices=notices)

    def _step(self, step: int, steps: int, running: LearnerRunning) -> list[float]:
        rate = running.slow(self._rate, step, steps)
        numbers = running.sampler.draw().reshape(SUBSETS, -1)
        sums = running.passes.run(running.learned, numbers, step, steps)
        running.learned.grad, scalars = self.gradient(step, running, sums)
        losses, values = _read(step, sums, running.learned.grad, scalars)
        extra = self.take_step(running, values)
        epoch = step // running.sampler.steps_per_epoch
        return [step, epoch, *losses, values["retention"], *extra, rate]


def _read(
    step: int, sums: BatchSums, gradient: Tensor, scalars: Mapping[str, Tensor]
) -> tuple[list[float], dict[str, float]]:
    """Return the mean losses on A, on B and of the distillation, and the scalars, in one device transfer."""
    by_text = sums.cross_entropy.flatten(0, 1).unflatten(0, (2, -1)).sum((1, 2))
    predictions = SUBSETS // 2 * sums.cross_entropy.shape[1] * (sums.cross_entropy.shape[2] - 1)
    finite = torch.isfinite(gradient).all()
    values = [*(by_text / predictions), sums.distillation.mean(), *scalars.values(), finite]
    numbers = torch.stack([value.float() for value in values]).tolist()
    losses, sound = numbers[:3], numbers[-1]
    if not (sound and all(map(math.isfinite, losses))):
        raise NumericsError(
            f"step {step + 1} of sparsity learning gave a loss or gradient that is not finite "
            f"(cross-entropy on A and B, distillation: {losses}): use float32 or bfloat16 for the model"
        )
    return losses, dict(zip(scalars, numbers[3:-1], strict=True))


def _message(row: list[float]) -> str:
    loss_primary, loss_auxiliary, distillation, retention = row[2:6]
    return (
        f"cross-entropy {loss_primary:.3f} on A, {loss_auxiliary:.3f} on B; "
        f"distillation {distillation:.3f}; retention {retention:.1%}"
    )
