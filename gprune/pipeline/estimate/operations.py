"""How much a stage computes, and how fast that goes here: floating-point operations over a stated rate.

A weight and a token make two operations. The weights are frozen while thresholds are learned, so a way back
costs as much as a way forward. Rates are those of the latest run of this cache, or of a matrix product that
is timed on the spot; on a GPU that has run nothing yet the rate is assumed, and said to be.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from gprune.pipeline.estimate.dimensions import Case, Dimensions, of_model
from gprune.pipeline.estimate.memory import KRYLOV, fitted_texts
from gprune.pipeline.estimate.training import is_joint
from gprune.pipeline.stages import StageId
from gprune.pipeline.stages.graph import LEARNING
from gprune.pipeline.stages.inputs import FRESH, measured_on
from gprune.records.repairs import FITTED
from gprune.study import RecoverySettings, ScaleSettings, Study
from gprune.study.methods import METHODS, of_masks
from gprune.system.errors import ModelError

RATES = {"gpu": 5e13, "cpu": 5e10}
"""floating-point operations a second where none were measured: a data-centre GPU, two cores"""
TEXT_TOKENS = 340_000
"""tokens of an evaluation text that is measured whole: WikiText-2's test split has about as many"""
_LEAST_SECONDS = 1.0
"""a stage that took less says little of a machine"""
_SIDE = 1024
"""rows of the matrices whose product is timed"""
_LLOYD = 15
"""steps that k-means is reckoned to take"""


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast a machine computes."""

    operations: float
    """floating-point operations a second"""
    source: str
    """where that comes from, as a remark"""

    @property
    def words(self) -> str:
        """The rate with its source."""
        return f"{self.operations / 1e12:.3g} TFLOP/s ({self.source})"


def operations(stage: StageId, model: Dimensions, study: Study) -> float | None:
    """Floating-point operations of a stage; 0 for next to nothing, None where nobody can tell before."""
    foreign = stage.kind == "masks" and of_masks(stage.method).foreign
    if foreign or stage.kind in ("accuracy", "speed", "sampled"):
        return None
    plain = 2.0 * model.shape.decoder_weights
    return plain * _passes(stage, study) + _besides(stage, model, study)


def _passes(stage: StageId, study: Study) -> float:
    """Tokens that go through the dense model, those that come back counted again."""
    calibration, evaluation = study.calibration, study.evaluation
    one = float(calibration.samples * calibration.length)
    if stage.kind in ("perplexity", "recovered_perplexity"):
        kept = 1.0 if METHODS[stage.method].decision == "none" else study.retention
        return kept * (evaluation.tokens or TEXT_TOKENS)
    tuned = _tuned(stage, study)
    if tuned is not None:
        # the dense model sees each sequence once, the student goes there and back
        trained, read, kept = tuned
        return min(trained, read) + 2 * kept * trained
    if stage.kind in LEARNING:
        # student, two ways back, and the teacher in the first epoch
        return 2 * one * (3 * _epochs(stage, study) + 1)
    if stage.kind == "masks" and of_masks(stage.method).layered:
        return {"sequential": 2, "osscar": 3, "slimllm": 4}[of_masks(stage.method).decision] * one
    if stage.kind == "scores" and stage.metric == "llm_pruner":
        return 3.0 * study.baselines.taylor_samples * study.baselines.taylor_length
    if stage.kind == FITTED:
        return fitted_texts(stage, study) * one * (1 + study.retention * 5 / 3)
    if stage.kind == "candidate":
        # each text through the pruned model, and fresh text through the dense one as well
        texts = study.retention * len(measured_on(study)) + (FRESH in measured_on(study))
        return float(study.choice.sequences * calibration.length) * texts
    known = {
        "statistics": one,
        "positions": one,
        "contexts": min(one, float(study.contexts.tokens)),
        "context_statistics": one if "forward" in stage.variant else 2 * one,
    }
    return known.get(stage.kind, 0.0)


def _epochs(stage: StageId, study: Study) -> int:
    """Passes over both texts of a stage that learns; no method is that of the name of its kind."""
    return study.sparsity.epochs * (METHODS[stage.method].epochs if stage.method else 1)


def _tuned(stage: StageId, study: Study) -> tuple[float, float, float] | None:
    """Tokens of all steps, tokens of the texts and kept share of the student; None where nothing is tuned."""
    settings: RecoverySettings | ScaleSettings = study.recovery
    samples, length = study.calibration.samples, study.calibration.length
    steps, kept = settings.steps, study.retention
    if stage.kind != "recovered":
        settings, joint = study.scales, is_joint(stage)
        if not joint and stage.kind != "scales":
            return None
        steps, kept = (settings.joint_steps, 1.0) if joint else (settings.steps, kept)
        samples = min(samples, settings.samples)
    sequences = len(settings.roles) * samples
    return float(steps * min(settings.batch, sequences) * length), float(sequences * length), kept


def _besides(stage: StageId, model: Dimensions, study: Study) -> float:
    """Operations outside of the model's layers."""
    shape, one = model.shape, 2.0 * study.calibration.samples * study.calibration.length
    head = 2.0 * shape.hidden * model.vocabulary
    rows = 2.0 * shape.neurons * shape.neuron_weights
    bcm = study.modularization
    tuned = _tuned(stage, study)
    if tuned is not None:
        # a factor and a token make two operations on each of three ways
        factors = Case(model, study, 4, gpu=False).factors if stage.kind == "recovered" else 0.0
        return tuned[0] * (4 * head + 6 * factors)
    if stage.kind in LEARNING:
        return one * _epochs(stage, study) * 4 * head
    if stage.kind == "masks" and of_masks(stage.method).decision in ("osscar", "slimllm"):
        # products of all inputs; an inverse, which the rounds take apart, or the moments of the output
        wide = np.array([shape.neurons, shape.heads * shape.head_width], dtype=float)
        return float(shape.layers * (one * wide * wide + 3 * wide**3 + 2 * wide * wide * shape.hidden).sum())
    if stage.kind == FITTED:
        kept = study.retention * np.array([shape.neurons, shape.heads * shape.head_width])
        tokens = fitted_texts(stage, study) * one / 2
        moments = 2 * tokens * (kept * kept + kept * shape.hidden)
        return float(shape.layers * (moments + kept**3 / 3 + 2 * kept * kept * shape.hidden).sum())
    if stage.kind == "contexts":
        tokens = min(one / 2, float(study.contexts.tokens))
        # each block of directions meets the inputs twice
        return shape.layers * 4.0 * tokens * shape.hidden * KRYLOV * study.contexts.dimensions / 2
    if stage.kind == "clusters":
        return shape.layers * rows * 2 * _LLOYD * bcm.restarts * sum(bcm.candidates)
    if stage.kind == "partition":
        profiles = 2 if bcm.direction == "auto" else 1
        return shape.layers * rows * 3 * bcm.steps * profiles * float(np.mean(bcm.candidates))
    return 0.0


