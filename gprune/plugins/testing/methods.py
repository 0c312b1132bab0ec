"""What every pruning method must hold to, however it decides."""

from dataclasses import replace
from typing import Any

import numpy as np

from gprune.plugins import Kept, Method, Problem, checks
from gprune.plugins.discovery import Plugin
from gprune.plugins.loading import called
from gprune.plugins.testing import samples
from gprune.plugins.testing.samples import ContractError, declares, on, require
from gprune.records import Array, ModelShape, UnitScores

RETENTIONS = (0.4, 0.6, 0.85)
_FAMILIES = {"llama, float32": ("llama", "float32"), "qwen2, float16": ("qwen2", "float16")}


def check_method(method: Method, *, draws: bool = False) -> None:
    """Checks a method as its decisions will be used.

    Shapes and types, a unit of each kind in every layer, the retention, the same again; on scores that differ
    by many orders of size and on scores that are all alike; with neurons in another order. A method that gets
    the model is checked on small random ones, in float16 too, and must leave them as they were.

    Args:
        method: what the entry point names.
        draws: whether it draws from random numbers, so that the order of neurons changes what it keeps.

    Raises:
        ContractError: it does not hold; the message says what, and on what.
    """
    if not isinstance(method, Method):
        raise ContractError(f"a method is a gprune.plugins.Method (got {type(method).__name__})")
    facts = {name: getattr(method, name) for name in ("label", "needs", "metric", "texts", "compensated")}
    declares("method", **facts)
    if method.needs == "scores":
        for case, shape in samples.WIDER.items():
            for retention in RETENTIONS:
                _check_on_scores(method, shape, retention, f"{case}, retention {retention}", draws)
        return
    for case, (family, dtype) in _FAMILIES.items():
        for retention in RETENTIONS[1:]:
            _check_on_model(method, family, dtype, retention, f"{case}, retention {retention}")


def _check_on_scores(method: Method, shape: ModelShape, retention: float, case: str, draws: bool) -> None:
    plain = _problem(method, shape, retention, [samples.scores(shape, seed) for seed in (2, 3)])
    first = _twice(method, plain, case)
    wild = [samples.scores(shape, 4, power=12.0)] * 2
    _decided(method, _problem(method, shape, retention, wild), f"{case}, scores of many orders of size")
    flat = replace(plain.scores[0], ffn=np.ones((shape.layers, shape.neurons)), heads=plain.scores[0].heads)
    flat_groups = np.ones((shape.layers, shape.kv_heads))
    flat = replace(flat, heads=flat_groups, channels=np.repeat(flat_groups, shape.group_channels, axis=1))
    _decided(method, _problem(method, shape, retention, [flat] * 2), f"{case}, scores that are all alike")
    if draws:
        return
    order = np.random.default_rng(6).permutation(shape.neurons)
    moved = replace(plain, scores=tuple(replace(one, ffn=one.ffn[:, order]) for one in plain.scores))
    found = _decided(method, moved, case)
    require(
        np.array_equal(found.neurons, first.neurons[:, order]),
        f"{case}: with the neurons in another order the method keeps others: a decision may not depend on a "
        "neuron's place, unless the method draws (check_method(..., draws=True))",
    )


def _check_on_model(method: Method, family: str, dtype: str, retention: float, case: str) -> None:
    import torch

    from gprune.models.tiny import tiny_decoder

    sizes: dict[str, Any] = {
        "layers": 2,
        "hidden": 16,
        "neurons": 61,
        "heads": 4,
        "kv_heads": 2,
        "head_width": 4,
    }
    decoder = tiny_decoder(family, **sizes, dtype=getattr(torch, dtype))
    generator = np.random.default_rng(7)
    ids = [generator.integers(3, 64, (8, 12)).astype(np.int32) for _ in range(2)]
    scored = [samples.scores(decoder.shape, seed) for seed in (2, 3)]
    problem = _problem(method, decoder.shape, retention, scored if method.needs == "both" else [])
    texts = tuple(ids[: 2 if method.texts == "both" else 1])
    _twice(method, replace(problem, model=decoder.model, tokens=texts), case)


def _problem(method: Method, shape: ModelShape, retention: float, scored: list[UnitScores]) -> Problem:
    count = 2 if method.texts == "both" else 1
    return Problem(shape, retention, 0, scores=tuple(scored[:count]))


def _twice(method: Method, problem: Problem, case: str) -> Kept:
    first, second = (_decided(method, problem, case) for _ in range(2))
    same = _bytes(first) == _bytes(second)
    require(
        same,
        f"{case}: asked twice, the method decides differently: draw from np.random.default_rng(problem.seed) "
        "alone, and keep nothing between calls",
    )
    return first


def _decided(method: Method, problem: Problem, case: str) -> Kept:
    """A decision, checked."""
    plugin = Plugin("method", "checked", method.label, "this package", "0")
    with on(case):
        found = called(plugin, "decide", method.decide, problem)
        return checks.kept(found, problem.shape, problem.retention)


def _bytes(kept: Kept) -> tuple[bytes, bytes]:
    parts: tuple[Array, Array] = kept.neurons, kept.groups
    return parts[0].tobytes(), parts[1].tobytes()
