"""What token-weighted FLAP needs to know: kinds of context, and what every neuron does in each (section 4).

A *context* is a cluster of the tokens' FFN inputs in one layer, made on one text and applied to any.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from gprune.records.base import Array, Record, real


@dataclass(frozen=True, slots=True, eq=False)
class Contexts(Record):
    """Context clusters of every layer, made from the FFN inputs of one calibration set."""

    text: str
    """the text they were made from, as typed"""
    mean: Annotated[Array, real("layers", "hidden", finite=True)]
    """(layers, hidden) float32 mean FFN input, subtracted before the projection"""
    components: Annotated[Array, real("layers", "dimensions", "hidden", finite=True)]
    """(layers, dimensions, hidden) float32 principal directions, orthonormal rows"""
    centroids: Annotated[Array, real("layers", "contexts", "dimensions", finite=True)]
    """(layers, contexts, dimensions) float32 cluster centres in the projected space"""
    distances: Annotated[Array, real("layers", "contexts", "contexts", finite=True)]
    """(layers, contexts, contexts) float64 distances of the centroids over their off-diagonal mean"""
    tokens: int
    """tokens of each layer that the clusters were made from"""


@dataclass(frozen=True, slots=True, eq=False)
class ContextStatistics(Record):
    """Moments of the inputs of down_proj over one calibration set, per shard and context; all float64."""

    text: str
    """the text measured, as typed"""
    contexts: str
    """the text that the contexts were made from"""
    tokens: Annotated[Array, real("shards", "layers", "contexts", finite=True)]
    """(shards, layers, contexts) tokens seen in each context"""
    mean: Annotated[Array, real("shards", "layers", "contexts", "neurons", finite=True)]
    """(shards, layers, contexts, neurons) mean over those tokens; 0 if there are none"""
    moment: Annotated[Array, real("shards", "layers", "contexts", "neurons", finite=True)]
    """(shards, layers, contexts, neurons) sum over tokens of the squared deviation from that mean"""
    affinity: Annotated[Array, real("layers", "contexts", "neurons", finite=True)]
    """(layers, contexts, neurons) mean over a context's tokens of |input * gradient of the loss|"""
    layer_change: Annotated[Array, real("layers", finite=True)]
    """(layers,) mean over tokens of 1 - cosine similarity of a layer's input and output"""

    @property
    def shards(self) -> int:
        """Number of shards."""
        return len(self.tokens)

    def merge(self, shards: Array | list[int] | None = None) -> ContextStatistics:
        """Merges the chosen shards, by default all, into one by Chan's rule, context by context.

        No forward pass is needed; affinity and layer change stay those of the whole set.
        """
        index = np.arange(self.shards) if shards is None else np.asarray(shards)
        counts, means, moments = self.tokens[index], self.mean[index], self.moment[index]
        tokens = counts.sum(axis=0)
        share = counts / np.maximum(tokens, 1)
        mean = (share[..., None] * means).sum(axis=0)
        between = (counts[..., None] * (means - mean) ** 2).sum(axis=0)
        moment = moments.sum(axis=0) + between
        return replace(self, tokens=tokens[None], mean=mean[None], moment=moment[None])


def pool_contexts(first: ContextStatistics, second: ContextStatistics) -> ContextStatistics:
    """Puts the shards of two texts' sets side by side under the same contexts (pooling baseline).

    Affinity and layer change are token-weighted means, which is what one pass over both texts would have
    given.
    """
    counts = np.stack([first.tokens.sum(axis=0), second.tokens.sum(axis=0)]).astype(np.float64)
    share = (counts / np.maximum(counts.sum(axis=0), 1))[..., None]
    total = counts.sum(axis=-1)
    change = np.stack([first.layer_change, second.layer_change])
    return ContextStatistics(
        text=f"{first.text} + {second.text}",
        contexts=first.contexts,
        tokens=np.concatenate([first.tokens, second.tokens]),
        mean=np.concatenate([first.mean, second.mean]),
        moment=np.concatenate([first.moment, second.moment]),
        affinity=share[0] * first.affinity + share[1] * second.affinity,
        layer_change=(total * change).sum(axis=0) / total.sum(axis=0),
    )
