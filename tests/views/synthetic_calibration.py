"""Calibration sets and their statistics made of random numbers in the true form, for tests of the pages."""

from __future__ import annotations

from typing import Any

import numpy as np

from gprune.records import ActivationStatistics, ModelShape, Tokens, WeightNorms
from gprune.study import Study

ROLES = ("primary", "auxiliary", "substitute")
VOCABULARY, SHARDS = 500, 4
WIDEST = 1000
"""wider models get no statistics: their files would be hundreds of megabytes"""


def calibration(
    shape: ModelShape, study: Study, first: np.ndarray, second: np.ndarray, random: np.random.Generator
) -> dict[str, tuple[str, Any]]:
    """Calibration set and statistics of every text, and the weight norms.

    Args:
        shape: sizes of the model.
        study: whose texts they are.
        first: (layers, neurons) log level of the neurons on A.
        second: the same on B and C.
        random: where all other numbers come from.
    """
    narrow = shape.neurons <= WIDEST
    made: dict[str, tuple[str, Any]] = {"norms": ("norms", _norms(shape, random) if narrow else None)}
    for place, role in enumerate(ROLES if study.substitute else ROLES[:2]):
        text, level = getattr(study, role), first if place == 0 else second
        made[f"tokens_{role}"] = ("tokens", _tokens(text, place, random))
        statistics = _moments(text, shape, level, random) if narrow else None
        made[f"statistics_{role}"] = ("statistics", statistics)
    return made


def _tokens(text: str, place: int, random: np.random.Generator) -> Tokens:
    frequent = 1.0 / np.arange(1, VOCABULARY - 50 * place + 1)
    ids = random.choice(len(frequent), (32, 16), p=frequent / frequent.sum()) + 50 * place
    return Tokens(text, f"{place}{'0123456789abcdef' * 4}"[:64], ids.astype(np.int32), 32 * (place + 2))


def _norms(shape: ModelShape, random: np.random.Generator) -> WeightNorms:
    neurons, channels = (shape.layers, shape.neurons), (shape.layers, shape.heads * shape.head_width)
    sizes = (neurons, neurons, channels, channels)
    return WeightNorms(*(1 + 0.1 * random.random(size) for size in sizes))


def _moments(
    text: str, shape: ModelShape, latent: np.ndarray, random: np.random.Generator
) -> ActivationStatistics:
    values: dict[str, Any] = {}
    for part, width in (("ffn", shape.neurons), ("attention", shape.heads * shape.head_width)):
        size = (SHARDS, shape.layers, width)
        level = latent if part == "ffn" else np.zeros(size[1:])
        values[f"{part}_mean"] = 0.1 * random.normal(size=size)
        values[f"{part}_moment"] = 128 * np.exp(level + 0.3 * random.normal(size=size))
        values[f"{part}_energy"] = values[f"{part}_moment"] + 128 * values[f"{part}_mean"] ** 2
        values[f"{part}_released_fluctuation"] = values[f"{part}_moment"].mean(axis=0)
    counts = np.full(SHARDS, 8, dtype=np.int64)
    return ActivationStatistics(text, "f" * 64, counts, 16 * counts, **values)
