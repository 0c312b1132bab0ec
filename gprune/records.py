"""The vocabulary of results: frozen records that pass from one stage to the next.

Every record holds read-only numpy arrays and plain values, nothing else, so that any of them can be
stored, hashed, drawn and compared. Axis words are the same everywhere: layers, neurons, heads
(key/value groups where stated), channels, shards, samples, modules, units.

A *unit* is what pruning removes whole: an FFN neuron (one row of gate_proj and up_proj with one column
of down_proj) or a key/value group (one key/value head with all its query heads).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from gprune.errors import NumericsError

Array = np.ndarray[Any, Any]


def _freeze(record: object) -> None:
    """Replaces every array field by a read-only copy."""
    for field in fields(record):  # type: ignore[arg-type]
        value = getattr(record, field.name)
        if isinstance(value, np.ndarray):
            # a memory map cannot change; a read-only view of an array that can is not safe to keep
            safe = isinstance(value, np.memmap) and not value.flags.writeable
            copy = value if safe else np.array(value, copy=True)
            copy.flags.writeable = False
            object.__setattr__(record, field.name, copy)


def _require_shape(record: object, shapes: dict[str, tuple[int, ...]]) -> None:
    for name, shape in shapes.items():
        actual = np.shape(getattr(record, name))
        if actual != shape:
            raise ValueError(f"{type(record).__name__}.{name} has shape {actual}, expected {shape}")


def _require_finite(record: object, *names: str) -> None:
    for name in names:
        array = getattr(record, name)
        bad = ~np.isfinite(array)
        if bad.any():
            where = tuple(int(i) for i in np.argwhere(bad)[0])
            raise NumericsError(
                f"{type(record).__name__}.{name} holds {int(bad.sum())} values that are not finite "
                f"(the first at {where}): check the model's weights for NaN, or use float32 or bfloat16"
            )


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The sizes of a decoder that decide what can be pruned and what it costs.

    Weights are counted in the linear maps of the decoder layers only (METHOD: retention excludes
    embeddings, norms, biases and the LM head).
    """

    layers: int
    """number of decoder layers"""
    neurons: int
    """FFN width of each layer"""
    heads: int
    """query heads of each layer"""
    kv_heads: int
    """key/value groups of each layer; equal to `heads` without grouped-query attention"""
    head_width: int
    """channels of one head"""
    hidden: int
    """width of the residual stream"""

    @property
    def group_size(self) -> int:
        """Query heads that share one key/value head."""
        return self.heads // self.kv_heads

    @property
    def group_channels(self) -> int:
        """Channels of the o_proj input that belong to one key/value group."""
        return self.group_size * self.head_width

    @property
    def neuron_weights(self) -> int:
        """Linear weights that go with one FFN neuron: gate row, up row, down column."""
        return 3 * self.hidden

    @property
    def group_weights(self) -> int:
        """Linear weights that go with one key/value group: its q and o (group_size heads each), k and v."""
        return (2 * self.group_size + 2) * self.head_width * self.hidden

    @property
    def group_price(self) -> float:
        """Price of a key/value group in neurons, (2g + 2) * head_width / 3."""
        return self.group_weights / self.neuron_weights

    @property
    def decoder_weights(self) -> int:
        """Linear weights of all decoder layers."""
        return self.layers * (self.neurons * self.neuron_weights + self.kv_heads * self.group_weights)


@dataclass(frozen=True, slots=True)
class ModelSize:
    """What the parameter count of a pruned model follows from, beside its weights."""

    parameters: int
    """parameters of the whole dense model; tied tensors count once"""
    group_biases: int
    """bias parameters of q, k and v that leave with one key/value group"""
    neuron_biases: int
    """bias parameters of gate and up that leave with one neuron"""
    missing_biases: int
    """bias parameters that o_proj and down_proj lack in all layers, and that bias compensation adds"""


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """A calibration set: token-disjoint sequences of equal length (section 4, 2048 x 128 in the paper)."""

    text: str
    """what was asked for, as the person typed it"""
    fingerprint: str
    """SHA-256 of the exact tokens"""
    ids: Array
    """(samples, length) int32 token ids"""
    available: int
    """how many disjoint sequences the text would have given"""

    def __post_init__(self) -> None:
        """Freezes the arrays."""
        _freeze(self)


