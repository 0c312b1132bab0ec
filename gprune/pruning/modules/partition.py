"""Partition of the neurons of a layer into modules: the BCM stage (section 3.1 and appendix).

The stage clusters parameters by k-means, splits modules by rank drift, refines both together, and decides by the
admission rule whether the direction of the drift is used.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import torch

from gprune.pruning.modules import direction
from gprune.pruning.modules.initialization import cluster, split
from gprune.pruning.modules.objective import TERMS
from gprune.pruning.modules.refinement import refine
from gprune.records import Array, Partition, RankDrift, UnitScores
from gprune.study import ModularizationSettings
from gprune.system.errors import NumericsError
from gprune.system.progress import Progress, silent

Parameters = Callable[[int], torch.Tensor]

# streams of the study's seed that do not overlap: one for k-means, one for random modules
_CLUSTERING, _RANDOM = 0, 1


@dataclass(frozen=True, slots=True)
class _InitialModules:
    """Initial modules of the refinement."""

    labels: Array
    """(layers, neurons) module of each neuron"""
    counts: Array
    """(layers,) number of modules before the split, or without a split"""
    silhouette: Array
    """(layers, candidates) silhouette of each candidate number of modules, NaN without clustering"""


@dataclass(frozen=True, slots=True)
class _RefinedModules:
    """Refined modules of all layers under one drift profile."""

    profile: str
    """magnitude or direction, see `direction.drift_profile`"""
    labels: Array
    """(layers, neurons) module of each neuron"""
    history: Array
    """(layers, steps, 5) losses before each step, in the order of `objective.TERMS`; without refinement no steps"""


def modularize(
    parameters: Parameters,
    drift: RankDrift,
    primary: UnitScores,
    auxiliary: UnitScores,
    initial: Partition | Array,
    settings: ModularizationSettings,
    seed: int,
    on_progress: Progress = silent,
) -> Partition:
    """Partition the neurons of every layer into behavior-consistent modules.

    Args:
        parameters: function from a layer's index to its (neurons, 3 * hidden) unit rows [gate row, up row, down
            column], so that only one layer is in memory at a time.
        drift: rank drift of every neuron.
        primary: scores on A; the metric determines the direction preset.
        auxiliary: scores on B.
        initial: the result of `cluster_layers` for the same parameters, settings and seed, whose modules are split
            first; or (layers, neurons) initial modules, numbered from 0 without gaps in each layer, which are not
            split. The latter are used by twFLAP, whose scores depend on modules: scores under a first partition serve
            to refine it (appendix, BCM settings).
        settings: settings of BCM.
        seed: seed of random modules; each layer has its own random stream.
        on_progress: called with (done, total, message) after each unit of work.

    Returns:
        The partition. Kind `random` has as many modules per layer as the initialization after its split, with sizes
        that differ by at most one. Kinds `random` and `initialization` return initial modules unchanged.

    Raises:
        NumericsError: parameters or losses are not finite.
    """
    profiles = direction.profiles_to_refine(settings, primary.metric) if settings.kind == "refined" else ()
    if isinstance(initial, Partition):
        start = _split_clusters(initial, drift, settings, seed)
    else:
        silhouette = np.full((len(initial), len(settings.candidates)), np.nan)
        start = _InitialModules(initial, initial.max(axis=1) + 1, silhouette)
    unrefined = _RefinedModules(direction.MAGNITUDE, start.labels, np.zeros((len(start.labels), 0, len(TERMS))))
    refined = _refine_layers(parameters, drift, start.labels, profiles, settings, on_progress)
    return _choose_profile(refined or [unrefined], settings.kind, start, drift, primary, auxiliary)


def cluster_layers(
    parameters: Parameters,
    layers: int,
    neurons: int,
    settings: ModularizationSettings,
    seed: int,
    on_progress: Progress = silent,
) -> Partition:
    """Cluster the parameters of every layer; no calibration text is used.

    Args:
        parameters: function from a layer's index to its (neurons, 3 * hidden) unit rows.
        layers: number of decoder layers.
        neurons: FFN width.
        settings: candidates and restarts.
        seed: seed of k-means; each layer has its own random stream.
        on_progress: called with (done, total, message) after each layer.

    Returns:
        The clusters, of kind `clusters`, with the silhouette of every candidate count.

    Raises:
        NumericsError: parameters are not finite.
    """
    clusterings = []
    for layer in range(layers):
        rng = np.random.default_rng([seed, _CLUSTERING, layer])
        rows = _load_rows(parameters, layer)
        greedy = settings.seeding == "greedy"
        clusterings.append(cluster(rows, settings.candidates, settings.restarts, rng, greedy))
        on_progress(layer + 1, layers, f"clustered layer {layer + 1} of {layers}")
    labels, counts = np.stack([c.labels for c in clusterings]), np.array([c.count for c in clusterings])
    return Partition.unrefined("clusters", labels, counts, np.stack([c.silhouette for c in clusterings]))


def _split_clusters(
    clusters: Partition, drift: RankDrift, settings: ModularizationSettings, seed: int
) -> _InitialModules:
    """Split the modules with the largest drift variation; for kind `random`, return as many random ones."""
    labels = split(np.array(clusters.labels, dtype=np.int64), drift.magnitude, settings.split_fraction)
    return _InitialModules(
        labels=_random_modules(labels, seed) if settings.kind == "random" else labels,
        counts=clusters.counts,
        silhouette=clusters.silhouette,
    )


def _load_rows(parameters: Parameters, layer: int) -> torch.Tensor:
    """Return the parameters of one layer. Raise NumericsError if they are not finite."""
    rows = parameters(layer).detach()
    if not torch.isfinite(rows).all():
        raise NumericsError(
            f"the FFN weights of layer {layer} hold values that are not finite: load a checkpoint without NaN"
        )
    return rows


def _random_modules(initial: Array, seed: int) -> Array:
    """Return (layers, neurons) random modules of equal size, as many in each layer as `initial` has."""
    neurons = initial.shape[1]
    rows = []
    for layer, labels in enumerate(initial):
        equal = np.arange(neurons, dtype=np.int32) % (int(labels.max()) + 1)
        rows.append(np.random.default_rng([seed, _RANDOM, layer]).permutation(equal))
    return np.stack(rows)


def _refine_layers(
    parameters: Parameters,
    drift: RankDrift,
    initial: Array,
    profiles: tuple[str, ...],
    settings: ModularizationSettings,
    on_progress: Progress,
) -> list[_RefinedModules]:
    """Refine every layer under each profile from the same initial modules."""
    layers = len(initial)
    refined: dict[str, list[tuple[Array, Array]]] = {profile: [] for profile in profiles}

    def refinements() -> Iterator[tuple[bool, Callable[[], tuple[Array, Array]]]]:
        for layer in range(layers if profiles else 0):
            rows = _load_rows(parameters, layer)
            for profile in profiles:
                coordinates = direction.drift_profile(drift, layer, profile)
                # small matrices on a CPU are faster on one thread
                is_single = rows.device.type == "cpu" and rows.numel() <= _LARGEST_SINGLE_THREADED
                yield is_single, partial(refine, rows, initial[layer], coordinates, settings)

    for number, pair in enumerate(run_in_parallel(refinements())):
        layer, profile = number // len(profiles), profiles[number % len(profiles)]
        refined[profile].append(pair)
        on_progress(number + 1, layers * len(profiles), f"refined layer {layer + 1} of {layers} by drift {profile}")
    return [
        _RefinedModules(profile, np.stack([row for row, _ in pairs]), np.stack([losses for _, losses in pairs]))
        for profile, pairs in refined.items()
    ]


def _choose_profile(
    alternatives: list[_RefinedModules],
    kind: str,
    start: _InitialModules,
    drift: RankDrift,
    primary: UnitScores,
    auxiliary: UnitScores,
) -> Partition:
    """Apply the admission rule if two profiles were refined, and return the record."""
    modules = alternatives[0]
    mixing, variation = np.full(2, np.nan), np.full(2, np.nan)
    if len(alternatives) == 2:
        below = direction.below_boundary(primary.ffn, auxiliary.ffn)
        mixing = np.array([direction.boundary_mixing(a.labels, below) for a in alternatives])
        variation = np.array([direction.drift_variation(a.labels, drift.magnitude) for a in alternatives])
        modules = alternatives[int(direction.admits_direction(mixing, variation))]
    return Partition(
        kind=kind,
        profile=modules.profile,
        labels=modules.labels.astype(np.int32),
        counts=modules.labels.max(axis=1).astype(np.int32) + 1,
        initial_counts=start.counts.astype(np.int32),
        silhouette=start.silhouette,
        mixing=mixing,
        variation=variation,
        history=modules.history,
    )


R = TypeVar("R")
_LARGEST_SINGLE_THREADED = 1 << 21
"""number of matrix elements up to which matrix products are faster on one thread"""


def run_in_parallel(jobs: Iterable[tuple[bool, Callable[[], R]]]) -> Iterator[R]:
    """Run jobs and yield their results in order.

    Each job is paired with True if it needs only one thread. Such jobs run in parallel, up to the number of threads
    of torch. Any other job runs alone with all threads. If the caller stops iterating, queued jobs are cancelled and
    running jobs finish.
    """
    threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(threads, "jobs", initializer=torch.set_num_threads, initargs=(1,))
    futures: list[Future[R]] = []
    try:
        for needs_one_thread, job in jobs:
            if needs_one_thread:
                futures.append(pool.submit(job))
                continue
            yield from (future.result() for future in futures)
            futures.clear()
            yield job()
        yield from (future.result() for future in futures)
    finally:
        pool.shutdown(cancel_futures=True)
        # threads that start later inherit this setting
        torch.set_num_threads(threads)
