"""Build the model without the units that masks remove.

Structured pruning as in section 3: ``cut`` builds a smaller model whose output equals that of the dense model with
the removed units set to zero. A key/value group is removed with all its query heads, so that grouped-query attention
keeps its group size in every layer. ``Silenced`` is the dense model with removed units set to zero; it needs no copy.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from gprune.models import devices, low_rank, parts
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
    """Return the smaller model with the repairs and the recovery of the model's record.

    The low-rank weights of a recovery are merged; `finish` may change weights and biases of the result. Only the
    kept rows and columns are copied; embeddings, norms and LM head are shared with the dense model, which is not
    changed. The result has the same device and dtype, is in evaluation mode, and has the class with which
    ``save_pretrained`` writes a loadable folder: the standard transformers class if all layers have the same width,
    else a class whose configuration has the widths of each layer. Models with custom code keep their class.

    Raises:
        ModelError: the masks or the inputs of a repair belong to another model, or a layer would lose all its neurons
            or all its key/value groups.
    """
    model = PrunedModel.of(model)
    maps = _repair_maps(decoder, model, None, on_progress)
    # the copy shares all weights, until they are narrowed, and accelerate's hooks for offloaded weights
    hooks = [part._hf_hook for part in decoder.model.modules() if hasattr(part, "_hf_hook")]
    model_copy = copy.deepcopy(decoder.model, {id(part): part for part in (*decoder.model.parameters(), *hooks)})
    # axis 0: rows that belong to removed units; the columns of output maps are handled by `_repair_maps`
    slices = [[path, axis, units] for path, axis, units in decoder.layout.unit_slices() if axis == 0]
    with torch.no_grad():
        layers = list(model_copy.get_submodule(decoder.layout.layers).children())
        for index, layer in enumerate(layers):
            devices.load_offloaded(layer)
            narrow(layer, slices, decoder.layout.unit_counts(), _kept_units(decoder.shape, model.masks, index))
        for output in maps:
            path = decoder.layout.slice_of(output.name).path
            _set_weights(parts.linear(layers[output.layer], path, output.layer), *output.pruned_parameters())
    devices.release_hooks(model_copy)
    if model.recovered is not None:
        low_rank.merge(model_copy, decoder.layout, model.recovered)
    if finish is not None:
        finish(model_copy)
    return checkpoint.as_loaded(model_copy.eval(), decoder.layout)


class Silenced:
    """The dense model with removed units set to zero: the same output as ``cut``, without a copy.

    Inside the context ``applied``, hooks zero the inputs of down_proj and o_proj of removed units, and repaired
    weights replace the dense ones.
    """

    def __init__(
        self,
        decoder: Decoder,
        model: PruningMasks | PrunedModel,
        repair_inputs: Mapping[str, Any] | None = None,
    ) -> None:
        """Prepare masks and repairs; raises the errors of ``cut``. The decoder is not changed.

        `repair_inputs` is the result of ``gprune.pruning.repair.prepare_repairs``; by default it is computed here.
        """
        model = PrunedModel.of(model)
        if model.recovered is not None:
            raise ModelError("a recovered model has other weights than the dense model: cut it instead")
        self._maps = _repair_maps(decoder, model, repair_inputs)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Set the removed units to zero while the context is open; restore the decoder afterwards."""
        with ExitStack() as stack:
            for output in self._maps:
                stack.enter_context(output.applied())
            yield


def _repair_maps(
    decoder: Decoder, model: PrunedModel, repair_inputs: Mapping[str, Any] | None, on_progress: Progress = silent
) -> list[repair.OutputMap]:
    """Return the repaired output maps. Raises ModelError if the masks do not fit the model or empty a layer.

    `repair_inputs` is the result of `repair.prepare_repairs`; if None, it is computed here.
    """
    _require_shapes(decoder.shape, model.masks)
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
    """Return the indices of the kept units of a layer, and the dense sizes."""
    neurons, groups = (torch.as_tensor(np.flatnonzero(part[layer])) for part in (masks.ffn, masks.heads))
    return KeptUnits(neurons, groups, (shape.neurons, shape.kv_heads, shape.group_size, shape.head_width))


def _set_weights(linear: nn.Linear, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
    """Replace weight, bias and input size of a linear map."""
    linear.weight, linear.in_features = nn.Parameter(weight, requires_grad=False), weight.shape[1]
    linear.register_parameter("bias", None if bias is None else nn.Parameter(bias, requires_grad=False))


def _require_shapes(shape: ModelShape, masks: PruningMasks) -> None:
    actual = masks.ffn.shape, masks.heads.shape
    expected = (shape.layers, shape.neurons), (shape.layers, shape.kv_heads)
    if actual != expected:
        raise ModelError(
            f"the {masks.method} masks have the shapes {actual[0]} for neurons and {actual[1]} for groups, "
            f"the model has {expected[0]} and {expected[1]}: choose the model for which the masks were made"
        )
