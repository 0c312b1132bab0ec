"""Which sequences each step sees, and what the dense model says of them (section 3.3).

Each text is split once into two disjoint halves, A' and A'' or B' and B''; a step takes equally many
sequences from each of the four, in an order reshuffled whenever a half has been gone through.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gprune import machine
from gprune.errors import SettingsError
from gprune.models.decoder import Decoder
from gprune.records import Array, Tokens
from gprune.sparsity.recomputation import SUBSETS


class SubsetSampler:
    """Draws the sequences of each step, a quarter from each of A', A'', B' and B''.

    Sequences are numbered over both texts, the primary ones first.
    """

    def __init__(self, primary: Tokens, auxiliary: Tokens, batch: int, seed: int) -> None:
        """Splits both texts into halves.

        Args:
            primary: calibration set A.
            auxiliary: calibration set B, with sequences of the same length.
            batch: sequences of one step; fewer where the smallest half does not hold a quarter of it.
            seed: seed of the split and of every order.

        Raises:
            SettingsError: a text has fewer than two sequences, or the lengths differ.
        """
        for name, tokens in (("primary", primary), ("auxiliary", auxiliary)):
            if len(tokens.ids) < 2:
                raise SettingsError(
                    f"the {name} calibration set has {len(tokens.ids)} sequence(s), but sparsity learning "
                    "splits it into two disjoint subsets: use a longer text or more calibration.samples"
                )
        lengths = primary.ids.shape[1], auxiliary.ids.shape[1]
        if lengths[0] != lengths[1]:
            raise SettingsError(
                f"the calibration sets have sequences of {lengths[0]} and of {lengths[1]} tokens: "
                "draw both with one calibration.length"
            )
        self._generator = np.random.default_rng(seed)
        sizes = len(primary.ids), len(auxiliary.ids)
        orders = [self._generator.permutation(sizes[0]), sizes[0] + self._generator.permutation(sizes[1])]
        self._halves = [half for order in orders for half in np.array_split(order, 2)]
        self._queues = [half[:0] for half in self._halves]
        self.quarter = min(batch // SUBSETS, *(len(half) for half in self._halves))
        self.steps_per_epoch = max(1, sum(sizes) // (SUBSETS * self.quarter))

    def draw(self) -> Array:
        """(sequences,) int64 numbers of the next step's sequences, in the order A', A'', B', B''."""
        return np.concatenate([self._take(subset) for subset in range(SUBSETS)])

    def _take(self, subset: int) -> Array:
        """The next quarter of one subset; its remainder is followed by a fresh order of the whole."""
        if len(self._queues[subset]) < self.quarter:
            fresh = self._generator.permutation(self._halves[subset])
            self._queues[subset] = np.concatenate([self._queues[subset], fresh])
        taken, self._queues[subset] = np.split(self._queues[subset], [self.quarter])
        return taken


@dataclass(slots=True)
class Teacher:
    """Final hidden states of the dense decoder, kept from the first epoch for the later ones."""

    decoder: Decoder
    """the decoder, whose masks the caller has switched off before asking"""
    cache: Tensor | None
    """(sequences, tokens, hidden) on the CPU; None where it would be too large or is of no use"""
    known: Array
    """(sequences,) bool: the sequence is in the cache"""

    @classmethod
    def build(cls, decoder: Decoder, sequences: int, length: int, epochs: int) -> Teacher:
        """Makes room for the cache if sequences come more than once and the machine has that much free."""
        values = sequences * length * decoder.shape.hidden
        fits = epochs > 1 and values * decoder.dtype.itemsize <= machine.spare()
        size = (sequences, length, decoder.shape.hidden)
        cache = torch.empty(size, dtype=decoder.dtype) if fits else None
        return cls(decoder, cache, np.zeros(sequences, dtype=bool))

    def hidden_states(self, numbers: Array, ids: Tensor) -> Tensor:
        """(sequences, tokens, hidden) for sequence numbers whose tokens are `ids`, on the device of these."""
        if self.cache is not None and self.known[numbers].all():
            return self.cache[torch.from_numpy(numbers)].to(ids.device)
        with torch.no_grad():
            hidden = self.decoder.hidden_states(ids)
        if self.cache is not None:
            self.cache[torch.from_numpy(numbers)] = hidden.to("cpu", self.cache.dtype)
            self.known[numbers] = True
        return hidden
