"""Accuracy and speed as stages of a run: what is measured once, what is left out and why."""

import json
import weakref

import pytest
import tiny_study
from tiny_study import silent

from gprune import pipeline
from gprune.__main__ import main
from gprune.evaluation import speed
from gprune.pipeline import runs
from gprune.pruning import surgery
from gprune.records import Throughput
from gprune.store import Store
from gprune.study import from_dict
from gprune.system.errors import CorpusError

pytestmark = pytest.mark.slow


def study_of(workshop, **evaluation):
    values = tiny_study.settings(workshop["model"], workshop["texts"])
    values["methods"] = ["dense", "flap", "wanda_sp_dense"]
    values["evaluation"] |= evaluation
    return from_dict(values)


@pytest.fixture(scope="module")
def finished(workshop):
    endless = workshop["folder"] / "endless.jsonl"
    endless.write_text(json.dumps({"question": "say", "choices": ["yes", "z" * 300], "answer": 0}))
    study = study_of(workshop, tasks=[workshop["questions"], str(endless)])
    store, messages = Store(workshop["folder"] / "cache"), list[tuple[str, str]]()

    def listener(stage, _done, _total, message):
        messages.append((stage, str(message)))

    return study, store, pipeline.run(study, store, listener, until="perplexity"), messages


def test_a_run_without_the_data_of_a_task_is_refused_before_it_computes(workshop, tmp_path):
    study = study_of(workshop, tasks=[workshop["questions"], "boolq"], task_folder=str(workshop["folder"]))
    with pytest.raises(CorpusError, match="the task 'boolq' has no data in .* put boolq.jsonl there"):
        pipeline.run(study, Store(tmp_path / "cache"), silent, until="perplexity")
    assert not list(tmp_path.rglob("*.npy"))


def test_a_task_that_cannot_be_answered_leaves_the_others_and_the_record_says_why(workshop, finished):
    study, store, result, messages = finished
    endless = study.evaluation.tasks[1]
    # the answers would take the same pass once more: they go with their accuracy, and nothing is said twice
    failed = {name for name, message in messages if message.startswith("left out: ")}
    assert failed == {f"accuracy.{name}.1" for name in study.methods}
    assert not any(name.startswith("answers.") and name.endswith(".1") for name, _ in messages)
    entries = runs.read(store, result["run"])["unavailable"]
    for name in study.methods:
        assert entries[f"answers.{name}.1"]["reason"] == entries[f"accuracy.{name}.1"]["reason"]
    assert all(list(tasks) == [workshop["questions"]] for tasks in result["accuracy"].values())
    assert set(result["perplexity"]) == {"dense", "flap", "wanda_sp_dense"} and not result["unavailable"]
    reason = result["unavailable_tasks"][endless]
    assert "has 301 tokens and the model reads at most 64" in reason
    record = runs.read(store, result["run"])
    assert (record["state"], record["missing_tasks"]) == ("done", {endless: reason})
    again = pipeline.run(study, store, silent, until="perplexity")
    assert again["unavailable_tasks"] == result["unavailable_tasks"] and again["accuracy"] == result["accuracy"]


def test_run_ends_with_three_and_a_last_line_that_names_the_task(workshop, finished, capsys):
    study, store, *_ = finished
    file = workshop["folder"] / "study.json"
    file.write_text(study.to_json())
    words = ["run", str(file), "--until", "perplexity", "--cache", str(store.root)]
    assert main(words) == 3
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("not measured: endless.jsonl: the choice ' zzz") and len(last) < 500
    assert main([*words, "--json"]) == 3
    message = capsys.readouterr()
    assert json.loads(message.out)["unavailable_tasks"].keys() == {study.evaluation.tasks[1]}
    assert message.err.splitlines()[-1] == last
    assert main([*words, "--seeds", "0", "1"]) == 3
    assert capsys.readouterr().err.splitlines()[-1] == last
    full = study.with_settings({"evaluation.tasks": [workshop["questions"]]})
    file.write_text(full.to_json())
    assert main(words) == 0
    assert "not measured" not in capsys.readouterr().err


def test_speed_is_measured_beside_the_dense_model_within_its_positions(workshop, finished):
    store = finished[1]
    study = study_of(workshop, speed="cpu", texts=[])
    result = pipeline.run(study, store, silent, until="perplexity")
    record = store.get("speed", result["keys"]["speed"], Throughput)
    assert "prompt 42, 22 new tokens" in record.setting and "thread" in record.machine
    rows = result["speed"]["rows"]
    assert [row["model"] for row in rows[::3]] == ["dense", "flap", "wanda_sp_dense"]
    # the dense model's repetitions are those beside either of the others
    assert [len(row["seconds"]) for row in rows] == [20] * 3 + [10] * 6
    assert all(row["tokens_per_second"] > 0 for row in rows)
    assert {row["ratio"] for row in rows[:3]} == {1.0}
    again = pipeline.run(study, store, silent, until="perplexity")
    assert again["speed"] == result["speed"] and "speed" in again["reused"]


def test_one_pruned_model_at_a_time_is_there_while_speed_is_measured(workshop, monkeypatch):
    quick = speed.SpeedSettings(1, 8, 4, 1, "float32", "cpu", ("eager",))
    monkeypatch.setitem(speed.PRESETS, "cpu", quick)
    cut, alive, counts = surgery.cut, weakref.WeakSet(), []

    def watched(*arguments):
        # whatever was made before must have gone by now, also the last model of the perplexities
        before, model = len(alive), cut(*arguments)
        alive.add(model)
        counts.append(before)
        return model

    def on_progress(stage, done, total, message):
        if stage == "speed" and message == "loading: dense":
            counts.append("speed")

    monkeypatch.setattr(surgery, "cut", watched)
    study, store = study_of(workshop, speed="cpu"), Store(workshop["folder"] / "alive")
    result = pipeline.run(study, store, on_progress, until="perplexity")
    assert counts[counts.index("speed") + 1 :] == [0, 0] and len(counts) >= 5
    assert [row["model"] for row in result["speed"]["rows"][::3]] == ["dense", "flap", "wanda_sp_dense"]
