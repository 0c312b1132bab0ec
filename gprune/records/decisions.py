"""Which units are kept, and how that was learned (section 3.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from gprune.records.base import Array, Record, integers, real, truth


@dataclass(frozen=True, slots=True, eq=False)
class PruningMasks(Record):
    """Units that a method keeps."""

    method: str
    """gprune, flap, wanda_sp, ..."""
    ffn: Annotated[Array, truth("layers", "neurons")]
    """(layers, neurons) bool, True = kept"""
    heads: Annotated[Array, truth("layers", "groups")]
    """(layers, key/value groups) bool, True = kept"""
    retention: float
    """kept fraction of the decoder's linear weights"""
    target: float
    """the retention that was asked for"""


@dataclass(frozen=True, slots=True, eq=False)
class _Learned(Record):
    """Result of learning: masks, and one row of figures per step."""

    ffn: Annotated[Array, truth("layers", "neurons")]
    """(layers, neurons) bool, True = kept"""
    heads: Annotated[Array, truth("layers", "groups")]
    """(layers, key/value groups) bool, True = kept"""
    retention: float
    """kept fraction of the decoder's linear weights"""
    target: float
    """the retention that was asked for"""
    steps: Annotated[Array, real("steps", "columns")]
    """(steps, columns) float64, columns named in `columns`"""
    columns: tuple[str, ...]
    """names of the columns of `steps`"""

    METHOD: ClassVar[str]
    """what its masks are called"""

    @property
    def masks(self) -> PruningMasks:
        """The units that are kept."""
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
    """Result of learning gates: the masks, and the gates that they follow from."""

    METHOD: ClassVar[str] = "gates"
    gates: Annotated[Array, real("layers", "neurons")]
    """(layers, neurons) float32 final gates: the highest are kept"""
    head_gates: Annotated[Array, real("layers", "groups")]
    """(layers, key/value groups) float32 final gates"""


@dataclass(frozen=True, slots=True, eq=False)
class RepairedWeights(Record):
    """Weights of o_proj and down_proj, layer by layer, as a repair has fitted them to some masks."""

    method: str
    """whose masks they were fitted to"""
    kind: str
    """how they were fitted: a name of `gprune.records.repairs.REPAIRS`"""
    dtype: str
    """number type of the weights: float32, float16, or bfloat16, whose bits `numbers` has as whole numbers"""
    columns: Annotated[Array, integers("maps")]
    """(2 * layers,) columns of each map that are kept"""
    ends: Annotated[Array, integers("maps")]
    """(2 * layers,) where each map ends in `numbers`"""
    numbers: Annotated[Array, real("numbers")]
    """the (hidden, columns) weights of all maps, row by row, one map after the other"""
    biases: Annotated[Array, real("biases", "hidden")]
    """(2 * layers, hidden) float32; no row where the repair leaves biases alone"""
    errors: Annotated[Array, real("maps", 2)]
    """(2 * layers, 2) mean over the tokens of the squared residual of each map, before and after"""


@dataclass(frozen=True, slots=True, eq=False)
class LearnedScales(Record):
    """Factors of the kept units and biases of the output channels, as they were learned for some masks."""

    method: str
    """method whose model they were learned for"""
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
        """Count of the numbers learned: factors of kept units, and biases."""
        return int((self.ffn != 0).sum() + (self.heads != 0).sum()) + self.biases.size


@dataclass(frozen=True, slots=True, eq=False)
class RecoveredWeights(Record):
    """Low-rank update by recovery of the linear maps of a pruned model: a product of two narrow matrices each."""

    method: str
    """whose model was trained"""
    kind: str
    """how it was trained: lora"""
    scale: float
    """alpha / rank, by which the products are multiplied"""
    rank: int
    """columns of the left matrix, and rows of the right one"""
    maps: tuple[str, ...]
    """the linear maps, as 3.o_proj"""
    sizes: Annotated[Array, integers("maps", 2)]
    """(maps, 2) outputs and inputs of each"""
    numbers: Annotated[Array, real("numbers")]
    """float32: of each map A, (rank, inputs), and then B, (outputs, rank), row by row"""
    steps: Annotated[Array, real("steps", "columns")]
    """(steps, columns) float64, how the training went, columns named in `columns`"""
    columns: tuple[str, ...]
    """names of the columns of `steps`"""
