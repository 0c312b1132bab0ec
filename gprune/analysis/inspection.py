"""Details of one neuron, module or layer on each text.

Ranks are scaled to the range from 0 (least important of the layer) to 1 (most important); equal scores have the same
rank.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gprune.analysis import thresholds
from gprune.analysis.drift import scaled_ranks
from gprune.analysis.thresholds import OUTCOMES
from gprune.records import AdaptedScores, Array, ModuleStatistics, Partition, StrongestPositions, Tokens
from gprune.records.experts import ExpertStatistics
from gprune.system.errors import SettingsError
from gprune.system.safe_parsing import quote

_WORDS = re.compile(r"(layer|module|neuron)\s*(?:no\.?|number|#)?\s*([0-9]+)")
"""`layer 5`, `neuron no. 688`"""
_ABBREVIATED = re.compile(r"(?:[lmn]\s*[0-9]+[\s/,:.·]*)+")
"""a whole search text of abbreviations: `l5n688`, `L2 M3`"""
_ABBREVIATION = re.compile(r"([lmn])\s*([0-9]+)")
_KINDS = {"l": "layer", "m": "module", "n": "neuron"}
_PAIR = re.compile(r"([0-9]+)\s*[/,:.\s]\s*([0-9]+)")
"""layer and neuron: `5/688`"""
ShardScores = Callable[[Sequence[int]], Array]
"""function of the indices of some shards that returns the (neurons,) scores of a layer on them"""
EXAMPLES = "layer 5 neuron 688, L5N688, 5/688, or module 3 of layer 2"


@dataclass(frozen=True, slots=True)
class LayerRanks:
    """Ranks of the neurons of a layer on one text, with their range over halves of the text."""

    score: Array
    """(neurons,) importance scores"""
    rank: Array
    """(neurons,) ranks on the whole text, from 0 to 1"""
    low: Array
    """(neurons,) lowest rank on a half of the text; `rank` if halves cannot be scored"""
    high: Array
    """(neurons,) highest rank on a half of the text; `rank` if halves cannot be scored"""


def parse_unit(text: str) -> dict[str, int]:
    """Parse a search text and return the numbers of layer, module and neuron that it contains.

    Raises SettingsError if there is no layer or a number is repeated.
    """
    line = " ".join(text.lower().split())
    named_numbers = [(kind, int(number)) for kind, number in _WORDS.findall(line)]
    if _ABBREVIATED.fullmatch(line):
        named_numbers = [(_KINDS[letter], int(number)) for letter, number in _ABBREVIATION.findall(line)]
    elif not named_numbers and (pair := _PAIR.fullmatch(line)):
        named_numbers = [("layer", int(pair[1])), ("neuron", int(pair[2]))]
    numbers = dict(named_numbers)
    if "layer" not in numbers or len(numbers) < len(named_numbers):
        raise SettingsError(f"{quote(text)} names no layer, module or neuron: type, for example, {EXAMPLES}")
    return numbers


def rank_layer(score: Array, score_shards: ShardScores | None, shards: int) -> LayerRanks:
    """Return the ranks of a layer's (neurons,) scores and their range over halves of the text.

    A half is a set of cyclically consecutive shards, one for each start position. `score_shards` is None if shards
    cannot be scored; the range is then the rank itself.
    """
    rank = scaled_ranks(score)
    if score_shards is None:
        return LayerRanks(np.asarray(score), rank, rank, rank)
    halves = [
        scaled_ranks(score_shards([(start + step) % shards for step in range(shards // 2)])) for start in range(shards)
    ]
    return LayerRanks(np.asarray(score), rank, np.min(halves, axis=0), np.max(halves, axis=0))


def percentile(value: float, among: Array) -> float:
    """Return the share of the other values that are below `value`, with ties counted half; 0 if there are no others.

    `among` are all values, including `value` itself.
    """
    count = len(among) - 1
    if count < 1:
        return 0.0
    return float(((among < value).sum() + ((among == value).sum() - 1) / 2) / count)


def module_table(
    partition: Partition,
    layer: int,
    statistics: ModuleStatistics | None,
    adapted: AdaptedScores | None,
    masks: Mapping[str, Array],
) -> pd.DataFrame:
    """Return a table with one row per module of a layer: statistics, RASA's decision, and retention by method.

    `masks` has the (neurons,) bool masks of the layer by method label. Columns of `statistics` and `adapted` are left
    out if they are None.
    """
    labels, count = np.asarray(partition.labels[layer]), int(partition.counts[layer])
    rows = slice(int(partition.offsets[layer]), int(partition.offsets[layer]) + count)
    sizes = np.bincount(labels, minlength=count)
    table = {"layer": layer, "module": np.arange(count), "size": sizes}
    if statistics is not None:
        table |= {
            "drift": statistics.drift[rows],
            "score": statistics.score[rows],
            "u on A": statistics.u_primary[rows],
            "u on B": statistics.u_auxiliary[rows],
        }
    if adapted is not None:
        table["RASA"] = [decision(adapted, module) for module in range(rows.start, rows.stop)]
    for name, mask in masks.items():
        table[name] = np.bincount(labels, weights=np.asarray(mask, dtype=float), minlength=count) / sizes
    return pd.DataFrame(table)


def decision(adapted: AdaptedScores, module: int) -> str:
    """Return the label of RASA's decision on a module; `module` is its index over all layers."""
    return OUTCOMES[thresholds.groups(adapted)[module]]


@dataclass(frozen=True, slots=True)
class Activation:
    """One of the strongest tokens of a neuron or an expert, with the tokens around it."""

    sequence: int
    """index of the sequence in the calibration set"""
    position: int
    """index of the token in the sequence"""
    value: float
    """signed activation of the neuron, or g * ||f(x)|| of the expert"""
    ids: tuple[int, ...]
    """ids of the token and of those around it"""
    at: int
    """index of the token itself in `ids`"""


def strongest(record: StrongestPositions, tokens: Tokens, layer: int, neuron: int, window: int) -> Sequence[Activation]:
    """Return the positions of a neuron's largest activations, with `window` tokens on either side."""
    columns = (values[layer, neuron] for values in (record.sequences, record.positions, record.values))
    return _with_context(tokens, window, *columns)


def strongest_of_expert(
    record: ExpertStatistics, tokens: Tokens, mixture: int, expert: int, window: int
) -> Sequence[Activation]:
    """Return the strongest tokens of an expert, with `window` tokens on either side."""
    is_token = record.positions[mixture, expert] >= 0
    sequences, positions = np.divmod(record.positions[mixture, expert][is_token], tokens.ids.shape[1])
    return _with_context(tokens, window, sequences, positions, record.strengths[mixture, expert][is_token])


def _with_context(tokens: Tokens, window: int, sequences: Array, positions: Array, values: Array) -> list[Activation]:
    """Return tokens, by (tokens,) sequences, positions and values, with `window` tokens on either side."""
    activations, unpadded, columns = [], tokens.unpadded_ids, (sequences, positions, values)
    for sequence, position, value in zip(*(column.tolist() for column in columns), strict=True):
        start = max(position - window, 0)
        ids = [token for token in unpadded[sequence, start : position + window + 1].tolist() if token >= 0]
        activations.append(Activation(sequence, position, value, tuple(ids), position - start))
    return activations
