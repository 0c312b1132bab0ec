"""Learn gates, one value per unit, with the losses of MSL and with masks that meet the budget at every step.

This is MSL with modules of one unit. A gate starts at its unit's rank. The masks of a step keep the units with the
highest gates; the gradient is that of the sigmoid of a gate (straight-through estimator; GRASPrune). Both texts
contribute equally to cross-entropy and distillation, because the paper's adaptive rule needs module gradients, which
are sums over many units.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gprune.pruning.sparsity.equal_masks import EqualGates
from gprune.pruning.sparsity.gate_masks import GateMasks, starting_gates
from gprune.pruning.sparsity.learner import Learner, LearnerState, LearningInputs
from gprune.pruning.sparsity.objective import RetentionConstraint
from gprune.pruning.sparsity.passes import BatchSums
from gprune.pruning.sparsity.rounding import require_reachable
from gprune.records import Array, GateLearning, UnitScores
from gprune.study import GateSettings


class GateLearner(Learner[GateMasks]):
    """Learn gates from cross-entropy and distillation on both texts; the masks of every step meet the target."""

    def __init__(self, inputs: LearningInputs, family: GateMasks, start: Array, epochs: int, rate: float) -> None:
        """Store the inputs of the training.

        Args:
            inputs: model, texts and settings.
            family: computes masks from gates.
            start: (units,) float32 initial gates.
            epochs: passes over both texts.
            rate: initial learning rate of Adam.
        """
        super().__init__(inputs, family, epochs, rate, RetentionConstraint(family.target, 0.0, 0.0))
        self._initial_gates = start

    def start(self) -> Tensor:
        """Return the initial gates."""
        return torch.tensor(self._initial_gates, device=self.family.share.device)

    def gradient(self, step: int, training: LearnerState, sums: BatchSums) -> tuple[Tensor, dict[str, Tensor]]:
        """See Learner."""
        quarter, length = sums.cross_entropy.shape[1:]
        # converts sums to means over a subset's predictions; the last token of a sequence has none
        unit_gradient = sums.cross_entropy_gradient.mean(dim=0) / (quarter * (length - 1))
        if sums.distillation_gradient is not None:
            weight = self.settings.distillation_weight
            unit_gradient = unit_gradient + weight * sums.distillation_gradient / sums.distillation.numel()
        gates = training.learned
        return self.family.gradient(unit_gradient, gates), {"retention": self.family.retention(gates)}


def learn_gates(
    inputs: LearningInputs, scores: Sequence[UnitScores], gate_settings: GateSettings, target: float, epochs: int
) -> GateLearning:
    """Learn a gate for each unit and turn the gates into masks that meet the retention target.

    Args:
        inputs: model, texts and settings.
        scores: importance scores on one or more texts, from whose ranks the gates start.
        gate_settings: settings of this stage.
        target: R*, the fraction of the decoder's linear weights to keep, in (0, 1).
        epochs: passes over both calibration sets; with 0, the masks follow from the initial ranks.

    Returns:
        The masks, whose retention meets R* to within one neuron, the gates, and the history.

    Raises:
        SettingsError: R* cannot be met, or layers are offloaded.
        MethodError: not even one sequence fits in memory.
        NumericsError: a loss or a gradient is not finite.
    """
    decoder, alignment = inputs.decoder, inputs.settings.alignment
    decoder.require_whole("learning")
    require_reachable(decoder.shape, target, alignment)
    family_type = EqualGates if inputs.settings.equal else GateMasks
    family = family_type.of(decoder.shape, target, alignment, gate_settings.temperature, decoder.device)
    learner = GateLearner(inputs, family, starting_gates(scores), epochs, gate_settings.learning_rate)
    gates, rows = learner.learned()
    masks, columns = family.exact(gates), learner.columns()
    neurons, groups = (part.cpu().numpy() for part in family.split(gates))
    return GateLearning(
        ffn=masks.ffn,
        heads=masks.heads,
        retention=masks.retention,
        target=target,
        steps=np.array(rows, dtype=np.float64).reshape(-1, len(columns)),
        columns=columns,
        gates=neurons,
        head_gates=groups,
    )
