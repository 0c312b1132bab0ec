"""Controls as methods: what they share with a study's other results, and that they change none of them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from synthetic_run import a_study, write_run

from gprune.models.tiny import tiny_decoder
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import all_runs
from gprune.pipeline.stages import Graph, Inputs, RunContext, all_stages, method_inputs, required_stages
from gprune.records import Tokens
from gprune.study import from_dict, run_name
from gprune.study.demo import demo_study
from gprune.study.methods import CONTROLS, DEFAULT, METHODS, METRICS, with_controls

DEMO_KEYS = Path(__file__).parent / "keys" / "demo.txt"
"""every stage of the demo study with its key, as it would be if there were no controls"""
LEARNED = [name for name in CONTROLS if METHODS[name].decision == "learned"]


def inputs_of(study):
    texts = dict.fromkeys(study.evaluation.texts, "")
    return Inputs(
        model="m",
        tokenizer="t",
        precision="float32",
        calibration={"primary": "a", "auxiliary": "b", "substitute": "c"},
        evaluation={text: f"e{number}" for number, text in enumerate(texts)},
    )


def graph_of(study):
    return Graph(study, inputs_of(study))


def keys(study):
    return {stage.name: stage.key for stage in all_stages(graph_of(study))}


def before():
    return dict(line.split() for line in DEMO_KEYS.read_text(encoding="utf-8").splitlines())


def with_all(study, **changes):
    return replace(study, methods=with_controls(study.methods), **changes)


def test_controls_add_stages_and_change_no_key():
    with_them = keys(with_all(demo_study()))
    assert {name: with_them[name] for name in before()} == before()
    added = set(with_them) - set(before())
    assert {f"masks_{name}" for name in CONTROLS} <= added
    assert not set(CONTROLS) & {*DEFAULT, *demo_study().methods}


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("control", ["msl_random", "gprune_no_rasa"])
def test_a_control_has_the_keys_of_a_study_with_its_settings(control, metric):
    study = replace(demo_study(), metric=metric, methods=("gprune",))
    ablated = graph_of(study.with_settings(METHODS[control].changes))
    graph = graph_of(replace(study, methods=(control,)))
    text = study.evaluation.texts[0]
    assert stages.learning(graph, control).key == stages.learning(ablated).key
    assert stages.masks(graph, control).key == stages.masks(ablated).key
    actual = stages.perplexity(graph, control, text), stages.perplexity(ablated, "gprune", text)
    assert actual[0].key == actual[1].key != stages.perplexity(graph_of(study), "gprune", text).key


def test_one_ratio_of_wanda_sp_is_decided_once_under_both_of_its_names():
    graph = graph_of(demo_study())
    assert stages.masks(graph, "wanda_sp_uniform").key == stages.masks(graph, "wanda_sp_dense").key
    fixed = graph_of(demo_study().with_settings({"sparsity.attention": "gprune"}))
    assert stages.masks(fixed, "wanda_sp_uniform").key != stages.masks(fixed, "wanda_sp_dense").key
    assert stages.masks(fixed, "wanda_sp_dense").key == stages.masks(graph, "wanda_sp_dense").key


def test_fixed_attention_is_gprunes_and_changes_controls_alone():
    study = with_all(demo_study())
    fixed = study.with_settings({"sparsity.attention": "gprune"})
    first, second = keys(study), keys(fixed)
    changed = {name for name in first if name.startswith("masks_") and first[name] != second[name]}
    assert changed == {f"masks_{name}" for name in CONTROLS}
    graph = graph_of(fixed)
    for name in CONTROLS:
        stage = stages.masks(graph, name)
        deciding = stages.learning(graph, name) if name in LEARNED else stage
        assert stages.masks(graph) in required_stages(deciding), name
    assert stages.learning(graph).key == stages.learning(graph_of(study)).key


def test_run_names_are_safe_and_follow_the_settings_but_not_the_display_name():
    study = demo_study()
    name = run_name(study)
    assert name.startswith("bundled-demo-") and "/" not in name
    assert run_name(study.renamed("x/../y")).rpartition("-")[2] == name.rpartition("-")[2]
    assert run_name(study.with_settings({"seed": 1})) != name
    odd = from_dict({"model": "../m/ö", "primary": "a", "auxiliary": "b"})
    assert run_name(odd).startswith("study-") or run_name(odd)[0].isalnum()


def test_contexts_of_all_seeds_share_inputs_and_components(tmp_path):
    study = demo_study().with_settings({"contexts.count": 3, "contexts.dimensions": 4, "contexts.tokens": 60})
    work = RunContext(study, Inputs.unknown(study), tmp_path)
    work.__dict__["decoder"] = decoder = tiny_decoder()
    ids = np.random.default_rng(0).integers(0, 64, (20, 6)).astype(np.int32)
    first, second = (Tokens(text, text, rows, 10) for text, rows in (("a", ids[:10]), ("b", ids[10:])))
    graph = Graph(study)
    created = [
        stages.contexts(graph, other_seed=seed).make(work, tokens=text)
        for text, seed in ((first, False), (first, True), (second, False))
    ]
    assert decoder.forward_tokens == 2 * 60
    for item, other, same in ((created[0], created[1], True), (created[0], created[2], False)):
        assert np.array_equal(item.components, other.components) == same
        assert np.array_equal(item.mean, other.mean) == same
        assert not np.array_equal(item.centroids, other.centroids)


COMPARED_METHODS = ("dense", "gprune", "flap", "flap_pooled", "flap_uniform", "msl_layers")


def run_of(root, **changes):
    write_run(root, study=a_study(methods=COMPARED_METHODS, **changes))
    return all_runs(str(root))[0][0]


def test_texts_and_steps_follow_from_what_the_masks_rest_on(tmp_path):
    run = run_of(tmp_path)
    results = {name: method_inputs(run.results, name) for name in COMPARED_METHODS}
    assert results.pop("dense") is None
    reference = {name: item for name, item in results.items() if item is not None}
    texts = {name: "".join(item.texts) for name, item in reference.items()}
    assert texts == {"gprune": "AB", "flap": "A", "flap_pooled": "AB", "flap_uniform": "A", "msl_layers": "AB"}
    steps = len(run.load(stages.learning).steps)
    learned = {name: item.steps for name, item in reference.items() if item.steps}
    assert learned == {"gprune": steps, "msl_layers": steps}
    assert not any(item.attention for item in reference.values())
    assert {name for name, item in reference.items() if item.repairs} == {"flap", "flap_pooled"}
