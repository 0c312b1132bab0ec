"""Context clusters of several layers at a time: the numbers of the loop, and an end that leaves no thread."""

import threading

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info

from gprune.pruning.calibration import clusters, contexts
from gprune.pruning.calibration.clusters import balanced_clusters, bounded_clusters
from gprune.pruning.calibration.contexts import Projected, fit_contexts
from gprune.study.settings import ContextSettings

LAYERS = 5


def settings(**changes):
    return ContextSettings(**({"count": 7, "dimensions": 16} | changes))


def inputs(tokens=900):
    """Points of several layers, in heaps of very different sizes."""
    generator = np.random.default_rng(3)
    heaps = generator.normal(size=(LAYERS, 9, 16)) * 3
    chosen = (generator.random(tokens) ** 2 * 9).astype(int)
    points = (heaps[:, chosen] + generator.normal(size=(LAYERS, tokens, 16))).astype(np.float32)
    components = np.tile(np.eye(16, 20, dtype=np.float32), (LAYERS, 1, 1))
    return Projected("a text", np.zeros((LAYERS, 20), np.float32), components, points)


def threads_of_layers():
    return [one for one in threading.enumerate() if one.name.startswith("contexts")]


def blas():
    """How many threads BLAS may use, by library."""
    return {one["filepath"]: one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


@pytest.fixture
def several(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)


@pytest.fixture
def endless(monkeypatch):
    """Lloyd steps that never find an end by themselves."""
    monkeypatch.setattr(clusters, "_ITERATIONS", 10**9)
    monkeypatch.setattr(clusters, "_LEAST_GAIN", -np.inf)


@pytest.mark.parametrize("form", ["balanced", "released"])
def test_layers_side_by_side_are_those_of_the_loop_to_the_last_bit(form, several):
    known, found = inputs(), fit_contexts(inputs(), settings(clustering=form), 4)
    for layer, points in enumerate(known.points):
        wide, generator = points.astype(np.float64), np.random.default_rng([4, layer])
        if form == "released":
            centroids = bounded_clusters(wide, 7, generator, 0.4, 10)[1]
        else:
            centroids = balanced_clusters(wide, 7, generator)[1]
        np.testing.assert_array_equal(found.centroids[layer], centroids.astype(np.float32))
    assert found.centroids.std(axis=0).min() > 0.1 and found.tokens == 900


def test_layers_are_at_work_at_the_same_time_with_one_thread_of_blas_each(several, monkeypatch):
    together, seen, before = threading.Barrier(3, timeout=60), [], blas()

    def watched(points, count, generator, on_step):
        seen.append(set(blas().values()))
        if len(seen) <= 3:
            together.wait()
        return balanced_clusters(points, count, generator, on_step)

    monkeypatch.setattr(contexts, "balanced_clusters", watched)
    fit_contexts(inputs(60), settings(), 0)
    assert seen == [{1}] * LAYERS and before and blas() == before


def test_a_layer_that_fails_ends_the_others_and_is_told_in_its_turn(several, endless, monkeypatch):
    known, heard = inputs(), []

    def failing(points, *others):
        if np.array_equal(points, known.points[0]):
            raise MemoryError("no room for layer 0")
        return balanced_clusters(points, *others)

    monkeypatch.setattr(contexts, "balanced_clusters", failing)
    with pytest.raises(MemoryError, match="layer 0"):
        fit_contexts(known, settings(), 0, lambda *event: heard.append(event[:2]))
    assert heard == [(0, LAYERS)] and not threads_of_layers()
