"""The contract of a pruning method."""

from dataclasses import replace

import numpy as np

from gprune.plugins import Kept, Method, Problem, checks
from gprune.plugins.calls import call
from gprune.plugins.registry import PluginInfo
from gprune.plugins.testing import samples
from gprune.plugins.testing.samples import ContractError, describe_checked, report_case, require
from gprune.records import ModelShape, UnitScores

RETENTIONS = (0.4, 0.6, 0.85)
_MODELS = {"llama, float32": ("llama", "float32"), "qwen2, float16": ("qwen2", "float16")}
_SIZES = {"layers": 2, "hidden": 16, "neurons": 61, "heads": 4, "kv_heads": 2, "head_width": 4}


def check_method(method: Method, *, draws: bool = False) -> None:
    """Check the decisions of a method as a run uses them.

    Shapes and types, a unit of each kind in every layer, the retention, the same decision when asked again; on
    scores that differ by many orders of magnitude and on equal scores; with neurons in another order. A method
    that gets the model is checked on small random ones, in float16 too.

    Args:
        method: the object that the entry point names.
        draws: True for a method that draws random numbers, so that the order of neurons changes its decision.

    Raises:
        ContractError: the method fails a check; the message says which, and on what input.
    """
    if not isinstance(method, Method):
        raise ContractError(f"a method is a gprune.plugins.Method (got {type(method).__name__})")
    plugin = describe_checked(method)
    if method.needs == "scores":
        for case, shape in samples.WIDER.items():
            for retention in RETENTIONS:
                _check_on_scores(plugin, method, shape, retention, f"{case}, retention {retention}", draws)
        return
    for case, (family, dtype) in _MODELS.items():
        for retention in RETENTIONS[1:]:
            _check_on_model(plugin, method, family, dtype, retention, f"{case}, retention {retention}")


def _check_on_scores(
    plugin: PluginInfo, method: Method, shape: ModelShape, retention: float, case: str, draws: bool
) -> None:
    def problem(*scores: UnitScores) -> Problem:
        return Problem(shape, retention, 0, scores=scores[: 2 if method.texts == "both" else 1])

    plain = problem(samples.scores(shape, 2), samples.scores(shape, 3))
    first = _decide_twice(plugin, method, plain, case)
    steep = samples.scores(shape, 4, power=12.0)
    _decide(plugin, method, problem(steep, steep), f"{case}, scores of many orders of magnitude")
    equal = samples.scores(shape, 2, power=0.0)
    _decide(plugin, method, problem(equal, equal), f"{case}, equal scores")
    if draws:
        return
    order = np.random.default_rng(6).permutation(shape.neurons)
    permuted = problem(*(replace(scores, ffn=scores.ffn[:, order]) for scores in plain.scores))
    kept = _decide(plugin, method, permuted, case)
    require(
        np.array_equal(kept.neurons, first.neurons[:, order]),
        f"{case}: with the neurons in another order the method keeps others: a decision may not depend on a "
        "neuron's place, unless the method draws (check_method(..., draws=True))",
    )


def _check_on_model(plugin: PluginInfo, method: Method, family: str, dtype: str, retention: float, case: str) -> None:
    import torch

    from gprune.models.tiny import tiny_decoder

    decoder = tiny_decoder(family, **_SIZES, dtype=getattr(torch, dtype))
    generator = np.random.default_rng(7)
    count = 2 if method.texts == "both" else 1
    tokens = tuple(generator.integers(3, 64, (8, 12)).astype(np.int32) for _ in range(count))
    scores = tuple(samples.scores(decoder.shape, seed) for seed in range(2, 2 + count))
    problem = Problem(decoder.shape, retention, 0, scores if method.needs == "both" else (), decoder.model, tokens)
    _decide_twice(plugin, method, problem, case)


def _decide_twice(plugin: PluginInfo, method: Method, problem: Problem, case: str) -> Kept:
    first, second = (_decide(plugin, method, problem, case) for _ in range(2))
    require(
        np.array_equal(first.neurons, second.neurons) and np.array_equal(first.groups, second.groups),
        f"{case}: asked twice, the method decides differently: draw from np.random.default_rng(problem.seed) "
        "alone, and keep nothing between calls",
    )
    return first


def _decide(plugin: PluginInfo, method: Method, problem: Problem, case: str) -> Kept:
    with report_case(case):
        answer = call(plugin, "decide", method.decide, problem)
        return checks.require_kept(answer, problem.shape, problem.retention)
