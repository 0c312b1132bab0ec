"""Build the model without the units that masks remove.

Structured pruning as in section 3: ``cut`` makes a physically smaller model, which says what the dense one
says while the removed units are silent. A key/value group leaves whole, with all its query heads, so that
grouped-query attention keeps its group size in every layer. ``Silenced`` is that dense model with silent
units: it says what the cut one says, and needs no copy.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from gprune.models import low_rank, offloading, parts
from gprune.models.decoder import Decoder
from gprune.models.export import checkpoint
from gprune.models.export.modeling_gprune import KeptUnits, narrow
from gprune.pruning import repair
from gprune.records import ModelShape, PrunedModel, PruningMasks
from gprune.system.errors import ModelError
from gprune.system.progress import Progress, silent


def cut(
    decoder: Decoder,
    model: PruningMasks | PrunedModel,
    on_progress: Progress = silent,
    finish: Callable[[Any], None] | None = None,
) -> nn.Module:
    """Make a smaller model, without the units that the masks remove, repaired as the model's record says.

    What recovery has added is merged into the weights; `finish` may give output maps other weights and biases.

    Only the kept rows and columns are copied. Embeddings, norms and LM head are the dense model's own, as are
    device and number type; the dense model stays as it is. The model is in evaluation mode and of the class
    that its saved folder gives: ``save_pretrained`` writes one that loads anywhere. Where all layers have the
    same width, that is an ordinary class of transformers, and the configuration tells that width; else the
    configuration tells the dense widths beside those of each layer. A model that runs code of its own stays
    of its class.

    Raises:
        ModelError: the masks, or what a repair needs, are of another model, or a layer would lose all its
            neurons or all its key/value groups.
    """
    model = PrunedModel.of(model)
    maps = _repaired(decoder, model, None, on_progress)
    # the copy shares all weights except the narrowed ones, and the hooks of offloaded weights
    hooks = [part._hf_hook for part in decoder.model.modules() if hasattr(part, "_hf_hook")]
    model_copy = copy.deepcopy(decoder.model, {id(part): part for part in (*decoder.model.parameters(), *hooks)})
    slices = [entry for entry in decoder.layout.table() if entry[1] == 0]
    with torch.no_grad():
        layers = list(model_copy.get_submodule(decoder.layout.layers).children())
        for index, layer in enumerate(layers):
            offloading.load_offloaded(layer)
            narrow(layer, slices, decoder.layout.numbers(), _kept_units(decoder.shape, model.masks, index))
        for output in maps:
            path = decoder.layout.slice_of(output.name).path
            _put(parts.linear(layers[output.layer], path, output.layer), *output.narrowed())
    offloading.release_hooks(model_copy)
    if model.recovered is not None:
        low_rank.merge(model_copy, decoder.layout, model.recovered)
    if finish is not None:
        finish(model_copy)
    return checkpoint.as_loaded(model_copy.eval(), decoder.layout)


class Silenced:
    """The dense model with removed units silenced: computes what ``cut`` would, without a copy.

    While ``applied``, hooks zero the inputs of down_proj and o_proj that belong to removed units, and what is
    repaired replaces the dense weights.
    """

    def __init__(
        self,
        decoder: Decoder,
        model: PruningMasks | PrunedModel,
        repair_inputs: Mapping[str, Any] | None = None,
    ) -> None:
        """Prepare masks and repairs, with errors as of ``cut``; the decoder is not changed.

        `repair_inputs` is what ``gprune.pruning.repair.prepare_repairs`` has found for the repairs; None looks for it.
        """
        model = PrunedModel.of(model)
        if model.recovered is not None:
            raise ModelError("a recovered model is not the dense one with silent units: cut it instead")
        self._maps = _repaired(decoder, model, repair_inputs)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Silence the removed units while the context is open; restore the decoder afterwards."""
        with ExitStack() as undone:
            for output in self._maps:
                undone.enter_context(output.applied())
            yield


def _repaired(
    decoder: Decoder, model: PrunedModel, repair_inputs: Mapping[str, Any] | None, on_progress: Progress = silent
) -> list[repair.OutputMap]:
    """Return the repaired output maps of a model. Raise ModelError if the masks do not fit."""
    _require_fit(decoder.shape, model.masks)
    for units, mask in (("neurons", model.masks.ffn), ("key/value groups", model.masks.heads)):
        empty = np.flatnonzero(~mask.any(axis=1))
        if empty.size:
            raise ModelError(
                f"layer {int(empty[0])} would lose all {mask.shape[1]} {units}: keep at least one in every "
                "layer, for example by a higher retention"
            )
    repair_inputs = repair.prepare_repairs(decoder, model) if repair_inputs is None else repair_inputs
    return repair.repaired_maps(decoder, model, repair_inputs, on_progress)


def _kept_units(shape: ModelShape, masks: PruningMasks, layer: int) -> KeptUnits:
    neurons, groups = (torch.as_tensor(np.flatnonzero(part[layer])) for part in (masks.ffn, masks.heads))
    return KeptUnits(neurons, groups, (shape.neurons, shape.kv_heads, shape.group_size, shape.head_width))


def _put(linear: nn.Linear, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
    """Give a map other weights and other inputs."""
    linear.weight, linear.in_features = nn.Parameter(weight, requires_grad=False), weight.shape[1]
    linear.register_parameter("bias", None if bias is None else nn.Parameter(bias, requires_grad=False))


def _require_fit(shape: ModelShape, masks: PruningMasks) -> None:
    actual = masks.ffn.shape, masks.heads.shape
    expected = (shape.layers, shape.neurons), (shape.layers, shape.kv_heads)
    if actual != expected:
        raise ModelError(
            f"the {masks.method} masks have the shapes {actual[0]} for neurons and {actual[1]} for groups, "
            f"the model has {expected[0]} and {expected[1]}: choose the model they were made for"
        )
