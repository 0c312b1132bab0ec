"""The quantities that predict which neurons are kept, and the neurons that contradict them most.

The area under the ROC curve of a layer: how often a kept neuron has more of the quantity than a removed one,
equal ones by half. 0.5 is what chance gives; below it, less of the quantity is kept.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from gprune.pruning.ranking import ranks
from gprune.records import Array


def area(values: Array, kept: Array) -> Array:
    """(layers,) area under the ROC curve of (layers, neurons) values; NaN where all are kept, or none."""
    return _of_ranks(ranks(values), np.asarray(kept))


def _of_ranks(ranked: Array, kept: Array) -> Array:
    chosen = kept.sum(axis=1)
    pairs = chosen * (kept.shape[1] - chosen)
    wins = np.where(kept, ranked, 0.0).sum(axis=1) - chosen * (chosen - 1) / 2
    return np.divide(wins, pairs, out=np.full(len(kept), np.nan), where=pairs > 0)


def prediction_table(quantities: Mapping[str, Array], kept: Array) -> pd.DataFrame:
    """One row a (layers, neurons) quantity, the one that tells most first.

    Mean over the layers that keep some neurons and remove some, lowest and highest layer.
    """
    rows = []
    for name, values in quantities.items():
        areas = area(values, kept)
        finite = areas[np.isfinite(areas)]
        ends = (finite.mean(), finite.min(), finite.max()) if len(finite) else (np.nan,) * 3
        rows.append({"quantity": name, **dict(zip(("mean AUC", "lowest", "highest"), ends, strict=True))})
    areas_table = pd.DataFrame(rows)
    order = (areas_table["mean AUC"] - 0.5).abs().sort_values(ascending=False, kind="stable").index
    return areas_table.loc[order].reset_index(drop=True)


def contradicting(values: Array, kept: Array, count: int, layer: int | None = None) -> pd.DataFrame:
    """At most `count` neurons that are decided most unlike what a quantity predicts, of one layer or of all.

    A kept neuron contradicts by the share of its layer that is above it, a removed one by the share below it;
    the other way round where the quantity predicts removal there. Values and masks are (layers, neurons).
    """
    kept = np.asarray(kept)
    ranked = ranks(values)
    share = ranked / max(ranked.shape[1] - 1, 1)
    areas = _of_ranks(ranked, kept)
    upright = np.where(np.isfinite(areas) & (areas < 0.5), -1.0, 1.0)[:, None]
    unlike = np.where(kept, 1 - share, share)
    unlike = np.where(upright > 0, unlike, 1 - unlike)
    # a layer that keeps all or none of its neurons has decided nothing
    unlike[~np.isfinite(areas)] = -np.inf
    if layer is not None:
        unlike[np.arange(len(unlike)) != layer] = -np.inf
    order = np.argsort(-unlike, axis=None, kind="stable")[:count]
    order = order[np.isfinite(unlike.ravel()[order])]
    layers, neurons = np.divmod(order, kept.shape[1])
    return pd.DataFrame(
        {
            "layer": layers,
            "neuron": neurons,
            "kept": kept.ravel()[order],
            "rank of the quantity": share.ravel()[order],
            "contradiction": unlike.ravel()[order],
        }
    )