@dataclass(frozen=True, slots=True, eq=False)
class ActivationStatistics:
    """Moments of the inputs of down_proj and o_proj over one calibration set, per shard of disjoint samples.

    `*_mean` is the mean over tokens, `*_moment` the sum over tokens of the squared deviation from that
    mean (centred second moment), `*_energy` the sum over tokens of the square; all float64.
    """

    text: str
    """the text as the person typed it"""
    fingerprint: str
    """SHA-256 of the tokens seen"""
    shard_samples: Array
    """(shards,) int64 sequences in each shard"""
    shard_tokens: Array
    """(shards,) int64 tokens in each shard"""
    ffn_mean: Array
    """(shards, layers, neurons)"""
    ffn_moment: Array
    """(shards, layers, neurons)"""
    ffn_energy: Array
    """(shards, layers, neurons)"""
    attention_mean: Array
    """(shards, layers, heads * head_width)"""
    attention_moment: Array
    """(shards, layers, heads * head_width)"""
    attention_energy: Array
    """(shards, layers, heads * head_width)"""
    ffn_released_fluctuation: Array
    """(layers, neurons) fluctuation by FLAP's released recursion over all samples in order, batch 1"""
    attention_released_fluctuation: Array
    """(layers, heads * head_width) likewise"""

    def __post_init__(self) -> None:
        """Checks shapes against each other, finiteness, and freezes the arrays."""
        shards = len(self.shard_tokens)
        _, layers, neurons = np.shape(self.ffn_mean)
        channels = np.shape(self.attention_mean)[-1]
        ffn, attention = (shards, layers, neurons), (shards, layers, channels)
        shapes: dict[str, tuple[int, ...]] = {"shard_samples": (shards,), "shard_tokens": (shards,)}
        shapes |= dict.fromkeys(("ffn_mean", "ffn_moment", "ffn_energy"), ffn)
        shapes |= dict.fromkeys(("attention_mean", "attention_moment", "attention_energy"), attention)
        shapes["ffn_released_fluctuation"] = (layers, neurons)
        shapes["attention_released_fluctuation"] = (layers, channels)
        _require_shape(self, shapes)
        _require_finite(self, *(name for name in shapes if not name.startswith("shard")))
        _freeze(self)

    @property
    def shards(self) -> int:
        """Number of shards."""
        return len(self.shard_tokens)

    def merge(self, shards: Array | list[int] | None = None) -> ActivationStatistics:
        """Merges the chosen shards into one by Chan's rule; no forward pass is needed.

        Args:
            shards: indices of the shards to merge; all of them by default.

        Returns:
            Statistics with a single shard. The released fluctuation depends on the order of all samples
            and cannot be merged: it is carried over unchanged, and is exact only when all shards merge.
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


def merge_moments(counts: Array, means: Array, moments: Array) -> tuple[Array, Array]:
    """Merges means and centred second moments of disjoint groups (Chan, Golub and LeVeque 1983).

    Args:
        counts: (groups,) tokens in each group, float64.
        means: (groups, ...) mean of each group.
        moments: (groups, ...) sum of squared deviations from the group's own mean.

    Returns:
        Mean and centred second moment of the union, each of shape (...).
    """
    weight = (counts / counts.sum()).reshape((-1,) + (1,) * (means.ndim - 1))
    mean = (weight * means).sum(axis=0)
    between = (counts.reshape(weight.shape) * (means - mean) ** 2).sum(axis=0)
    return mean, moments.sum(axis=0) + between


@dataclass(frozen=True, slots=True, eq=False)
class WeightNorms:
    """What the importance scores need to know of the weights, so that scoring needs no model."""

    down_column_square: Array
    """(layers, neurons) squared Euclidean norm of each column of down_proj"""
    down_column_absolute: Array
    """(layers, neurons) mean over output rows of |w| in each column of down_proj"""
    out_column_square: Array
    """(layers, heads * head_width) squared norm of each column of o_proj"""
    out_column_absolute: Array
    """(layers, heads * head_width) mean of |w| in each column of o_proj"""

    def __post_init__(self) -> None:
        """Checks finiteness and freezes the arrays."""
        _require_finite(self, *(field.name for field in fields(self)))
        _freeze(self)


@dataclass(frozen=True, slots=True, eq=False)
class UnitScores:
    """Importance scores of one text under one metric; a higher score is more important."""

    metric: str
    """name in gprune.scoring.METRICS"""
    text: str
    """the calibration text, as typed"""
    ffn: Array
    """(layers, neurons) float64, >= 0"""
    heads: Array
    """(layers, key/value groups) float64, >= 0"""
    channels: Array
    """(layers, heads * head_width) float64: the channel scores that `heads` sums up"""

    def __post_init__(self) -> None:
        """Checks finiteness and freezes the arrays."""
        _require_finite(self, "ffn", "heads", "channels")
        _freeze(self)


@dataclass(frozen=True, slots=True, eq=False)
class RankDrift:
    """Rank drift between two score sets (Eq. 1) with its re-sampling control."""

    magnitude: Array
    """(layers, neurons) in [0, 1]: |rank on A - rank on B| / (N - 1)"""
    signed: Array
    """(layers, neurons) in [-1, 1]: (rank on A - rank on B) / (N - 1)"""
    scaled: Array
    """(layers, neurons) signed drift scaled to the spread of the magnitude, d± of the appendix"""
    resample_primary: Array
    """(layers, neurons) drift between two token-disjoint halves (even and odd shards) of A"""
    resample_auxiliary: Array
    """(layers, neurons) the same for B"""
    half: Array
    """(layers, neurons) drift between a half of A and a half of B: equal in sample size to the control"""
    correlation: Array
    """(layers,) Spearman correlation of the ranks on A and B"""
    correlation_half: Array
    """(layers,) the same between a half of A and a half of B"""
    correlation_primary: Array
    """(layers,) Spearman correlation between the halves of A"""
    correlation_auxiliary: Array
    """(layers,) between the halves of B"""

    def __post_init__(self) -> None:
        """Checks shapes and freezes the arrays."""
        shape = np.shape(self.magnitude)
        names = ("signed", "scaled", "resample_primary", "resample_auxiliary", "half")
        _require_shape(self, dict.fromkeys(names, shape))
        _freeze(self)


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """Modules: a partition of each layer's neurons (section 3.1, BCM)."""

    kind: str
    """refined, initialization or random"""
    profile: str
    """drift profile used by the refinement: magnitude or direction"""
    labels: Array
    """(layers, neurons) int32, 0 ... counts[layer] - 1 without gaps"""
    counts: Array
    """(layers,) int32 modules of each layer"""
    initial_counts: Array
    """(layers,) int32 module count chosen by the silhouette before the split"""
    silhouette: Array
    """(layers, candidates) cosine silhouette of the best seed for each candidate count; NaN where skipped"""
    mixing: Array
    """(2,) boundary mixing I of the magnitude-only and the direction-aware partition; NaN if not compared"""
    variation: Array
    """(2,) within-module drift variation S of the two; NaN if not compared"""
    history: Array
    """(layers, steps, 5) inner, pair, repulsion, consistency and total loss during refinement"""

    def __post_init__(self) -> None:
        """Checks that every label is in range and every module has a neuron, and freezes the arrays."""
        _freeze(self)
        for layer, (labels, count) in enumerate(zip(self.labels, self.counts, strict=True)):
            present = np.unique(labels)
            if len(present) != count or present[0] != 0 or present[-1] != count - 1:
                raise ValueError(
                    f"layer {layer}: labels {present} do not number {count} modules without gaps"
                )

    @property
    def offsets(self) -> Array:
        """(layers,) index of each layer's first module in the order of layer and label."""
        starts: Array = np.concatenate([[0], np.cumsum(self.counts)[:-1]]).astype(np.int64)
        return starts

    @property
    def modules(self) -> int:
        """Number of modules over all layers."""
        return int(self.counts.sum())

    @property
    def global_labels(self) -> Array:
        """(layers, neurons) int64 module of each neuron, numbered over all layers by layer and label."""
        numbered: Array = self.labels.astype(np.int64) + self.offsets[:, None]
        return numbered

    @property
    def module_layer(self) -> Array:
        """(modules,) layer of each module."""
        layers: Array = np.repeat(np.arange(len(self.counts)), self.counts)
        return layers


