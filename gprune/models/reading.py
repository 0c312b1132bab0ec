"""Answers: what are the weights of a layer, as numpy has them?"""

from __future__ import annotations

from collections.abc import Callable

from gprune.models.decoder import Decoder
from gprune.models.offloading import present
from gprune.records import Array

_PROJECTIONS = {
    "gate": "gate_proj",
    "up": "up_proj",
    "down": "down_proj",
    "query": "q_proj",
    "key": "k_proj",
    "value": "v_proj",
    "out": "o_proj",
}


def layer_weights(decoder: Decoder, layer: int) -> Callable[[str], Array]:
    """Reads the matrices of a layer, each when it is asked for.

    Args:
        decoder: the dense model.
        layer: index of the layer.

    Returns:
        What gives a matrix by its name (gate, up, down, query, key, value, out): float32 (out, in), a
        read-only copy on the CPU.
    """

    def read(name: str) -> Array:
        linear = getattr(decoder, _PROJECTIONS[name])(layer)
        with present(linear):
            found: Array = linear.weight.detach().float().cpu().numpy().copy()
        found.flags.writeable = False
        return found

    return read
