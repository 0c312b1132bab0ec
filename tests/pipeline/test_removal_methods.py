"""OSSCAR and SlimLLM in a whole study: their keys, what they were given, their own repair and others."""

import pytest
import tiny_study
from tiny_study import silent

from gprune import pipeline
from gprune.pipeline import stages
from gprune.pipeline.stages.results import method_inputs
from gprune.store import Store
from gprune.study import from_dict

pytestmark = pytest.mark.slow

METHODS = ["dense", "osscar", "slimllm", "flap"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("removal")
    study, store = from_dict(tiny_study.made(folder, methods=METHODS)), Store(folder / "cache")
    return study, store, pipeline.run(study, store, silent, until="perplexity")


def test_they_have_read_a_alone_and_fit_weights_to_it(finished):
    study, store, result = finished
    results = pipeline.opened(study, store)
    for name, passes, repair in (("osscar", 6, "least squares"), ("slimllm", 7, "affine repair")):
        outcome = method_inputs(results, name)
        assert (outcome.texts, outcome.steps, outcome.forward, outcome.backward) == (("A",), 0, passes, 0)
        assert outcome.repaired_with == f"{repair} on A"
        masks = results.get(stages.masks, name)
        shape = results.get(stages.shape)
        assert masks.method == name
        assert abs(masks.retention - study.retention) * shape.decoder_weights <= shape.neuron_weights
        assert result["parameters"][name] < result["parameters"]["dense"]
        weights = results.get(stages.repaired_weights, name)
        before, after = weights.errors.T
        assert (after <= before).all() and before.any()
    biases = 2 * shape.layers * shape.hidden
    osscar, slimllm = (results.get(stages.masks, name) for name in ("osscar", "slimllm"))
    lost = int((osscar.ffn.sum() - slimllm.ffn.sum()) * shape.neuron_weights)
    lost += int((osscar.heads.sum() - slimllm.heads.sum()) * shape.group_weights)
    assert result["parameters"]["slimllm"] - result["parameters"]["osscar"] == biases - lost


def test_another_repair_takes_the_place_of_theirs_and_leaves_their_masks(finished):
    study, store, result = finished
    results = pipeline.opened(study, store)
    text = study.evaluation.texts[0]
    for kind in ("none", "bias", "least_squares"):
        other = study.with_settings({"repair.kind": kind})
        graph = stages.Graph(other, results.graph.inputs)
        for name in ("osscar", "slimllm"):
            assert stages.masks(graph, name).key == stages.masks(results.graph, name).key
            key = stages.perplexity(graph, name, text).key
            assert key != stages.perplexity(results.graph, name, text).key
    bare = pipeline.run(study.with_settings({"repair.kind": "none"}), store, silent, until="perplexity")
    for name in ("osscar", "slimllm"):
        assert bare["keys"][f"masks_{name}"] == result["keys"][f"masks_{name}"]
        assert f"repaired_{name}" not in bare["keys"]
        assert bare["perplexity"][name] != result["perplexity"][name]
    # with its own settings in the study's the weights are fitted alike, but for what damping counts in
    repair = {"repair.kind": "affine", "repair.texts": "primary", "repair.target": "own_inputs", "repair.damping": 0.0}
    affine = pipeline.run(study.with_settings(repair), store, silent, until="perplexity")
    for text, value in result["perplexity"]["slimllm"].items():
        assert affine["perplexity"]["slimllm"][text] == pytest.approx(value, rel=1e-6)
