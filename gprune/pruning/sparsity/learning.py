"""Modular sparsity learning (MSL), section 3.3: one threshold per module, learned under a retention target.

The weights stay frozen; only the thresholds learn. A step runs the masked decoder once forward and twice
backward: once for the cross-entropy, whose gradients on four subsets decide whose supervision counts, and
once for the distillation from the dense model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from gprune.models.decoder import Decoder
from gprune.pruning.sparsity.activation_checkpointing import SUBSETS
from gprune.pruning.sparsity.batches import SubsetSampler, Teacher
from gprune.pruning.sparsity.checkpoint import Running, noting
from gprune.pruning.sparsity.course import Course
from gprune.pruning.sparsity.loss_selection import combine
from gprune.pruning.sparsity.mask_hooks import MaskGate, gated
from gprune.pruning.sparsity.masks import MaskFamily
from gprune.pruning.sparsity.objective import RetentionConstraint
from gprune.pruning.sparsity.passes import Passes
from gprune.pruning.sparsity.rounding import exact_masks, require_reachable
from gprune.pruning.sparsity.shared_passes import SharedPasses
from gprune.pruning.sparsity.units import RankedUnits
from gprune.records import Array, LearningHistory, Partition, PruningMasks, Tokens
from gprune.store.resumption import Resumption
from gprune.study import SparsitySettings
from gprune.system.errors import NumericsError
from gprune.system.progress import Progress

if TYPE_CHECKING:
    from gprune.models.distributed.process_group import Ranks

COLUMNS = (
    "step",
    "epoch",
    "ce_primary",
    "ce_auxiliary",
    "distillation",
    "retention",
    "multiplier",
    "admitted",
    "learning_rate",
)


def learn(
    decoder: Decoder,
    scores: Array,
    head_scores: Array,
    partition: Partition,
    primary: Tokens,
    auxiliary: Tokens,
    settings: SparsitySettings,
    target: float,
    seed: int,
    on_progress: Progress,
    attention: Array | None = None,
    kept: Resumption | None = None,
    ranks: Ranks | None = None,
) -> tuple[PruningMasks, LearningHistory]:
    """Learns thresholds and turns them into masks that meet the retention target exactly.

    Args:
        decoder: the dense decoder; its weights are not changed, and no hook is left on it.
        scores: (layers, neurons) importance scores; only their order within a module matters.
        head_scores: (layers, key/value groups) importance scores; only their order within a layer matters.
        partition: modules of the neurons.
        primary: calibration set A.
        auxiliary: calibration set B.
        settings: settings of this stage; where memory runs out, a batch goes through the model in portions.
        target: R*, the fraction of the decoder's linear weights to keep, in (0, 1).
        seed: seed of the subsets and of the order of the sequences.
        on_progress: called after every step; may raise to stop.
        attention: (layers, key/value groups) bool, the groups that are kept whatever is learned; none leaves
            them to their thresholds.
        kept: where it leaves what it can go on from, and finds what an earlier process has left.
        ranks: the processes that share every batch, this one being the first; None for this one alone.

    Returns:
        The masks, whose retention is as near R* as one neuron allows, and the course of the learning.

    Raises:
        SettingsError: a calibration set is too small to be split, R* cannot be met, or the layers are
            offloaded.
        MethodError: not even one sequence fits in memory.
        NumericsError: a loss or a gradient is not finite.
    """
    decoder.require_whole("learning")
    require_reachable(decoder.shape, target, settings.alignment)
    units = RankedUnits.build(decoder.shape, scores, head_scores, partition)
    if attention is not None:
        units = units.with_groups(attention)
    family = MaskFamily.of(units, decoder.device)
    thresholds = torch.full((family.thresholds,), 1 - target, device=decoder.device)
    rows: list[list[float]] = []
    if settings.epochs:
        with gated(decoder) as gate:
            texts = primary, auxiliary
            learner = _Learner(decoder, family, gate, texts, settings, target, seed, on_progress, kept, ranks)
            rows = learner.run(thresholds)
    plan = exact_masks(family.units, thresholds.cpu().numpy(), target, settings.alignment)
    history = LearningHistory(
        steps=np.array(rows, dtype=np.float64).reshape(-1, len(COLUMNS)),
        columns=COLUMNS,
        thresholds=plan.thresholds[: family.modules],
        head_thresholds=plan.thresholds[family.modules :],
    )
    return plan.masks, history


@dataclass(frozen=True, slots=True)
class _Measured:
    """What one batch says of the present thresholds."""

    cross_entropy: Tensor
    """(2,) mean nats per prediction on A and on B"""
    distillation: Tensor
    """mean over all tokens of both texts, scalar"""
    gradient: Tensor
    """(thresholds,) gradient of the performance term"""
    admitted: Tensor
    """scalar bool: auxiliary cross-entropy moved the FFN thresholds"""


@dataclass(slots=True)
class _Running(Running):
    """The parts of this learning that change from step to step."""

    constraint: RetentionConstraint
    sampler: SubsetSampler
    passes: Passes


class _Learner:
    """The loop: batches, losses, gradients, Adam on the thresholds, dual ascent."""

    def __init__(
        self,
        decoder: Decoder,
        family: MaskFamily,
        gate: MaskGate,
        texts: tuple[Tokens, Tokens],
        settings: SparsitySettings,
        target: float,
        seed: int,
        on_progress: Progress,
        kept: Resumption | None,
        ranks: Ranks | None,
    ) -> None:
        self._decoder, self._family, self._gate, self._texts = decoder, family, gate, texts
        self._settings, self._target, self._seed, self._on_progress = settings, target, seed, on_progress
        self._kept, self._ranks = kept, ranks
        self._ids = np.concatenate([tokens.ids for tokens in texts]).astype(np.int64)

    def run(self, thresholds: Tensor) -> list[list[float]]:
        """Learns the (thresholds,) values in place and returns one history row for each step."""
        running = self._begun(thresholds)
        shared, quarter = running.passes, running.sampler.quarter
        if not isinstance(shared, SharedPasses):
            return self._rows(running)
        shared.announce(self._family, quarter)
        try:
            return self._rows(running)
        finally:
            shared.dismiss(len(thresholds), quarter)

    def _rows(self, running: _Running) -> list[list[float]]:
        steps = self._settings.epochs * running.sampler.steps_per_epoch

        def again() -> _Running:
            return self._begun(running.learned.fill_(1 - self._target))

        course = Course(COLUMNS, steps, self._ids, again, self._step, _message, self._on_progress)
        return course.run(running, self._kept)

    def _begun(self, thresholds: Tensor) -> _Running:
        """A learning before its first step."""
        settings, notices = self._settings, list[str]()
        sampler = SubsetSampler(*self._texts, settings.batch, self._seed)
        # a sequence comes to another process each time, so that several of them keep no states
        epochs = settings.epochs if self._ranks is None else 1
        teacher = Teacher.build(self._decoder, len(self._ids), self._ids.shape[1], epochs)
        told = noting(notices, self._on_progress)
        passed = Passes if self._ranks is None else partial(SharedPasses, self._ranks)
        passes = passed(self._decoder, self._family, self._gate, teacher, self._ids, settings, told)
        optimizer = torch.optim.Adam([thresholds], lr=settings.learning_rate)
        constraint = RetentionConstraint(self._target, settings.penalty, settings.dual_rate)
        return _Running(thresholds, optimizer, constraint, sampler, teacher, passes, notices=notices)

    def _step(self, step: int, steps: int, running: _Running) -> list[float]:
        thresholds, constraint = running.learned, running.constraint
        rate = self._settings.learning_rate * (1 + math.cos(math.pi * step / steps)) / 2
        running.optimizer.param_groups[0]["lr"] = rate
        measured = self._measure(running, step, steps)
        retention = self._family.retention(thresholds)
        slope = self._family.threshold_gradient(self._family.share, thresholds, self._settings.surrogate)
        if step == 0:
            constraint.start(measured.gradient, slope)
        thresholds.grad = measured.gradient + constraint.slope(retention) * slope
        # One transfer from the device a step.
        finite = torch.isfinite(thresholds.grad).all()
        values = [*measured.cross_entropy, measured.distillation, retention, measured.admitted, finite]
        *losses, kept, admitted, sound = torch.stack([value.float() for value in values]).tolist()
        if not (sound and all(map(math.isfinite, losses))):
            raise NumericsError(
                f"step {step + 1} of sparsity learning gave a loss or gradient that is not finite "
                f"(cross-entropy on A and B, distillation: {losses}): use float32 or bfloat16 for the model"
            )
        multiplier = constraint.multiplier
        running.optimizer.step()
        # Quantiles lie inside (0, 1): a module can be kept or removed whole, and still come back.
        thresholds.clamp_(0.0, 1.0)
        constraint.ascend(kept)
        epoch = step // running.sampler.steps_per_epoch
        return [step, epoch, *losses, kept, multiplier, admitted, rate]

    def _measure(self, running: _Running, step: int, steps: int) -> _Measured:
        """Runs teacher and student on the next batch, and combines what it says."""
        thresholds = running.learned
        numbers = running.sampler.draw().reshape(SUBSETS, -1)
        sums = running.passes.run(thresholds, numbers, step, steps)
        quarter, length = sums.cross_entropy.shape[1:]
        kind, weight = self._settings.surrogate, self._settings.distillation_weight
        hard = self._family.threshold_gradient(sums.cross_entropy_gradient, thresholds, kind)
        # from sums, which float16 can hold on their way back, to means over a subset's predictions
        gradient, admitted = combine(
            hard / (quarter * (length - 1)), self._family.modules, self._settings.supervision
        )
        if sums.distillation_gradient is not None:
            soft = self._family.threshold_gradient(sums.distillation_gradient, thresholds, kind)
            gradient = gradient + weight * soft / sums.distillation.numel()
        by_text = sums.cross_entropy.flatten(0, 1).unflatten(0, (2, -1)).sum((1, 2))
        predictions = SUBSETS // 2 * quarter * (length - 1)
        return _Measured(by_text / predictions, sums.distillation.mean(), gradient, admitted)


def _message(row: list[float]) -> str:
    loss_primary, loss_auxiliary, distillation, retention = row[2:6]
    return (
        f"cross-entropy {loss_primary:.3f} on A, {loss_auxiliary:.3f} on B; "
        f"distillation {distillation:.3f}; retention {retention:.1%}"
    )
