"""Accuracies and speeds of reproduced tables: rules, tasks, ratios, and the reasons where data lack."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from evaluation.task_files import write_seven
from reproduction.fake_runs import a_series, accuracy_of, assemble_table, finish, run_tables, throughput_of

from gprune.data.demo import questions
from gprune.evaluation import tasks as zero_shot
from gprune.experiments.reproduction import catalogue, figures, tables, work
from gprune.experiments.reproduction.assembly import REASON, assemble
from gprune.experiments.reproduction.lookup import ResultLookup
from gprune.records import Throughput
from gprune.system.errors import CorpusError

NO_TASKS = {"tasks": ("none",)}
MEANS = ["accuracy (max)", "accuracy (fixed)"]


@pytest.fixture
def folder(tmp_path):
    """Local files of the paper's tasks, one row each."""
    return write_seven(tmp_path / "tasks", rows=1)


def with_tasks(entry, folder, *names):
    """The study of an entry with zero-shot tasks, as the app would run it."""
    changes = {"evaluation.tasks": names, "evaluation.task_folder": str(folder)}
    return replace(entry.study.with_settings(changes), group="", name="from the app")


def test_accuracies_have_columns_only_where_runs_have_them(store, folder):
    entries = work.needed_studies([tables.TABLES["ablation"]], a_series(**NO_TASKS))
    for entry in entries[:2]:
        finish(store, entry)
    without = assemble_table(store, "ablation", **NO_TASKS)
    assert not [name for name in without.display.columns if "acc" in name]
    measured = {"boolq": {"acc": 0.5, "acc_norm": None}, "piqa": {"acc": 0.6, "acc_norm": 0.7}}
    both = {"gprune": measured, "flap": {"boolq": {"acc": 0.25}, "piqa": {"acc": 0.8, "acc_norm": 0.6}}}
    finish(store, with_tasks(entries[0], folder, "boolq", "piqa"), accuracy=both)
    table = assemble_table(store, "ablation", **NO_TASKS)
    assert list(table.display["accuracy (max)"]) == ["52.50", "", "", "60.00"]
    assert list(table.display["accuracy (fixed)"]) == ["42.50", "", "", "60.00"]
    assert "piqa" not in table.display.columns
    long = table.long[(table.long["row"] == 4) & (table.long["subject"] == "piqa")]
    assert dict(zip(long["measure"], long["value"], strict=True)) == {"acc": 0.6, "acc_norm": 0.7}
    assert "accuracy in points, the mean over 2 tasks (boolq, piqa; all documents)" in table.notes
    assert any(note.startswith("1 of 3 rows have no accuracy") for note in table.notes)


def test_means_are_over_the_tasks_that_all_compared_rows_have(store, folder):
    (first, second, *_) = work.needed_studies([tables.TABLES["ablation"]], a_series(**NO_TASKS))
    wide = {"boolq": {"acc": 0.5}, "piqa": {"acc": 0.75}, "winogrande": {"acc": 1.0}}
    finish(store, with_tasks(first, folder, *wide), accuracy={"gprune": wide, "flap": wide})
    narrow = {"winogrande": {"acc": 0.2}, "boolq": {"acc": 0.4}}
    finish(store, with_tasks(second, folder, *narrow), accuracy={"gprune": narrow})
    table = assemble_table(store, "ablation", **NO_TASKS)
    assert list(table.display["accuracy (max)"]) == ["75.00", "30.00", "", "75.00"]
    assert "not in the means, because not every row has them: piqa" in table.notes
    assert set(table.long["subject"]) >= {"boolq", "piqa", "winogrande"}


def test_the_main_table_is_written_under_both_rules_with_the_published_figures_of_each(store):
    run_tables(store, "main")
    series = a_series()
    done = work.TableWork(store, series, [tables.TABLES["main"]], store.root / "out")
    (table,) = done.write(done.tables)
    assert table.fixed is not None
    columns = list(table.display.columns)
    assert columns[-5:] == [*MEANS, *questions.NAMES] == list(table.fixed.display.columns)[-5:]
    for answer, rule_figures, fixed in zip(
        table.answers, table.display.to_dict("records"), table.fixed.display.to_dict("records"), strict=True
    ):
        study = answer.row.study
        accuracies = [accuracy_of(study, answer.row.method, task) for task in questions.NAMES]
        higher = [max(values["acc"], values["acc_norm"] or 0.0) for values in accuracies]
        norm = [values["acc"] if values["acc_norm"] is None else values["acc_norm"] for values in accuracies]
        assert [rule_figures[name] for name in questions.NAMES] == [f"{100 * value:.2f}" for value in higher]
        assert [fixed[name] for name in questions.NAMES] == [f"{100 * value:.2f}" for value in norm]
        means = [f"{100 * np.mean(values):.2f}" for values in (higher, norm)]
        assert [rule_figures[name] for name in MEANS] == [fixed[name] for name in MEANS] == means
    # LLaMA2-7B's dense row in the paper: 62.91 under max
    published = {end: pd.read_csv(store.root / "out" / f"main{end}-published.csv").iloc[0] for end in ("", "-fixed")}
    assert [published[end]["protocol"] for end in published] == ["max", "fixed"]
    assert published[""]["accuracy (max)"] == published["-fixed"]["accuracy (max)"] == 62.91
    assert published[""]["accuracy (fixed)"] == published["-fixed"]["accuracy (fixed)"] != 62.91
    index = catalogue.read_index(store.root / "out") or {}
    assert {"main.md", "main-fixed.md", "main-fixed.tex"} <= set(index["tables"]["main"]["files"])
    assert "single tasks under the rule fixed" in (store.root / "out" / "main-fixed.md").read_text()
    assert any("guessing scores 25.0" in note for note in table.notes)
    # of three tasks the second has a normalised accuracy, whose error counts under the rule fixed
    expected = 100 * np.sqrt(0.03**2 * 2 + 0.04**2) / 3
    np.testing.assert_allclose(table.rows["fixed"][0].errors["accuracy"], expected, rtol=1e-12)


