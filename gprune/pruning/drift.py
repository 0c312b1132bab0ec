"""Rank drift (Eq. 1, section 3.1): the shift of ranks between two calibration texts.

The control is the drift between token-disjoint halves of one text, which measures the effect of sampling alone.
Halves are noisier than whole sets, so the two texts are also compared on halves.
"""

import numpy as np

from gprune.pruning.ranking import ranks, spearman
from gprune.records import Array, RankDrift, UnitScores


def rank_drift(
    primary: UnitScores,
    auxiliary: UnitScores,
    halves_primary: tuple[UnitScores, UnitScores],
    halves_auxiliary: tuple[UnitScores, UnitScores],
) -> RankDrift:
    """Return the rank drift of every FFN neuron between two texts, in [0, 1] within its layer, with its control.

    `halves_primary` and `halves_auxiliary` are scores on two token-disjoint halves of each text. The drift is 0 in a
    layer of one neuron. A correlation is NaN if one of its texts gives all neurons of a layer the same score.
    """
    signed = signed_drift(primary.ffn, auxiliary.ffn)
    magnitude = np.abs(signed)
    first_a, second_a, first_b, second_b = (half.ffn for half in halves_primary + halves_auxiliary)
    return RankDrift(
        magnitude=magnitude,
        signed=signed,
        scaled=match_scale(signed, magnitude),
        resample_primary=np.abs(signed_drift(first_a, second_a)),
        resample_auxiliary=np.abs(signed_drift(first_b, second_b)),
        half=np.abs(signed_drift(first_a, first_b)),
        correlation=spearman(primary.ffn, auxiliary.ffn),
        correlation_half=spearman(first_a, first_b),
        correlation_primary=spearman(first_a, second_a),
        correlation_auxiliary=spearman(first_b, second_b),
    )


def signed_drift(first: Array, second: Array) -> Array:
    """Return (layers, neurons) signed drift (r_A - r_B) / (N - 1), in [-1, 1], from scores of that shape.

    It is positive if A, the first text, ranks the neuron higher (appendix, direction-aware refinement).
    """
    return (ranks(first) - ranks(second)) / max(np.shape(first)[-1] - 1, 1)


def match_scale(signed: Array, magnitude: Array) -> Array:
    """Return d± (Eq. 15), the (layers, neurons) signed drift scaled to the standard deviation of its layer's magnitude.

    It is 0 in a layer where the signed drift does not vary.
    """
    deviation = signed.std(axis=-1, keepdims=True)
    scale = magnitude.std(axis=-1, keepdims=True) / np.where(deviation > 0, deviation, 1.0)
    return signed * np.where(deviation > 0, scale, 0.0)
