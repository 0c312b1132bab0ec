"""Masks, and the results of learning masks, repairs, scales and recovery (section 3.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from gprune.records.base import Array, Record, booleans, integers, real


@dataclass(frozen=True, slots=True, eq=False)
class PruningMasks(Record):
    """Units that a method keeps."""

    method: str
    """gprune, flap, wanda_sp, ..."""
    ffn: Annotated[Array, booleans("layers", "neurons")]
    """(layers, neurons) bool, True = kept"""
    heads: Annotated[Array, booleans("layers", "groups")]
    """(layers, key/value groups) bool, True = kept"""
    retention: float
    """kept fraction of the decoder's linear weights"""
    target: float
    """requested retention"""


@dataclass(frozen=True, slots=True, eq=False)
class _Learned(Record):
    """Result of learning: masks, and one row of the history per step."""

    ffn: Annotated[Array, booleans("layers", "neurons")]
    """(layers, neurons) bool, True = kept"""
    heads: Annotated[Array, booleans("layers", "groups")]
    """(layers, key/value groups) bool, True = kept"""
    retention: float
    """kept fraction of the decoder's linear weights"""
    target: float
    """requested retention"""
    steps: Annotated[Array, real("steps", "columns")]
    """(steps, columns) float64, columns named in `columns`"""
    columns: tuple[str, ...]
    """names of the columns of `steps`"""

    METHOD: ClassVar[str]
    """name of its masks"""

    @property
    def masks(self) -> PruningMasks:
        """Return the masks."""
        return PruningMasks(self.METHOD, self.ffn, self.heads, self.retention, self.target)


@dataclass(frozen=True, slots=True, eq=False)
class Learning(_Learned):
    """Result of modular sparsity learning: the masks of GPrune and their thresholds."""

    METHOD: ClassVar[str] = "gprune"
    thresholds: Annotated[Array, real("modules")]
    """(modules,) final FFN thresholds in rank-quantile space, after the exact-budget shift"""
    head_thresholds: Annotated[Array, real("layers")]
    """(layers,) final attention thresholds in rank-quantile space"""


@dataclass(frozen=True, slots=True, eq=False)
class GateLearning(_Learned):
    """Result of learning gates: the masks and the gates."""

    METHOD: ClassVar[str] = "gates"
    gates: Annotated[Array, real("layers", "neurons")]
    """(layers, neurons) float32 final gates: the highest are kept"""
    head_gates: Annotated[Array, real("layers", "groups")]
    """(layers, key/value groups) float32 final gates"""


@dataclass(frozen=True, slots=True, eq=False)
class RepairedWeights(Record):
    """Weights of o_proj and down_proj of all layers that a repair has fitted to masks."""

    method: str
    """name of the method of the masks"""
    kind: str
    """name of the repair in `gprune.records.repairs.REPAIRS`"""
    dtype: str
    """float32, float16 or bfloat16; bfloat16 is stored as its bits in int16"""
    columns: Annotated[Array, integers("maps")]
    """(2 * layers,) number of kept columns of each map"""
    ends: Annotated[Array, integers("maps")]
    """(2 * layers,) end offset of each map in `numbers`"""
    numbers: Annotated[Array, real("numbers")]
    """flat (hidden, columns) weights of all maps, in row-major order"""
    biases: Annotated[Array, real("biases", "hidden")]
    """(2 * layers, hidden) float32; empty if the repair does not change biases"""
    errors: Annotated[Array, real("maps", 2)]
    """(2 * layers, 2) mean over tokens of the squared residual of each map, before and after the repair"""


@dataclass(frozen=True, slots=True, eq=False)
class LearnedScales(Record):
    """Learned factors of the kept units and biases of the output channels."""

    method: str
    """name of the method of the masks"""
    ffn: Annotated[Array, real("layers", "neurons", finite=True)]
    """(layers, neurons) float32 factor of each column of down_proj; 0 for a removed neuron"""
    heads: Annotated[Array, real("layers", "groups", finite=True)]
    """(layers, key/value groups) float32 factor of each group's columns of o_proj; 0 for a removed group"""
    biases: Annotated[Array, real("layers", 2, "hidden", finite=True)]
    """(layers, 2, hidden) float32 added to the output of o_proj, then of down_proj"""
    steps: Annotated[Array, real("steps", "columns")]
    """(steps, columns) float64, one row for each step, columns named in `columns`"""
    columns: tuple[str, ...]
    """names of the columns of `steps`"""

    @property
    def size(self) -> int:
        """Return the number of learned values: factors of kept units and biases."""
        return int((self.ffn != 0).sum() + (self.heads != 0).sum()) + self.biases.size


@dataclass(frozen=True, slots=True, eq=False)
class RecoveredWeights(Record):
    """Low-rank updates scale * B A of the linear maps of a pruned model, trained by recovery."""

    method: str
    """name of the method of the model"""
    kind: str
    """kind of training: lora"""
    scale: float
    """alpha / rank"""
    rank: int
    """columns of B and rows of A"""
    maps: tuple[str, ...]
    """names of the linear maps, such as 3.o_proj"""
    sizes: Annotated[Array, integers("maps", 2)]
    """(maps, 2) outputs and inputs of each map"""
    numbers: Annotated[Array, real("numbers")]
    """flat float32: for each map A, (rank, inputs), then B, (outputs, rank), in row-major order"""
    steps: Annotated[Array, real("steps", "columns")]
    """(steps, columns) float64, one row per step, columns named in `columns`"""
    columns: tuple[str, ...]
    """names of the columns of `steps`"""
