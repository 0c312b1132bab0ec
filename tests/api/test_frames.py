"""The frames of a run are the arrays of `gprune arrays`, and what is made of a model is what the run made."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import gprune
from gprune import pipeline
from gprune.api import frames
from gprune.api.frames import GROUP, NEURON
from gprune.pipeline import arrays
from gprune.records import Agreement
from gprune.store import Store


@pytest.fixture
def run(at_home: Path) -> gprune.Run:
    return gprune.open(gprune.runs()["run"][0])


@pytest.fixture
def known(run: gprune.Run) -> dict[str, np.ndarray]:
    return arrays.collect(pipeline.opened(run.study, Store()))


def of_units(frame: pd.DataFrame, column: str, unit: str) -> np.ndarray:
    """(layers, units) of one kind."""
    rows = frame[frame["unit"] == unit]
    return rows.pivot(index="layer", columns="index", values=column).to_numpy()


def test_drift_and_modules_are_the_arrays(run, known):
    for name in ("drift", "signed_drift", "resample_drift_primary", "resample_drift_auxiliary", "half_drift"):
        assert np.array_equal(run.drift[name].to_numpy().reshape(known[name].shape), known[name])
    labels = run.neurons.pivot(index="layer", columns="neuron", values="module").to_numpy()
    assert np.array_equal(labels, known["labels"])
    for name in ("layer", "size", "drift", "score", "u_primary", "u_auxiliary", "adapted", "source"):
        assert np.array_equal(run.modules[name], known[f"module_{name}"])
    shown = run.adapt()
    assert shown.drift_threshold == known["drift_threshold"]
    assert shown.score_threshold == known["score_threshold"]


def test_agreement_has_a_row_a_comparison_and_layer() -> None:
    first, second = np.array([0.1, 0.2, 0.3]), np.array([0.4, 0.5, 0.6])
    rows = frames.agreement(Agreement(("swap", "seed"), np.stack([first, second]), np.stack([second, first])))
    assert list(rows["comparison"]) == ["swap"] * 3 + ["seed"] * 3 and list(rows["layer"]) == [0, 1, 2] * 2
    assert np.array_equal(rows["ari"], [*first, *second])
    assert np.array_equal(rows["overlap"], [*second, *first])


def test_scores_are_the_arrays(run, known):
    for text in ("primary", "auxiliary"):
        assert np.array_equal(of_units(run.scores, text, NEURON), known[f"scores_{text}_ffn"])
        assert np.array_equal(of_units(run.scores, text, GROUP), known[f"scores_{text}_heads"])
    assert np.array_equal(of_units(run.scores, "adapted", NEURON), known["scores_adapted_ffn"])


def test_masks_are_the_arrays(run, known):
    assert list(run.masks) == ["gprune", "flap", "flap_no_bias", "wanda_sp"]
    for method, ending in (("gprune", ""), ("flap", "_flap"), ("wanda_sp", "_wanda_sp")):
        assert np.array_equal(of_units(run.masks[method], "kept", NEURON), known[f"ffn_mask{ending}"])
        assert np.array_equal(of_units(run.masks[method], "kept", GROUP), known[f"head_mask{ending}"])


def test_rasa_as_in_the_run_keeps_what_the_run_keeps_and_other_thresholds_do_not(run):
    assert run.adapt().masks.equals(run.masks["gprune"])
    other = run.adapt(drift_quantile=0.0, score_quantile=1.0)
    assert other.adapted == len(run.modules)
    smaller = run.adapt(retention=0.3)
    assert abs(smaller.retention - 0.3) < 0.02 and smaller.masks["kept"].sum() < other.masks["kept"].sum()


def test_models_and_measurements_are_those_of_the_run(run):
    evaluation = run.study.evaluation
    there = run.perplexity.set_index(["method", "text"])
    for method in ("dense", "gprune", "flap"):
        model = run.model(method)
        known = there.loc[method, evaluation.texts[0]]
        assert model.num_parameters() == known["parameters"]
        found = gprune.measure.perplexity(
            model, run.tokenizer, evaluation.texts[0], length=evaluation.length, windows=evaluation.windows
        )
        assert found.perplexity == pytest.approx(known["perplexity"], rel=1e-6)


def test_scores_and_masks_of_a_model_at_hand_are_those_of_the_run(run):
    model, calibration = run.model("dense"), run.study.calibration
    model.train()
    drawn = {"samples": calibration.samples, "length": calibration.length, "batch": calibration.batch}
    found = gprune.scores(model, run.study.primary, "flap", tokenizer=run.tokenizer, **drawn)
    # the passes are of other sequences together, in float32
    assert np.allclose(found["score"], run.scores["primary"], rtol=1e-5)
    assert model.training and all(parameter.requires_grad for parameter in model.parameters())
    masks = run.masks["flap_no_bias"].sample(frac=1.0, random_state=0)
    smaller = gprune.prune(model, masks)
    assert smaller.num_parameters() == run.model("flap_no_bias").num_parameters()
    ids = run.tokenizer("Some words.", return_tensors="pt")["input_ids"]
    same = (run.model("flap_no_bias")(ids).logits - smaller(ids).logits).detach()
    assert float(same.abs().max()) == 0.0
