"""SlimLLM: score neurons by the principal directions of the layer's output and heads by output correlation.

The rule follows the released code with its errors corrected (docs/method.md). Layers that change their input less
are pruned more. The neurons with the highest scores are kept, and the set of heads whose output correlates most with
the full attention output. All statistics are measured on the output of the pruned layers below.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from gprune.models.decoder import Decoder
from gprune.models.devices import keep_present
from gprune.models.parts import module_of
from gprune.pruning.allocation import fang
from gprune.pruning.calibration.collection import batch_runner
from gprune.pruning.calibration.sequential import embed_sequences
from gprune.pruning.removal.walk import Decide, MapInputs
from gprune.pruning.repair import OutputMap
from gprune.records import Array, ModelShape, Tokens, budget
from gprune.system.errors import MethodError
from gprune.system.progress import Progress, silent

PUBLISHED_LAYERS, PRUNED = 32, 30
"""number of layers of the model that SlimLLM was published for, and the number of pruned layers among them"""
SHARPNESS = 10
"""inverse temperature of the softmax over the layers' cosine similarities (SlimLLM: 10)"""
_LEAST_VARIANCE = 1e-12
"""channels whose output variance is below this fraction of the variance of the full output count as constant"""


@torch.no_grad()
def layer_cosines(decoder: Decoder, tokens: Tokens, batch: int, on_progress: Progress = silent) -> Array:
    """Return the (layers,) float64 mean over tokens of the cosine similarity of each dense layer's input and output.

    Counts as one forward pass. Raises SettingsError if not even one sequence fits in memory.
    """
    samples, length = tokens.ids.shape

    def run(size: int) -> Array:
        layer_means = []
        blocks = embed_sequences(decoder, tokens, size)
        for layer in range(decoder.shape.layers):
            cosine_sum = 0.0
            for block in blocks:
                output = block.run(decoder, layer)
                layer_input = block.states.to(output.device).float()
                cosine = torch.cosine_similarity(output.float(), layer_input, dim=-1)
                cosine_sum += float(block.counted_tokens(cosine).double().sum())
                block.states = output.to(block.states.device)
            layer_means.append(cosine_sum / tokens.counted_positions)
        return np.array(layer_means)

    cosines = batch_runner(batch, length, decoder, on_progress).attempt(run, samples)
    decoder.count_forward(tokens.ids.size)
    return cosines


def layer_unit_counts(cosines: Array, shape: ModelShape, target: float) -> tuple[Array, Array]:
    """Return (layers,) key/value groups and (layers,) neurons that each layer keeps.

    `cosines` (layers,) is the cosine similarity of each layer's input and output. The layers with the highest cosine
    are pruned: 30 of 32, scaled to the depth, and at least one layer stays dense if there are three or more. The
    pruned share of a layer is proportional to softmax(10 cosine), up to all but one neuron and one group. The number
    of key/value groups is rounded; neurons make up the difference, so that the budget is met to within one neuron.
    Raises MethodError if the target cannot be reached with these layers.
    """
    pruned = _pruned_layers(cosines)
    # the pruned layers lose everything that the decoder must lose
    block_shape = replace(shape, layers=len(pruned))
    block_target = 1 - (1 - target) * shape.layers / len(pruned)
    # retention with one group and one neuron in every pruned layer
    smallest = (shape.group_weights + shape.neuron_weights) * len(pruned) / block_shape.decoder_weights
    if block_target < smallest:
        lowest = 1 - (1 - smallest) * len(pruned) / shape.layers
        raise MethodError(
            f"SlimLLM prunes {len(pruned)} of {shape.layers} layers and cannot reach a retention of "
            f"{target}: ask for {math.ceil(lowest * 1000) / 1000} or more, or leave the method out"
        )
    weights = np.exp(SHARPNESS * (cosines[pruned] - cosines[pruned].max()))
    ratios = _proportional(weights, 1 - smallest, (1 - block_target) * len(pruned))
    groups = np.full(shape.layers, shape.kv_heads)
    neurons = np.full(shape.layers, shape.neurons)
    groups[pruned], neurons[pruned] = fang.unit_counts(ratios, block_shape, block_target, 1)
    return groups, neurons


def _pruned_layers(cosines: Array) -> Array:
    """Return the ascending indices of the layers with the highest cosine similarity, which are pruned."""
    layers = len(cosines)
    limit = layers - 1 if layers > 2 else layers
    count = max(min(budget.nearest_whole(PRUNED * layers / PUBLISHED_LAYERS), limit), 1)
    return np.sort(np.argsort(-cosines, kind="stable")[:count])


def _proportional(weights: Array, limit: float, total: float) -> Array:
    """Return (parts,) shares that sum to `total`, proportional to `weights` but at most `limit` each."""
    factors = np.concatenate([[0.0], np.sort(limit / weights)])
    # the sum is piecewise linear in the factor, with a kink where a share reaches the limit
    sums = np.minimum(weights * factors[:, None], limit).sum(axis=1)
    return np.minimum(weights * np.interp(total, sums, factors), limit)


