"""Shape and size of a dense model, and the norms of its weights (section 3)."""

from dataclasses import dataclass, fields
from typing import Annotated

from gprune.records.base import MOST_UNITS, Array, Record, real, require_range


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a decoder, from which the number of weights of each unit follows.

    Weights are counted in the linear maps of the decoder layers only, without embeddings, norms, biases and the LM
    head.
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

    def __post_init__(self) -> None:
        """Check that every size is positive."""
        require_range(self, 1, MOST_UNITS, *(field.name for field in fields(self)))

    @property
    def group_size(self) -> int:
        """Return the number of query heads that share one key/value head."""
        return self.heads // self.kv_heads

    @property
    def group_channels(self) -> int:
        """Return the number of o_proj input channels of one key/value group."""
        return self.group_size * self.head_width

    @property
    def neuron_weights(self) -> int:
        """Return the number of linear weights of one FFN neuron: gate row, up row, down column."""
        return 3 * self.hidden

    @property
    def group_weights(self) -> int:
        """Return the number of linear weights of one key/value group: q and o of group_size heads each, k and v."""
        return (2 * self.group_size + 2) * self.head_width * self.hidden

    @property
    def decoder_weights(self) -> int:
        """Return the number of linear weights of all decoder layers."""
        return self.layers * (self.neurons * self.neuron_weights + self.kv_heads * self.group_weights)


@dataclass(frozen=True, slots=True)
class ModelSize:
    """Parameter counts besides the linear weights, for the parameter count of a pruned model."""

    parameters: int
    """parameters of the dense model; tied tensors count once"""
    group_biases: int
    """biases of q, k and v, and per-head norm weights, of one key/value group"""
    neuron_biases: int
    """biases of gate and up of one neuron"""
    missing_biases: int
    """biases that a repair can add to o_proj and down_proj of all layers"""


@dataclass(frozen=True, slots=True, eq=False)
class WeightNorms(Record):
    """Weight norms for importance scores, so that scoring does not need the model."""

    down_column_square: Annotated[Array, real("layers", "neurons", finite=True)]
    """(layers, neurons) squared Euclidean norm of each column of down_proj"""
    down_column_absolute: Annotated[Array, real("layers", "neurons", finite=True)]
    """(layers, neurons) mean over output rows of |w| in each column of down_proj"""
    out_column_square: Annotated[Array, real("layers", "channels", finite=True)]
    """(layers, heads * head_width) squared norm of each column of o_proj"""
    out_column_absolute: Annotated[Array, real("layers", "channels", finite=True)]
    """(layers, heads * head_width) mean of |w| in each column of o_proj"""


@dataclass(frozen=True, slots=True, eq=False)
class WeightFacts(Record):
    """Named values of the weights that a plug-in metric needs besides their norms."""

    metric: str
    """name of the metric"""
    neuron_names: tuple[str, ...]
    """names of the facts of neurons"""
    neurons: Annotated[Array, real("layers", "neuron_facts", "neurons", finite=True)]
    """(layers, facts, neurons) float64"""
    channel_names: tuple[str, ...]
    """names of the facts of o_proj's input channels"""
    channels: Annotated[Array, real("layers", "channel_facts", "channels", finite=True)]
    """(layers, facts, heads * head_width) float64"""

    def of_layer(self, part: str, layer: int) -> dict[str, Array]:
        """Return the facts of one layer by name; `part` is ffn or attention."""
        names, values = self.neuron_names, self.neurons
        if part != "ffn":
            names, values = self.channel_names, self.channels
        return {name: values[layer, index] for index, name in enumerate(names)}
