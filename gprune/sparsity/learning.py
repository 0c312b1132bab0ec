"""Modular sparsity learning (MSL), section 3.3: one threshold per module, learned under a retention target.

The weights stay frozen; only the thresholds learn. A step runs the masked decoder once forward and twice
backward: once for the cross-entropy, whose gradients on four subsets decide whose supervision counts, and
once for the distillation from the dense model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gprune.errors import NumericsError
from gprune.models.decoder import Decoder
from gprune.progress import Progress
from gprune.records import Array, LearningHistory, Partition, PruningMasks, Tokens
from gprune.sparsity.batches import SubsetSampler, Teacher
from gprune.sparsity.masks import SUBSETS, MaskFamily, MaskGate, gated
from gprune.sparsity.objective import HeadLosses, RetentionConstraint, head_losses
from gprune.sparsity.rounding import exact_masks, require_reachable
from gprune.sparsity.supervision import combine
from gprune.sparsity.units import RankedUnits
from gprune.study import SparsitySettings

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
) -> tuple[PruningMasks, LearningHistory]:
    """Learns thresholds and turns them into masks that meet the retention target exactly.

    Args:
        decoder: the dense decoder; its weights are not changed, and no hook is left on it.
        scores: (layers, neurons) importance scores; only their order within a module matters.
        head_scores: (layers, key/value groups) importance scores; only their order within a layer matters.
        partition: modules of the neurons.
        primary: calibration set A.
        auxiliary: calibration set B.
        settings: settings of this stage.
        target: R*, the fraction of the decoder's linear weights to keep, in (0, 1).
        seed: seed of the subsets and of the order of the sequences.
        on_progress: called after every step; may raise to stop.
        attention: (layers, key/value groups) bool, the groups that are kept whatever is learned; none leaves
            them to their thresholds.

    Returns:
        The masks, whose retention is as near R* as one neuron allows, and the course of the learning.

    Raises:
        SettingsError: a calibration set is too small to be split, R* cannot be met, or the layers are
            offloaded.
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
            learner = _Learner(decoder, family, gate, primary, auxiliary, settings, target, seed)
            rows = learner.run(thresholds, on_progress)
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


class _Learner:
    """The loop: batches, losses, gradients, Adam on the thresholds, dual ascent."""

    def __init__(
        self,
        decoder: Decoder,
        family: MaskFamily,
        gate: MaskGate,
        primary: Tokens,
        auxiliary: Tokens,
        settings: SparsitySettings,
        target: float,
        seed: int,
    ) -> None:
        self._decoder, self._family, self._gate, self._settings = decoder, family, gate, settings
        self._ids = np.concatenate([primary.ids, auxiliary.ids]).astype(np.int64)
        self._sampler = SubsetSampler(primary, auxiliary, settings.batch, seed)
        self._teacher = Teacher.build(decoder, len(self._ids), self._ids.shape[1], settings.epochs)
        self._constraint = RetentionConstraint(target, settings.penalty, settings.dual_rate)

    def run(self, thresholds: Tensor, on_progress: Progress) -> list[list[float]]:
        """Learns the (thresholds,) values in place and returns one history row for each step."""
        steps = self._settings.epochs * self._sampler.steps_per_epoch
        optimizer = torch.optim.Adam([thresholds], lr=self._settings.learning_rate)
        rows = []
        for step in range(steps):
            rate = self._settings.learning_rate * (1 + math.cos(math.pi * step / steps)) / 2
            optimizer.param_groups[0]["lr"] = rate
            row = self._step(step, rate, thresholds, optimizer)
            rows.append(row)
            on_progress(step + 1, steps, _message(row))
        return rows

    def _step(
        self, step: int, rate: float, thresholds: Tensor, optimizer: torch.optim.Optimizer
    ) -> list[float]:
        measured = self._measure(thresholds)
        retention = self._family.retention(thresholds)
        slope = self._family.threshold_gradient(self._family.share, thresholds, self._settings.surrogate)
        if step == 0:
            self._constraint.start(measured.gradient, slope)
        thresholds.grad = measured.gradient + self._constraint.slope(retention) * slope
        # One transfer from the device a step.
        finite = torch.isfinite(thresholds.grad).all()
        values = [*measured.cross_entropy, measured.distillation, retention, measured.admitted, finite]
        *losses, kept, admitted, sound = torch.stack([value.float() for value in values]).tolist()
        if not (sound and all(map(math.isfinite, losses))):
            raise NumericsError(
                f"step {step + 1} of sparsity learning gave a loss or gradient that is not finite "
                f"(cross-entropy on A and B, distillation: {losses}): use float32 or bfloat16 for the model"
            )
        multiplier = self._constraint.multiplier
        optimizer.step()
        # Quantiles lie inside (0, 1): a module can be kept or removed whole, and still come back.
        thresholds.clamp_(0.0, 1.0)
        self._constraint.ascend(kept)
        epoch = step // self._sampler.steps_per_epoch
        return [step, epoch, *losses, kept, multiplier, admitted, rate]

    def _measure(self, thresholds: Tensor) -> _Measured:
        """Runs teacher and student on the next batch."""
        numbers = self._sampler.draw()
        ids = torch.from_numpy(self._ids[numbers]).to(self._decoder.device)
        distils = self._settings.distillation_weight > 0
        target = self._teacher.hidden_states(numbers, ids) if distils else None
        self._gate.open(self._family, thresholds)
        student = self._decoder.hidden_states(ids)
        temperature = self._settings.distillation_temperature
        losses = head_losses(self._decoder.logits, student, target, ids, temperature)
        measured = self._supervise(thresholds, student, losses)
        self._gate.close()
        return measured

    def _supervise(self, thresholds: Tensor, student: Tensor, losses: HeadLosses) -> _Measured:
        """Carries the losses' gradients back to the thresholds and combines them."""
        quarter, length = self._sampler.quarter, student.shape[1]
        kind, weight = self._settings.surrogate, self._settings.distillation_weight
        soft = losses.distillation_gradient
        sums = self._unit_gradients(student, losses.cross_entropy_gradient, retain=soft is not None)
        sums = self._family.threshold_gradient(sums, thresholds, kind)
        # from sums, which float16 can hold on their way back, to means over a subset's predictions
        gradient, admitted = combine(
            sums / (quarter * (length - 1)), self._family.modules, self._settings.supervision
        )
        if soft is not None:
            sums = self._unit_gradients(student, soft, retain=False).sum(0)
            sums = self._family.threshold_gradient(sums, thresholds, kind)
            gradient = gradient + weight * sums / losses.distillation.numel()
        by_text = losses.cross_entropy.unflatten(0, (2, -1)).sum((1, 2))
        predictions = SUBSETS // 2 * quarter * (length - 1)
        return _Measured(by_text / predictions, losses.distillation.mean(), gradient, admitted)

    def _unit_gradients(self, student: Tensor, hidden_gradient: Tensor, retain: bool) -> Tensor:
        """(subsets, units) mask gradients of a loss that is known at the final hidden states."""
        found = torch.autograd.grad(student, self._gate.channels, hidden_gradient, retain_graph=retain)
        self._decoder.count_backward(student.shape[0] * student.shape[1])
        return self._gate.unit_gradient(found)


def _message(row: list[float]) -> str:
    loss_primary, loss_auxiliary, distillation, retention = row[2:6]
    return (
        f"cross-entropy {loss_primary:.3f} on A, {loss_auxiliary:.3f} on B; "
        f"distillation {distillation:.3f}; retention {retention:.1%}"
    )
