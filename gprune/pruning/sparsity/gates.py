"""Gates: one value for each unit, learned under the same losses as MSL, with masks that meet the budget.

MSL with modules of one unit. A gate starts at its unit's rank, and the masks of every step are a prefix of
all units in the order of their gates; the gradient passes through as if a mask were the sigmoid of its gate
(straight-through; GRASPrune). Cross-entropy and distillation count on both texts alike: the adaptive rule is
the paper's for modules, whose gradients are sums over many units.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gprune.pruning.sparsity.equal_masks import EqualGates
from gprune.pruning.sparsity.gate_masks import GateMasks, starting
from gprune.pruning.sparsity.learner import Learner, LearnerRunning, Setting
from gprune.pruning.sparsity.objective import RetentionConstraint
from gprune.pruning.sparsity.passes import BatchSums
from gprune.pruning.sparsity.rounding import require_reachable
from gprune.records import Array, GateLearning, UnitScores
from gprune.study import GateSettings


class GateLearner(Learner[GateMasks]):
    """Gates: both losses on both texts, straight through; the masks of every step meet the target."""

    def __init__(self, setting: Setting, family: GateMasks, start: Array, epochs: int, rate: float) -> None:
        """Start a learning of gates.

        Args:
            setting: what it works with.
            family: the masks that gates can express.
            start: (units,) float32 gates before the first step.
            epochs: passes over both texts.
            rate: Adam's, at the first step.
        """
        super().__init__(setting, family, epochs, rate, RetentionConstraint(family.target, 0.0, 0.0))
        self._first = start

    def start(self) -> Tensor:
        """Return the gates that it was given."""
        return torch.tensor(self._first, device=self.family.share.device)

    def gradient(self, step: int, running: LearnerRunning, sums: BatchSums) -> tuple[Tensor, dict[str, Tensor]]:
        """See Learner."""
        quarter, length = sums.cross_entropy.shape[1:]
        unit_gradient = sums.cross_entropy_gradient.mean(dim=0) / (quarter * (length - 1))
        if sums.distillation_gradient is not None:
            weight = self.settings.distillation_weight
            unit_gradient = unit_gradient + weight * sums.distillation_gradient / sums.distillation.numel()
        gates = running.learned
        return self.family.gradient(unit_gradient, gates), {"retention": self.family.retention(gates)}


def learn_gates(
    setting: Setting, scores: Sequence[UnitScores], gate_settings: GateSettings, target: float, epochs: int
) -> GateLearning:
    """Learn a gate for each unit and turn the gates into masks that meet the retention target.

    Args:
        setting: what it works with.
        scores: importance scores of the text, or the texts, whose ranks the gates start from.
        gate_settings: settings of this stage.
        target: R*, the fraction of the decoder's linear weights to keep, in (0, 1).
        epochs: passes over both calibration sets; without any the masks are those of the ranks.

    Returns:
        The masks, whose retention is as near R* as one neuron allows, the gates, and how they were learned.

    Raises:
        SettingsError: R* cannot be met, or the layers are
            offloaded.
        MethodError: not even one sequence fits in memory.
        NumericsError: a loss or a gradient is not finite.
    """
    decoder, alignment = setting.decoder, setting.settings.alignment
    decoder.require_whole("learning")
    require_reachable(decoder.shape, target, alignment)
    kind = EqualGates if setting.settings.equal else GateMasks
    family = kind.of(decoder.shape, target, alignment, gate_settings.temperature, decoder.device)
    learner = GateLearner(setting, family, starting(scores), epochs, gate_settings.learning_rate)
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
