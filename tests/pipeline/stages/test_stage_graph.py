"""The graph as a reviewable text, its order, and what a failure leaves out; no model and no torch."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from gprune.pipeline import stages
from gprune.pipeline.stages import KINDS, Graph, Inputs, all_stages, execution_plan, required_stages
from gprune.pipeline.stages import graph as graph_module
from gprune.study.demo import demo_study
from gprune.study.methods import METHODS, METRICS

GRAPHS = Path(__file__).parent / "graphs"


def graph_of(metric="flap", **changes):
    study = replace(demo_study(), metric=metric, methods=tuple(METHODS), **changes)
    inputs = Inputs.unknown(study)
    digests = {role: f"{role}’s text" for role in inputs.calibration}
    return Graph(study, replace(inputs, calibration=digests))


@pytest.mark.parametrize("metric", METRICS)
def test_the_graph_of_every_method_is_the_one_that_was_reviewed(metric):
    """To accept a change: python tests/pipeline/stages/test_stage_graph.py, then read the difference."""
    assert graph_text(metric) == (GRAPHS / f"{metric}.txt").read_text(encoding="utf-8")


def graph_text(metric):
    lines = []
    for stage in execution_plan(graph_of(metric)):
        lines.append(f"{stage.name}: {stage.title}")
        lines += [f"    {need.name}" for need in dict.fromkeys(required_stages(stage))]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("until", stages.UNTIL)
def test_every_stage_comes_after_all_that_it_needs_and_once(metric, until):
    result = execution_plan(graph_of(metric), until)
    location = {stage: number for number, stage in enumerate(result)}
    assert len(location) == len(result) == len({stage.name for stage in result})
    for stage in result:
        for need in required_stages(stage):
            assert location[need] < location[stage]


def test_until_takes_no_more_than_it_says():
    graph = graph_of()
    kinds = {until: {stage.kind for stage in execution_plan(graph, until)} for until in stages.UNTIL}
    exploring = {"tokens", "statistics", "positions", "norms", "shape", "scores", "drift"}
    assert kinds["drift"] == exploring
    assert kinds["adapted"] == exploring | {"clusters", "partition", "modules", "adapted"}
    assert "agreement" in kinds["agreement"] and "masks" not in kinds["agreement"]
    assert {"learning", "masks"} <= kinds["masks"] and "perplexity" not in kinds["masks"]
    assert "perplexity" in kinds["perplexity"] and "checkpoint" not in kinds["perplexity"]
    # no plug-in's metric is asked for; what the model writes and what is fitted, by what chooses alone
    asked_for = {"components", "map"}
    assert asked_for == {name for name, kind in KINDS.items() if kind.on_demand}
    unasked = {"accuracy", "answers", "questions", "speed", "weighed", "recovered", "recovered_perplexity"}
    unasked |= {"generated_answers", "open_answers"}
    of_experts = {name for name in KINDS if name.startswith("expert_")} | {"routers"}
    assert kinds["all"] == set(KINDS) - unasked - asked_for - of_experts and len(of_experts) == 7
    assert {stage.name for stage in all_stages(graph)} == {stage.name for stage in execution_plan(graph)}


def test_tokens_of_another_tokenizing_library_have_another_key():
    """A cache kept the tokens of a library whose tokenizer lost the blanks."""
    before = graph_of()

    def changed(tokenizing):
        after = Graph(before.study, replace(before.inputs, tokenizing=tokenizing))
        return {old.name for old, new in zip(all_stages(before), all_stages(after), strict=True) if old.key != new.key}

    assert changed("") == set()
    other = changed("transformers 5.17.0, tokenizers 0.22.2")
    assert {"tokens_primary", "tokens_auxiliary", "perplexity.dense.0", "masks_gprune"} <= other
    assert {"norms", "shape", "size"}.isdisjoint(other)


def test_a_study_without_strongest_positions_has_no_stage_for_them():
    study = demo_study().with_settings({"calibration.positions": 0})
    assert not any(stage.kind == "positions" for stage in all_stages(Graph(study)))


def test_what_failed_is_no_need_of_a_choice_and_changes_the_keys_behind_it_alone():
    graph = graph_of()
    keys = {stage.name: stage.key for stage in execution_plan(graph)}
    failing = stages.repaired_weights(graph, "gprune", "least_squares_bias:both")
    graph.record_failure(failing, "it overflows")
    assert graph.failure(stages.candidate(graph, "gprune", "least_squares_bias:both")) == "it overflows"
    assert graph.failure(stages.drift(graph), stages.choice(graph, "recommended")) == ""
    plan = {stage.name: stage.key for stage in execution_plan(graph)}
    changed = {name for name, key in plan.items() if keys[name] != key}
    measured = stages.perplexity(graph, "recommended", graph.study.evaluation.texts[0]).name
    assert {"choice_recommended", "chosen_recommended", "masks_recommended", measured} <= changed
    assert not [name for name in changed if "recommended" not in name]
    assert set(keys) - set(plan) == {failing.name, "candidate_gprune_least_squares_bias_both"}
    # whoever reads the record of the run gets the same keys
    read = Graph(graph.study, graph.inputs, failures=graph.failures)
    assert {stage.name: stage.key for stage in execution_plan(read)} == plan


def test_two_stages_of_one_name_are_refused():
    graph = graph_of()
    graph.stage(stages.StageId("scores", ("primary", "odd")), "", lambda _: None)
    with pytest.raises(RuntimeError, match="two stages are called 'scores_primary_odd'"):
        graph.stage(stages.StageId("scores", ("primary",), variant=("odd",)), "", lambda _: None)


@pytest.mark.process
def test_all_keys_of_every_method_are_had_without_torch_and_each_is_computed_once(monkeypatch):
    code = (
        "import sys\n"
        "from dataclasses import replace\n"
        "from gprune.study.methods import METHODS\n"
        "from gprune.pipeline.stages import Graph, Inputs, all_stages\n"
        "from gprune.study.demo import demo_study\n"
        "study = replace(demo_study(), metric='twflap', methods=tuple(METHODS))\n"
        "keys = [stage.key for stage in all_stages(Graph(study, Inputs.unknown(study)))]\n"
        "print(len(keys), sorted({'torch', 'transformers', 'streamlit', 'sklearn'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    computed, real = [], graph_module.content_key
    watched = lambda *arguments: computed.append(arguments[0]) or real(*arguments)  # noqa: E731
    monkeypatch.setattr(graph_module, "content_key", watched)
    graph = graph_of("twflap")
    result = execution_plan(graph)
    assert done.stdout.split() == [str(len(result)), "[]"]
    # one for each handle, and one for each of the parts of scores that only neurons have
    parts = computed.count("scores") - sum(stage.kind == "scores" for stage in graph.declared_stages())
    assert len(computed) == len(graph.declared_stages()) + parts and parts < 250


def test_threads_that_declare_a_graph_at_once_get_the_same_handles():
    graph, start, before = graph_of("twflap"), threading.Barrier(4), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            result = list(pool.map(lambda _: start.wait() >= 0 and all_stages(graph), range(4)))
    finally:
        sys.setswitchinterval(before)
    assert set(result) == {all_stages(graph)}


if __name__ == "__main__":
    GRAPHS.mkdir(exist_ok=True)
    for each in METRICS:
        (GRAPHS / f"{each}.txt").write_text(graph_text(each), encoding="utf-8")
