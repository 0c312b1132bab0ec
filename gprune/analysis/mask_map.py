"""Compare two masks of one model within every module.

The masks come from two methods at one budget, or from one method with the scores of two texts. Two masks may keep
different neurons of a module, but the same number. Both the change of retention and the share of neurons with different
decisions are therefore reported.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from gprune.pruning.ranking import module_means, standardize
from gprune.records import Array, Partition, PruningMasks, UnitScores


@dataclass(frozen=True, slots=True, eq=False)
class Atlas:
    """Comparison of two masks of one model by module, in the order of layer and label."""

    layer: Array
    """(modules,) int64 layer of each module"""
    module: Array
    """(modules,) int64 label of each module within its layer"""
    size: Array
    """(modules,) neurons"""
    first: Array
    """(modules,) share of neurons that the first mask keeps"""
    second: Array
    """(modules,) share of neurons that the second mask keeps"""
    differs: Array
    """(modules,) share of neurons with different decisions"""
    neurons: float
    """share of all FFN neurons with different decisions"""
    groups: float
    """share of all key/value groups with different decisions"""

    @property
    def change(self) -> Array:
        """Return (modules,) retention under the first mask minus that under the second."""
        return self.first - self.second

    @property
    def largest(self) -> int:
        """Return the index of the module with the largest absolute change of retention; the first one at a tie."""
        return int(np.abs(self.change).argmax())


def compare_modules(partition: Partition, first: PruningMasks, second: PruningMasks) -> Atlas:
    """Compare two masks of one model within every module."""
    labels = partition.global_labels.ravel()
    first_kept, second_kept = first.ffn.ravel(), second.ffn.ravel()
    first_share, second_share, differs = (
        module_means(selection, labels, partition.modules)
        for selection in (first_kept, second_kept, first_kept != second_kept)
    )
    return Atlas(
        partition.module_layer,
        np.arange(partition.modules) - partition.offsets[partition.module_layer],
        np.bincount(labels, minlength=partition.modules),
        first_share,
        second_share,
        differs,
        float(np.mean(first_kept != second_kept)),
        float(np.mean(first.heads != second.heads)),
    )


def module_columns(partition: Partition, drift: Array) -> Array:
    """Return the (modules,) int64 column of each module in a grid with one row per layer.

    The modules of a layer are in ascending order of mean drift; `drift` is (layers, neurons).
    """
    layer = partition.module_layer
    means = module_means(drift.ravel(), partition.global_labels.ravel(), partition.modules)
    order = np.lexsort((means, layer))
    columns = np.empty(partition.modules, dtype=np.int64)
    columns[order] = np.arange(partition.modules) - partition.offsets[layer[order]]
    return columns


def arrange_grid(atlas: Atlas, values: Array, column: Array) -> Array:
    """Arrange (modules,) values as a grid with one row per layer and `column` as the column of each module.

    The grid is as wide as the layer with the most modules; cells without a module are NaN.
    """
    cells = np.full((int(atlas.layer.max()) + 1, int(column.max()) + 1), np.nan)
    cells[atlas.layer, column] = values
    return cells


def atlas_table(atlas: Atlas, first: str, second: str, drift: Array | None = None) -> pd.DataFrame:
    """Return a table with one row per module.

    `first` and `second` are labels of the two masks; `drift` (modules,) is the mean rank drift, if known.
    """
    rows: dict[str, Array] = {
        "layer": atlas.layer,
        "module": atlas.module,
        "neurons": atlas.size,
        f"kept, {first}": atlas.first,
        f"kept, {second}": atlas.second,
        "change": atlas.change,
        "decided differently": atlas.differs,
    }
    return pd.DataFrame(rows | ({} if drift is None else {"mean drift": drift}))


def group_table(masks: dict[str, PruningMasks], primary: UnitScores, auxiliary: UnitScores) -> pd.DataFrame:
    """Return a table with one row per key/value group: scores, standardized scores and masks.

    `masks` are keyed by label; `primary` and `auxiliary` are the scores on A and B.
    """
    layer, group = (part.ravel() for part in np.indices(primary.heads.shape))
    columns: dict[str, Array] = {"layer": layer, "group": group}
    for letter, scores in (("A", primary), ("B", auxiliary)):
        columns[f"score on {letter}"] = scores.heads.ravel()
        columns[f"standard score on {letter}"] = standardize(scores.heads).ravel()
    return pd.DataFrame(columns | {f"kept, {name}": mask.heads.ravel() for name, mask in masks.items()})