def slimllm_decision(decoder: Decoder, target: float, cosines: Array) -> Decide:
    """Return a function that selects the kept units of a map; `cosines` is the result of `layer_cosines`.

    Raises the errors of `layer_unit_counts`.
    """
    shape = decoder.shape
    groups, neurons = layer_unit_counts(cosines, shape, target)

    def decide(output: OutputMap, inputs: MapInputs) -> tuple[Array, Array]:
        covariance, weight = inputs.moments.about_means().square, output.dense.weight
        if output.name == "o_proj":
            group_moments = output_covariances(weight, covariance, shape.kv_heads)
            return keep_groups(group_moments, int(groups[output.layer])).cpu().numpy(), np.zeros(shape.kv_heads)
        gate, up = decoder.gate_proj(output.layer), decoder.up_proj(output.layer)
        with keep_present(module_of(gate)), keep_present(module_of(up)):
            rows, energy = (gate.weight, up.weight), inputs.moments.square.diagonal()
            scores = neuron_scores(rows, weight, inputs.entering, energy, covariance).cpu().numpy()
        return budget.highest(scores, int(neurons[output.layer])), scores

    return decide


def neuron_scores(
    rows: Sequence[torch.Tensor],
    down: torch.Tensor,
    entering: torch.Tensor,
    energy: torch.Tensor,
    covariance: torch.Tensor,
) -> torch.Tensor:
    """Return (neurons,) float64 scores from the input rows and the output column of each neuron.

    A score is the norm of the gate and up rows weighted by the inputs, plus the norm of the down column weighted by
    the principal directions of the output, each with sigmoid(variance / mean variance).

    Args:
        rows: weights of gate_proj and up_proj, (neurons, hidden) each.
        down: (hidden, neurons) weights of down_proj.
        entering: (hidden,) sum of squares of the inputs of gate_proj and up_proj.
        energy: (neurons,) sum of squares of the inputs of down_proj.
        covariance: (neurons, neurons) second moments of the inputs of down_proj about their mean.
    """
    input_scores = torch.stack([(row.double().square() @ entering).sqrt() for row in rows]).sum(dim=0)
    wide = down.double()
    variance, directions = torch.linalg.eigh(wide @ covariance @ wide.T)
    # eigenvalues near 0 may be negative by rounding
    variance = variance.abs()
    weighted = directions.T @ wide * torch.sigmoid(variance / variance.mean().clamp(min=1e-300))[:, None]
    return input_scores + weighted.norm(dim=0) * energy.sqrt()


def output_covariances(weight: torch.Tensor, covariance: torch.Tensor, groups: int) -> torch.Tensor:
    """Return (groups, groups, outputs) float64 covariances of the groups' outputs, by output channel.

    `weight` (outputs, inputs) is that of o_proj, `covariance` (inputs, inputs) the second moments of its inputs
    about their mean.
    """
    wide, width = weight.double(), len(covariance) // groups
    moments = [
        (part @ rows * wide).view(len(wide), groups, width).sum(dim=2).T
        for part, rows in zip(wide.split(width, dim=1), covariance.split(width), strict=True)
    ]
    return torch.stack(moments)


def keep_groups(moments: torch.Tensor, keep: int) -> torch.Tensor:
    """Return (groups,) bool, True for the groups whose output correlates most with the full output.

    `moments` is the result of `output_covariances`. First the groups are removed whose removal alone leaves the highest
    correlation. Then each removed group is swapped with a kept group if that raises the correlation; the swap that
    raises it most is made. The correlation is summed in magnitude over output channels; a constant channel counts as 0.
    """
    count, group_sums = len(moments), moments.sum(dim=1)
    total = group_sums.sum(dim=0)
    alone = moments.diagonal().T
    # correlation of the full output with the output without each single group
    without = _correlation(total - group_sums, total - 2 * group_sums + alone, total)
    order = without.argsort(descending=True, stable=True).tolist()
    removed, kept_groups = order[: count - keep], order[count - keep :]
    best = float(_correlation(group_sums[kept_groups].sum(0), moments[kept_groups][:, kept_groups].sum((0, 1)), total))
    for candidate in removed if keep else ():
        inner = moments[:, kept_groups].sum(dim=1)
        # covariance with the full output, and variance, after each kept group is replaced by the candidate
        covariance = group_sums[kept_groups].sum(dim=0) - group_sums[kept_groups] + group_sums[candidate]
        variance = inner[kept_groups].sum(dim=0) - 2 * inner[kept_groups] + alone[kept_groups] + alone[candidate]
        variance = variance + 2 * (inner[candidate] - moments[candidate, kept_groups])
        correlations = _correlation(covariance, variance, total)
        position = int(correlations.argmax())
        if float(correlations[position]) > best:
            best, kept_groups[position] = float(correlations[position]), candidate
    mask = torch.zeros(count, dtype=torch.bool, device=moments.device)
    mask[kept_groups] = True
    return mask


def _correlation(covariance: torch.Tensor, variance: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    """Return the correlation with the full output, in magnitude and summed over the (..., outputs) channels.

    `total` is the variance of the full output. Constant channels count as 0.
    """
    varies = (variance > _LEAST_VARIANCE * total) & (total > 0)
    scale = (variance * total).clamp(min=1e-300).sqrt()
    return torch.where(varies, covariance.abs() / scale, 0).sum(dim=-1)
