"""The units that change sides between two prunings, by layer."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from gprune.analysis.formatting import counted, percent
from gprune.records import Array, PruningMasks


@dataclass(frozen=True, slots=True)
class Flips:
    """Units that two prunings of one model decide differently, by layer."""

    removed: Array
    """(layers,) neurons kept before and removed after"""
    added: Array
    """(layers,) neurons removed before and kept after"""
    heads_removed: Array
    """(layers,) key/value groups kept before and removed after"""
    heads_added: Array
    """(layers,) key/value groups removed before and kept after"""
    neurons: int
    """neurons of all layers"""

    @property
    def total(self) -> int:
        """Neurons that change sides."""
        return int(self.removed.sum() + self.added.sum())

    @property
    def heads(self) -> int:
        """Key/value groups that change sides."""
        return int(self.heads_removed.sum() + self.heads_added.sum())


def compare(before: PruningMasks, after: PruningMasks) -> Flips:
    """Counts the units that change sides between two masks of one model."""
    return Flips(
        removed=(before.ffn & ~after.ffn).sum(axis=1),
        added=(~before.ffn & after.ffn).sum(axis=1),
        heads_removed=(before.heads & ~after.heads).sum(axis=1),
        heads_added=(~before.heads & after.heads).sum(axis=1),
        neurons=before.ffn.size,
    )


def flips_title(flips: Flips) -> str:
    """The finding in one sentence."""
    if not (flips.total or flips.heads):
        return "No neuron and no key/value group changes sides"
    verb = "changes" if flips.total == 1 else "change"
    sentence = f"{counted(flips.total, 'neuron')} {verb} sides ({percent(flips.total / flips.neurons, 2)})"
    if flips.total:
        sentence += f", most of them in layer {int(np.argmax(flips.removed + flips.added))}"
    return sentence + (f", and {counted(flips.heads, 'key/value group')}" if flips.heads else "")


def flip_table(flips: Flips) -> pd.DataFrame:
    """The counts, one row a layer."""
    return pd.DataFrame(
        {
            "layer": np.arange(len(flips.removed)),
            "neurons, kept → removed": flips.removed,
            "neurons, removed → kept": flips.added,
            "key/value groups, kept → removed": flips.heads_removed,
            "key/value groups, removed → kept": flips.heads_added,
        }
    )
