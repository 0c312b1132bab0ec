"""Prune layer by layer, with statistics of each map that are measured on the pruned and repaired layers below.

In each layer o_proj is pruned and repaired first, then down_proj. A decision uses the second moments of a map's
inputs. They exist for one map at a time, because those of down_proj take 0.9 GiB at the 7B shape. The repair is the
one published with the method; `gprune.pruning.repair.fitting` computes the same weights from the final masks.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import numpy as np
import torch

from gprune.models.decoder import Decoder
from gprune.models.devices import keep_present
from gprune.pruning.calibration.collection import batch_runner
from gprune.pruning.calibration.sequential import Block, StopForward, embed_sequences
from gprune.pruning.repair import OutputMap
from gprune.pruning.repair.fitting import cast_weights, record_call, require_finite_moments
from gprune.pruning.repair.least_squares import FitMoments, solve
from gprune.records import Array, Tokens
from gprune.study.settings import OwnRepair
from gprune.system.progress import Progress, silent

PASSES = 3
"""number of forward passes that are counted: up to o_proj, up to down_proj, and the complete pruned layer"""
_PROGRESS_LABEL = "pruning layer after layer"


@dataclass(slots=True, eq=False)
class MapInputs:
    """Statistics of the inputs of an output map, on which a decision is based."""

    moments: FitMoments
    entering: torch.Tensor
    """(hidden,) float64 sum of squares of the inputs of gate_proj and up_proj; zeros at o_proj"""


Decide = Callable[[OutputMap, MapInputs], tuple[Array, Array]]
"""(dense map, statistics of its inputs) -> (units,) bool, True = kept, and (units,) order of removal, in which a higher
value is removed later; the units are neurons at down_proj and key/value groups at o_proj"""


@dataclass(frozen=True, slots=True, eq=False)
class RemovalDecisions:
    """Masks of all layers and the order of removal."""

    ffn: Array
    """(layers, neurons) bool, True = kept"""
    heads: Array
    """(layers, key/value groups) bool, True = kept"""
    order: Array
    """(layers, neurons) float64 order of removal; neurons with a higher value are removed later"""


@torch.no_grad()
def remove_layerwise(
    decoder: Decoder,
    tokens: Tokens,
    batch: int,
    decide: Decide,
    own_repair: OwnRepair,
    on_progress: Progress = silent,
) -> RemovalDecisions:
    """Prune and repair layer by layer; the model is not changed.

    If memory runs out, pruning restarts with half the batch and calls `decide` again. Counts as three forward passes
    over the calibration set.

    Raises SettingsError if not even one sequence fits in memory, NumericsError if an activation is not finite.
    """
    samples, length = tokens.ids.shape
    decisions = batch_runner(batch, length, decoder, on_progress).attempt(
        lambda size: _remove_layers(decoder, tokens, size, decide, own_repair, on_progress), samples
    )
    decoder.count_forward(PASSES * tokens.ids.size)
    on_progress(decoder.shape.layers, decoder.shape.layers, _PROGRESS_LABEL)
    return decisions


def _remove_layers(
    decoder: Decoder, tokens: Tokens, batch: int, decide: Decide, own_repair: OwnRepair, on_progress: Progress
) -> RemovalDecisions:
    blocks, layers = embed_sequences(decoder, tokens, batch), decoder.shape.layers
    decisions: dict[str, list[tuple[Array, Array]]] = {"o_proj": [], "down_proj": []}
    for layer in range(layers):
        on_progress(layer, layers, _PROGRESS_LABEL)
        with ExitStack() as pruned:
            for name, dense in (("o_proj", decoder.o_proj(layer)), ("down_proj", decoder.down_proj(layer))):
                output = OutputMap(name, layer, dense, np.ones(dense.in_features, dtype=bool))
                decisions[name].append(_prune_map(output, _measure_inputs(decoder, output, blocks), decide, own_repair))
                pruned.enter_context(output.applied())
            for block in blocks:
                block.states = block.run(decoder, layer).to(block.states.device)
    (heads, _), (ffn, order) = (map(np.stack, zip(*part, strict=True)) for part in decisions.values())
    return RemovalDecisions(ffn, heads, order)


def _measure_inputs(decoder: Decoder, output: OutputMap, blocks: Sequence[Block]) -> MapInputs:
    """Run a layer up to a map and return the statistics of the map's inputs."""
    device, hidden = output.device, decoder.shape.hidden
    moments = FitMoments(output.dense.in_features, 0, device)
    entering = torch.zeros(hidden, dtype=torch.float64, device=device)
    gate = decoder.entrance(output.layer)
    for block in blocks:
        with record_call(gate) as below, record_call(output.dense, stop=True) as call, suppress(StopForward):
            block.run(decoder, output.layer)
        x = block.counted_tokens(call.x)
        # no outputs: only the moments of the inputs are needed
        moments.add(x, x[:, :0])
        if output.name == "down_proj":
            entering += block.counted_tokens(below.x).float().square().sum(dim=0, dtype=torch.float64)
    require_finite_moments(moments, output, "the layers are pruned")
    return MapInputs(moments, entering)


def _prune_map(output: OutputMap, inputs: MapInputs, decide: Decide, own_repair: OwnRepair) -> tuple[Array, Array]:
    """Prune and repair a map by the decision. Return the (units,) mask and order of removal."""
    with keep_present(output.dense):
        units, order = decide(output, inputs)
    # a unit is one input of down_proj, or the channels of a group at o_proj
    output.mask = np.repeat(units, len(output.mask) // len(units))
    if not units.all():
        mask, dtype = torch.as_tensor(output.mask, device=output.device), output.dense.weight.dtype
        with keep_present(output.dense):
            moments = inputs.moments.own_inputs(mask, output.dense.weight, own_repair.whole)
        weights, bias, _ = solve(output.columns(), output.dense_bias(), moments, own_repair.kind, own_repair.damping)
        output.weight = cast_weights(weights, dtype, output)
        if bias is not None and own_repair.kind != "least_squares":
            output.bias = bias.to(dtype)
    return units, order
