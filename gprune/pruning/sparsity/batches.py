"""Sample the sequences of each step, and cache the dense model's hidden states for them (section 3.3).

Each text is split once into two disjoint halves, A' and A'' or B' and B''. A step takes the same number of sequences
from each of the four halves; a half is reshuffled when it is exhausted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gprune.models.devices import AdaptiveBatches, out_of_memory
from gprune.models.language_model import LanguageModel
from gprune.pruning.sparsity.activation_checkpointing import SUBSETS
from gprune.records import Array, Tokens
from gprune.records.calibration import unsigned_ids
from gprune.system import machine


def common_ids(texts: Sequence[Tokens]) -> Array:
    """Return the (sequences, tokens) `Tokens.signed_ids` of all texts, which have the same sequence length."""
    return np.concatenate([tokens.signed_ids for tokens in texts])


class Sampler:
    """Draw sequences from disjoint sets; a set is reshuffled when it is exhausted."""

    def __init__(self, generator: np.random.Generator, sets: Sequence[Array], per_set: int) -> None:
        """Start with empty queues.

        Args:
            generator: generator of the shuffles.
            sets: (sequences,) int64 indices of the sequences of each set.
            per_set: sequences per step and set; at most the size of the smallest set.
        """
        self._generator, self._sets, self._per_set = generator, list(sets), per_set
        self._queues = [members[:0] for members in self._sets]

    def draw(self) -> Array:
        """Return (sequences,) int64 indices of the next step's sequences, sorted by set."""
        return np.concatenate([self._take(index) for index in range(len(self._sets))])

    def checkpoint_state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return the arrays and values from which `restore` continues."""
        # the queues need no copy, because a draw replaces them and never changes them in place
        arrays = {f"queue.{number}": queue for number, queue in enumerate(self._queues)}
        return arrays, {"generator": self._generator.bit_generator.state}

    def restore(self, arrays: Mapping[str, Array], values: Mapping[str, Any]) -> None:
        """Continue from the `checkpoint_state` of a sampler of the same texts and seed.

        Raises ValueError if the state belongs to other texts.
        """
        queues = [arrays[f"queue.{number}"] for number in range(len(self._sets))]
        for members, queue in zip(self._sets, queues, strict=True):
            if queue.ndim != 1 or queue.dtype != members.dtype or not np.isin(queue, members).all():
                raise ValueError("its sequences are those of other texts")
        self._generator.bit_generator.state = values["generator"]
        self._queues = queues

    def _take(self, index: int) -> Array:
        """Return the next sequences of a set; if too few are left, a new permutation of the set follows them."""
        if len(self._queues[index]) < self._per_set:
            shuffled = self._generator.permutation(self._sets[index])
            self._queues[index] = np.concatenate([self._queues[index], shuffled])
        sequences, self._queues[index] = np.split(self._queues[index], [self._per_set])
        return sequences


class SubsetSampler(Sampler):
    """Draw the sequences of each step, a quarter from each of A', A'', B' and B'', in this order.

    Sequences are numbered over both texts, starting with the primary text.
    """

    def __init__(self, primary: Tokens, auxiliary: Tokens, batch: int, seed: int) -> None:
        """Split both texts into halves.

        Args:
            primary: calibration set A.
            auxiliary: calibration set B, with sequences of the same length.
            batch: sequences per step; reduced if the smallest half has less than a quarter of it.
            seed: seed of the split and of the shuffles.
        """
        generator = np.random.default_rng(seed)
        sizes = len(primary.ids), len(auxiliary.ids)
        orders = [generator.permutation(sizes[0]), sizes[0] + generator.permutation(sizes[1])]
        halves = [half for order in orders for half in np.array_split(order, 2)]
        self.quarter = min(batch // SUBSETS, *(len(half) for half in halves))
        self.steps_per_epoch = max(1, sum(sizes) // (SUBSETS * self.quarter))
        super().__init__(generator, halves, self.quarter)


@dataclass(slots=True)
class Teacher:
    """Final hidden states of the dense decoder, cached in the first epoch.

    Rounding depends on which sequences share a batch. The batches are recorded, so that a resumed process recomputes
    missing states in the same batches and gets the same bits.
    """

    decoder: LanguageModel
    """the decoder; the caller removes masks (`MaskHooks.close`) before each call"""
    cache: Tensor | None
    """(sequences, tokens, hidden) on the CPU; None if it would be too large or every sequence is used once"""
    available: Array
    """(sequences,) bool, True if the sequence is cached or can be recomputed in its original batch"""
    batch_of: Array
    """(sequences,) int64 index into `batches` of the batch that computed the sequence"""
    batches: list[Array] = field(default_factory=list)
    """indices of the sequences of every computed batch"""
    missed: Array | None = None
    """(sequences,) bool, True if available but not yet recomputed by this resumed process; None if not resumed"""
    texts: Array | None = None
    """(sequences, tokens) int64 ids for recomputing missed sequences"""

    @classmethod
    def build(cls, decoder: LanguageModel, sequences: int, length: int, epochs: int) -> Teacher:
        """Return a teacher with a cache if there are several epochs and the machine has enough free memory."""
        values = sequences * length * decoder.config.hidden_size
        fits = epochs > 1 and values * decoder.dtype.itemsize <= machine.cache_budget()
        size = (sequences, length, decoder.config.hidden_size)
        cache = torch.empty(size, dtype=decoder.dtype) if fits else None
        return cls(decoder, cache, np.zeros(sequences, dtype=bool), np.zeros(sequences, dtype=np.int64))

    def hidden_states(self, numbers: Array, ids: Tensor) -> Tensor:
        """Return the (sequences, tokens, hidden) states of sequences with indices `numbers` and tokens `ids`."""
        if self.cache is not None and self.available[numbers].all():
            self._recompute_missing(numbers)
            return self.cache[torch.from_numpy(numbers)].to(ids.device)
        with torch.no_grad():
            hidden = self.decoder.hidden_states(ids)
        if self.cache is not None:
            self.cache[torch.from_numpy(numbers)] = hidden.to("cpu", self.cache.dtype)
            self.available[numbers] = True
            self.batch_of[numbers] = len(self.batches)
            self.batches.append(numbers.copy())
            if self.missed is not None:
                self.missed[numbers] = False
        return hidden

    def states(self, sequences: AdaptiveBatches, numbers: Array, ids: Tensor, progress: tuple[int, int]) -> Tensor:
        """Return (sequences, tokens, hidden) states, computed in batches that fit in memory.

        Args:
            sequences: halves the batch if memory runs out.
            numbers: (sequences,) indices of the sequences.
            ids: (sequences, tokens) token ids on the device of the model.
            progress: finished steps and total steps.
        """
        size = (*ids.shape, self.decoder.config.hidden_size)
        states = torch.empty(size, dtype=self.decoder.dtype, device=ids.device)

        def run(rows: slice) -> None:
            states[rows] = self.hidden_states(numbers[rows], ids[rows])

        sequences.run_batches(len(numbers), run, progress)
        return states

    def checkpoint_state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return the arrays and values from which `restore` continues."""
        if self.cache is None:
            return {}, {"caches": False}
        # only batches whose states are still in the cache
        used, batch_index = np.unique(self.batch_of[self.available], return_inverse=True)
        batches = [self.batches[index] for index in used]
        makers = np.full(len(self.available), -1, dtype=np.int64)
        makers[self.available] = batch_index
        members = np.concatenate(batches) if batches else np.zeros(0, dtype=np.int64)
        sizes = np.array([len(batch) for batch in batches], dtype=np.int64)
        return {"teacher.maker": makers, "teacher.members": members, "teacher.sizes": sizes}, {"caches": True}

    def restore(self, arrays: Mapping[str, Array], values: Mapping[str, Any], texts: Array) -> bool:
        """Continue from the `checkpoint_state` of a teacher of the same texts.

        Args:
            arrays: arrays of the state.
            values: values of the state.
            texts: (sequences, tokens) int64 ids of all texts.

        Returns:
            True if the states will have the same bits; False if the earlier process had a cache and this one has no
            memory for it.

        Raises:
            ValueError: the state belongs to other texts.
        """
        if not values["caches"]:
            self.cache = None
            return True
        maker, members, sizes = (arrays[f"teacher.{name}"] for name in ("maker", "members", "sizes"))
        is_in_range = 0 <= members.min(initial=0) and members.max(initial=0) < len(texts)
        if maker.shape != self.batch_of.shape or maker.max(initial=-1) >= len(sizes) or not is_in_range:
            raise ValueError("its sequences are those of other texts")
        if self.cache is None:
            return False
        self.available, self.batch_of = maker >= 0, np.maximum(maker, 0)
        self.batches = np.split(members, np.cumsum(sizes)[:-1]) if len(sizes) else []
        self.missed, self.texts = self.available.copy(), unsigned_ids(texts)
        return True

    def _recompute_missing(self, numbers: Array) -> None:
        """Recompute the missing states of sequences `numbers` in their original batches."""
        if self.missed is None or self.texts is None or self.cache is None or not self.missed[numbers].any():
            return
        for index in np.unique(self.batch_of[numbers[self.missed[numbers]]]):
            batch = self.batches[index]
            ids = torch.from_numpy(self.texts[batch]).to(self.decoder.device)
            try:
                with torch.no_grad():
                    hidden = self.decoder.hidden_states(ids)
            except (RuntimeError, MemoryError) as error:
                if out_of_memory(error):
                    # the original batches no longer fit: the caller repeats the step in smaller batches
                    self.available &= ~self.missed
                raise
            missing = self.missed[batch] & (self.batch_of[batch] == index)
            self.cache[torch.from_numpy(batch[missing])] = hidden[torch.from_numpy(missing)].to("cpu", self.cache.dtype)
            self.missed[batch[missing]] = False
