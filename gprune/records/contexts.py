"""Contexts of tokens and the statistics of every neuron in each context, for token-weighted FLAP (section 4).

A *context* is a cluster of the tokens' FFN inputs in one layer, fitted to one text and applied to any text.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from gprune.records.base import Array, Record, real


@dataclass(frozen=True, slots=True, eq=False)
class Contexts(Record):
    """Context clusters of every layer, fitted to the FFN inputs of one calibration set."""

    text: str
    """name of that text in the study"""
    mean: Annotated[Array, real("layers", "hidden", finite=True)]
    """(layers, hidden) float32 mean FFN input, subtracted before the projection"""
    components: Annotated[Array, real("layers", "dimensions", "hidden", finite=True)]
    """(layers, dimensions, hidden) float32 principal directions, orthonormal rows"""
    centroids: Annotated[Array, real("layers", "contexts", "dimensions", finite=True)]
    """(layers, contexts, dimensions) float32 cluster centres in the projected space"""
    distances: Annotated[Array, real("layers", "contexts", "contexts", finite=True)]
    """(layers, contexts, contexts) float64 distances of the centroids over their off-diagonal mean"""
    tokens: int
    """number of tokens that the clusters were fitted to"""


@dataclass(frozen=True, slots=True, eq=False)
class ContextStatistics(Record):
    """Moments of the inputs of down_proj over one calibration set, per shard and context; all float64."""

    text: str
    """name of the text in the study"""
    contexts: str
    """name of the text that the contexts were fitted to"""
    tokens: Annotated[Array, real("shards", "layers", "contexts", finite=True)]
    """(shards, layers, contexts) number of tokens in each context"""
    mean: Annotated[Array, real("shards", "layers", "contexts", "neurons", finite=True)]
    """(shards, layers, contexts, neurons) mean over these tokens; 0 without tokens"""
    moment: Annotated[Array, real("shards", "layers", "contexts", "neurons", finite=True)]
    """(shards, layers, contexts, neurons) sum over tokens of the squared deviation from that mean"""
    affinity: Annotated[Array, real("layers", "contexts", "neurons", finite=True)]
    """(layers, contexts, neurons) mean over a context's tokens of |input * gradient of the loss|"""
    layer_change: Annotated[Array, real("layers", finite=True)]
    """(layers,) mean over tokens of 1 - cosine similarity of a layer's input and output"""

    @property
    def shards(self) -> int:
        """Return the number of shards."""
        return len(self.tokens)

    def merge(self, shards: Array | list[int] | None = None) -> ContextStatistics:
        """Merge the selected shards, by default all, into one by Chan's rule, separately for each context.

        Affinity and layer change remain those of all shards.
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
    """Concatenate the shards of two texts under the same contexts (pooling baseline).

    Affinity and layer change are token-weighted means, as one pass over both texts would give.
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
