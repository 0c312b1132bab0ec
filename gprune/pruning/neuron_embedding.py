"""Embed the neurons of a layer by their parameters or by their behaviour on the texts.

Neurons become points: by behaviour, from the mean and the spread of each shard of each text, every column
standardised over the layer; by parameters, from the directions of their weights, which take the model.
Principal components show the points as they are, in two of many directions; UMAP (McInnes, Healy and Melville
2018) lays neighbours beside each other, and its axes and wide distances say nothing.
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


def behaviour_rows(measured: Sequence[ActivationStatistics], layer: int) -> Array:
    """(neurons, columns) float64 of what the neurons of a layer do, standardised over the neurons.

    For every text its shards' means, then their standard deviations over tokens; a column in which all
    neurons are equal is 0.
    """
    columns = []
    for statistics in measured:
        spread = np.sqrt(np.maximum(statistics.ffn_moment[:, layer], 0.0) / statistics.shard_tokens[:, None])
        columns += [statistics.ffn_mean[:, layer], spread]
    rows: Array = np.concatenate(columns).T.astype(np.float64)
    deviation = rows.std(axis=0)
    # of equal numbers rounding is left behind
    moves = (rows != rows[:1]).any(axis=0) & (deviation > 0)
    return np.where(moves, (rows - rows.mean(axis=0)) / np.where(moves, deviation, 1.0), 0.0)


def behaviour(measured: Sequence[ActivationStatistics], layer: int) -> Reduced:
    """The neurons of a layer in the principal components of what they do; see `behaviour_rows`.

    Raises NumericsError if they all do the same.
    """
    rows = behaviour_rows(measured, layer)
    require_different(rows, f"the behaviour of layer {layer}")
    return exact_components(rows, MOST_COMPONENTS)


def exact_components(rows: Array, limit: int) -> Reduced:
    """At most `limit` principal components of (neurons, columns), with few columns; none without variance.

    The largest entry by size of a component is positive, so that the same rows give the same picture.
    """
    centred = rows - rows.mean(axis=0)
    variances, directions = np.linalg.eigh(centred.T @ centred)
    order = np.argsort(-variances, kind="stable")[: min(limit, max(len(rows) - 1, 1))]
    order = order[variances[order] > 1e-10 * variances.max()]
    chosen = directions[:, order]
    largest = np.abs(chosen).argmax(axis=0)
    chosen = chosen * np.where(chosen[largest, np.arange(len(order))] < 0, -1.0, 1.0)
    return Reduced((centred @ chosen).astype(np.float32), variances[order] / (centred**2).sum())


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

    # which takes no larger seed
    layout = umap.UMAP(n_neighbors=NEIGHBOURS, min_dist=APART, random_state=seed % 2**32, n_jobs=1)
    places = np.asarray(layout.fit_transform(np.asarray(points, dtype=np.float32)), dtype=np.float32)
    return places, shared_neighbours(points, places, NEIGHBOURS)


def shared_neighbours(points: Array, places: Array, count: int) -> Array:
    """(neurons,) float32 share of each neuron's nearest among some points that are its nearest in the plane.

    Points are (neurons, components), places (neurons, 2); `count` is how many nearest, fewer than neurons.
    """
    from sklearn.neighbors import NearestNeighbors

    # asked for no point of its own, it leaves out the neuron itself
    near = [
        NearestNeighbors(n_neighbors=count, algorithm="brute").fit(coordinates).kneighbors(return_distance=False)
        for coordinates in (points, places)
    ]
    shared = [len(np.intersect1d(*both)) / count for both in zip(*near, strict=True)]
    return np.asarray(shared, dtype=np.float32)


def select_neurons(neurons: int, limit: int, always: int | None = None) -> Array:
    """Numbers of at most `limit` neurons of a layer that a chart shows, evenly spaced where there are more.

    The neuron `always` is shown in any case.
    """
    if neurons <= limit:
        return np.arange(neurons)
    chosen = np.linspace(0, neurons - 1, limit).round().astype(np.int64)
    if always is not None and always not in chosen:
        chosen[np.abs(chosen - always).argmin()] = always
    return chosen


def pad_to_plane(places: Array) -> Array:
    """(neurons, 2) places in a plane of neurons that differ in one component only."""
    return np.concatenate([places, np.zeros_like(places[:, :1])], axis=1)[:, :2]


def positions(scores: Array) -> Array:
    """(neurons,) float64 rank of each neuron of a layer, from 0 (least important) to 1 (most)."""
    return ranks(scores) / max(len(scores) - 1, 1)


def table(
    layer: int,
    neurons: Array,
    partition: Partition | None,
    drift: RankDrift | None,
    scores: Mapping[str, UnitScores],
    masks: Mapping[str, PruningMasks],
) -> pd.DataFrame:
    """One row a neuron of one layer (from 0), with what a run has found of it so far.

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
