"""Records of which a test chooses what it looks at: partitions, and the moments of explicit activations."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gprune.records import ActivationStatistics, Array, ModelShape, Partition


def a_partition(labels: Any, counts: Any = None, **changes: Any) -> Partition:
    """Modules by the label of each neuron, (layers, neurons); every label is there unless counts say more."""
    labels = np.asarray(labels, np.int32)
    counts = labels.max(axis=1) + 1 if counts is None else counts
    sizes = np.asarray(counts, np.int32)
    layers, unknown = len(labels), np.full(2, np.nan)
    values = {"kind": "refined", "profile": "magnitude", "labels": labels, "counts": sizes}
    values |= {"initial_counts": sizes, "silhouette": np.zeros((layers, 1)), "mixing": unknown}
    return Partition(**(values | {"variation": unknown, "history": np.zeros((layers, 0, 5))} | changes))


def random_shape(generator: np.random.Generator, neurons: tuple[int, int] = (24, 200)) -> ModelShape:
    """A shape of random sizes, whose layers have a number of neurons within bounds."""
    kv_heads, group = int(generator.integers(1, 9)), int(generator.integers(1, 5))
    return ModelShape(
        layers=int(generator.integers(1, 9)),
        neurons=int(generator.integers(*neurons)),
        heads=kv_heads * group,
        kv_heads=kv_heads,
        head_width=int(generator.integers(1, 9)),
        hidden=int(generator.integers(4, 40)),
    )


def the_moments(inputs: Mapping[str, Array], groups: Sequence[Any], text: str = "t") -> ActivationStatistics:
    """Of explicit inputs (layers, samples, length, channels) of `ffn` and `attention`, one shard a group."""
    values = {}
    for part, x in inputs.items():
        shards = [x[:, list(group)].reshape(len(x), -1, x.shape[-1]) for group in groups]
        values[f"{part}_mean"] = np.stack([shard.mean(1) for shard in shards])
        values[f"{part}_moment"] = np.stack([((s - s.mean(1, keepdims=True)) ** 2).sum(1) for s in shards])
        values[f"{part}_energy"] = np.stack([(shard**2).sum(1) for shard in shards])
        values[f"{part}_released_fluctuation"] = x.reshape(len(x), -1, x.shape[-1]).var(1) * 0.9
    samples = np.array([len(group) for group in groups])
    return ActivationStatistics(text, "f", samples, samples * inputs["ffn"].shape[2], **values)
