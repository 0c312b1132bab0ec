"""Scales are learned after any masks and any other repair of a study, and known wherever its model is."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tiny_study
import torch
from plugins.conftest import site as site  # noqa: PLC0414
from plugins.packages import install, new_process
from tiny_study import results_of
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from gprune import pipeline
from gprune.__main__ import main
from gprune.analysis.scales import scale_histogram
from gprune.app.preview import Question, Source, repair_of
from gprune.app.preview.requests import resolve
from gprune.evaluation.perplexity import perplexity
from gprune.models.export import checkpoint, padded
from gprune.pipeline import stages
from gprune.pipeline.estimate.dimensions import of_model
from gprune.pipeline.estimate.memory import Case, memory_need
from gprune.pipeline.stages import Graph, RunContext
from gprune.pruning.sparsity import tuning
from gprune.pruning.surgery import cut
from gprune.records import REPAIRS, PrunedModel
from gprune.store import Store
from gprune.store.resumption import VARIABLE
from gprune.study import from_dict
from gprune.system.errors import SettingsError

pytestmark = pytest.mark.slow
SCALES = {"steps": 6, "joint_steps": 4, "batch": 6, "samples": 8}


def values_in(folder, **changes):
    values = tiny_study.made(folder, device="cpu", scales=SCALES)
    values["methods"] = ["dense", "gprune", "flap", "gates_scaled"]
    values["repair"] = {"kind": "least_squares+scales", "sampled": "self:#length=24"}
    return values | changes


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A whole study whose methods have least squares on A and B, then scales on A, B and text of the model."""
    folder = tmp_path_factory.mktemp("scaled")
    return tiny_study.finished(values_in(folder), folder / "cache")


def test_keys_tell_masks_repair_texts_and_settings_and_share_what_comes_before(run):
    graph = results_of(run[0]).graph
    text, scaled = graph.study.evaluation.texts[0], stages.scales(graph, "flap")
    assert [stage.name for stage in stages.required_stages(scaled)] == [
        "masks_flap", "repaired_flap", "tokens_primary", "tokens_auxiliary", "tokens_sampled",
    ]  # fmt: skip
    plain = Graph(graph.study.with_settings({"repair.kind": "least_squares"}), graph.inputs)
    with pytest.raises(SettingsError, match="no scales are learned for 'flap'"):
        stages.scales(plain, "flap")
    assert stages.repaired_weights(plain, "flap").key == stages.repaired_weights(graph, "flap").key
    assert stages.perplexity(plain, "flap", text).key != stages.perplexity(graph, "flap", text).key
    for name, value in (("scales.steps", 7), ("repair.damping", 7), ("seed", 7), ("scales.gate_rate", 0.1)):
        other = Graph(graph.study.with_settings({name: value}), graph.inputs)
        assert (stages.scales(other, "flap").key == scaled.key) == (name == "scales.gate_rate"), name
    assert stages.masks(other, "gates_scaled").key != stages.masks(graph, "gates_scaled").key


def test_what_is_measured_cut_silenced_and_previewed_is_the_scaled_model(run):
    opened, result = run
    results, text = results_of(opened), opened.study.evaluation.texts[0]
    work = RunContext(opened.study, results.graph.inputs, results.store.texts)
    inputs = {name: results.record(stage) for name, stage in stages.model_inputs(results.graph, "flap").items()}
    scales, masks = inputs["scales"], inputs.pop("masks")
    assert scales.method == "flap" and len(scales.steps) == 6
    np.testing.assert_array_equal(scales.ffn != 0, masks.ffn)
    edges, neurons, groups = scale_histogram(scales, bins=7)
    assert len(edges) == 8 and neurons.sum(1).tolist() == masks.ffn.sum(1).tolist() and groups.shape == (2, 7)
    assert np.abs(scales.ffn[masks.ffn] - 1).mean() > 0.005 and np.abs(scales.biases).mean() > 0.001
    model = PrunedModel(masks, (REPAIRS["least_squares"], REPAIRS["scales"]), inputs)
    live = cut(work.decoder, model)
    expected = perplexity(live, work.stream(text), text, opened.study.evaluation).losses
    np.testing.assert_allclose(results.get(stages.perplexity, "flap", text).losses, expected, rtol=1e-5)
    assert result["parameters"]["flap"] == sum(weight.numel() for weight in live.parameters())
    source = Source(str(results.store.root), results.graph)
    assert resolve(source, Question(text, "flap")).arguments["pruning"].repairs == ("least_squares", "scales")
    # live figures of other masks are fitted without scales
    other = Question(text, "gprune", masks, repair=repair_of(opened.study))
    assert resolve(source, other).arguments["pruning"].repairs == ("least_squares",)


