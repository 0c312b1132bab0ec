"""What a plug-in declares, and what it is given: one form for an importance metric, one for a method.

Everything here is plain data and numpy. A metric scores the channels of one linear map of one layer from
their moments over a text and from facts of the weights; a method decides which units stay, from scores or
from the model itself.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gprune.records import Array, ModelShape, UnitScores


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """The inputs of one linear map of one layer over a text: of down_proj (neurons) or o_proj (channels).

    All arrays are float64, read-only, and of one length: the FFN width for neurons, heads * head_width for
    o_proj. They say the same however the text was split into batches and shards, up to rounding.
    """

    shape: ModelShape
    """sizes of the dense model; `shape.group_channels` channels of o_proj make a key/value group"""
    layer: int
    """index of the layer"""
    samples: int
    """sequences seen"""
    tokens: int
    """tokens seen, at least 1"""
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
    """what the metric's own `weigh` has found of the weights, by name, (channels,) each"""

    def grouped(self, channels: Array) -> Array:
        """(key/value groups, channels of a group) of some values of o_proj's channels."""
        return channels.reshape(self.shape.kv_heads, self.shape.group_channels)


@dataclass(frozen=True, slots=True, eq=False)
class LayerWeights:
    """The weights of one layer as numpy has them: float32 (out, in), read-only, each read when asked for."""

    shape: ModelShape
    layer: int
    """index of the layer"""
    read: Callable[[str], Array]
    """gives a matrix by its name"""

    @property
    def gate(self) -> Array:
        """(neurons, hidden)."""
        return self.read("gate")

    @property
    def up(self) -> Array:
        """(neurons, hidden)."""
        return self.read("up")

    @property
    def down(self) -> Array:
        """(hidden, neurons)."""
        return self.read("down")

    @property
    def query(self) -> Array:
        """(heads * head_width, hidden)."""
        return self.read("query")

    @property
    def key(self) -> Array:
        """(key/value groups * head_width, hidden)."""
        return self.read("key")

    @property
    def value(self) -> Array:
        """(key/value groups * head_width, hidden)."""
        return self.read("value")

    @property
    def out(self) -> Array:
        """(hidden, heads * head_width)."""
        return self.read("out")


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """What a metric needs to know of one layer's weights, so that scoring needs no model."""

    neurons: Mapping[str, Array] = field(default_factory=dict)
    """by name, one number a neuron: (neurons,)"""
    channels: Mapping[str, Array] = field(default_factory=dict)
    """by name, one number an input channel of o_proj: (heads * head_width,)"""


@dataclass(frozen=True, slots=True)
class Metric:
    """An importance metric; the name under which studies know it is that of its entry point.

    It brings a method of its own name as well: the units with the highest scores on the primary text stay.
    It is asked for the scores of a text, and hundreds of times for those of parts of it (the re-sampling
    control of rank drift, and RASA). It gets no gradients: what needs them is a `Method` with the model.
    """

    label: str
    """what pages and tables call it"""
    neurons: Callable[[Measured], Array]
    """(neurons,) finite scores, 0 or more; higher is more important"""
    groups: Callable[[Measured], Array]
    """(key/value groups,) finite scores, 0 or more, from the inputs of o_proj"""
    weigh: Callable[[LayerWeights], Facts] | None = None
    """looks at the weights of a layer once for each model, where the norms of `Measured` do not do"""
    allocation: Literal["flap", "uniform"] = "flap"
    """how the method of its name decides: one ranking of the whole model as FLAP does, or one ratio in every
    layer as Wanda-sp does"""


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """What a method keeps."""

    neurons: Array
    """(layers, neurons) bool, True = kept; at least one in every layer"""
    groups: Array
    """(layers, key/value groups) bool, likewise"""


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """What a method is asked."""

    shape: ModelShape
    """sizes of the dense model, and what its units weigh: `gprune.records.budget` counts with them"""
    retention: float
    """fraction of the decoder's linear weights to keep, in (0, 1)"""
    seed: int
    """seed of every random choice"""
    scores: tuple[UnitScores, ...] = ()
    """scores of the primary text, or of both; none where `needs` is the model alone"""
    model: Any = None
    """the dense model as transformers has it, in evaluation mode and frozen; it must be left as it was. None
    where `needs` is the scores alone"""
    tokens: tuple[Array, ...] = ()
    """(samples, length) token ids of the primary text, or of both; none without the model"""
    progress: Callable[[int, int, str], None] = lambda done, total, words: None
    """tells how far the method is"""


@dataclass(frozen=True, slots=True)
class Method:
    """A pruning method: its decision at a retention. Its entry point's name is the method's name."""

    label: str
    """what pages and tables call it"""
    decide: Callable[[Problem], Kept]
    """which units stay; what they weigh must meet the retention within one key/value group"""
    needs: Literal["scores", "model", "both"] = "scores"
    """what its decision is made from"""
    metric: str = ""
    """whose scores, by name; those of the study's own metric where empty"""
    texts: Literal["primary", "both"] = "primary"
    """which calibration texts it is given"""
    compensated: bool = False
    """whether the mean contribution of what is removed moves into the biases, as FLAP does"""