@dataclass(frozen=True, slots=True, eq=False)
class ModuleStatistics:
    """What RASA decides on, for every module of every layer (section 3.2); thresholds not yet applied."""

    drift: Array
    """(modules,) mean within-module rank drift, in [0, 1]"""
    score: Array
    """(modules,) mean primary score, raw or standardised within the layer"""
    size: Array
    """(modules,) int64 neurons in the module"""
    layer: Array
    """(modules,) int64 layer of the module"""
    u_primary: Array
    """(modules,) expected local-rank discrepancy between disjoint halves of A; smaller is more repeatable"""
    u_auxiliary: Array
    """(modules,) the same for B"""

    def __post_init__(self) -> None:
        """Checks shapes and finiteness, and freezes the arrays."""
        names = ("drift", "score", "size", "layer", "u_primary", "u_auxiliary")
        _require_shape(self, dict.fromkeys(names, np.shape(self.drift)))
        _require_finite(self, "drift", "score", "u_primary", "u_auxiliary")
        _freeze(self)


@dataclass(frozen=True, slots=True, eq=False)
class AdaptedScores:
    """The result of RASA: importance scores with unreliable modules re-scored."""

    scores: Array
    """(layers, neurons) float64"""
    adapted: Array
    """(modules,) bool: both conditions hold, the module is in K_adapt"""
    source: Array
    """(modules,) int8: 0 scored from the primary text, 1 from the auxiliary"""
    drift_threshold: float
    """quantile of the modules' drift; a module at or above it is distribution-sensitive"""
    score_threshold: float
    """quantile of the modules' mean score; a module at or below it is weakly supported"""

    def __post_init__(self) -> None:
        """Checks finiteness and freezes the arrays."""
        _require_finite(self, "scores")
        _freeze(self)


