"""The graph as a reviewable text, its order, and what serves for what; no model and no torch."""

import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from gprune.pipeline import stages
from gprune.pipeline.stages import KINDS, Graph, Inputs, course, every, needed
from gprune.pipeline.stages import graph as graph_module
from gprune.study.demo import demo_study
from gprune.study.methods import METHODS, METRICS
from gprune.system.errors import SettingsError

GRAPHS = Path(__file__).parent / "graphs"


def nothing(_):
    return False


def graph_of(metric="flap", **changes):
    study = replace(demo_study(), metric=metric, methods=tuple(METHODS), **changes)
    inputs = Inputs.unknown(study)
    digests = {role: f"{role}’s text" for role in inputs.calibration}
    return Graph(study, replace(inputs, calibration=digests))


@pytest.mark.parametrize("metric", METRICS)
def test_the_graph_of_every_method_is_the_one_that_was_reviewed(metric):
    """To accept a change: python tests/pipeline/stages/test_stage_graph.py, then read the difference."""
    assert written(metric) == (GRAPHS / f"{metric}.txt").read_text(encoding="utf-8")


def written(metric):
    lines = []
    for stage in course(graph_of(metric), "all", nothing):
        lines.append(f"{stage.name}: {stage.title}")
        lines += [f"    {need.name}" for need in dict.fromkeys(needed(stage))]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("until", stages.UNTIL)
def test_every_stage_comes_after_all_that_it_needs_and_once(metric, until):
    found = course(graph_of(metric), until, nothing)
    place = {stage: number for number, stage in enumerate(found)}
    assert len(place) == len(found) == len({stage.name for stage in found})
    for stage in found:
        for need in needed(stage):
            assert place[stages.served(need, nothing, found)] < place[stage]


def test_until_takes_no_more_than_it_says():
    graph = graph_of()
    kinds = {until: {stage.kind for stage in course(graph, until, nothing)} for until in stages.UNTIL}
    assert kinds["positions"] == {"tokens", "statistics", "positions"}
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
    assert kinds["all"] == set(KINDS) - unasked - asked_for
    assert {stage.name for stage in every(graph)} == {stage.name for stage in course(graph, "all", nothing)}


def test_tokens_of_another_tokenizing_library_have_another_key():
    """A cache kept the tokens of a library whose tokenizer lost the blanks."""
    before = graph_of()

    def changed(tokenizing):
        after = Graph(before.study, replace(before.inputs, tokenizing=tokenizing))
        return {old.name for old, new in zip(every(before), every(after), strict=True) if old.key != new.key}

    assert changed("") == set()
    other = changed("transformers 5.17.0, tokenizers 0.22.2")
    assert {"tokens_primary", "tokens_auxiliary", "perplexity.dense.0", "masks_gprune"} <= other
    assert {"norms", "shape", "size"}.isdisjoint(other)


def test_statistics_with_a_gradient_serve_for_those_without():
    with_pooled, alone = graph_of(), graph_of()
    alone = Graph(replace(alone.study, methods=("fang_score_average",)), alone.inputs)
    lean = "context_statistics_auxiliary_forward"
    assert lean in {stage.name for stage in course(alone, "masks", nothing)}
    assert lean not in {stage.name for stage in course(with_pooled, "masks", nothing)}

    def rich_is_there(stage):
        return stage.name == "context_statistics_auxiliary"

    assert lean not in {stage.name for stage in course(alone, "masks", rich_is_there)}
    # the keys of what follows do not depend on which of the two was read
    both = (stages.masks(graph, "fang_score_average").key for graph in (with_pooled, alone))
    assert len(set(both)) == 1


def test_positions_come_with_statistics_that_are_to_be_made_and_are_no_part_of_a_run_that_lacks_them():
    def names_where(*there, **changes):
        found = course(graph_of(**changes), "drift", lambda stage: stage.name in there)
        return [stage.name for stage in found if "primary" in stage.name]

    together = ["tokens_primary", "statistics_primary", "positions_primary", "scores_primary"]
    assert names_where() == names_where("statistics_primary", "positions_primary") == together
    # a run of before there were positions is whole as it is
    assert "positions_primary" not in names_where("statistics_primary")
    study = demo_study().with_settings({"calibration.positions": 0})
    assert not any(stage.kind == "positions" for stage in every(Graph(study)))
    with pytest.raises(SettingsError, match=r"calibration.positions must be at least 1 .* \(got 0\)"):
        course(Graph(study), "positions", nothing)


def test_what_shares_a_pass_takes_no_time_where_both_are_missing_and_is_made_by_itself_where_one_is_there():
    first, second = "context_statistics_primary", "context_statistics_primary_other_seed"
    found = {stage.name: stage for stage in every(graph_of())}
    ways = [
        {stage.name for stage in stages.on_the_way(found[name] for name in missing)}
        for missing in ((first, second), (first,), (second,))
    ]
    assert ways == [{second}, set(), set()]


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
        "from gprune.pipeline.stages import Graph, Inputs, every\n"
        "from gprune.study.demo import demo_study\n"
        "study = replace(demo_study(), metric='twflap', methods=tuple(METHODS))\n"
        "keys = [stage.key for stage in every(Graph(study, Inputs.unknown(study)))]\n"
        "print(len(keys), sorted({'torch', 'transformers', 'streamlit', 'sklearn'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    computed = []
    real = graph_module.content_key
    monkeypatch.setattr(graph_module, "content_key", lambda *given: computed.append(given[0]) or real(*given))
    graph = graph_of("twflap")
    found = course(graph, "all", nothing)
    assert done.stdout.split() == [str(len(found)), "[]"]
    # one for each handle, and one for each of the parts of scores that only neurons have
    parts = computed.count("scores") - sum(stage.kind == "scores" for stage in graph.made())
    assert len(computed) == len(graph.made()) + parts and parts < 150


def test_threads_that_declare_a_graph_at_once_get_the_same_handles():
    graph, start, found = graph_of("twflap"), threading.Barrier(4), []

    def declare():
        start.wait()
        found.append(every(graph))

    before, threads = sys.getswitchinterval(), [threading.Thread(target=declare) for _ in range(4)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert len(found) == 4 and set(found) == {every(graph)}


if __name__ == "__main__":
    GRAPHS.mkdir(exist_ok=True)
    for each in METRICS:
        (GRAPHS / f"{each}.txt").write_text(written(each), encoding="utf-8")


def test_what_is_made_on_the_way_is_known_beforehand():
    found = course(graph_of(), "positions", nothing)
    beside = stages.on_the_way(found)
    assert {stage.name for stage in beside} == {
        "positions_primary",
        "positions_auxiliary",
        "positions_substitute",
    }
    assert not stages.on_the_way(stage for stage in found if stage.kind != "statistics")
