"""Calibration sets and the activation statistics measured on them (section 3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from gprune.records.base import MOST_SEQUENCES, Array, Record, booleans, integers, real, require_range


def unsigned_ids(signed: Array) -> Array:
    """Return the ids of `Tokens.signed_ids`."""
    return np.where(signed < 0, ~signed, signed)


@dataclass(frozen=True, slots=True, eq=False)
class Tokens(Record):
    """A calibration set: token-disjoint sequences of equal length (section 4, 2048 x 128 in the paper)."""

    text: str
    """name of the text in the study"""
    fingerprint: str
    """SHA-256 of the tokens"""
    ids: Annotated[Array, integers("samples", "length")]
    """(samples, length) int32 token ids"""
    available: int
    """number of disjoint sequences in the text"""
    counted: Annotated[Array | None, booleans("samples", "length", optional=True)] = None
    """(samples, length) bool, True for the positions that count, at least one per sequence; None if all count"""
    content: Annotated[Array | None, booleans("samples", "length", optional=True)] = None
    """(samples, length) bool, False for tokens that a chat template adds and for padding; None for plain text"""

    @property
    def counted_positions(self) -> int:
        """Return the number of positions that count."""
        return self.ids.size if self.counted is None else int(self.counted.sum())

    @property
    def unpadded_ids(self) -> Array:
        """Return (samples, length) int32 ids, and -1 at padding: after the last token that is content or counts."""
        if self.content is None or self.counted is None:
            return self.ids
        used = (self.content | self.counted)[:, ::-1]
        return np.where(np.logical_or.accumulate(used, axis=1)[:, ::-1], self.ids, np.int32(-1))

    @property
    def signed_ids(self) -> Array:
        """Return (samples, length) int64 ids, and the complement ~id at positions that do not count."""
        ids = self.ids.astype(np.int64)
        return ids if self.counted is None else np.where(self.counted, ids, ~ids)

    def counted_in(self, rows: slice) -> Array | None:
        """Return the (sequences, length) positions of some sequences that count; None if all count."""
        return None if self.counted is None else self.counted[rows]

    def check(self) -> None:
        """Raise ValueError if a sequence has no position that counts."""
        if self.counted is not None and not self.counted.any(axis=1).all():
            raise ValueError("Tokens.counted has a sequence without a position that counts")


@dataclass(frozen=True, slots=True, eq=False)
class SampledText(Record):
    """Text sampled from the dense model: documents and their perplexities."""

    text: str
    """name of the text in the study"""
    ids: Annotated[Array, integers("documents", "length")]
    """(documents, length) int32 token ids of the kept documents in the order of sampling, and -1 after their ends"""
    perplexity: Annotated[Array, real("drawn")]
    """(drawn,) perplexity of every sampled document at temperature 1"""
    kept: Annotated[Array, booleans("drawn")]
    """(drawn,) bool, True for kept documents"""
    content: Annotated[Array | None, booleans("documents", "length", optional=True)] = None
    """(documents, length) bool, False for tokens that a chat template adds; None for documents without a prompt"""
    answer: Annotated[Array | None, booleans("documents", "length", optional=True)] = None
    """(documents, length) bool, True for what the model wrote after a prompt; None for documents without a prompt"""

    @property
    def stream(self) -> Array:
        """Return the (tokens,) int32 ids of all documents."""
        ids: Array = self.ids[self.ids >= 0]
        return ids


@dataclass(frozen=True, slots=True, eq=False)
class ActivationStatistics(Record):
    """Moments of the inputs of down_proj and o_proj over one calibration set, per shard of disjoint samples.

    `*_mean` is the mean over tokens, `*_moment` the sum over tokens of the squared deviation from that mean (centred
    second moment), `*_energy` the sum over tokens of the square; all float64.
    """

    text: str
    """name of the text in the study"""
    fingerprint: str
    """SHA-256 of the tokens"""
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
    """(layers, heads * head_width) fluctuation by the same recursion"""

    @property
    def shards(self) -> int:
        """Return the number of shards."""
        return len(self.shard_tokens)

    def merge(self, shards: Array | list[int] | None = None) -> ActivationStatistics:
        """Merge the selected shards, by default all, into one by Chan's rule.

        The released fluctuation depends on the order of all samples and cannot be merged: it is copied, and is exact
        only if all shards are merged.
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
    """Positions of the activations (inputs of down_proj) of largest magnitude of each FFN neuron on a calibration set.

    Each sequence contributes at most one position per neuron, the first at a tie. Positions are sorted by falling
    magnitude, then by sequence.
    """

    text: str
    """name of the text in the study"""
    fingerprint: str
    """SHA-256 of the tokens"""
    length: int
    """tokens of a sequence"""
    sequences: Annotated[Array, integers("layers", "neurons", "kept", within=(0, MOST_SEQUENCES))]
    """(layers, neurons, kept) index of the sequence, in the smallest sufficient integer type"""
    positions: Annotated[Array, integers("layers", "neurons", "kept")]
    """(layers, neurons, kept) index of the token in the sequence"""
    values: Annotated[Array, real("layers", "neurons", "kept", finite=True)]
    """(layers, neurons, kept) float32 signed activation"""

    def check(self) -> None:
        """Check that every position is inside a sequence."""
        require_range(self, 0, self.length - 1, "positions")

    @property
    def kept(self) -> int:
        """Return the number of positions per neuron."""
        return int(self.values.shape[2])


def merge_moments(counts: Array, means: Array, moments: Array) -> tuple[Array, Array]:
    """Merge means and centred second moments of disjoint groups (Chan, Golub and LeVeque 1983).

    `counts` is (groups,) float64 numbers of tokens, `means` is (groups, ...), and `moments` (groups, ...) are sums of
    squared deviations from the mean of the group. Returns the mean and the moment of the union, of shape (...).
    """
    weight = (counts / counts.sum()).reshape((-1,) + (1,) * (means.ndim - 1))
    mean = (weight * means).sum(axis=0)
    between = (counts.reshape(weight.shape) * (means - mean) ** 2).sum(axis=0)
    return mean, moments.sum(axis=0) + between


def pool(first: ActivationStatistics, second: ActivationStatistics) -> ActivationStatistics:
    """Concatenate the shards of two texts into one set (pooling baseline).

    The released fluctuation depends on the order of all samples and cannot be pooled; the token-weighted mean is used.
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