def rate(records: Iterable[Mapping[str, Any]], gpu: bool, precision: str) -> Rate:
    """How fast this machine computes, on a GPU or not, by a cache's records, the latest first."""
    kind = "gpu" if gpu else "cpu"
    for record in records:
        found = _measured(record, kind, precision)
        if found is not None:
            return found
    if gpu:
        return Rate(RATES["gpu"], "assumed: nothing has run on this GPU yet")
    return Rate(_product(), "a matrix product in float32, just timed")


def _measured(record: Mapping[str, Any], kind: str, precision: str) -> Rate | None:
    """The rate of the longest pass that a run has made on such a device in such numbers."""
    known = record.get("provenance") or {}
    if known.get("device") != kind or (known.get("inputs") or {}).get("precision") != precision:
        return None
    taken = {
        name: one
        for name, one in record["stages"].items()
        # a text that the model writes goes through it token by token
        if one.get("passes")
        and (one.get("seconds") or 0.0) >= _LEAST_SECONDS
        # its passes are those of the dense model alone
        and not name.startswith("recovered_")
        and "sampled_" not in name
    }
    calibration = record["study"].get("calibration") or {}
    try:
        model = of_model(str(record["study"]["model"]))
        tokens = float(calibration["samples"] * calibration["length"])
    except (ModelError, KeyError, TypeError):
        return None
    if not taken:
        return None
    name = max(taken, key=lambda one: taken[one]["seconds"])
    passes = sum(taken[name]["passes"].values())
    found = 2.0 * model.shape.decoder_weights * tokens * passes / taken[name]["seconds"]
    return Rate(found, f"measured by {name} of the run {record.get('run', '')}")


@cache
def _product() -> float:
    """Operations a second of one matrix product on this machine's cores, the best of a few."""
    left = np.ones((_SIDE, _SIDE), dtype=np.float32)
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        left @ left
        best = min(best, time.perf_counter() - began)
    return 2.0 * _SIDE**3 / best
