"""The frames of a run are the arrays of `gprune arrays`, and what is made of a model is what the run made."""

import doctest
import importlib
import inspect
import json

import numpy as np
import pytest

import gprune
from gprune import pipeline
from gprune.api import frames
from gprune.api.frames import GROUP, NEURON
from gprune.pipeline import arrays
from gprune.records import Agreement
from gprune.store import Store


@pytest.fixture
def arrays_of_run(run):
    return arrays.collect_arrays(pipeline.opened(run.study, Store()))


def of_units(frame, column, unit):
    """(layers, units) of one kind."""
    rows = frame[frame["unit"] == unit]
    return rows.pivot(index="layer", columns="index", values=column).to_numpy()


def test_drift_and_modules_are_the_arrays(run, arrays_of_run):
    for name in ("drift", "signed_drift", "resample_drift_primary", "resample_drift_auxiliary", "half_drift"):
        assert np.array_equal(run.drift[name].to_numpy().reshape(arrays_of_run[name].shape), arrays_of_run[name])
    labels = run.neurons.pivot(index="layer", columns="neuron", values="module").to_numpy()
    assert np.array_equal(labels, arrays_of_run["labels"])
    for name in ("layer", "size", "drift", "score", "u_primary", "u_auxiliary", "adapted", "source"):
        assert np.array_equal(run.modules[name], arrays_of_run[f"module_{name}"])
    preview = run.adapt()
    assert preview.drift_threshold == arrays_of_run["drift_threshold"]
    assert preview.score_threshold == arrays_of_run["score_threshold"]


def test_agreement_has_a_row_a_comparison_and_layer() -> None:
    first, second = np.array([0.1, 0.2, 0.3]), np.array([0.4, 0.5, 0.6])
    rows = frames.agreement(Agreement(("swap", "seed"), np.stack([first, second]), np.stack([second, first])))
    assert list(rows["comparison"]) == ["swap"] * 3 + ["seed"] * 3 and list(rows["layer"]) == [0, 1, 2] * 2
    assert np.array_equal(rows["ari"], [*first, *second])
    assert np.array_equal(rows["overlap"], [*second, *first])


def test_scores_are_the_arrays(run, arrays_of_run):
    for text in ("primary", "auxiliary"):
        assert np.array_equal(of_units(run.scores, text, NEURON), arrays_of_run[f"scores_{text}_ffn"])
        assert np.array_equal(of_units(run.scores, text, GROUP), arrays_of_run[f"scores_{text}_heads"])
    assert np.array_equal(of_units(run.scores, "adapted", NEURON), arrays_of_run["scores_adapted_ffn"])


def test_masks_are_the_arrays(run, arrays_of_run):
    assert list(run.masks) == ["gprune", "flap", "flap_no_bias", "wanda_sp"]
    for method, ending in (("gprune", ""), ("flap", "_flap"), ("wanda_sp", "_wanda_sp")):
        assert np.array_equal(of_units(run.masks[method], "kept", NEURON), arrays_of_run[f"ffn_mask{ending}"])
        assert np.array_equal(of_units(run.masks[method], "kept", GROUP), arrays_of_run[f"head_mask{ending}"])


def test_rasa_as_in_the_run_keeps_what_the_run_keeps_and_other_thresholds_do_not(run):
    assert run.adapt().masks.equals(run.masks["gprune"])
    other = run.adapt(drift_quantile=0.0, score_quantile=1.0)
    assert other.adapted == len(run.modules)
    smaller = run.adapt(retention=0.3)
    assert abs(smaller.retention - 0.3) < 0.02 and smaller.masks["kept"].sum() < other.masks["kept"].sum()


def test_models_and_measurements_are_those_of_the_run(run):
    evaluation = run.study.evaluation
    present = run.perplexity.set_index(["method", "text"])
    for method in ("dense", "gprune", "flap"):
        model = run.model(method)
        row = present.loc[method, evaluation.texts[0]]
        assert model.num_parameters() == row["parameters"]
        result = gprune.measure.perplexity(
            model, run.tokenizer, evaluation.texts[0], length=evaluation.length, windows=evaluation.windows
        )
        assert result.perplexity == pytest.approx(row["perplexity"], rel=1e-6)


