"""Compute streaming moments of each input channel of a projection.

Each sequence is reduced to the sum and the sum of squares of every channel, in float32 and in buffers that fit the
CPU cache. Values are shifted by a running estimate of the channel's mean, so that the squares neither cancel nor
overflow. The sums of batches are merged in float64 by Chan's rule, so that the result depends neither on the batch
size nor on the order of the sequences. The device is not synchronized while batches run.
"""

from dataclasses import dataclass

import numpy as np
import torch

from gprune.models.devices import Pending, commit
from gprune.records import Array
from gprune.system.errors import NumericsError

# number of activations that are reduced at a time: half of a typical L2 cache, or enough to keep a GPU busy
_CPU_BUFFER = 2**17
_GPU_BUFFER = 2**25


@dataclass(frozen=True, slots=True)
class Moments:
    """Moments of one kind of channel over a whole calibration set, float64."""

    mean: Array
    """(shards, layers, channels) mean over tokens"""
    moment: Array
    """(shards, layers, channels) sum over tokens of the squared deviation from the mean"""
    energy: Array
    """(shards, layers, channels) sum over tokens of the square"""
    released_fluctuation: Array
    """(layers, channels) fluctuation as FLAP's released code computes it; zeros if it was not requested"""


class ReleasedFluctuation:
    """The fluctuation that FLAP's released code accumulates at batch 1.

    fluc = 1/(n-1) * sum over samples j = 1 ... n-1 of j/(j+1) * sum over tokens of (x_jt - mean_{0..j})^2,
    where the mean is over all tokens of the samples up to and including j. The result depends on the sample order.
    """

    def __init__(self, template: torch.Tensor) -> None:
        """Start with zero sums of the shape and on the device of `template` (layers, channels)."""
        self.samples, self.tokens = 0, 0
        self.sum = torch.zeros_like(template, dtype=torch.float64)
        """sum of x over all tokens so far"""
        self.total = torch.zeros_like(self.sum)
        """the sum over samples in the formula"""

    def prepare(self, sums: torch.Tensor, squares: torch.Tensor, centre: torch.Tensor, lengths: Array) -> Pending:
        """Return the updates for a batch from its (layers, sequences, channels) sums of x - centre; apply none.

        `squares` are the sums of (x - centre)^2, `centre` is (layers, channels), and `lengths` (sequences,) are the
        numbers of tokens.
        """
        token_sum, total, tokens = self.sum.clone(), self.total.clone(), self.tokens
        for sample, length in enumerate(lengths.tolist()):
            offset_sum, j = sums[:, sample].double(), self.samples + sample
            token_sum += offset_sum + length * centre
            tokens += length
            # sum of (x - mean)^2 from the sums about `centre`, which lies `distance` from the mean of 0 ... j
            distance = token_sum / tokens - centre
            about_mean = squares[:, sample].double() - 2 * distance * offset_sum + length * distance**2
            total += about_mean * (j / (j + 1))
        return [(self.sum, token_sum), (self.total, total)]

    def commit(self, lengths: Array) -> None:
        """Count the samples and tokens of an applied batch; see `prepare`."""
        self.samples += len(lengths)
        self.tokens += int(lengths.sum())

    def result(self) -> Array:
        """Return (layers, channels) fluctuation; zeros for a single sample."""
        return (self.total / max(self.samples - 1, 1)).clamp(min=0).cpu().numpy()


