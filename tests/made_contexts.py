"""Contexts of a model's shape without a model: any directions will do where only sizes matter."""

import numpy as np

from gprune.records import Contexts


def contexts_of(shape, count=3, dimensions=8):
    numbers = np.random.default_rng(0)
    return Contexts(
        text="a text",
        mean=np.zeros((shape.layers, shape.hidden), dtype=np.float32),
        components=numbers.standard_normal((shape.layers, dimensions, shape.hidden)).astype(np.float32),
        centroids=numbers.standard_normal((shape.layers, count, dimensions)).astype(np.float32),
        distances=np.ones((shape.layers, count, count)),
        tokens=1000,
    )
