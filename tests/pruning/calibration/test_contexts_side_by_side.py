"""Context clusters of several layers at a time: the numbers of the loop, and an end that leaves no thread."""

import threading

import numpy as np
import pytest
import torch

from gprune.pruning.calibration import contexts
from gprune.pruning.calibration.clusters import balanced_clusters, bounded_clusters
from gprune.pruning.calibration.contexts import Projection, fit_contexts
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
    return Projection("a text", np.zeros((LAYERS, 20), np.float32), components, points)


@pytest.fixture
def several(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)


@pytest.mark.parametrize("form", ["balanced", "released"])
def test_layers_side_by_side_are_those_of_the_loop_to_the_last_bit(form, several):
    projected, fitted = inputs(), fit_contexts(inputs(), settings(clustering=form), 4)
    for layer, points in enumerate(projected.points):
        arguments = points.astype(np.float64), 7, np.random.default_rng([4, layer])
        balanced = form == "balanced"
        _, centroids = balanced_clusters(*arguments) if balanced else bounded_clusters(*arguments, 0.4, 10)
        np.testing.assert_array_equal(fitted.centroids[layer], centroids.astype(np.float32))
    assert fitted.centroids.std(axis=0).min() > 0.1 and fitted.tokens == 900


def test_a_layer_that_fails_is_told_and_leaves_no_thread(several, monkeypatch):
    projected, events = inputs(), []

    def failing(points, *arguments):
        if np.array_equal(points, projected.points[0]):
            raise MemoryError("no room for layer 0")
        return balanced_clusters(points, *arguments)

    monkeypatch.setattr(contexts, "balanced_clusters", failing)
    with pytest.raises(MemoryError, match="layer 0"):
        fit_contexts(projected, settings(), 0, lambda *event: events.append(event[:2]))
    assert events == [(0, LAYERS)]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("contexts")]
