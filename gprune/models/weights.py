"""Read the weights of a layer as numpy arrays."""

from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from gprune.models import shapes, weight_headers
from gprune.models.decoder import Decoder, directions
from gprune.models.families import layout_of
from gprune.models.identity import configuration, locate, weight_files
from gprune.models.loading import DTYPES
from gprune.models.offloading import present
from gprune.models.parts import module_of
from gprune.models.weight_headers import Tensor
from gprune.records import Array
from gprune.system.errors import ModelError

_INITIALS = {"query": "q", "key": "k", "value": "v", "out": "o"}


def layer_weights(decoder: Decoder, layer: int) -> Callable[[str], Array]:
    """Return a function that reads a matrix of a layer by its name: gate, up, down, query, key, value, out.

    Each is a read-only float32 copy (out, in) on the CPU.
    """

    def read(name: str) -> Array:
        part = getattr(decoder, f"{_INITIALS.get(name, name)}_proj")(layer)
        with present(module_of(part)):
            matrix: Array = part.weight.detach().float().cpu().numpy().copy()
        matrix.flags.writeable = False
        return matrix

    return read


def neuron_parameters(name: str, layer: int, precision: str, decoder: Callable[[], Decoder]) -> Array:
    """Return `Decoder.neuron_parameters` of a layer, (neurons, 3 * hidden) float32, read from the model's files.

    `precision` is the number type of the run; `decoder` returns the loaded model and is called only where the weights
    are random and in no files. Raises ModelError if the model is gone, or its files do not hold the layer.
    """
    folder = locate(name)
    if shapes.holds(folder):
        return decoder().neuron_parameters(layer).cpu().numpy()
    layout = layout_of(configuration(folder).get("model_type"), f"the model {str(folder)!r}")
    paths = [layout.locate(part)[0] for part in ("gate_proj", "up_proj", "down_proj")]
    tensors = weight_headers.tensors(weight_files(folder))
    kind = DTYPES.get(precision, torch.float32)
    gate, up, down = (
        _read_tensor(tensors, [f"{layers}.{layer}.{path}.weight" for layers in layout.stored], folder).to(kind).float()
        for path in paths
    )
    if paths[0] == paths[1]:
        gate, up = gate.chunk(2)
    return directions(gate, up, down).numpy()


def _read_tensor(tensors: dict[str, Tensor], names: list[str], folder: Path) -> torch.Tensor:
    """Return a tensor by the first of its names that is stored; ModelError without a finite one."""
    name = next((name for name in names if name in tensors), None)
    if name is None:
        raise ModelError(f"the weights in {str(folder)!r} hold no {names[0]}: copy the model again")
    try:
        with safe_open(str(tensors[name].file), framework="pt") as opened:
            tensor: torch.Tensor = opened.get_tensor(name)
    except (SafetensorError, OSError) as error:
        raise ModelError(f"the weights in {str(folder)!r} cannot be read ({error}): copy them again") from error
    if not bool(torch.isfinite(tensor).all()):
        raise ModelError(f"{name} in {str(folder)!r} holds NaN or infinity: copy the model again")
    return tensor
