"""Embed the neurons of a layer in a plane, by their parameters or by their behaviour on the texts.

The behaviour of a neuron is the mean and the standard deviation of its activation in each shard of each text, with
every column standardized over the layer. Its parameters are the directions of its weights, which need the model.
Principal components are a linear projection. UMAP (McInnes, Healy and Melville 2018) preserves neighbourhoods; its
axes and large distances have no meaning.
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
"""maximum number of principal components that are passed to UMAP"""
NEIGHBOURS, MIN_DISTANCE = 15, 0.1
"""UMAP's `n_neighbors` and `min_dist`"""
SETTINGS: dict[str, Any] = {"components": MOST_COMPONENTS, "neighbours": NEIGHBOURS, "apart": MIN_DISTANCE}
"""parameters of a layout besides the points and the seed"""
MIN_NEURONS = NEIGHBOURS + 1
"""minimum number of neurons for UMAP"""


@dataclass(frozen=True, slots=True, eq=False)
class PrincipalCoordinates:
    """Coordinates of neurons in principal components."""

    places: Array
    """(neurons, components) float32 coordinates, in descending order of variance"""
    shares: Array
    """(components,) share of the total variance"""


def behaviour_rows(text_statistics: Sequence[ActivationStatistics], layer: int) -> Array:
    """Return (neurons, columns) float64 activation statistics of a layer, each column standardized.

    The columns are, for every text, the means of its shards and then the standard deviations over tokens. A column in
    which all neurons are equal is 0.
    """
    columns = []
    for statistics in text_statistics:
        variance = np.maximum(statistics.ffn_moment[:, layer], 0.0) / statistics.shard_tokens[:, None]
        columns += [statistics.ffn_mean[:, layer], np.sqrt(variance)]
    rows: Array = np.concatenate(columns).T.astype(np.float64)
    deviation = rows.std(axis=0)
    # a column of equal numbers may have a tiny deviation from rounding
    varies = (rows != rows[:1]).any(axis=0) & (deviation > 0)
    return np.where(varies, (rows - rows.mean(axis=0)) / np.where(varies, deviation, 1.0), 0.0)


def behaviour(text_statistics: Sequence[ActivationStatistics], layer: int) -> PrincipalCoordinates:
    """Return the coordinates of a layer's neurons in the principal components of `behaviour_rows`.

    Raises NumericsError if all neurons have the same behaviour.
    """
    rows = behaviour_rows(text_statistics, layer)
    require_distinct(rows, f"the behaviour of layer {layer}")
    return exact_components(rows, MOST_COMPONENTS)


def exact_components(rows: Array, limit: int) -> PrincipalCoordinates:
    """Return coordinates in at most `limit` principal components of (neurons, columns) rows.

    The entry of largest magnitude of a component is made positive, so that the result is deterministic. If all rows
    are equal, there is no component.
    """
    centred = rows - rows.mean(axis=0)
    variances, directions = np.linalg.eigh(centred.T @ centred)
    # n points vary in at most n - 1 directions; any further variance is a rounding error
    order = np.argsort(-variances, kind="stable")[: min(limit, max(len(rows) - 1, 1))]
    order = order[variances[order] > 1e-10 * variances.max()]
    components = directions[:, order]
    largest = np.abs(components).argmax(axis=0)
    components = components * np.where(components[largest, np.arange(len(order))] < 0, -1.0, 1.0)
    return PrincipalCoordinates((centred @ components).astype(np.float32), variances[order] / (centred**2).sum())


def require_distinct(rows: Array, subject: str) -> None:
    """Raise NumericsError if the (neurons, columns) rows of `subject` are all equal or there is only one row."""
    if len(rows) < 2 or bool((rows == rows[:1]).all()):
        count = "there is one neuron" if len(rows) < 2 else f"all {len(rows):,} neurons are equal"
        raise NumericsError(f"in {subject} {count}, so nothing can be laid out: choose another layer or basis")


def require_enough_neurons(neurons: int) -> None:
    """Raise SettingsError if a layer has too few neurons for UMAP."""
    if neurons < MIN_NEURONS:
        raise SettingsError(
            f"UMAP uses the {NEIGHBOURS} nearest neighbours of a neuron and needs {MIN_NEURONS} neurons; this "
            f"layer has {neurons}: use principal components"
        )


def umap_layout(points: Array, seed: int) -> tuple[Array, Array]:
    """Embed (neurons, components) points in a plane by UMAP; call it in a separate process, because UMAP loads slowly.

    Returns (neurons, 2) float32 coordinates, which depend only on the points and the seed, and the result of
    `shared_neighbours`. Raises SettingsError if there are too few neurons.
    """
    require_enough_neurons(len(points))
    import umap

    # UMAP accepts seeds below 2**32 only
    layout = umap.UMAP(n_neighbors=NEIGHBOURS, min_dist=MIN_DISTANCE, random_state=seed % 2**32, n_jobs=1)
    positions = np.asarray(layout.fit_transform(np.asarray(points, dtype=np.float32)), dtype=np.float32)
    return positions, shared_neighbours(points, positions, NEIGHBOURS)


def shared_neighbours(points: Array, plane: Array, count: int) -> Array:
    """Return (neurons,) float32 share of each neuron's `count` nearest neighbours that it also has in the plane.

    `points` is (neurons, components), `plane` (neurons, 2); `count` is less than the number of neurons.
    """
    from sklearn.neighbors import NearestNeighbors

    # without query points, scikit-learn excludes each neuron from its own neighbours
    neighbours = [
        NearestNeighbors(n_neighbors=count, algorithm="brute").fit(coordinates).kneighbors(return_distance=False)
        for coordinates in (points, plane)
    ]
    shared = [len(np.intersect1d(*neighbour_sets)) / count for neighbour_sets in zip(*neighbours, strict=True)]
    return np.asarray(shared, dtype=np.float32)


def select_neurons(neurons: int, limit: int, required: int | None = None) -> Array:
    """Return the indices of at most `limit` evenly spaced neurons of a layer, always including neuron `required`."""
    if neurons <= limit:
        return np.arange(neurons)
    selected = np.linspace(0, neurons - 1, limit).round().astype(np.int64)
    if required is not None and required not in selected:
        selected[np.abs(selected - required).argmin()] = required
    return selected


def normalized_ranks(scores: Array) -> Array:
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
    """Return a table with one row per neuron of a layer (counted from 0) and the results that a run has so far.

    `neurons` are the indices of the neurons to list. `scores` is keyed by the letter of the text (A, B or C), `masks`
    by the label of the method. A partition or drift that is None has no columns.
    """
    columns: dict[str, Any] = {"layer": np.full(len(neurons), layer)}
    if partition is not None:
        columns["module"] = partition.labels[layer][neurons]
    columns["neuron"] = neurons
    if drift is not None:
        columns["drift d"] = drift.magnitude[layer][neurons]
    for letter, values in scores.items():
        columns[f"rank on {letter}"] = normalized_ranks(values.ffn[layer])[neurons]
        columns[f"score on {letter}"] = values.ffn[layer][neurons]
    return pd.DataFrame(columns | {f"kept, {name}": values.ffn[layer][neurons] for name, values in masks.items()})