@dataclass(frozen=True, slots=True, eq=False)
class PruningMasks:
    """Which units a method keeps."""

    method: str
    """gprune, flap, wanda_sp, ..."""
    ffn: Array
    """(layers, neurons) bool, True = kept"""
    heads: Array
    """(layers, key/value groups) bool, True = kept"""
    retention: float
    """retained fraction of the decoder's linear weights"""
    target: float
    """the retention that was asked for"""

    def __post_init__(self) -> None:
        """Freezes the arrays."""
        _freeze(self)


@dataclass(frozen=True, slots=True, eq=False)
class LearningHistory:
    """How modular sparsity learning went: one row per step."""

    steps: Array
    """(steps, columns) float64, columns named in `columns`"""
    columns: tuple[str, ...]
    """names of the columns of `steps`"""
    thresholds: Array
    """(modules,) final FFN thresholds in rank-quantile space, after the exact-budget shift"""
    head_thresholds: Array
    """(layers,) final attention thresholds in rank-quantile space"""

    def __post_init__(self) -> None:
        """Freezes the arrays."""
        _freeze(self)


@dataclass(frozen=True, slots=True, eq=False)
class Agreement:
    """Per-layer agreement of partitions (Fig. 1b): one row per comparison."""

    comparisons: tuple[str, ...]
    """what is compared with what"""
    ari: Array
    """(comparisons, layers) adjusted Rand index in [-1, 1]; 0 = chance, 1 = identical"""
    overlap: Array
    """(comparisons, layers) matched overlap in [0, 1]"""

    def __post_init__(self) -> None:
        """Checks shapes and freezes the arrays."""
        shape = (len(self.comparisons), np.shape(self.ari)[1])
        _require_shape(self, {"ari": shape, "overlap": shape})
        _freeze(self)


@dataclass(frozen=True, slots=True, eq=False)
class Perplexity:
    """Perplexity of one model on one text under a named preset; lower is better."""

    text: str
    """the evaluation text, as typed"""
    preset: str
    """name of the window preset: 128, 2048 or custom"""
    length: int
    """tokens per window"""
    windows: int
    """windows measured"""
    perplexity: float
    """exp of the mean negative log-likelihood over length - 1 predictions a window"""
    standard_error: float
    """standard error of the mean over windows, carried to perplexity (delta method)"""
    losses: Array
    """(windows,) mean negative log-likelihood of each window, nats per token"""

    def __post_init__(self) -> None:
        """Freezes the arrays."""
        _freeze(self)
