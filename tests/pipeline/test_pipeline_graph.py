"""A run does what the graph says, no more and no less; its record tells the truth about today's formulas."""

import shutil
from dataclasses import replace

import pytest
import tiny_study
from tiny_study import silent

from gprune import pipeline
from gprune.__main__ import main
from gprune.evaluation import speed
from gprune.pipeline import arrays, running, runs, stages
from gprune.pipeline.eta import Outlook, StageTimes, expected_seconds, missing_seconds, stage_times
from gprune.pipeline.stages import KINDS, execution_plan
from gprune.store import Store
from gprune.study import Study, from_dict, run_name
from gprune.system.errors import MethodError

pytestmark = pytest.mark.slow

OF_EACH_KIND = ("dense", "gprune", "flap", "wanda_sp", "fang", "fang_pooled", "llm_pruner")
OF_THE_METRIC = ("gates", "msl_random", "gprune_no_rasa", "flap_uniform", "recommended")


@pytest.fixture(scope="module", autouse=True)
def quick():
    """Speeds of a few tokens: how fast a tiny model is says nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(speed.PRESETS, "cpu", speed.SpeedSettings(2, 8, 4, 1, "float32", "cpu", ("eager",)))
        yield


def study_of(workshop, **changes):
    values = tiny_study.settings(workshop["model"], workshop["texts"])
    values |= {"contexts": {"count": 3, "dimensions": 4, "tokens": 64}}
    values |= {"baselines": {"taylor_samples": 4, "taylor_length": 8}}
    return from_dict(values | changes)


# the metric that needs the most with a method of each kind; in the long tests the default metric with the methods
# that use the study's own as well (stages/test_stage_reads.py runs all methods)
RUNS = [("twflap", OF_EACH_KIND), pytest.param(("flap", OF_EACH_KIND + OF_THE_METRIC), marks=pytest.mark.long)]


@pytest.fixture(scope="module", params=RUNS, ids=lambda param: f"{param[0]}, {len(param[1])} methods")
def finished(request, workshop):
    """A whole run of every method on one metric, with a third text, a task and speed; its plan before."""
    metric, methods = request.param
    study = study_of(workshop, metric=metric, methods=list(methods), substitute=workshop["texts"][2])
    study = study.with_settings({"evaluation.tasks": [workshop["questions"]], "evaluation.speed": "cpu"})
    store = Store(workshop["folder"] / f"{metric}-{len(methods)}")
    planned = [stage.name for stage in execution_plan(pipeline.opened(study, store).graph)]
    return study, store, planned, pipeline.run(study, store, silent)


def test_a_run_makes_every_stage_of_its_graph_and_no_other(finished):
    study, store, planned, result = finished
    assert list(result["keys"]) == planned
    record = runs.read(store, run_name(study))
    assert list(record["stages"]) == planned == list(record["expected"])
    assert result["unavailable"] == {} == record["unavailable"]
    created = {path.parent.name + "/" + path.name for path in store.root.glob("*/*") if path.is_dir()}
    retained = {f"{stage.kind}/{stage.key}" for stage in execution_plan(pipeline.opened(study, store).graph)}
    assert {name for name in created if name.split("/")[0] in KINDS} == retained


def test_statistics_of_two_seeds_take_one_pass_and_where_one_is_there_the_other_is_made_alone(finished, tmp_path):
    study, store, _, result = finished
    first, second = "context_statistics_primary", "context_statistics_primary_other_seed"
    reference = runs.read(store, run_name(study))["stages"]
    assert not reference[second]["reused"]
    assert not reference["contexts_primary_other_seed"]["reused"]
    assert result["passes"][first] == {"forward": 1.0, "backward": 1.0} and second not in result["passes"]
    shutil.copytree(store.root, tmp_path / "cache")
    copy = Store(tmp_path / "cache")
    for name in (second, first):
        arrays_of = [store.folder("context_statistics", reference[name]["key"]), None]
        arrays_of[1] = copy.folder("context_statistics", reference[name]["key"])
        shutil.rmtree(arrays_of[1])
        again = pipeline.run(study, copy, silent, until="agreement")
        assert set(again["keys"]) - set(again["reused"]) == {name}
        files = [{file.name: file.read_bytes() for file in location.glob("*.npy")} for location in arrays_of]
        assert files[0] == files[1] and len(files[0]) >= 5


def test_exported_arrays_are_documented_and_a_dry_run_prints_what_a_run_did(finished, project, capsys):
    study, store, _, _ = finished
    outcome = arrays.collect_arrays(pipeline.opened(study, store))
    documented = (project / "docs" / "python.md").read_text(encoding="utf-8")
    for name in outcome:
        plain = name.split("_mask_")[0] + "_mask" if "_mask_" in name else name
        assert f"`{plain}`" in documented or plain in documented, name
    assert {f"ffn_mask_{name}" for name in ("flap", "fang_pooled", "llm_pruner")} <= set(outcome)
    study, store, planned, result = finished
    file = store.root / "study.json"
    file.write_text(study.to_json())
    assert main(["run", str(file), "--dry-run", "--cache", str(store.root)]) == 0
    message = capsys.readouterr()
    lines = [line.split() for line in message.out.splitlines()]
    assert [line[0] for line in lines] == planned
    assert {line[0]: line[1] for line in lines} == result["keys"]
    assert {line[2] for line in lines} == {"there"}
    assert message.err.strip().endswith(f"{len(planned)} stages, 0 missing")


def test_a_changed_formula_makes_old_results_unknown_to_the_runs_record(workshop, tmp_path, monkeypatch):
    study, store = study_of(workshop), Store(tmp_path)
    old = pipeline.run(study, store, silent, until="perplexity")
    kind = replace(KINDS["adapted"], version=KINDS["adapted"].version + 1)
    monkeypatch.setitem(KINDS, "adapted", kind)
    new = pipeline.run(study, store, silent, until="drift")
    record = runs.read(store, new["run"])
    assert old["run"] == new["run"]
    # what does not follow from the formula stays; what does is neither listed nor served as current
    assert "partition" in record["stages"] and "masks_flap" in record["stages"]
    assert not {"adapted", "learning", "masks_gprune", "perplexity.gprune.0"} & set(record["stages"])
    assert record["result"] is None
    results = pipeline.opened(study, store)
    assert results.has(stages.perplexity, "flap", study.evaluation.texts[0])
    assert not results.has(stages.perplexity, "gprune", study.evaluation.texts[0])


def test_the_expectation_comes_from_this_cache_and_else_from_the_table(workshop, tmp_path):
    study, store = study_of(workshop), Store(tmp_path)
    results = pipeline.opened(study, store)
    plan = results.plan("adapted")
    assert not stage_times(results).is_measured and missing_seconds(plan, results) is None
    proportions = {stage.name: KINDS[stage.kind].seconds for stage in plan}
    assert expected_seconds(plan, results, stage_times(results)) == proportions
    done = pipeline.run(study, store, silent, until="adapted")
    other = pipeline.opened(study.with_settings({"seed": 3}), store)
    again = execution_plan(other.graph, "adapted")
    reference = expected_seconds(again, other, stage_times(other))
    assert reference["norms"] == 0.0 and reference["partition"] == done["seconds"]["partition"]
    assert missing_seconds(again, other) == pytest.approx(sum(reference.values()))


def test_without_a_cache_the_time_left_follows_from_the_first_batch():
    """Proportions of 1 : 10 : 9, of which the second stage runs batches; one of its ten took 5 s."""
    plan = {"a": 1.0, "b": 10.0, "d": 9.0}
    assert Outlook.of(plan, (), 3.0, "a", 0.5, timed={"a": 3.0}).left is None
    assert Outlook.of(plan, ("a",), 4.0, "b", 0.0, timed={"a": 3.0, "b": 1.0}).left is None
    first = Outlook.of(plan, ("a",), 8.0, "b", 0.1, timed={"a": 3.0, "b": 5.0})
    assert first.left == pytest.approx(18 * 5.0) and first.share == pytest.approx(2 / 20)
    second = Outlook.of(plan, ("a", "b"), 63.0, "d", 0.0, timed={"a": 3.0, "b": 60.0, "d": 0.0})
    assert second.left == pytest.approx(9 * 6.0)


def record_of(stages, model="model", samples=8, precision="float32"):
    return {
        "study": {"model": model, "calibration": {"samples": samples, "length": 16}},
        "provenance": {"device": "cpu", "inputs": {"precision": precision}},
        "stages": {name: {"key": "k", **entry} for name, entry in stages.items()},
    }


def test_times_are_those_of_the_latest_run_of_the_model_then_of_the_same_kind_then_scaled():
    study = Study("model", "A", "B", device="cpu").with_settings({"calibration.samples": 8, "calibration.length": 16})
    other = [record_of({"learning": {"seconds": 1.0}}, **changes) for changes in ({"model": "x"}, {"samples": 9})]
    assert not StageTimes.of(other, study, "float32").is_measured
    latest = {"statistics_primary": {"seconds": 22.0}, "perplexity.flap.0": {"seconds": 3.0}, "gone": {"seconds": 9.0}}
    older = {"statistics_primary": {"seconds": 50.0}, "learning": {"seconds": 360.0}}
    times = StageTimes.of([*other, record_of(latest), record_of(older)], study, "float32")
    graph = stages.Graph(study)
    reference = {stage.name: times.of_stage(stage) for stage in execution_plan(graph)}
    assert reference["statistics_primary"] == reference["statistics_auxiliary"] == 22.0
    assert reference["learning"] == 360.0
    assert reference["masks_gprune"] == pytest.approx(KINDS["masks"].seconds * 382 / (2.2 + 36))
    drift = execution_plan(graph, "drift")
    assert times.total([drift[-1], *drift]) == pytest.approx(sum(reference[stage.name] for stage in drift))


class Refusing:
    """Has stages of some names fail as a method does that cannot run."""

    def __init__(self, monkeypatch, *names):
        self.names = set(names)
        make = running._Runner._compute

        def compute(runner, stage, started):
            if stage.name in self.names:
                raise MethodError(f"{stage.name} does not fit")
            make(runner, stage, started)

        monkeypatch.setattr(running._Runner, "_compute", compute)


def test_a_method_that_cannot_run_is_counted_as_done_and_its_reason_outlives_shorter_runs(
    workshop, tmp_path, monkeypatch
):
    study, store = study_of(workshop, methods=["dense", "flap", "fang"]), Store(tmp_path)
    refusing = Refusing(monkeypatch, "groups_primary")
    result = pipeline.run(study, store, silent, until="perplexity")
    assert result["unavailable"] == {"fang": "groups_primary does not fit"}
    record = runs.read(store, run_name(study))
    ended = {*record["stages"], *record["unavailable"]}
    outcome = Outlook.of(record["expected"], ended, 5.0)
    assert (outcome.done, outcome.left) == (outcome.steps, None) and outcome.steps == len(record["expected"])
    pipeline.run(study, store, silent, until="drift")
    assert runs.read(store, run_name(study))["unavailable"]["masks_fang"]["reason"] == "groups_primary does not fit"
    refusing.names.clear()
    again = pipeline.run(study, store, silent, until="perplexity")
    assert again["unavailable"] == {} == runs.read(store, run_name(study))["unavailable"]


def test_a_run_that_cannot_have_what_it_is_for_fails_with_the_reason(workshop, tmp_path, monkeypatch):
    study, store = study_of(workshop, metric="twflap", methods=["dense", "gprune"]), Store(tmp_path)
    Refusing(monkeypatch, "context_statistics_primary")
    for until in ("drift", "adapted", "all"):
        with pytest.raises(MethodError, match="context_statistics_primary does not fit"):
            pipeline.run(study, store, silent, until=until)
        record = runs.read(store, run_name(study))
        assert (record["state"], record["error"]) == ("failed", "context_statistics_primary does not fit")


def test_speed_without_a_method_is_measured_again_once_the_method_can_run(workshop, tmp_path, monkeypatch):
    study = study_of(workshop, methods=["dense", "flap", "fang"])
    study = study.with_settings({"evaluation.speed": "cpu", "evaluation.texts": []})
    store, refusing = Store(tmp_path), Refusing(monkeypatch, "groups_primary")
    first = pipeline.run(study, store, silent, until="perplexity")
    assert {row["model"] for row in first["speed"]["rows"]} == {"dense", "flap"}
    again = pipeline.run(study, store, silent, until="perplexity")
    assert "speed" in again["reused"]
    refusing.names.clear()
    full = pipeline.run(study, store, silent, until="perplexity")
    assert {row["model"] for row in full["speed"]["rows"]} == {"dense", "flap", "fang"}
    assert "speed" not in full["reused"] and full["keys"]["speed"] != first["keys"]["speed"] == again["keys"]["speed"]
