"""Importance scores of units, their rank drift between two texts (Eq. 1), and layouts of neurons."""

from dataclasses import dataclass
from typing import Annotated

from gprune.records.base import Array, Record, real


@dataclass(frozen=True, slots=True, eq=False)
class UnitScores(Record):
    """Importance scores of one text under one metric; a higher score is more important."""

    metric: str
    """name in gprune.pruning.scoring.METRICS"""
    text: str
    """name of the calibration text in the study"""
    ffn: Annotated[Array, real("layers", "neurons", finite=True)]
    """(layers, neurons) float64, >= 0"""
    heads: Annotated[Array, real("layers", "groups", finite=True)]
    """(layers, key/value groups) float64, >= 0"""
    channels: Annotated[Array, real("layers", "channels", finite=True)]
    """(layers, heads * head_width) float64 scores of o_proj channels, from which `heads` is computed"""


@dataclass(frozen=True, slots=True, eq=False)
class RankDrift(Record):
    """Rank drift between two score sets (Eq. 1) with its resampling control."""

    magnitude: Annotated[Array, real("layers", "neurons", within=(0, 1))]
    """(layers, neurons) in [0, 1]: |rank on A - rank on B| / (N - 1)"""
    signed: Annotated[Array, real("layers", "neurons", within=(-1, 1))]
    """(layers, neurons) in [-1, 1]: (rank on A - rank on B) / (N - 1)"""
    scaled: Annotated[Array, real("layers", "neurons")]
    """(layers, neurons) signed drift scaled to the spread of the magnitude, d± (Eq. 15)"""
    resample_primary: Annotated[Array, real("layers", "neurons", within=(0, 1))]
    """(layers, neurons) drift between two token-disjoint halves (even and odd shards) of A"""
    resample_auxiliary: Annotated[Array, real("layers", "neurons", within=(0, 1))]
    """(layers, neurons) drift between two token-disjoint halves of B"""
    half: Annotated[Array, real("layers", "neurons", within=(0, 1))]
    """(layers, neurons) drift between a half of A and a half of B, with as many samples as the resampling control"""
    correlation: Annotated[Array, real("layers")]
    """(layers,) Spearman correlation of the ranks on A and B"""
    correlation_half: Annotated[Array, real("layers")]
    """(layers,) Spearman correlation between a half of A and a half of B"""
    correlation_primary: Annotated[Array, real("layers")]
    """(layers,) Spearman correlation between the halves of A"""
    correlation_auxiliary: Annotated[Array, real("layers")]
    """(layers,) Spearman correlation between the halves of B"""


@dataclass(frozen=True, slots=True, eq=False)
class Components(Record):
    """Coordinates of the neurons of a layer in principal components of their parameters."""

    layer: int
    """counted from 0"""
    places: Annotated[Array, real("neurons", "components", finite=True)]
    """(neurons, components) float32, in order of falling variance"""
    shares: Annotated[Array, real("components", finite=True)]
    """(components,) float64 share of the total variance"""


@dataclass(frozen=True, slots=True, eq=False)
class NeuronMap(Record):
    """Layout of the neurons of a layer in a plane by UMAP."""

    layer: int
    """counted from 0"""
    basis: str
    """behaviour or parameters: the measure of similarity"""
    kept: Annotated[Array, real("neurons", finite=True)]
    """(neurons,) share of a neuron's nearest neighbours that are preserved in the plane"""
    places: Annotated[Array, real("neurons", 2, finite=True)]
    """(neurons, 2) float32 coordinates; the axes and large distances have no meaning"""
