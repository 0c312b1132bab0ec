"""From learned thresholds to a plan that meets the retention target exactly (section 3.3).

The rule itself is in ``gprune.sparsity.exact``, which needs no torch; here it meets the tensors of learning.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from gprune import budget
from gprune.errors import SettingsError
from gprune.records import Array, ModelShape, PruningMasks
from gprune.sparsity import exact
from gprune.sparsity.masks import MaskFamily


@dataclass(frozen=True, slots=True)
class ExactPlan:
    """The final decision."""

    masks: PruningMasks
    """which units are kept"""
    thresholds: Array
    """(thresholds,) float64 after the common shift"""


def exact_masks(family: MaskFamily, thresholds: Tensor, target: float, alignment: int = 1) -> ExactPlan:
    """Shifts all thresholds together until the target is met, then adds or removes the nearest neurons.

    Args:
        family: all units with their quantiles.
        thresholds: (thresholds,) learned thresholds.
        target: R*, the fraction of the decoder's linear weights to keep.
        alignment: FFN widths are multiples of this many neurons, or the dense width.

    Returns:
        Masks as near the target as one neuron (one block of neurons) allows, and the shifted thresholds.
        Apart from the floors and from that last correction, a unit is kept exactly where its quantile reaches
        its threshold.
    """
    # in float64: the shift falls between two margins that float32 may not tell apart
    ffn, heads = family.split(family.margins(thresholds.double()).cpu())
    masks, shift = exact.at_target(family.shape, ffn.numpy(), heads.numpy(), target, alignment)
    return ExactPlan(masks, thresholds.double().cpu().numpy() + shift)


def require_reachable(shape: ModelShape, target: float, alignment: int = 1) -> None:
    """Checks before any work that the floors leave room for the target.

    Args:
        shape: sizes of the decoder.
        target: R*, the fraction of the decoder's linear weights to keep.
        alignment: neurons of a block.

    Raises:
        SettingsError: one neuron (one block of neurons) and one key/value group of every layer exceed the
            target.
    """
    least = budget.least_neurons(shape, alignment)
    floor = shape.layers * (least * shape.neuron_weights + shape.group_weights) / shape.decoder_weights
    if target < floor:
        block = "one neuron" if least == 1 else f"one block of {least} neurons"
        remedy = "" if least == 1 else ", or a smaller alignment"
        raise SettingsError(
            f"retention {target} cannot be met: every layer keeps at least {block} and one key/value "
            f"group. Choose a retention of at least {math.ceil(floor * 1e4) / 1e4}{remedy}"
        )
