"""Strongest positions of each neuron, recorded in the pass that measures moments.

Of every sequence the strongest input of down_proj counts, with its sign; of these the strongest few are kept
for each neuron, so that they are of different sequences. Where two are equally strong the earlier stays, so
that neither the batch size nor a halved batch matters. Nothing waits for the device on the way.
"""

import numpy as np
import torch

from gprune.models.oom_backoff import Pending, commit
from gprune.records import StrongestPositions, Tokens

# activations of candidates that are looked through at a time on a CPU
_PIECE = 2**20
NOBODY = -1
"""the sequence of a place that no sequence has taken yet"""


class Strongest:
    """Keeps the strongest positions of the inputs of one projection in every layer."""

    def __init__(self, count: int, samples: int, layers: int, channels: int, device: torch.device) -> None:
        """Start empty for `layers` x `channels` inputs of the `samples` sequences of a calibration set.

        Keeps `count` (at least 1) positions of each channel, no more than there are sequences.
        """
        self.count, self.samples, self.seen, self.length = min(count, samples), samples, 0, 0
        shape = layers, self.count, channels
        self.values = torch.zeros(shape, device=device)
        self.places = torch.zeros(shape, dtype=torch.int32, device=device)
        self.sequences = torch.full(shape, NOBODY, dtype=torch.int32, device=device)
        # each sequence's strongest value and its position, for the current batch
        self.peaks = torch.empty(layers, 0, channels, device=device)
        self.found = torch.empty(layers, 0, channels, dtype=torch.int32, device=device)

    def add(self, layer: int, inputs: torch.Tensor) -> None:
        """Look at a layer's (sequences, length, channels) inputs (any float type) of the batch at hand."""
        sequences, self.length, channels = inputs.shape
        if self.peaks.shape[1] != sequences:
            self.peaks = self.peaks.new_empty(len(self.values), sequences, channels)
            self.found = self.found.new_empty(self.peaks.shape)
        if inputs.device.type == "cpu":
            self._look(layer, inputs)
        else:
            positions = inputs.abs().max(dim=1, keepdim=True).indices
            self.peaks[layer] = inputs.gather(1, positions)[:, 0]
            self.found[layer] = positions[:, 0]

    def _look(self, layer: int, inputs: torch.Tensor) -> None:
        """Add on a CPU: search positions only where a value exceeds the channel's stored ones."""
        high, low = inputs.amax(dim=1), inputs.amin(dim=1)
        strength = torch.maximum(high, -low)
        self.peaks[layer] = strength
        # NaN compares as not below any value, so it is included
        beaten = ~(strength <= self._strength(layer)[-1])
        step = max(_PIECE // self.length, 1)
        order = torch.arange(self.length, dtype=torch.int32)[:, None]
        for rows, channels in zip(*(part.split(step) for part in beaten.nonzero(as_tuple=True)), strict=True):
            # the layout is (length, candidates), so that the search runs along contiguous rows
            values = inputs[rows, :, channels].T
            at = torch.where(values.abs() == strength[rows, channels], order, self.length).amin(dim=0)
            # a NaN value has no position; it is rejected at the end
            at.clamp_(max=self.length - 1)
            self.found[layer, rows, channels] = at
            self.peaks[layer, rows, channels] = inputs[rows, at.long(), channels].float()

    def _strength(self, layer: int) -> torch.Tensor:
        """Return (count, channels) stored magnitudes, descending; -1 in empty slots."""
        empty = self.sequences[layer] == NOBODY
        return self.values[layer].abs().masked_fill_(empty, -1.0)

    def prepare(self) -> Pending:
        """Return the changes by the batch that every layer has added; nothing is changed yet."""
        current, pending = (self.values, self.places, self.sequences), Pending()
        updated = [torch.empty_like(part) for part in current]
        numbers = torch.arange(self.seen, self.seen + self.peaks.shape[1], dtype=torch.int32, device=self.peaks.device)
        for layer in range(len(self.values)):
            strength = torch.cat([self._strength(layer), self.peaks[layer].abs()])
            # the sort is stable, so that earlier entries stay before equally strong ones
            order = strength.sort(dim=0, descending=True, stable=True).indices[: self.count]
            candidates = (self.peaks[layer], self.found[layer], numbers[:, None].expand_as(self.found[layer]))
            for part, new, result in zip(current, candidates, updated, strict=True):
                torch.gather(torch.cat([part[layer], new]), 0, order, out=result[layer])
        pending += zip(current, updated, strict=True)
        return pending

    def commit(self, pending: Pending) -> None:
        """Commit a prepared batch; this needs no memory, so it cannot end halfway."""
        commit(pending)
        self.seen += self.peaks.shape[1]

    def result(self, tokens: Tokens) -> StrongestPositions:
        """Copy the positions of the calibration set to the CPU."""
        values, positions, sequences = (
            part.transpose(1, 2).cpu().numpy() for part in (self.values, self.places, self.sequences)
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