class ChannelMoments:
    """Accumulates the moments of the inputs of one projection in every layer."""

    def __init__(
        self,
        name: str,
        shards: int,
        layers: range,
        channels: int,
        device: torch.device,
        released: bool = False,
    ) -> None:
        """Start with zero sums for the `channels` inputs of a projection in some decoder layers.

        `name` is used in messages, `shards` is the number of groups of sequences with separate moments, and
        `released` requests the fluctuation of FLAP's released code as well.
        """
        self.name = name
        self.first_layer = layers.start
        self.tokens = [0] * shards
        self.mean = torch.zeros(shards, len(layers), channels, dtype=torch.float64, device=device)
        self.moment = torch.zeros_like(self.mean)
        self.shift = torch.zeros(len(layers), channels, device=device)
        """(layers, channels) estimated mean, which is subtracted from the inputs before they are summed"""
        self.sums = torch.empty(len(layers), 0, channels, device=device)
        self.squares = torch.empty_like(self.sums)
        self.buffer = torch.empty(0, device=device)
        self.counted: Array | None = None
        """(sequences, length) bool, True for the positions of the current batch that count; None if all count"""
        self.lengths = np.zeros(0, np.int64)
        """(sequences,) counted positions of the current batch"""
        self.released = ReleasedFluctuation(self.shift) if released else None

    def add(self, layer: int, inputs: torch.Tensor) -> None:
        """Sum one layer's inputs and their squares over the tokens of each sequence of the current batch.

        `inputs` are (sequences, length, channels) of any float type.
        """
        sequences, length, channels = inputs.shape
        self.lengths = np.full(sequences, length) if self.counted is None else self.counted.sum(axis=1)
        weights = None if self.counted is None else torch.tensor(self.counted).to(inputs.device).unsqueeze(-1)
        index = layer - self.first_layer
        if self.sums.shape[1] != sequences:
            self.sums = self.sums.new_empty(len(self.shift), sequences, channels)
            self.squares = torch.empty_like(self.sums)
        if not any(self.tokens):
            # the mean of the first sequence is the initial estimate
            self.shift[index] = inputs[0].float().mean(dim=0)
        limit = _CPU_BUFFER if inputs.device.type == "cpu" else _GPU_BUFFER
        step = min(max(limit // (length * channels), 1), sequences)
        if self.buffer.shape != (step, length, channels):
            self.buffer = self.buffer.new_empty(step, length, channels)
        for start in range(0, sequences, step):
            rows = slice(start, min(start + step, sequences))
            buffer = self.buffer[: rows.stop - start]
            # converted to float32 first, because the squares of float16 activations would overflow
            buffer.copy_(inputs[rows]).sub_(self.shift[index])
            if weights is not None:
                buffer.mul_(weights[rows])
            torch.sum(buffer, dim=1, out=self.sums[index, rows])
            torch.sum(buffer.square_(), dim=1, out=self.squares[index, rows])

    def finish_batch(self, shard: Array) -> None:
        """Merge the current batch after all layers were added; `shard` is (sequences,), ascending."""
        self.commit(shard, self.prepare(shard))

    def prepare(self, shard: Array) -> Pending:
        """Return the updates for the current batch after all layers were added; apply none."""
        centre, pending = self.shift.double(), Pending()
        if self.released is not None:
            pending += self.released.prepare(self.sums, self.squares, centre, self.lengths)
        for index, rows in _rows_of_shards(shard):
            tokens = int(self.lengths[rows].sum())
            offset = self.sums[:, rows].sum(dim=1, dtype=torch.float64) / tokens
            moment = self.squares[:, rows].sum(dim=1, dtype=torch.float64) - tokens * offset**2
            pending += self._merge_moments(index, tokens, centre + offset, moment)
        return pending

    def commit(self, shard: Array, pending: Pending) -> None:
        """Apply the updates of a batch; this allocates no memory, so it cannot fail halfway."""
        commit(pending)
        for index, rows in _rows_of_shards(shard):
            self.tokens[index] += int(self.lengths[rows].sum())
        if self.released is not None:
            self.released.commit(self.lengths)
        self.shift.copy_(self.mean[int(shard[-1])])

    def _merge_moments(self, shard: int, tokens: int, mean: torch.Tensor, moment: torch.Tensor) -> Pending:
        """Return the updates that merge one group of tokens into a shard by Chan's rule."""
        old_tokens, new_tokens = self.tokens[shard], self.tokens[shard] + tokens
        old_mean, old_moment = self.mean[shard], self.moment[shard]
        difference, share = mean - old_mean, tokens / new_tokens
        between = difference**2 * (old_tokens * tokens / new_tokens)
        return [(old_mean, old_mean + difference * share), (old_moment, old_moment + (moment + between))]

    def find_nonfinite(self, shard: int) -> tuple[int, str] | None:
        """Return the layer of a shard's first NaN or infinite input and a description; synchronizes the device."""
        faults = torch.nonzero(~torch.isfinite(self.mean[shard] + self.moment[shard]))
        if not len(faults):
            return None
        layer, channel = faults[0].tolist()
        return self.first_layer + layer, f"{self.name} in layer {self.first_layer + layer} (channel {channel})"

    def result(self) -> Moments:
        """Return the moments as arrays on the CPU."""
        mean, moment = self.mean.cpu().numpy(), self.moment.clamp(min=0).cpu().numpy()
        tokens = np.array(self.tokens, dtype=np.float64).reshape(-1, 1, 1)
        released = np.zeros(mean.shape[1:]) if self.released is None else self.released.result()
        return Moments(mean, moment, moment + tokens * mean**2, released)


def _rows_of_shards(shard: Array) -> list[tuple[int, slice]]:
    """Return the index and the rows of every shard of a batch."""
    indices = range(int(shard[0]), int(shard[-1]) + 1)
    return [(index, slice(*np.searchsorted(shard, (index, index + 1)).tolist())) for index in indices]


def require_finite(attention: ChannelMoments, ffn: ChannelMoments, shard: int) -> None:
    """Raise NumericsError that names the first layer of a shard with a NaN or infinite input."""
    # checked in order of computation, because a NaN spreads to everything after it
    faults = [fault for fault in (attention.find_nonfinite(shard), ffn.find_nonfinite(shard)) if fault]
    if faults:
        _, location = min(faults, key=lambda fault: fault[0])
        raise NumericsError.of(f"the input of {location}")
