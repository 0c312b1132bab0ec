"""Modular sparsity learning (MSL), section 3.3: one threshold per module, learned under a retention target.

The training loop is in gprune.pruning.sparsity.learner. The gradients of the cross-entropy on four subsets decide
whether the auxiliary text is used for supervision in a step.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from gprune.pruning.sparsity.equal_masks import EqualMasks
from gprune.pruning.sparsity.learner import Learner, LearnerState, LearningInputs
from gprune.pruning.sparsity.masks import MaskFamily
from gprune.pruning.sparsity.objective import RetentionConstraint
from gprune.pruning.sparsity.passes import BatchSums
from gprune.pruning.sparsity.rounding import RankedUnits, exact_masks, require_reachable
from gprune.records import Array, Learning, Partition, budget


def learn(
    inputs: LearningInputs,
    scores: Array,
    head_scores: Array,
    partition: Partition,
    target: float,
    attention: Array | None = None,
) -> Learning:
    """Learn thresholds and turn them into masks that meet the retention target exactly.

    Args:
        inputs: model, texts and settings.
        scores: (layers, neurons) importance scores; only their order within a module matters.
        head_scores: (layers, key/value groups) importance scores; only their order within a layer matters.
        partition: modules of the neurons.
        target: R*, the fraction of the decoder's linear weights to keep, in (0, 1).
        attention: (layers, key/value groups) bool, the fixed mask of the groups; None to learn it by thresholds.

    Returns:
        The masks, whose retention meets R* to within one neuron, the thresholds and the history.

    Raises:
        SettingsError: R* cannot be met, or layers are offloaded.
        MethodError: not even one sequence fits in memory.
        NumericsError: a loss or a gradient is not finite.
    """
    decoder, settings = inputs.decoder, inputs.settings
    decoder.require_whole("learning")
    require_reachable(decoder.shape, target, settings.alignment)
    units = RankedUnits.build(decoder.shape, scores, head_scores, partition)
    counts = budget.equal_counts(decoder.shape, target, settings.alignment)
    if settings.equal and attention is None:
        attention = budget.highest(head_scores, counts[1])
    if attention is not None:
        units = units.with_groups(attention)
    family = MaskFamily.of(units, decoder.device)
    if settings.equal:
        family = EqualMasks.from_family(family, counts[0])
    learner = ThresholdLearner(inputs, family, target)
    thresholds, rows = learner.learned()
    columns, widths = learner.columns(), (settings.alignment, settings.equal)
    plan = exact_masks(family.units, thresholds.cpu().numpy(), target, *widths)
    return Learning(
        ffn=plan.masks.ffn,
        heads=plan.masks.heads,
        retention=plan.masks.retention,
        target=target,
        steps=np.array(rows, dtype=np.float64).reshape(-1, len(columns)),
        columns=columns,
        thresholds=plan.thresholds[: family.modules],
        head_thresholds=plan.thresholds[family.modules :],
    )


class ThresholdLearner(Learner[MaskFamily]):
    """Learn thresholds with adaptive supervision; dual ascent enforces the retention target."""

    EXTRA_COLUMNS = ("multiplier", "admitted")

    def __init__(self, inputs: LearningInputs, family: MaskFamily, target: float) -> None:
        """Store the inputs of the training.

        Args:
            inputs: model, texts and settings.
            family: computes masks from thresholds.
            target: R*, the requested retention.
        """
        settings, equal = inputs.settings, isinstance(family, EqualMasks)
        # the augmented Lagrangian (Eq. 11); with equal widths every mask meets the target without it
        rates = (0.0, 0.0) if equal else (settings.penalty, settings.dual_rate)
        constraint = RetentionConstraint(target, *rates)
        super().__init__(inputs, family, settings.epochs, settings.learning_rate, constraint)
        self._target = target

    def start(self) -> Tensor:
        """Return thresholds that remove the same share of every module."""
        return torch.full((self.family.count,), 1 - self._target, device=self.family.share.device)

    def gradient(self, step: int, training: LearnerState, sums: BatchSums) -> tuple[Tensor, dict[str, Tensor]]:
        """See Learner; the extra scalar is 1 if the auxiliary cross-entropy was used for the FFN thresholds."""
        thresholds, constraint = training.learned, training.constraint
        performance, admitted = self._performance_gradient(thresholds, sums)
        retention = self.family.retention(thresholds)
        slope = self.family.threshold_gradient(self.family.share, thresholds, self.settings.surrogate)
        if isinstance(self.family, EqualMasks):
            gradient = self.family.without_common_shift(performance, slope)
        else:
            if step == 0:
                constraint.start(performance, slope)
            gradient = performance + constraint.slope(retention) * slope
        return gradient, {"retention": retention, "admitted": admitted}

    def _performance_gradient(self, thresholds: Tensor, sums: BatchSums) -> tuple[Tensor, Tensor]:
        """Return the (thresholds,) gradient of the performance term, and True if the auxiliary text was admitted."""
        quarter, length = sums.cross_entropy.shape[1:]
        kind, weight = self.settings.surrogate, self.settings.distillation_weight
        cross_entropy = self.family.threshold_gradient(sums.cross_entropy_gradient, thresholds, kind)
        # converts sums to means over a subset's predictions only now, because means would underflow in float16
        means = cross_entropy / (quarter * (length - 1))
        gradient, admitted = combine_gradients(means, self.family.modules, self.settings.supervision)
        if sums.distillation_gradient is not None:
            distillation = self.family.threshold_gradient(sums.distillation_gradient, thresholds, kind)
            gradient = gradient + weight * distillation / sums.distillation.numel()
        return gradient, admitted

    def take_step(self, training: LearnerState, scalars: Mapping[str, float]) -> list[float]:
        """See Learner; the returned multiplier is the one before its update."""
        constraint = training.constraint
        multiplier = constraint.multiplier
        training.optimizer.step()
        # quantiles are inside (0, 1), so thresholds of 0 and 1 keep or remove a complete module
        training.learned.clamp_(0.0, 1.0)
        constraint.ascend(scalars["retention"])
        return [multiplier, scalars["admitted"]]


def admits_auxiliary(gradients: Tensor) -> Tensor:
    """Return True if auxiliary and primary cross-entropy agree across subsets (Eqs. 19 and 20).

    Args:
        gradients: (4, modules) FFN threshold gradients of the cross-entropy on A', A'', B', B''.

    Returns:
        Scalar bool tensor: <g_A'+B' - g_A', g_A''> > 0 and <g_A''+B'' - g_A'', g_A'> > 0, where the gradient on a
        union is the mean of the two gradients.
    """
    first, second, first_auxiliary, second_auxiliary = gradients
    first_change = (first + first_auxiliary) / 2 - first
    second_change = (second + second_auxiliary) / 2 - second
    return (torch.dot(first_change, second) > 0) & (torch.dot(second_change, first) > 0)


def combine_gradients(gradients: Tensor, modules: int, supervision: str) -> tuple[Tensor, Tensor]:
    """Return the cross-entropy gradient of all thresholds, from one text or from both (Eq. 18).

    Args:
        gradients: (4, thresholds) gradients on A', A'', B', B''; FFN thresholds before attention thresholds.
        modules: number of FFN thresholds.
        supervision: adaptive, primary (A only) or dual (both always), for the FFN thresholds; attention
            thresholds always follow both texts.

    Returns:
        (thresholds,) gradient, and a scalar bool tensor, True if the auxiliary text was admitted.
    """
    mean_gradient, primary = gradients.mean(dim=0), gradients[:2].mean(dim=0)
    fixed = {"primary": False, "dual": True}
    if supervision in fixed:
        admitted = torch.full((), fixed[supervision], device=gradients.device)
    else:
        admitted = admits_auxiliary(gradients[:, :modules])
    ffn = torch.where(admitted, mean_gradient[:modules], primary[:modules])
    return torch.cat([ffn, mean_gradient[modules:]]), admitted
