"""Several processes measure a calibration set, each its own sequences: what have all of them seen together?

One reduction a layer, in the order of the ranks and in float64, by the rules that merge batches within one
process. Shards, the order of sequences that are equally strong, and the recursion of FLAP's released code are
those of a single process.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import numpy as np
import torch

from gprune.models.oom_backoff import Pending
from gprune.pruning.calibration.accumulators import ChannelMoments, Released
from gprune.pruning.calibration.strongest import NOBODY, Strongest
from gprune.records import Array

if TYPE_CHECKING:
    from gprune.models.distributed.process_group import Ranks


def own_rows(samples: int, ranks: Ranks | None) -> slice:
    """The sequences of this process; all of them where it is alone."""
    return slice(0, samples) if ranks is None else ranks.rows(samples)[ranks.rank]


def agreed(ranks: Ranks | None) -> AbstractContextManager[None]:
    """Around work of one's own, which ends for all processes where it goes wrong on one."""
    return nullcontext() if ranks is None else ranks.agreed()


def alone(ffn: ChannelMoments, attention: ChannelMoments, strongest: Strongest | None, mine: slice) -> None:
    """Has everything measure a run of the sequences, whatever is ahead of it."""
    for part in (ffn, attention):
        if part.released is not None:
            part.released = ReleasedRun(part.shift, mine.start)
    if strongest is not None:
        strongest.seen = mine.start


def merge(
    parts: tuple[ChannelMoments, ...], strongest: Strongest | None, ranks: Ranks, shard: Array, length: int
) -> None:
    """Takes over what all processes have measured; `shard` (sequences,) is of the whole calibration set."""
    rows = ranks.rows(len(shard))
    tokens = np.stack([np.bincount(shard[one], minlength=int(shard[-1]) + 1) for one in rows]) * length
    for part in parts:
        merge_moments(part, ranks, tokens)
    if strongest is not None:
        merge_strongest(strongest, ranks, length)


def merge_moments(part: ChannelMoments, ranks: Ranks, tokens: Array) -> None:
    """Takes over all processes' moments by Chan's rule: `tokens` (processes, shards) each has seen."""
    seen = torch.from_numpy(tokens.astype(np.float64)).to(part.mean.device)[..., None]
    for index in range(part.mean.shape[1]):
        mean, moment = torch.zeros_like(part.mean[:, index]), torch.zeros_like(part.mean[:, index])
        before = torch.zeros_like(seen[0])
        parts = ranks.gathered(torch.stack([part.mean[:, index], part.moment[:, index]]))
        for found, count in zip(parts, seen, strict=True):
            after = (before + count).clamp(min=1)
            difference = found[0] - mean
            mean += difference * (count / after)
            moment += found[1] + difference**2 * (before * count / after)
            before = before + count
        part.mean[:, index], part.moment[:, index] = mean, moment
    part.tokens = tokens.sum(axis=0).tolist()
    if isinstance(part.released, ReleasedRun):
        part.released.merge(ranks)


def merge_strongest(kept: Strongest, ranks: Ranks, length: int) -> None:
    """Takes over the strongest positions of all processes, whose sequences follow each other.

    Of equally strong ones the earlier stays.
    """
    # a process without sequences has seen none
    kept.length = length
    for layer in range(len(kept.values)):
        values, places, sequences = (
            torch.cat(ranks.gathered(part[layer])) for part in (kept.values, kept.places, kept.sequences)
        )
        strength = values.abs().masked_fill_(sequences == NOBODY, -1.0)
        # stable: the parts follow each other as their sequences do
        order = strength.sort(dim=0, descending=True, stable=True).indices[: kept.count]
        kept.values[layer] = values.gather(0, order)
        kept.places[layer], kept.sequences[layer] = places.gather(0, order), sequences.gather(0, order)


class ReleasedRun(Released):
    """FLAP's released recursion over a run of the sequences, before it is known what was seen ahead of them.

    With P the sum over all tokens ahead, T that over the run up to sequence j and n the tokens up to it, the
    mean is (P + T) / n, and a sequence's term j / (j + 1) * sum of (x - mean)^2 a polynomial of degree two in
    P, whose coefficients add up over the run (gprune.pruning.calibration.accumulators has the formula).
    """

    def __init__(self, like: torch.Tensor, first: int) -> None:
        """Starts empty with the run's first sequence, see `Released`."""
        super().__init__(like, first)
        self.square, self._squared, self.linear = 0.0, 0.0, torch.zeros_like(self.sum)

    def extend(self, sums: torch.Tensor, squares: torch.Tensor, centre: torch.Tensor, length: int) -> Pending:
        """What a batch's sequences change, given their (layers, sequences, channels) sums about `centre`."""
        together, linear, total = self.sum.clone(), self.linear.clone(), self.total.clone()
        square = self.square
        for sample in range(sums.shape[1]):
            offset, j = sums[:, sample].double(), self.samples + sample
            own = offset + length * centre
            energy = squares[:, sample].double() + 2 * centre * offset + length * centre**2
            together += own
            tokens, weight = (j + 1) * length, j / (j + 1)
            mean = together / tokens
            total += weight * (energy - 2 * mean * own + length * mean**2)
            linear += weight * 2 * (length * mean - own) / tokens
            square += weight * length / tokens**2
        self._squared = square
        return [(self.sum, together), (self.linear, linear), (self.total, total)]

    def commit(self, samples: int) -> None:
        """Takes over the rest of a batch that was prepared."""
        super().commit(samples)
        self.square = self._squared

    def merge(self, ranks: Ranks) -> None:
        """Takes over what all processes have, whose runs follow each other."""
        counts = ranks.gathered(torch.tensor([float(self.samples), self.square], dtype=torch.float64))
        self.samples = int(max(float(one[0]) for one in counts))
        for layer in range(len(self.sum)):
            found = ranks.gathered(torch.stack([self.sum[layer], self.linear[layer], self.total[layer]]))
            ahead, total = torch.zeros_like(self.sum[layer]), torch.zeros_like(self.sum[layer])
            for (own, linear, rest), count in zip(found, counts, strict=True):
                total += rest + linear * ahead + float(count[1]) * ahead**2
                ahead = ahead + own
            self.sum[layer], self.total[layer] = ahead, total
