"""Compare the speed of each model with the dense one, and compute the cost of padding.

The module builds the tables of the measured inference speed (appendix, practical inference speedup). It also counts the
parameters of a model that is padded with zeros: a stock model folder requires all layers to be as wide as the widest.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from gprune.data import published
from gprune.models.families import FAMILIES, dense_type
from gprune.records import ModelShape, ModelSize, PrunedModel

DENSE = "dense"
PHASES = {
    "decode": "decode (one token at a time)",
    "prefill": "prefill (reading the prompt)",
    "whole": "whole (prompt and new tokens, the paper's measure)",
}
_WITHOUT_BIASES = ("mistral", "qwen2")
"""families whose classes have no switch for biases; if a repair adds biases, their models are saved as llama"""


@dataclass(frozen=True, slots=True)
class Padding:
    """Sizes of a pruned model with every layer padded with zeros to the width of the widest."""

    neurons: int
    """FFN width of every layer"""
    groups: int
    """key/value groups of every layer"""
    dense: int
    """parameters of the dense model"""
    pruned: int
    """parameters of the pruned model"""
    padded: int
    """parameters of the padded model"""

    @property
    def kept_saving(self) -> float:
        """Return the share of the parameters saved by pruning that is still saved after padding, in [0, 1]."""
        removed = self.dense - self.pruned
        return max(self.dense - self.padded, 0) / removed if removed > 0 else 0.0


def speed_table(rows: Iterable[Mapping[str, Any]], phase: str) -> pd.DataFrame:
    """Return a table of tokens per second of one phase (prefill, decode or whole) in the order of measurement.

    `rows` are the rows of a ``Throughput``. The columns are model, mode, parameters, tokens/s, low and high (quartiles
    over the repetitions), ratio to the dense model, ratio spread (its interquartile range), MiB (peak memory), and
    memory (the kind of memory).
    """
    lines = []
    for row in rows:
        if row["phase"] != phase:
            continue
        low, high = _read_quartiles(row)
        lines.append(
            {
                "model": str(row["model"]),
                "mode": str(row["mode"]),
                "parameters": int(row["parameters"]),
                "tokens/s": float(row["tokens_per_second"]),
                "low": low,
                "high": high,
                "ratio": float(row["ratio"]),
                "ratio spread": float(row["ratio_spread"]),
                "MiB": float(row["peak_bytes"]) / 2**20,
                "memory": str(row["memory"]),
            }
        )
    columns = ["model", "mode", "parameters", "tokens/s", "low", "high", "ratio", "ratio spread", "MiB", "memory"]
    return pd.DataFrame(lines, columns=columns)


def within_noise(ratio: float, spread: float) -> bool:
    """Return True if a speed ratio differs from 1 by at most its interquartile range."""
    return abs(ratio - 1) <= spread


def format_ratio(ratio: float, spread: float) -> str:
    """Format a ratio with its interquartile range (IQR), and mark it if it is within noise."""
    # the reference model itself has a ratio of exactly 1 and a spread of 0
    noise = ", within noise" if spread > 0 and within_noise(ratio, spread) else ""
    return f"{ratio:.2f} (IQR {spread:.2f}){noise}"


def _read_quartiles(row: Mapping[str, Any]) -> tuple[float, float]:
    """Return the lower and upper quartile of a row's tokens per second over the repetitions.

    If the repetitions are not stored, the stored interquartile range is centred on the reported speed.
    """
    middle, seconds = float(row["tokens_per_second"]), np.asarray(row.get("seconds", ()), dtype=float)
    if not seconds.size or not (seconds > 0).all():
        return middle - float(row["spread"]) / 2, middle + float(row["spread"]) / 2
    # scaled so that the median of the repetitions becomes the reported speed
    low, median, high = np.quantile(1 / seconds, (0.25, 0.5, 0.75))
    return float(middle * low / median), float(middle * high / median)


def published_speed() -> pd.DataFrame:
    """Return a table of the published speed of LLaMA2-7B at 50% retention, with billions of parameters and the ratio.

    The ratio is relative to the dense model.
    """
    figures = published.table("speed")
    dense = next(figure.values["tokens_per_second"] for figure in figures if figure.method == DENSE)
    lines = [
        {
            "method": published.paper_name(figure.method),
            "params": figure.values["parameters"] / 1e9,
            "tokens/s": figure.values["tokens_per_second"],
            "ratio": figure.values["tokens_per_second"] / dense,
        }
        for figure in figures
    ]
    return pd.DataFrame(lines)


def padding(shape: ModelShape, size: ModelSize, model: PrunedModel, family: str) -> Padding | str:
    """Return the sizes of the padded export without loading a model, or the reason why they are not available.

    `size` has the parameter counts of the dense model, and `family` is its model type, such as llama. The reason is the
    predicate of a sentence whose subject is the padded model.
    """
    layout, llama_like = FAMILIES.get(dense_type(family)), family in ("llama", *_WITHOUT_BIASES)
    if layout is None or layout.inner_types:
        return "is not made by padding. Use the pruned folder itself"
    if family == "qwen3" and model.biased:
        return f"has no place for the biases of {model.repaired_by}. Use the pruned folder itself"
    dense_biases = size.neuron_biases or size.missing_biases < 2 * shape.hidden * shape.layers
    if not llama_like and family != "qwen3" and (model.biased or dense_biases):
        return "may have more biases than the pruned one; the command that writes it reports them"
    stock_family = "llama" if model.biased else family
    neurons, most_groups = (int(units.sum(axis=1).max()) for units in (model.masks.ffn, model.masks.heads))
    groups = _pad_groups(shape, most_groups, stock_family)
    groups = groups if layout.free_heads else shape.kv_heads
    ffn = np.tile(np.arange(shape.neurons) < neurons, (shape.layers, 1))
    heads = np.tile(np.arange(shape.kv_heads) < groups, (shape.layers, 1))
    padded_model = replace(model, masks=replace(model.masks, ffn=ffn, heads=heads))
    padded = padded_model.parameters(shape, size)
    if model.biased:
        # llama's two switches add biases to all maps of attention and of the FFN: those of the output maps are counted
        # already, so the query, key, value, gate and up maps are added, minus the biases that the model already has
        attention = shape.group_channels + 2 * shape.head_width - size.group_biases
        padded += shape.layers * (groups * attention + neurons * (2 - size.neuron_biases))
    return Padding(neurons, groups, size.parameters, model.parameters(shape, size), padded)


def _pad_groups(shape: ModelShape, minimum: int, family: str) -> int:
    """Return `minimum`, or for llama the next number of groups whose query heads divide the hidden size."""
    possible = range(max(minimum, 1), shape.kv_heads)
    fits = (groups for groups in possible if shape.hidden % (shape.group_size * groups) == 0)
    return next(fits, shape.kv_heads) if family == "llama" else minimum


def ratio_of(rows: Sequence[Mapping[str, Any]], method: str, phase: str = "decode") -> tuple[float, float]:
    """Return the ratio of a method's speed to that of the first model, and its spread (IQR); NaN if not measured."""
    for row in rows:
        if row["model"] == method and row["phase"] == phase:
            return float(row["ratio"]), float(row["ratio_spread"])
    return float("nan"), float("nan")
