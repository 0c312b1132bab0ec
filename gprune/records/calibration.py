"""What is measured on a calibration set: its tokens and the moments of every channel (section 3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from gprune.records.base import MOST_SEQUENCES, Array, Record, integers, real, require_range, truth


@dataclass(frozen=True, slots=True, eq=False)
class Tokens(Record):
    """A calibration set: token-disjoint sequences of equal length (section 4, 2048 x 128 in the paper)."""

    text: str
    """what was asked for, as the person typed it"""
    fingerprint: str
    """SHA-256 of the exact tokens"""
    ids: Annotated[Array, integers("samples", "length")]
    """(samples, length) int32 token ids"""
    available: int
    """how many disjoint sequences the text would have given"""


@dataclass(frozen=True, slots=True, eq=False)
class SampledText(Record):
    """Text that the dense model wrote: documents of equal length, and how likely it finds each of them."""

    text: str
    """what was asked for, as the person typed it"""
    ids: Annotated[Array, integers("documents", "length")]
    """(documents, length) int32 token ids of the documents that are kept, in the order drawn"""
    perplexity: Annotated[Array, real("drawn")]
    """(drawn,) of every document that was drawn, under the model at temperature 1"""
    kept: Annotated[Array, truth("drawn")]
    """(drawn,) whether it is kept"""


@dataclass(frozen=True, slots=True, eq=False)
class ActivationStatistics(Record):
    """Moments of the inputs of down_proj and o_proj over one calibration set, per shard of disjoint samples.

    `*_mean` is the mean over tokens, `*_moment` the sum over tokens of the squared deviation from that
    mean (centred second moment), `*_energy` the sum over tokens of the square; all float64.
    """

    text: str
    """the text as the person typed it"""
    fingerprint: str
    """SHA-256 of the tokens seen"""
    shard_samples: Annotated[Array, integers("shards")]
    """(shards,) int64 sequences in each shard"""
    shard_tokens: Annotated[Array, integers("shards")]
    """(shards,) int64 tokens in each shard"""
    ffn_mean: Annotated[Array, real("shards", "layers", "neurons", finite=True)]
    """(shards, layers, neurons)"""
    ffn_moment: Annotated[Array, real("shards", "layers", "neurons", finite=True)]
    """(shards, layers, neurons)"""
    ffn_energy: Annotated[Array, real("shards", "layers", "neurons", finite=True)]
    """(shards, layers, neurons)"""
    attention_mean: Annotated[Array, real("shards", "layers", "channels", finite=True)]
    """(shards, layers, heads * head_width)"""
    attention_moment: Annotated[Array, real("shards", "layers", "channels", finite=True)]
    """(shards, layers, heads * head_width)"""
    attention_energy: Annotated[Array, real("shards", "layers", "channels", finite=True)]
    """(shards, layers, heads * head_width)"""
    ffn_released_fluctuation: Annotated[Array, real("layers", "neurons", finite=True)]
    """(layers, neurons) fluctuation by FLAP's released recursion over all samples in order, batch 1"""
    attention_released_fluctuation: Annotated[Array, real("layers", "channels", finite=True)]
    """(layers, heads * head_width) likewise"""

    @property
    def shards(self) -> int:
        """Number of shards."""
        return len(self.shard_tokens)

    def merge(self, shards: Array | list[int] | None = None) -> ActivationStatistics:
        """Merges the chosen shards, by default all, into one by Chan's rule; no forward pass is needed.

        The released fluctuation depends on the order of all samples and cannot be merged: it is carried over
        unchanged, and is exact only when all shards merge.
        """
        index = np.arange(self.shards) if shards is None else np.asarray(shards)
        counts = self.shard_tokens[index].astype(np.float64)
        merged: dict[str, Array] = {}
        for part in ("ffn", "attention"):
            mean, moment = merge_moments(
                counts, getattr(self, f"{part}_mean")[index], getattr(self, f"{part}_moment")[index]
            )
            merged[f"{part}_mean"] = mean[None]
            merged[f"{part}_moment"] = moment[None]
            merged[f"{part}_energy"] = getattr(self, f"{part}_energy")[index].sum(axis=0)[None]
        return ActivationStatistics(
            text=self.text,
            fingerprint=self.fingerprint,
            shard_samples=self.shard_samples[index].sum(keepdims=True),
            shard_tokens=self.shard_tokens[index].sum(keepdims=True),
            ffn_released_fluctuation=self.ffn_released_fluctuation,
            attention_released_fluctuation=self.attention_released_fluctuation,
            **merged,
        )


@dataclass(frozen=True, slots=True, eq=False)
class StrongestPositions(Record):
    """Positions of the largest activations of each FFN neuron on one calibration set: inputs of down_proj.

    Of a sequence the strongest position stands, the first of equal ones, so that the positions of a neuron
    are those of different sequences: the strongest first, and of equally strong ones the earlier sequence.
    """

    text: str
    """the text as the person typed it"""
    fingerprint: str
    """SHA-256 of the tokens seen"""
    length: int
    """tokens of a sequence"""
    sequences: Annotated[Array, integers("layers", "neurons", "kept", within=(0, MOST_SEQUENCES))]
    """(layers, neurons, kept) the sequence, counted from 0; the smallest type that holds all of them"""
    positions: Annotated[Array, integers("layers", "neurons", "kept")]
    """(layers, neurons, kept) the token in it, counted from 0"""
    values: Annotated[Array, real("layers", "neurons", "kept", finite=True)]
    """(layers, neurons, kept) float32 activation with its sign; bfloat16 and larger values fit"""

    def check(self) -> None:
        """Checks that every position is one of a sequence."""
        require_range(self, 0, self.length - 1, "positions")

    @property
    def kept(self) -> int:
        """Positions of each neuron."""
        return int(self.values.shape[2])


def merge_moments(counts: Array, means: Array, moments: Array) -> tuple[Array, Array]:
    """Merges means and centred second moments of disjoint groups (Chan, Golub and LeVeque 1983).

    `counts` (groups,) are tokens, float64, `means` (groups, ...) and `moments` (groups, ...) sums of squared
    deviations from the group's own mean. Gives both for the union, of shape (...).
    """
    weight = (counts / counts.sum()).reshape((-1,) + (1,) * (means.ndim - 1))
    mean = (weight * means).sum(axis=0)
    between = (counts.reshape(weight.shape) * (means - mean) ** 2).sum(axis=0)
    return mean, moments.sum(axis=0) + between


def pool(first: ActivationStatistics, second: ActivationStatistics) -> ActivationStatistics:
    """Puts the shards of two texts' sets side by side, as if they were one set (pooling baseline).

    The released fluctuation depends on the order of all samples and does not pool: it is the token-weighted
    mean of the two.
    """
    parts = ("ffn_mean", "ffn_moment", "ffn_energy", "attention_mean", "attention_moment", "attention_energy")
    share = first.shard_tokens.sum() / (first.shard_tokens.sum() + second.shard_tokens.sum())
    released = {
        name: share * getattr(first, name) + (1 - share) * getattr(second, name)
        for name in ("ffn_released_fluctuation", "attention_released_fluctuation")
    }
    return ActivationStatistics(
        text=f"{first.text} + {second.text}",
        fingerprint=f"{first.fingerprint}+{second.fingerprint}",
        shard_samples=np.concatenate([first.shard_samples, second.shard_samples]),
        shard_tokens=np.concatenate([first.shard_tokens, second.shard_tokens]),
        **{name: np.concatenate([getattr(first, name), getattr(second, name)]) for name in parts},
        **released,
    )
