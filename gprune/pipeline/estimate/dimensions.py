"""The sizes of a model, read from its configuration, and the bytes that follow from them in a study."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gprune.models import identity, weight_headers
from gprune.models.families import FAMILIES, language_values, shape_of
from gprune.records import ModelShape
from gprune.study import Study
from gprune.study.methods import METHODS, repairs_of
from gprune.system.errors import ModelError

WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2}
"""bytes of a number, by number type"""


@dataclass(frozen=True, slots=True)
class Dimensions:
    """A model's shape, and what lies beside its decoder layers."""

    shape: ModelShape
    """sizes of the decoder layers"""
    vocabulary: int
    """rows of the embeddings and of the LM head"""
    tied: bool
    """whether these two are one matrix"""
    positions: int
    """tokens of a sequence that it can read"""
    beside: int = 0
    """weights of parts beside the language model, as those for images"""
    note: str = ""
    """what a person has to know of its family before a run; empty where there is nothing"""
    wrapped: bool = False
    """whether other parts stand beside the language model"""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Dimensions:
        """From the values of a configuration; ModelError where a size is missing or is no size."""
        try:
            values, layout = language_values(values), FAMILIES.get(str(values.get("model_type")))
            return cls(
                shape=shape_of(values),
                vocabulary=int(values["vocab_size"]),
                tied=bool(values.get("tie_word_embeddings", False)),
                positions=int(values.get("max_position_embeddings") or 2**20),
                note=layout.note if layout is not None else "",
                wrapped=layout is not None and bool(layout.text),
            )
        except (KeyError, TypeError, ValueError, ArithmeticError) as error:
            raise ModelError(
                f"the model's configuration does not say its sizes ({type(error).__name__}: {error}): "
                "copy the model again"
            ) from error

    @property
    def channels(self) -> int:
        """Inputs of o_proj in a layer."""
        return self.shape.heads * self.shape.head_width

    @property
    def keys(self) -> int:
        """Outputs of k_proj in a layer, and of v_proj."""
        return self.shape.kv_heads * self.shape.head_width

    @property
    def units(self) -> int:
        """Neurons and o_proj channels of all layers."""
        return self.shape.layers * (self.shape.neurons + self.channels)

    @property
    def parameters(self) -> int:
        """Weights of the whole model; biases, which are a ten-thousandth, are left out."""
        tables = (1 if self.tied else 2) * self.vocabulary * self.shape.hidden
        norms = (2 * self.shape.layers + 1) * self.shape.hidden
        return self.shape.decoder_weights + tables + norms + self.beside


def of_model(name: str) -> Dimensions:
    """The sizes of a model that is on this machine, or of a published one with random weights.

    Raises ModelError where it is not here, or its configuration does not say its sizes.
    """
    folder = identity.locate(name)
    found = Dimensions.of(identity.configuration(folder))
    if not found.wrapped:
        return found
    counted = weight_headers.counted(weight_headers.tensors(identity.weight_files(folder)), found.tied)
    return replace(found, beside=max(sum(one.numbers for one in counted) - found.parameters, 0))


@dataclass(frozen=True, slots=True)
class Need:
    """The peak of a stage, in bytes."""

    weights: float = 0.0
    """models on the device; known exactly"""
    fixed: float = 0.0
    """on the device besides, whatever the batch"""
    each: float = 0.0
    """on the device for each sequence at a time"""
    apart: float = 0.0
    """on the device after the batches, when what these took is free again"""
    host: float = 0.0
    """in the machine's own memory, besides what the device holds"""
    asked: int = 1
    """sequences at a time that are asked for"""
    setting: str = ""
    """the setting that asks for them; empty where the stage takes no batches"""
    churn: float = 0.0
    """share of what is allocated that malloc keeps besides, on a CPU, as measured: blocks of many sizes that
    come and go"""

    def device(self, sequences: int) -> float:
        """Bytes on the device with so many sequences at a time."""
        return self.weights + self.fixed + max(sequences * self.each, self.apart)


@dataclass(frozen=True, slots=True)
class Case:
    """What a stage's memory depends on."""

    model: Dimensions
    study: Study
    width: int
    """bytes of a number of the model"""
    gpu: bool
    gpus: int = 1
    """over which the layers lie"""
    together: int = 1
    """results that the stage makes in one pass"""

    @property
    def weights(self) -> float:
        """Bytes of the dense model on each GPU; where its layers stay in their files, of what lies beside them."""
        if not self.study.offload:
            return float(self.model.parameters * self.width) / self.gpus
        shape = self.model.shape
        tables = self.model.parameters - shape.decoder_weights
        # a module's weights are read and widened while the last one's are still there
        return float((tables + 2 * shape.neurons * shape.hidden) * self.width)

    def cut(self, method: str) -> float:
        """Bytes of a method's model beside the dense one, of which embeddings and norms are shared."""
        if METHODS[method].decision == "none":
            return 0.0
        size = self.study.retention * self.model.shape.decoder_weights * self.width
        return size / self.gpus

    def repaired(self, method: str) -> float:
        """Bytes of the most that a repair of a method's weights takes while the model is cut."""
        repairs = repairs_of(METHODS[method], self.study)
        shape, retention = self.model.shape, self.study.retention
        return max((repair.bytes(shape, retention) for repair in repairs), default=0.0)

    @property
    def inputs(self) -> dict[str, tuple[float, float]]:
        """Inputs and outputs of each linear map of a layer of a pruned model."""
        hidden, kept = self.model.shape.hidden, self.study.retention
        queries, keys = kept * self.model.channels, kept * self.model.keys
        neurons = kept * self.model.shape.neurons
        return {
            "q_proj": (hidden, queries),
            "k_proj": (hidden, keys),
            "v_proj": (hidden, keys),
            "o_proj": (queries, hidden),
            "gate_proj": (hidden, neurons),
            "up_proj": (hidden, neurons),
            "down_proj": (neurons, hidden),
        }

    @property
    def factors(self) -> float:
        """Numbers that recovery trains."""
        recovery = self.study.recovery
        sizes = (sum(self.inputs[name]) for name in recovery.targets)
        return self.model.shape.layers * recovery.rank * sum(sizes)

    def forward(self, length: int) -> float:
        """Bytes of a sequence on its way through one layer, of which none is kept for the way back."""
        shape, width = self.model.shape, self.width
        ffn = width * (2 * shape.hidden + 3 * shape.neurons)
        norm = shape.hidden * (2 * width + 3 * 4)
        attention = width * (2 * shape.hidden + 3 * self.model.channels + 3 * self.model.keys)
        return float(length * max(ffn, norm, attention))

    def kept(self, length: int, recomputed: bool = False) -> float:
        """Bytes of a sequence that all layers keep for the way back through frozen weights.

        In each layer the wide inputs of two norms; queries, keys, values, output and input of o_proj, with
        the softmax's sums; gate, its activation, the up projection and their product. Learning computes the
        wide inputs, the activation and the product again.
        """
        model, width = self.model, self.width
        norms = 2 * (width if recomputed else 4) * model.shape.hidden
        attention = width * (3 * model.channels + 2 * model.keys) + 4 * model.shape.heads
        ffn = (2 if recomputed else 4) * width * model.shape.neurons
        return float(length * model.shape.layers * (norms + attention + ffn)) / self.gpus

    def backward(self, length: int) -> float:
        """Bytes of a sequence on its way back through one layer, beside what was kept."""
        return float(length * self.model.shape.neurons * (3 * self.width + 4))

    def logits(self, count: int, copies: int) -> float:
        """Bytes of some logits in the model's number type, and of copies of them in float32."""
        return float(count * (self.width + 4 * copies))
