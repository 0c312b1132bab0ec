"""Record the positions with the strongest activations of each neuron, in the pass that measures moments.

The activation is the input of down_proj. Each sequence contributes its activation of largest magnitude, and the
tracker keeps the largest of these for each neuron. Ties keep the earlier sequence, so
the result does not depend on the batch size. The device is not synchronized while batches run.
"""

import numpy as np
import torch

from gprune.models.devices import Pending, commit
from gprune.records import Array, StrongestPositions, Tokens

# number of activations that are searched at a time on a CPU
_SEARCH_SIZE = 2**20
NO_SEQUENCE = -1
"""sequence index of an empty slot"""


class PeakTracker:
    """Track the positions of the inputs of down_proj with the largest magnitude, per layer and channel."""

    def __init__(self, count: int, samples: int, layers: int, channels: int, device: torch.device) -> None:
        """Start with empty slots for `layers` x `channels` inputs and `samples` sequences of a calibration set.

        Keeps `count` (at least 1) positions per channel, at most one per sequence.
        """
        self.count, self.samples, self.seen, self.length = min(count, samples), samples, 0, 0
        shape = layers, self.count, channels
        self.values = torch.zeros(shape, device=device)
        self.positions = torch.zeros(shape, dtype=torch.int32, device=device)
        self.sequences = torch.full(shape, NO_SEQUENCE, dtype=torch.int32, device=device)
        self.counted: Array | None = None
        """(sequences, length) bool, True for the positions of the current batch that count; None if all count"""
        # each sequence's strongest value and its position, for the current batch
        self.peaks = torch.empty(layers, 0, channels, device=device)
        self.peak_at = torch.empty(layers, 0, channels, dtype=torch.int32, device=device)

    def add(self, layer: int, inputs: torch.Tensor) -> None:
        """Find the peaks of a layer's (sequences, length, channels) inputs (any float type) of the current batch."""
        sequences, self.length, channels = inputs.shape
        if self.counted is not None:
            inputs = inputs * torch.tensor(self.counted).to(inputs.device).unsqueeze(-1)
        if self.peaks.shape[1] != sequences:
            self.peaks = self.peaks.new_empty(len(self.values), sequences, channels)
            self.peak_at = self.peak_at.new_empty(self.peaks.shape)
        if inputs.device.type == "cpu":
            self._add_on_cpu(layer, inputs)
        else:
            positions = inputs.abs().max(dim=1, keepdim=True).indices
            self.peaks[layer] = inputs.gather(1, positions)[:, 0]
            self.peak_at[layer] = positions[:, 0]

    def _add_on_cpu(self, layer: int, inputs: torch.Tensor) -> None:
        """Find the peaks on a CPU: search positions only where a peak exceeds the channel's lowest stored value."""
        high, low = inputs.amax(dim=1), inputs.amin(dim=1)
        strength = torch.maximum(high, -low)
        self.peaks[layer] = strength
        # NaN compares as not below any value, so it is included
        is_stronger = ~(strength <= self._strength(layer)[-1])
        step = max(_SEARCH_SIZE // self.length, 1)
        order = torch.arange(self.length, dtype=torch.int32)[:, None]
        for rows, channels in zip(*(part.split(step) for part in is_stronger.nonzero(as_tuple=True)), strict=True):
            # the layout is (length, candidates), so that the search runs along contiguous rows
            values = inputs[rows, :, channels].T
            position = torch.where(values.abs() == strength[rows, channels], order, self.length).amin(dim=0)
            # NaN equals no value, so it has no position; the record rejects NaN values
            position.clamp_(max=self.length - 1)
            self.peak_at[layer, rows, channels] = position
            self.peaks[layer, rows, channels] = inputs[rows, position.long(), channels].float()

    def _strength(self, layer: int) -> torch.Tensor:
        """Return (count, channels) stored magnitudes, descending; -1 in empty slots."""
        empty = self.sequences[layer] == NO_SEQUENCE
        return self.values[layer].abs().masked_fill_(empty, -1.0)

    def prepare(self) -> Pending:
        """Return the updates for the current batch after all layers were added; apply none."""
        current, pending = (self.values, self.positions, self.sequences), Pending()
        updated = [torch.empty_like(part) for part in current]
        indices = torch.arange(self.seen, self.seen + self.peaks.shape[1], dtype=torch.int32, device=self.peaks.device)
        for layer in range(len(self.values)):
            strength = torch.cat([self._strength(layer), self.peaks[layer].abs()])
            # the sort is stable, so that earlier entries stay before equally strong ones
            order = strength.sort(dim=0, descending=True, stable=True).indices[: self.count]
            candidates = (self.peaks[layer], self.peak_at[layer], indices[:, None].expand_as(self.peak_at[layer]))
            for part, new, result in zip(current, candidates, updated, strict=True):
                torch.gather(torch.cat([part[layer], new]), 0, order, out=result[layer])
        pending += zip(current, updated, strict=True)
        return pending

    def commit(self, pending: Pending) -> None:
        """Apply the updates of a batch; this allocates no memory, so it cannot fail halfway."""
        commit(pending)
        self.seen += self.peaks.shape[1]

    def result(self, tokens: Tokens) -> StrongestPositions:
        """Return the strongest positions as arrays on the CPU."""
        values, positions, sequences = (
            part.transpose(1, 2).cpu().numpy() for part in (self.values, self.positions, self.sequences)
        )
        return StrongestPositions(
            text=tokens.text,
            fingerprint=tokens.fingerprint,
            length=self.length,
            sequences=np.ascontiguousarray(sequences, dtype=_narrowest(self.samples)),
            positions=np.ascontiguousarray(positions, dtype=_narrowest(self.length)),
            values=np.ascontiguousarray(values),
        )


def _narrowest(count: int) -> type[np.signedinteger]:
    """Return the smallest integer type that holds `count` values from 0."""
    return next(kind for kind in (np.int16, np.int32, np.int64) if count - 1 <= np.iinfo(kind).max)
