"""Modules of neurons, the results of RASA, and the agreement of partitions (sections 3.1, 3.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from gprune.records.base import MOST_UNITS, Array, Record, booleans, integers, real


@dataclass(frozen=True, slots=True, eq=False)
class Partition(Record):
    """Modules: a partition of each layer's neurons (section 3.1, BCM)."""

    kind: str
    """refined, initialization, random, clusters (of parameters alone) or functional (FANG's groups)"""
    profile: str
    """drift profile used by the refinement: magnitude or direction"""
    labels: Annotated[Array, integers("layers", "neurons")]
    """(layers, neurons) int32, 0 ... counts[layer] - 1 without gaps"""
    counts: Annotated[Array, integers("layers")]
    """(layers,) int32 modules of each layer"""
    initial_counts: Annotated[Array, integers("layers")]
    """(layers,) int32 module count chosen by the silhouette before the split"""
    silhouette: Annotated[Array, real("layers", "candidates")]
    """(layers, candidates) cosine silhouette of the best seed for each candidate count, or NaN if skipped"""
    mixing: Annotated[Array, real(2)]
    """(2,) boundary mixing I of the magnitude-only and the direction-aware partition; NaN if not compared"""
    variation: Annotated[Array, real(2)]
    """(2,) within-module drift variation S of these two partitions; NaN if not compared"""
    history: Annotated[Array, real("layers", "steps", 5)]
    """(layers, steps, 5) inner, pair, repulsion, consistency and total loss during refinement"""

    @classmethod
    def unrefined(cls, kind: str, labels: Array, counts: Array, silhouette: Array | None = None) -> Partition:
        """Build a partition without refinement by drift; `silhouette` is None if no module counts were tried."""
        layers = len(counts)
        return cls(
            kind=kind,
            profile="none",
            labels=labels.astype(np.int32),
            counts=counts.astype(np.int32),
            initial_counts=counts.astype(np.int32),
            silhouette=np.zeros((layers, 0)) if silhouette is None else silhouette,
            mixing=np.full(2, np.nan),
            variation=np.full(2, np.nan),
            history=np.zeros((layers, 0, 5)),
        )

    def check(self) -> None:
        """Check that every label is in range and every module has a neuron."""
        for layer, (labels, count) in enumerate(zip(self.labels, self.counts, strict=True)):
            present = np.unique(labels)
            if len(present) != count or present[0] != 0 or present[-1] != count - 1:
                raise ValueError(f"layer {layer}: labels {present} do not number {count} modules without gaps")

    @property
    def offsets(self) -> Array:
        """Return the (layers,) global index of each layer's first module."""
        return np.concatenate([[0], np.cumsum(self.counts)[:-1]]).astype(np.int64)

    @property
    def modules(self) -> int:
        """Return the number of modules of all layers."""
        return int(self.counts.sum())

    @property
    def global_labels(self) -> Array:
        """Return the (layers, neurons) int64 module of each neuron, numbered over all layers by layer and label."""
        return self.labels.astype(np.int64) + self.offsets[:, None]

    @property
    def module_layer(self) -> Array:
        """Return the (modules,) layer of each module."""
        return np.repeat(np.arange(len(self.counts)), self.counts)


@dataclass(frozen=True, slots=True, eq=False)
class ModuleStatistics(Record):
    """Statistics of every module of every layer from which RASA decides (section 3.2), before thresholds."""

    drift: Annotated[Array, real("modules", finite=True)]
    """(modules,) mean within-module rank drift, in [0, 1]"""
    score: Annotated[Array, real("modules", finite=True)]
    """(modules,) mean primary score, raw or standardised within the layer"""
    size: Annotated[Array, integers("modules", within=(1, MOST_UNITS))]
    """(modules,) int64 neurons in the module"""
    layer: Annotated[Array, integers("modules", within=(0, MOST_UNITS))]
    """(modules,) int64 layer of the module"""
    u_primary: Annotated[Array, real("modules", finite=True)]
    """(modules,) expected local-rank discrepancy between disjoint halves of A; smaller is more repeatable"""
    u_auxiliary: Annotated[Array, real("modules", finite=True)]
    """(modules,) expected local-rank discrepancy between disjoint halves of B"""


@dataclass(frozen=True, slots=True, eq=False)
class AdaptedScores(Record):
    """The result of RASA: importance scores with unreliable modules re-scored."""

    scores: Annotated[Array, real("layers", "neurons", finite=True)]
    """(layers, neurons) float64"""
    adapted: Annotated[Array, booleans("modules")]
    """(modules,) bool: both conditions hold, the module is in K_adapt"""
    source: Annotated[Array, integers("modules")]
    """(modules,) int8: 0 scored from the primary text, 1 from the auxiliary"""
    drift_threshold: float
    """quantile of the modules' drift; a module at or above it is distribution-sensitive"""
    score_threshold: float
    """quantile of the modules' mean score; a module at or below it is weakly supported"""


@dataclass(frozen=True, slots=True, eq=False)
class PartitionAgreement(Record):
    """Agreement of two partitions, layer by layer (Fig. 1b)."""

    ari: Annotated[Array, real("layers")]
    """(layers,) adjusted Rand index in [-1, 1]; 0 = chance, 1 = identical"""
    overlap: Annotated[Array, real("layers")]
    """(layers,) matched overlap in [0, 1]"""


@dataclass(frozen=True, slots=True, eq=False)
class Agreement(Record):
    """Agreement of partitions over several comparisons: one row per comparison."""

    comparisons: tuple[str, ...]
    """names of the comparisons, as in gprune.pipeline.stages.rasa"""
    ari: Annotated[Array, real("comparisons", "layers")]
    """(comparisons, layers) adjusted Rand index in [-1, 1]; 0 = chance, 1 = identical"""
    overlap: Annotated[Array, real("comparisons", "layers")]
    """(comparisons, layers) matched overlap in [0, 1]"""

    def check(self) -> None:
        """Check that every comparison has a row."""
        if len(self.comparisons) != len(self.ari):
            raise ValueError(f"Agreement.ari has {len(self.ari)} rows, expected {len(self.comparisons)}")

    @classmethod
    def of(cls, rows: Mapping[str, PartitionAgreement]) -> Agreement:
        """Build the record from at least one comparison by name."""
        parts = list(rows.values())
        return cls(tuple(rows), np.stack([row.ari for row in parts]), np.stack([row.overlap for row in parts]))
