"""Controls as methods: what they share with a study's other results, and that they change none of them."""

from dataclasses import replace
from pathlib import Path

import pytest

from gprune.pipeline import stages
from gprune.pipeline.stages import Graph, Inputs, every, needed
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
    return {stage.name: stage.key for stage in every(graph_of(study))}


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
    ours = stages.perplexity(graph, control, text), stages.perplexity(ablated, "gprune", text)
    assert ours[0].key == ours[1].key != stages.perplexity(graph_of(study), "gprune", text).key


def test_one_ratio_of_wanda_sp_is_decided_once_under_both_of_its_names():
    graph = graph_of(demo_study())
    assert stages.masks(graph, "wanda_sp_uniform").key == stages.masks(graph, "wanda_sp_dense").key
    fixed = graph_of(demo_study().with_settings({"sparsity.attention": "gprune"}))
    assert stages.masks(fixed, "wanda_sp_uniform").key != stages.masks(fixed, "wanda_sp_dense").key
    assert stages.masks(fixed, "wanda_sp_dense").key == stages.masks(graph, "wanda_sp_dense").key


def test_fixed_attention_is_gprunes_and_changes_controls_alone():
    own, fixed = with_all(demo_study()), None
    fixed = own.with_settings({"sparsity.attention": "gprune"})
    first, second = keys(own), keys(fixed)
    changed = {name for name in first if name.startswith("masks_") and first[name] != second[name]}
    assert changed == {f"masks_{name}" for name in CONTROLS}
    graph = graph_of(fixed)
    for name in CONTROLS:
        stage = stages.masks(graph, name)
        deciding = stages.learning(graph, name) if name in LEARNED else stage
        assert stages.masks(graph) in needed(deciding), name
    assert stages.learning(graph).key == stages.learning(graph_of(own)).key
