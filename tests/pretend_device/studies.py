"""Tiny studies through every stage, once on the CPU and once on the pretend device, and what differs."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import strongest
import tiny_study
from pretend_device import backend, waits

from gprune import pipeline
from gprune.models.export import checkpoint
from gprune.models.loading import load
from gprune.pipeline import stages
from gprune.pipeline.stages import Results
from gprune.pipeline.stages.graph import Stage
from gprune.store import Store
from gprune.study import from_dict
from gprune.study.methods import RECOMMENDED

SAMPLED_TEXT, FRESH_TEXT = "self:#keep=0.5", "self:#seed=1&temperature=0.9"
OF_EACH_KIND = ["dense", "gprune", "gates", "llm_pruner", "wanda_sp", "flap", "flap_pooled", "fang", "osscar"]
OF_EACH_KIND += ["slimllm", "recommended"]
WHOLE = {
    "contexts": {"count": 3, "dimensions": 4, "tokens": 64},
    "baselines": {"taylor_samples": 4, "taylor_length": 8},
}
"""what methods of every kind need, at sizes that fit the texts"""
# what a run takes and where it ran are no results
_UNLIKE = {"speed"}
STEADY = {"shape", "size", "norms", "tokens", "statistics", "scores", "overlap"}
"""kinds of results that follow from numbers without a decision in between"""


@dataclass(frozen=True)
class BothRuns:
    """A study that has run on both devices."""

    cpu: Results
    device: Results
    keys: dict[str, str]
    waits: waits.Waits


def run(
    workshop: dict[str, Any],
    name: str,
    evaluation: dict[str, Any] | None = None,
    *,
    until: str = "all",
    on_device: dict[str, Any] | None = None,
    devices: int = 1,
    **changes: Any,
) -> BothRuns:
    """Run a study on the CPU and on the pretend device, each in a cache of its own.

    Args:
        workshop: folder, model and texts, as `tiny_study.workshop` gives them.
        name: folder of the caches.
        evaluation: settings of the evaluation that are not the tiny study's.
        until: the last result to compute.
        on_device: settings of the second run alone, which change no result.
        devices: number of pretend devices of the second run.
        changes: other settings that are not the tiny study's.
    """
    values = tiny_study.settings(workshop["model"], workshop["texts"], **changes)
    values["evaluation"] = values["evaluation"] | (evaluation or {})
    folder = workshop["folder"] / name
    cpu, keys = _run(values | {"device": "cpu"}, folder / "cpu", until)
    with backend.active(count=devices), waits.count_waits() as waited:
        device, device_keys = _run(values | {"device": "auto"} | (on_device or {}), folder / "device", until)
    assert keys == device_keys and waited.count
    return BothRuns(cpu, device, keys, waited)


def _run(values: dict[str, Any], cache: Path, until: str) -> tuple[Results, dict[str, str]]:
    study, store = from_dict(values), Store(cache)
    result = pipeline.run(study, store, lambda *_: None, until)
    assert result["unavailable"] == {} and not result.get("missing_tasks")
    return pipeline.opened(study, store), result["keys"]


def differences(runs: BothRuns, tolerance: float, kinds: Container[str] | None = None) -> list[str]:
    """Return a sentence for every result that differs between the devices.

    Args:
        runs: the two runs.
        tolerance: largest difference of numbers, relative to the largest number of their array; labels,
            masks and choices have to be equal.
        kinds: kinds of results that are compared; all by default.
    """
    reference, result = stages.stages_by_name(runs.cpu.graph), []
    for name in runs.keys:
        stage = reference[name]
        if stage.kind in _UNLIKE or (kinds is not None and stage.kind not in kinds):
            continue
        actual, expected = runs.cpu.record(stage), runs.device.record(stage)
        if stage.kind == "positions":
            result += _unlike_positions(runs, stage, tolerance)
            continue
        if stage.kind == "checkpoint":
            actual, expected = (_weights(item.model_folder(stage)) for item in (runs.cpu, runs.device))
        result += _unlike(name, actual, expected, tolerance)
    return result


def _unlike_positions(runs: BothRuns, stage: Stage, tolerance: float) -> list[str]:
    """Positions of both devices against the activations that they name on the CPU."""
    study, text = runs.cpu.graph.study, stage.id.texts[0]
    tokens = runs.cpu.get(stages.tokens, text)
    model = load(study.model, "cpu", study.dtype)
    activations = strongest.recorded(model, tokens.ids, study.calibration.batch)
    pair = (item.record(stage) for item in (runs.cpu, runs.device))
    return [f"{stage.name}: {words}" for item in pair for words in strongest.faults(item, activations, tolerance)]


def _weights(folder: Path) -> dict[str, Any]:
    model = checkpoint.load_verified(folder)
    return {name: tensor.float().numpy() for name, tensor in model.state_dict().items()}


def mask_agreement(runs: BothRuns) -> dict[str, float]:
    """Return the share of neurons and groups that both devices decide equally, by masks."""
    reference, result = stages.stages_by_name(runs.cpu.graph), {}
    for stage in (reference[name] for name in runs.keys if reference[name].kind == "masks"):
        masks = [mask.record(stage) for mask in (runs.cpu, runs.device)]
        units = [np.concatenate([mask.ffn.ravel(), mask.heads.ravel()]) for mask in masks]
        result[stage.name] = float(np.mean(units[0] == units[1]))
    choices = [stages.find_choice(results, RECOMMENDED) for results in (runs.cpu, runs.device)]
    if None not in choices and choices[0].chosen != choices[1].chosen:
        # two candidates of nearly the same loss: the masks of each are compared above
        result.pop(f"masks_{RECOMMENDED}", None)
    return result


def _unlike(name: str, expected: Any, actual: Any, tolerance: float) -> list[str]:
    if is_dataclass(expected):
        expected, actual = ({f.name: getattr(item, f.name) for f in fields(item)} for item in (expected, actual))
    if isinstance(expected, dict):
        pairs = [(f"{name}.{key}", expected[key], actual[key]) for key in expected]
    elif isinstance(expected, list | tuple):
        pairs = [(f"{name}[{location}]", *pair) for location, pair in enumerate(zip(expected, actual, strict=True))]
    else:
        return _unlike_values(name, np.asarray(expected), np.asarray(actual), tolerance)
    return [line for item in pairs for line in _unlike(*item, tolerance)]


def _unlike_values(name: str, expected: np.ndarray, actual: np.ndarray, tolerance: float) -> list[str]:
    if expected.shape != actual.shape:
        return [f"{name}: {expected.shape} and {actual.shape}"]
    if expected.dtype.kind != "f":
        share = np.mean(expected != actual)
        return [f"{name}: decided otherwise in {share:.1%} of its places"] if share else []
    if not np.array_equal(np.isfinite(expected), np.isfinite(actual)):
        return [f"{name}: not finite in other places"]
    finite = np.isfinite(expected)
    largest = np.abs(expected[finite]).max(initial=0)
    difference = np.abs(expected[finite] - actual[finite]).max(initial=0)
    if difference <= tolerance * max(largest, 1e-30):
        return []
    return [f"{name}: {difference:.2e} apart, the largest is {largest:.2e}"]
