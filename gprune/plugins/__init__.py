"""The declarations of a plug-in and their inputs: an importance metric, or a pruning method (docs/plugins.md).

    from gprune.plugins import Facts, Kept, LayerWeights, Measured, Method, Metric, Problem

Everything here is plain data and numpy. A metric scores the channels of one projection of one layer from
their moments over a text and from facts of the weights; a method decides which units stay, from scores or
from the model itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    # only for annotations, so that listing plug-ins does not import numpy
    from gprune.records import Array, ModelShape, UnitScores


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """The inputs of one projection of one layer over a text: of down_proj (neurons) or o_proj (channels).

    All arrays are float64 and have the same length: the FFN width for neurons, heads * head_width for o_proj. The split
    of the text into batches and shards changes them by rounding only.
    """

    shape: ModelShape
    """sizes of the dense model; `shape.group_channels` channels of o_proj make a key/value group"""
    layer: int
    """index of the layer"""
    samples: int
    """number of sequences of the text"""
    tokens: int
    """number of tokens of the text, at least 1"""
    mean: Array
    """(channels,) mean over tokens"""
    variance: Array
    """(channels,) population variance over tokens"""
    energy: Array
    """(channels,) sum over tokens of the square"""
    column_square: Array
    """(channels,) squared Euclidean norm of the channel's column of weights"""
    column_absolute: Array
    """(channels,) mean of |w| over the channel's column of weights"""
    facts: Mapping[str, Array] = field(default_factory=dict)
    """arrays of the metric's `Facts` for this projection by name, (channels,) each"""

    def grouped(self, channels: Array) -> Array:
        """Return values of o_proj's channels as (key/value groups, channels of a group)."""
        return channels.reshape(self.shape.kv_heads, self.shape.group_channels)


def _matrix_property(name: str) -> Any:
    """Return a property that reads one matrix of `LayerWeights` at every access."""
    return property(lambda weights: weights.read(name))


@dataclass(frozen=True, slots=True, eq=False)
class LayerWeights:
    """The weights of one layer: float32 (out, in) matrices, each read when it is accessed."""

    shape: ModelShape
    layer: int
    """index of the layer"""
    read: Callable[[str], Array]
    """returns a matrix by name"""

    gate = _matrix_property("gate")
    """(neurons, hidden)"""
    up = _matrix_property("up")
    """(neurons, hidden)"""
    down = _matrix_property("down")
    """(hidden, neurons)"""
    query = _matrix_property("query")
    """(heads * head_width, hidden)"""
    key = _matrix_property("key")
    """(key/value groups * head_width, hidden)"""
    value = _matrix_property("value")
    """(key/value groups * head_width, hidden)"""
    out = _matrix_property("out")
    """(hidden, heads * head_width)"""


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """Numbers that a metric computes from one layer's weights, so that scoring needs no model."""

    neurons: Mapping[str, Array] = field(default_factory=dict)
    """arrays by name with one number per neuron: (neurons,)"""
    channels: Mapping[str, Array] = field(default_factory=dict)
    """arrays by name with one number per input channel of o_proj: (heads * head_width,)"""


@dataclass(frozen=True, slots=True)
class Metric:
    """An importance metric; its name in studies is that of its entry point.

    The metric also provides a method of the same name, which keeps the units with the highest scores on the primary
    text. A metric scores a text once, and parts of it hundreds of times (for the resampling control of rank drift, and
    for RASA). It gets no gradients: a score that needs them is a `Method` with the model.
    """

    label: str
    """label on pages and in tables"""
    neurons: Callable[[Measured], Array]
    """(neurons,) finite scores, 0 or more; higher is more important"""
    groups: Callable[[Measured], Array]
    """(key/value groups,) finite scores, 0 or more, from the inputs of o_proj"""
    weigh: Callable[[LayerWeights], Facts] | None = None
    """computes facts of a layer's weights once per model, if the norms of `Measured` are not enough"""
    allocation: Literal["flap", "uniform"] = "flap"
    """decision of the method of the same name: one ranking of the model as in FLAP, or one ratio in every layer as in
    Wanda-sp
    """


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """The units that a method keeps."""

    neurons: Array
    """(layers, neurons) bool, True = kept; at least one in every layer"""
    groups: Array
    """(layers, key/value groups) bool, True = kept; at least one in every layer"""


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """The input of a method."""

    shape: ModelShape
    """sizes of the dense model, with the weights of its units as counted by `gprune.records.budget`"""
    retention: float
    """fraction of the decoder's linear weights to keep, in (0, 1)"""
    seed: int
    """seed of every random choice"""
    scores: tuple[UnitScores, ...] = ()
    """scores of the primary text, or of both texts; empty if `needs` is the model alone"""
    model: Any = None
    """the dense transformers model, in evaluation mode and frozen; it must be left unchanged. None if `needs` is
    the scores alone"""
    tokens: tuple[Array, ...] = ()
    """(samples, length) token ids of the primary text, or of both texts; empty without the model"""
    progress: Callable[[int, int, str], None] = lambda done, total, message: None
    """reports progress: (done, total, message)"""


@dataclass(frozen=True, slots=True)
class Method:
    """A pruning method: its decision at a retention. Its name in studies is that of its entry point."""

    label: str
    """label on pages and in tables"""
    decide: Callable[[Problem], Kept]
    """returns the kept units, whose weights must meet the retention within one key/value group"""
    needs: Literal["scores", "model", "both"] = "scores"
    """inputs of its decision"""
    metric: str = ""
    """name of the metric of its scores; empty for the study's metric"""
    texts: Literal["primary", "both"] = "primary"
    """calibration texts that the method gets"""
    compensated: bool = False
    """True to add the mean contribution of removed units to the biases, as in FLAP"""
