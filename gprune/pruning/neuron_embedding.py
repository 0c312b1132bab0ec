"""Embed the neurons of a layer by their parameters or by their behaviour on the texts.

Neurons become points: by behaviour, from the mean and the spread of each shard of each text, every column
standardised over the layer; by parameters, from the directions of their weights, which take the model.
Principal components show the points as they are, in two of many directions; UMAP (McInnes, Healy and Melville
2018) places neighbours close together; its axes and large distances have no meaning.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from gprune.pruning.ranking import ranks
from gprune.records import ActivationStatistics, Array, Partition, PruningMasks, RankDrift, UnitScores
from gprune.system.errors import NumericsError, SettingsError

BEHAVIOUR, PARAMETERS = "behaviour", "parameters"
MOST_COMPONENTS = 50
"""principal components that UMAP is given at most"""
NEIGHBOURS, APART = 15, 0.1
"""what UMAP takes for near: its `n_neighbors`, and `min_dist` in the plane"""
SETTINGS: dict[str, Any] = {"components": MOST_COMPONENTS, "neighbours": NEIGHBOURS, "apart": APART}
"""all that decides a layout besides the points and the seed"""
FEWEST = NEIGHBOURS + 1
"""neurons below which there are not as many neighbours"""


@dataclass(frozen=True, slots=True, eq=False)
class Reduced:
    """Neurons in principal components."""

    places: Array
    """(neurons, components) float32, the component of largest variance first"""
    shares: Array
    """(components,) share of the whole variance"""


def behaviour_rows(text_statistics: Sequence[ActivationStatistics], layer: int) -> Array:
    """Return (neurons, columns) float64 activation statistics of a layer, each column standardized.

    For every text its shards' means, then their standard deviations over tokens; a column in which all
    neurons are equal is 0.
    """
    columns = []
    for statistics in text_statistics:
        spread = np.sqrt(np.maximum(statistics.ffn_moment[:, layer], 0.0) / statistics.shard_tokens[:, None])
        columns += [statistics.ffn_mean[:, layer], spread]
    rows: Array = np.concatenate(columns).T.astype(np.float64)
    deviation = rows.std(axis=0)
    # a column of equal numbers may have a tiny deviation from rounding
    varies = (rows != rows[:1]).any(axis=0) & (deviation > 0)
    return np.where(varies, (rows - rows.mean(axis=0)) / np.where(varies, deviation, 1.0), 0.0)


def behaviour(text_statistics: Sequence[ActivationStatistics], layer: int) -> Reduced:
    """Return the neurons of a layer in the principal components of `behaviour_rows`.

    Raises NumericsError if they all do the same.
    """
    rows = behaviour_rows(text_statistics, layer)
    require_different(rows, f"the behaviour of layer {layer}")
    return exact_components(rows, MOST_COMPONENTS)


def exact_components(rows: Array, limit: int) -> Reduced:
    """Return at most `limit` principal components of (neurons, columns) rows; none without variance.

    The largest entry by size of a component is positive, so that the same rows give the same picture.
    """
    centred = rows - rows.mean(axis=0)
    variances, directions = np.linalg.eigh(centred.T @ centred)
    order = np.argsort(-variances, kind="stable")[: min(limit, max(len(rows) - 1, 1))]
    order = order[variances[order] > 1e-10 * variances.max()]
    components = directions[:, order]
    largest = np.abs(components).argmax(axis=0)
    components = components * np.where(components[largest, np.arange(len(order))] < 0, -1.0, 1.0)
    return Reduced((centred @ components).astype(np.float32), variances[order] / (centred**2).sum())


def require_different(rows: Array, subject: str) -> None:
    """Raise NumericsError if the (neurons, columns) rows of `subject` are all equal, or only one."""
    if len(rows) < 2 or bool((rows == rows[:1]).all()):
        count = "there is one neuron" if len(rows) < 2 else f"all {len(rows):,} neurons are equal"
        raise NumericsError(f"in {subject} {count}, so nothing can be laid out: choose another layer or basis")


def require_enough(neurons: int) -> None:
    """Raise SettingsError if there are too few neurons for UMAP to have neighbours to go by."""
    if neurons < FEWEST:
        raise SettingsError(
            f"UMAP goes by the {NEIGHBOURS} nearest neighbours of a neuron and needs {FEWEST} neurons; this "
            f"layer has {neurons}: look at its principal components"
        )


def laid_out(points: Array, seed: int) -> tuple[Array, Array]:
    """Lay points out in a plane by UMAP; only for processes of their own, it loads and compiles for long.

    Of (neurons, components) and a seed, which always give the same plane, come (neurons, 2) float32 places,
    and what `shared_neighbours` says of them. Raises SettingsError if there are too few neurons.
    """
    require_enough(len(points))
    import umap

    # UMAP accepts seeds below 2**32 only
    layout = umap.UMAP(n_neighbors=NEIGHBOURS, min_dist=APART, random_state=seed % 2**32, n_jobs=1)
    positions = np.asarray(layout.fit_transform(np.asarray(points, dtype=np.float32)), dtype=np.float32)
    return positions, shared_neighbours(points, positions, NEIGHBOURS)


def shared_neighbours(points: Array, plane: Array, count: int) -> Array:
    """Return (neurons,) float32 share of each neuron's nearest points that stay nearest in the plane.

    `points` are (neurons, components), `plane` (neurons, 2); `count` is how many nearest, fewer than neurons.
    """
    from sklearn.neighbors import NearestNeighbors

    # without query points, scikit-learn excludes each neuron from its own neighbours
    neighbours = [
        NearestNeighbors(n_neighbors=count, algorithm="brute").fit(coordinates).kneighbors(return_distance=False)
        for coordinates in (points, plane)
    ]
    shared = [len(np.intersect1d(*neighbour_sets)) / count for neighbour_sets in zip(*neighbours, strict=True)]
    return np.asarray(shared, dtype=np.float32)


def select_neurons(neurons: int, limit: int, always: int | None = None) -> Array:
    """Return the numbers of at most `limit` neurons of a layer, evenly spaced.

    The neuron `always` is shown in any case.
    """
    if neurons <= limit:
        return np.arange(neurons)
    selected = np.linspace(0, neurons - 1, limit).round().astype(np.int64)
    if always is not None and always not in selected:
        selected[np.abs(selected - always).argmin()] = always
    return selected


def pad_to_plane(coordinates: Array) -> Array:
    """Return (neurons, 2) coordinates for neurons that differ in one component only."""
    return np.concatenate([coordinates, np.zeros_like(coordinates[:, :1])], axis=1)[:, :2]


def positions(scores: Array) -> Array:
    """Return (neurons,) float64 rank of each neuron of a layer, from 0 (least important) to 1 (most)."""
    return ranks(scores) / max(len(scores) - 1, 1)


def table(
    layer: int,
    neurons: Array,
    partition: Partition | None,
    drift: RankDrift | None,
    scores: Mapping[str, UnitScores],
    masks: Mapping[str, PruningMasks],
) -> pd.DataFrame:
    """Return one row a neuron of one layer (from 0), with the results that a run has so far.

    Scores are by the letter of their text, masks by what to call them.
    """
    columns: dict[str, Any] = {"layer": np.full(len(neurons), layer)}
    if partition is not None:
        columns["module"] = partition.labels[layer][neurons]
    columns["neuron"] = neurons
    if drift is not None:
        columns["drift d"] = drift.magnitude[layer][neurons]
    for letter, values in scores.items():
        columns[f"rank on {letter}"] = positions(values.ffn[layer])[neurons]
        columns[f"score on {letter}"] = values.ffn[layer][neurons]
    return pd.DataFrame(columns | {f"kept, {name}": values.ffn[layer][neurons] for name, values in masks.items()})
