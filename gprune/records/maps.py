"""The neurons of one layer as points: in principal components, and laid out by their neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from gprune.records.base import Array, freeze, real, require_axes, require_finite


@dataclass(frozen=True, slots=True, eq=False)
class Components:
    """The neurons of a layer in the principal components of what is known of them."""

    layer: int
    """counted from 0"""
    places: Annotated[Array, real("neurons", "components")]
    """(neurons, components) float32, the component of largest variance first"""
    shares: Annotated[Array, real("components")]
    """(components,) float64 share of the whole variance"""

    def __post_init__(self) -> None:
        """Checks shapes and finiteness, and freezes the arrays."""
        require_axes(self)
        require_finite(self, "places", "shares")
        freeze(self)


@dataclass(frozen=True, slots=True, eq=False)
class NeuronMap:
    """The neurons of a layer laid out in a plane by UMAP, neighbours beside each other."""

    layer: int
    """counted from 0"""
    basis: str
    """behaviour or parameters: by what neurons are neighbours"""
    kept: Annotated[Array, real("neurons")]
    """(neurons,) share of a neuron's nearest in the components that are its nearest in the plane as well"""
    places: Annotated[Array, real("neurons", 2)]
    """(neurons, 2) float32; distances between far points and the axes themselves say nothing"""

    def __post_init__(self) -> None:
        """Checks shapes and finiteness, and freezes the arrays."""
        require_axes(self)
        require_finite(self, "places", "kept")
        freeze(self)
