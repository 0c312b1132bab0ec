"""Decides layer after layer what leaves, each map on what the pruned and repaired model below hands up.

In a layer o_proj is decided on first and repaired, and down_proj on what then reaches it. What a decision
sees are the second moments of a map's inputs, made for one map at a time and let go of after it: at the 7B
shape those of down_proj take 0.9 GiB. The repair is the one that the method is published with, by the same
solution as `gprune.pruning.repair.fitting`, which makes the same weights of the finished masks.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import numpy as np
import torch

from gprune.models.decoder import Decoder
from gprune.pruning.calibration.collection import in_batches
from gprune.pruning.calibration.sequential import Block, enter
from gprune.pruning.repair import OutputMap
from gprune.pruning.repair.fitting import Reached, heard, in_type, require_finite
from gprune.pruning.repair.least_squares import Moments, solve
from gprune.records import Array, Tokens
from gprune.study.settings import OwnRepair
from gprune.system.progress import Progress, silent

PASSES = 3
"""forward passes that a walk counts as: up to o_proj, up to down_proj, and the whole pruned layer"""
_DOING = "pruning layer after layer"


@dataclass(slots=True, eq=False)
class Seen:
    """What a decision on an output map knows of its inputs."""

    moments: Moments
    """of all its inputs"""
    entering: torch.Tensor
    """(hidden,) float64 sum of squares of what enters gate and up; zeros at o_proj"""


Decide = Callable[[OutputMap, Seen], tuple[Array, Array]]
"""Of a dense map and its inputs the (units,) bool, True = kept, and (units,) their order, the last to go
highest; units are neurons at down_proj and key/value groups at o_proj."""


@dataclass(frozen=True, slots=True, eq=False)
class Walked:
    """What a walk ends with."""

    ffn: Array
    """(layers, neurons) bool, True = kept"""
    heads: Array
    """(layers, key/value groups) bool, True = kept"""
    order: Array
    """(layers, neurons) float64, the higher the later a neuron would go"""


@torch.no_grad()
def walk(
    decoder: Decoder,
    tokens: Tokens,
    batch: int,
    decide: Decide,
    own: OwnRepair,
    on_progress: Progress = silent,
) -> Walked:
    """Prunes and repairs layer by layer; the model is left as it was.

    `decide` is asked again where memory runs out and the walk begins anew with half the batch. Counts as
    three forward passes over the calibration set.

    Raises SettingsError where not even one sequence fits in memory, NumericsError where an activation is not
    finite.
    """
    decoder.require_whole(_DOING)
    samples, length = tokens.ids.shape
    found = in_batches(batch, length, decoder, on_progress).fitting(
        lambda size: _walked(decoder, tokens, size, decide, own, on_progress), samples
    )
    decoder.count_forward(PASSES * tokens.ids.size)
    on_progress(decoder.shape.layers, decoder.shape.layers, _DOING)
    return found


def _walked(
    decoder: Decoder, tokens: Tokens, batch: int, decide: Decide, own: OwnRepair, on_progress: Progress
) -> Walked:
    blocks, layers = enter(decoder, tokens, batch), decoder.shape.layers
    decided: dict[str, list[tuple[Array, Array]]] = {"o_proj": [], "down_proj": []}
    for layer in range(layers):
        on_progress(layer, layers, _DOING)
        with ExitStack() as pruned:
            for name, dense in (("o_proj", decoder.o_proj(layer)), ("down_proj", decoder.down_proj(layer))):
                one = OutputMap(name, layer, dense, np.ones(dense.in_features, dtype=bool))
                decided[name].append(_prune(one, _seen(decoder, one, blocks), decide, own))
                pruned.enter_context(one.applied())
            for block in blocks:
                block.states = block.run(decoder, layer).to(block.states.device)
    (heads, _), (ffn, order) = (map(np.stack, zip(*part, strict=True)) for part in decided.values())
    return Walked(ffn, heads, order)


def _seen(decoder: Decoder, one: OutputMap, blocks: Sequence[Block]) -> Seen:
    """Runs a layer as far as a map, whose maps below are pruned and repaired."""
    device, hidden = one.dense.weight.device, decoder.shape.hidden
    moments = Moments(one.dense.in_features, 0, device)
    entering = torch.zeros(hidden, dtype=torch.float64, device=device)
    gate = decoder.entrance(one.layer)
    for block in blocks:
        with heard(gate) as below, heard(one.dense, stop=True) as here, suppress(Reached):
            block.run(decoder, one.layer)
        x = here.x.flatten(0, -2)
        moments.add(x, x[:, :0])
        if one.name == "down_proj":
            entering += below.x.flatten(0, -2).float().square().sum(dim=0, dtype=torch.float64)
    require_finite(moments, one, "the layers are pruned")
    return Seen(moments, entering)


def _prune(one: OutputMap, seen: Seen, decide: Decide, own: OwnRepair) -> tuple[Array, Array]:
    """Decides on a map and repairs what stays of it; gives the kept units and their order."""
    units, order = decide(one, seen)
    one.kept = np.repeat(units, len(one.kept) // len(units))
    if not units.all():
        weight = one.dense.weight
        stays = torch.as_tensor(one.kept, device=weight.device)
        missing = seen.moments.own_inputs(stays, weight, own.whole)
        found, bias, _ = solve(one.columns(), one.dense.bias, missing, own.kind, own.damping)
        one.weight = in_type(found, weight.dtype, one)
        if bias is not None and own.kind != "least_squares":
            one.bias = bias.to(weight.dtype)
    return units, order
