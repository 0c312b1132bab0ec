"""Strongest positions that two ways of computing have found, compared by the activations that they name.

Two activations that are equal but for the last bit are ordered by the processor's instructions, the number of
threads and the cut of batches; which of them stands first is no property of either way.
"""

import numpy as np
import torch

from gprune.models.decoder import Decoder
from gprune.pruning.calibration.collection import observe_inputs
from gprune.records import StrongestPositions


@torch.no_grad()
def recorded(decoder: Decoder, ids: np.ndarray, batch: int) -> np.ndarray:
    """(layers, samples, length, neurons) float32 inputs of down_proj."""
    layers = range(decoder.shape.layers)
    inputs: dict[int, list[torch.Tensor]] = {layer: [] for layer in layers}
    with observe_inputs(decoder, layers, lambda layer, x: inputs[layer].append(x.float().clone()), lambda *_: None):
        for start in range(0, len(ids), batch):
            decoder.hidden_states(torch.tensor(ids[start : start + batch].astype(np.int64)))
    return np.stack([torch.cat(rows).numpy() for rows in inputs.values()])


def by_hand(activations: np.ndarray, count: int) -> tuple[np.ndarray, ...]:
    """(layers, neurons, count) sequences, positions and values of (layers, samples, length, neurons)."""
    places = np.abs(activations).argmax(axis=2)
    peaks = np.take_along_axis(activations, places[:, :, None], axis=2)[:, :, 0]
    order = np.argsort(-np.abs(peaks), axis=1, kind="stable")[:, :count]
    result = (order, np.take_along_axis(places, order, 1), np.take_along_axis(peaks, order, 1))
    return tuple(part.transpose(0, 2, 1) for part in result)


def faults(positions: StrongestPositions, activations: np.ndarray, tolerance: float) -> list[str]:
    """What is wrong with positions, as sentences; nothing where they name the strongest within a tolerance.

    Args:
        found: the positions.
        activations: (layers, samples, length, neurons) what the model answers on their text.
        tolerance: of the largest activation.
    """
    layer, neuron = np.ogrid[: len(activations), : activations.shape[3]]
    actual = activations[layer[..., None], positions.sequences, positions.positions, neuron[..., None]]
    strongest = np.abs(by_hand(activations, positions.kept)[2])
    near = tolerance * np.abs(activations).max()
    checks = {
        "a value is not the activation that it names": np.abs(actual - positions.values) <= near,
        "what is named is not the strongest": np.abs(np.abs(actual) - strongest) <= near,
        "a sequence stands twice": np.diff(np.sort(positions.sequences, axis=2), axis=2) > 0,
    }
    return [f"{words}: {(~good).mean():.2%}" for words, good in checks.items() if not good.all()]
