"""Contexts and statistics by context without a model: of random directions, and of explicit activations."""

import numpy as np

from gprune.records import Contexts, ContextStatistics


def contexts_of(shape, count=3, dimensions=8, text="a text"):
    """Contexts of a model's shape, with distances between their centroids of mean 1."""
    generator = np.random.default_rng(0)
    centroids = generator.standard_normal((shape.layers, count, dimensions)).astype(np.float32)
    distances = np.linalg.norm(centroids[:, :, None] - centroids[:, None], axis=-1).astype(np.float64)
    return Contexts(
        text=text,
        mean=np.zeros((shape.layers, shape.hidden), dtype=np.float32),
        components=generator.standard_normal((shape.layers, dimensions, shape.hidden)).astype(np.float32),
        centroids=centroids,
        distances=distances / (distances.sum((1, 2), keepdims=True) / (count * (count - 1))),
        tokens=1000,
    )


def context_moments(inputs, contexts, groups, affinity, change, text="t"):
    """Statistics of inputs (layers, samples, length, neurons) by context (layers, samples, length), a shard a group."""
    layers, count, neurons = affinity.shape
    tokens = np.zeros((len(groups), layers, count), dtype=np.int64)
    mean, moment = np.zeros((2, len(groups), layers, count, neurons))
    for token in np.ndindex(tokens.shape):
        shard, layer, context = token
        samples = list(groups[shard])
        x = inputs[layer, samples][contexts[layer, samples] == context]
        tokens[token] = len(x)
        if len(x):
            mean[token], moment[token] = x.mean(0), ((x - x.mean(0)) ** 2).sum(0)
    return ContextStatistics(text, "a text", tokens, mean, moment, affinity, change)