def test_requested_tasks_must_be_there_with_the_same_limit_and_documents(store, folder):
    series = a_series(tasks=("boolq",), task_folder=str(folder))
    (entry, *_) = work.needed_studies([tables.TABLES["ablation"]], series)
    finish(store, entry, accuracy={name: {} for name in entry.study.methods})
    assert ResultLookup(store).answer(entry.rows[0]) is None
    finish(store, entry.study.with_settings({"evaluation.limit": 5}))
    assert ResultLookup(store).answer(entry.rows[0]) is None
    # nor those of other documents
    finish(store, entry, changed={"tasks": {"boolq": "0" * 64}})
    assert ResultLookup(store).answer(entry.rows[0]) is None
    finish(store, entry)
    assert ResultLookup(store).answer(entry.rows[0]).filled  # type: ignore[union-attr]


def test_tasks_without_data_are_named_and_measured_once_they_have_some(store, folder, monkeypatch):
    reasons = {"boolq": "the task 'boolq' has no data: there is no network", "piqa": ""}
    questions_asked, resolve = list[str](), zero_shot.resolve

    def resolve_or_refuse(task, settings):
        questions_asked.append(task)
        if reasons[task]:
            raise CorpusError(reasons[task])
        return resolve(task, settings)

    monkeypatch.setattr(zero_shot, "resolve", resolve_or_refuse)
    series = a_series(tasks=("boolq", "piqa"), task_folder=str(folder))
    run_tables(store, "ablation", series=series)
    questions_asked.clear()
    table = assemble(tables.TABLES["ablation"], series, ResultLookup(store))
    assert table.filled == 4
    assert f"not measured: boolq: {reasons['boolq']}" in table.notes
    assert any("the mean over 1 task (piqa; at most 48 documents of each)" in note for note in table.notes)
    # once for all rows, which read the same
    assert questions_asked == ["boolq", "piqa"]
    reasons["boolq"] = ""
    assert len(work.missing([tables.TABLES["ablation"]], series, ResultLookup(store))) == 3


def test_rows_read_their_own_method_and_ratios_to_the_dense_model_of_their_run(store):
    run_tables(store, "speed")
    table = assemble_table(store, "speed")
    assert table.filled == 8 and REASON not in table.display.columns
    # in a run the methods stand as dense, gprune, then the baselines: 10 tokens a second more each
    speeds = dict(zip(table.display["method"], table.display["whole tokens/s"], strict=True))
    assert speeds == {
        "dense": "100.00 ± 1.50",
        "LLM-Pruner": "120.00 ± 1.50",
        "Wanda-sp": "120.00 ± 1.50",
        "GPrune (Wanda-sp)": "110.00 ± 1.50",
        "FLAP": "130.00 ± 1.50",
        "GPrune (FLAP)": "110.00 ± 1.50",
        "FANG": "120.00 ± 1.50",
        "GPrune (twFLAP)": "110.00 ± 1.50",
    }
    assert list(table.display["whole ratio"])[:2] == ["1.000 ± 0.010", "1.200 ± 0.010"]
    assert {"prefill tokens/s", "prefill ratio", "decode tokens/s", "decode ratio"} <= set(table.display)
    assert set(table.display["memory MiB"]) == {"3.0"}
    assert not [name for name in table.display if "graph" in name or "PPL" in name]
    assert len({answer.run for answer in table.answers}) == 3
    assert "speed: float32 on cpu, batch 1; a processor, 2 threads" in table.notes
    assert "97.04" in set(table.published["tokens_per_second"])
    assert "6.74B" in set(table.published["parameters"])


def test_a_method_that_cannot_run_leaves_the_others_their_speed(store):
    for entry in work.needed_studies([tables.TABLES["speed"]], a_series()):
        out = {"llm_pruner": "no gradients: leave it out"} if "llm_pruner" in entry.study.methods else {}
        finish(store, entry, unavailable=out)
    table = assemble_table(store, "speed")
    assert [answer.reason for answer in table.answers] == ["", "no gradients: leave it out"] + [""] * 6
    assert work.missing([tables.TABLES["speed"]], a_series(), ResultLookup(store)) == []


def test_a_run_of_fewer_methods_leaves_the_table_to_be_measured_side_by_side(store):
    row = next(row for row in tables.TABLES["speed"].rows(a_series()) if row.method_id == "gprune:flap")
    finish(store, replace(row.study, methods=("dense", "gprune")))
    assert ResultLookup(store).answer(row) is None
    (entry,) = (t for t in work.missing([tables.TABLES["speed"]], a_series(), ResultLookup(store)) if row in t.rows)
    assert entry.study.methods == ("dense", "gprune", "llm_pruner", "flap")


def test_a_measurement_without_the_dense_model_first_says_nothing():
    study = a_series().study(changes={"evaluation.speed": "cpu"})
    assert figures.speed_measures(throughput_of(study, ("gprune", "dense")), "gprune") == []
    assert figures.speed_measures(Throughput("", "", ()), "gprune") == []
    record = throughput_of(study, ("dense", "gprune"))
    measures = figures.speed_measures(record, "gprune")
    assert measures[:2] == [("whole tokens/s", 110.0, 1.5), ("whole ratio", 1.1, 0.01)]
    assert figures.speed_measures(record, "fang") == []