def test_saved_padded_and_exported_models_carry_it(run, tmp_path):
    opened, result = run
    folder, ids = Path(result["checkpoint"]), torch.arange(3, 12)[None]
    assert json.loads((folder / "pruning.json").read_text())["repairs"] == ["least_squares", "scales"]
    live = opened.model("gprune")
    assert torch.equal(checkpoint.load_verified(folder)(ids).logits, live(ids).logits)
    padded.save_padded(folder, tmp_path / "padded")
    ordinary = AutoModelForCausalLM.from_pretrained(tmp_path / "padded")
    torch.testing.assert_close(ordinary(ids).logits, live(ids).logits, rtol=1e-5, atol=1e-5)
    run_name, cache = result["run"], str(results_of(opened).store.root)
    words = ["export", run_name, "flap", str(tmp_path / "scaled"), "--repair", "scales", "--cache", cache]
    assert main(words) == 0
    alone = checkpoint.load_verified(tmp_path / "scaled")(ids).logits
    assert torch.equal(alone, opened.model("flap", repair="scales")(ids).logits)
    assert not torch.allclose(alone, opened.model("flap", repair="none")(ids).logits)


def test_tables_name_texts_and_steps(run):
    scaled, gates = (run[1]["given"][name] for name in ("flap", "gates_scaled"))
    assert scaled["repair"] == "least squares on A and B, then learned scales on A, B and self"
    assert scaled["steps"] == 6 and gates["steps"] == 10 and scaled["texts"] == ["A", "B", "self"]


def test_equal_widths_are_an_ordinary_model(tmp_path):
    values = values_in(tmp_path, methods=["dense", "gates_scaled", "gprune"])
    values["sparsity"] |= {"widths": "equal"}
    values["repair"] |= {"kind": "scales"}
    opened, _ = tiny_study.finished(values, tmp_path / "cache")
    ids, live = torch.arange(3, 12)[None], opened.model("gates_scaled")
    live.save_pretrained(tmp_path / "out")
    assert not list((tmp_path / "out").glob("*.py"))
    assert torch.equal(LlamaForCausalLM.from_pretrained(tmp_path / "out")(ids).logits, live(ids).logits)


def test_a_run_that_was_killed_while_scales_are_learned_ends_with_the_same_bits(run, tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, "0")
    results = results_of(run[0])
    shutil.copytree(results.store.root, tmp_path / "cache", ignore=lambda *_: ["scales", "runs"])
    batches, true = [], tuning.TuningBatches.run

    def stopped(self, *arguments):
        batches.append(arguments)
        if len(batches) == 4:
            raise KeyboardInterrupt
        return true(self, *arguments)

    monkeypatch.setattr(tuning.TuningBatches, "run", stopped)
    study = results.graph.study.with_settings({"methods": ["dense", "flap"]})
    with pytest.raises(KeyboardInterrupt):
        pipeline.run(study, Store(tmp_path / "cache"), lambda *_: None)
    pipeline.run(study, Store(tmp_path / "cache"), lambda *_: None)
    # of six steps three were done before the end
    assert [step for _, step, _ in batches] == [0, 1, 2, 3, 3, 4, 5]
    first = results.get(stages.scales, "flap")
    second = pipeline.opened(study, Store(tmp_path / "cache")).get(stages.scales, "flap")
    for name in ("ffn", "heads", "biases", "steps"):
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes()


def test_the_estimate_counts_learning_scales(run):
    study = run[0].study
    case = Case(of_model(study.model), study, 4, gpu=False)
    more = Case(case.model, study.with_settings({"scales.batch": 12, "scales.steps": 12}), 4, gpu=False)
    graph = results_of(run[0]).graph
    for stage in (stages.scales(graph, "flap"), stages.gates(graph, "gates_scaled")):
        need = memory_need(stage.id, case)
        assert need.setting == "scales.batch" and need.batch == 6
        assert memory_need(stage.id, more).on_device(12) > need.on_device(6) > case.weights


def test_methods_of_other_packages_are_scaled(site, tmp_path):
    install(site)
    with new_process():
        values = values_in(tmp_path, methods=["dense", "even", "size"])
        values["repair"] |= {"kind": "own+scales"}
        result = pipeline.run(from_dict(values), Store(tmp_path / "cache"), lambda *_: None, until="perplexity")
    assert {"even", "size"} <= result["perplexity"].keys() and not result.get("unavailable")
    assert {"scales_even", "scales_size"} <= result["keys"].keys()