def test_scores_and_masks_of_a_model_at_hand_are_those_of_the_run(run):
    model, calibration = run.model("dense"), run.study.calibration
    model.train()
    rendered = {"samples": calibration.samples, "length": calibration.length, "batch": calibration.batch}
    result = gprune.scores(model, run.study.primary, "flap", tokenizer=run.tokenizer, **rendered)
    # the passes are of other sequences together, in float32
    assert np.allclose(result["score"], run.scores["primary"], rtol=1e-5)
    assert model.training and all(parameter.requires_grad for parameter in model.parameters())
    masks = run.masks["flap_no_bias"].sample(frac=1.0, random_state=0)
    smaller = gprune.prune(model, masks)
    assert smaller.num_parameters() == run.model("flap_no_bias").num_parameters()
    ids = run.tokenizer("Some words.", return_tensors="pt")["input_ids"]
    same = (run.model("flap_no_bias")(ids).logits - smaller(ids).logits).detach()
    assert float(same.abs().max()) == 0.0


MODULES = ("api.held", "api.opening", "api.preview", "api.results", "api.measure")


def docstrings():
    """Return the docstrings of all public names, and of the members of a run."""
    results = {name: inspect.getdoc(getattr(gprune, name)) or "" for name in gprune.__all__}
    results |= {f"measure.{name}": getattr(gprune.api.measure, name).__doc__ for name in gprune.measure.__all__}
    results.pop("measure")
    offered = {name: value for name, value in vars(gprune.Run).items() if not name.startswith("_")}
    return results | {f"Run.{name}": inspect.getdoc(value) or "" for name, value in offered.items()}


def test_every_public_name_has_an_example():
    assert [name for name, words in docstrings().items() if ">>> " not in words] == []


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_run(at_home, module):
    failed = doctest.testmod(importlib.import_module(f"gprune.{module}"))
    assert failed.failed == 0 and failed.attempted >= 4


def test_the_example_of_a_study_runs():
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner()
    for result in finder.find(gprune.Study, "Study", globs={}):
        assert runner.run(result).failed == 0
    assert runner.tries == 3


def test_the_example_of_the_docs_runs_without_a_network(at_home, project):
    text = (project / "docs" / "python.md").read_text(encoding="utf-8")
    code = text.split("## On the bundled demo", 1)[1].split("```python\n", 1)[1].split("```", 1)[0]
    created: dict = {}
    exec(compile(code, "docs/python.md", "exec"), created)
    assert {"dense", "gprune", "flap"} <= set(created["table"].index)
    assert created["smaller"].num_parameters() < created["run"].model("dense").num_parameters()
    assert created["result"].perplexity > 1 and len(created["tokens"]) > 12


def annotations():
    """Every parameter and result of what the package offers, by name."""
    offered = [getattr(gprune, name) for name in gprune.__all__ if name != "measure"]
    functions = [item for item in offered if inspect.isfunction(item)] + [gprune.measure.perplexity]
    for item in (gprune.Run, gprune.Preview):
        members = [part for name, part in vars(item).items() if not name.startswith("_")]
        functions += [
            part.fget if isinstance(part, property) else part
            for part in members
            if callable(part) or isinstance(part, property)
        ]
    for function in functions:
        for name, kind in function.__annotations__.items():
            yield f"{function.__qualname__}.{name}", str(kind)


def test_editors_are_told_the_types_of_what_the_package_gives_and_takes():
    result = dict(annotations())
    assert len(result) > 40
    # what a figure can be told differs by its name
    assert [name for name, kind in result.items() if kind == "Any"] == ["Run.figure.options"]
    assert result["Run.model.return"] == result["prune.return"] == "LanguageModel"


def test_the_notebook_is_short_and_is_kept_without_outputs(project):
    cells = json.loads((project / "examples" / "quickstart.ipynb").read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(cells) < 10
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
