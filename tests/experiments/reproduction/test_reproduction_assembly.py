"""Rows read what finished runs say, carry the reason where they cannot, and are written in three forms."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from reproduction.fake_runs import CORRELATIONS, a_series, assemble_table, finish, opened, perplexity_of, run_tables

from gprune.experiments.reproduction import lookup, tables, work
from gprune.experiments.reproduction.assembly import REASON
from gprune.experiments.reproduction.lookup import ResultLookup
from gprune.pipeline import runs, stages
from gprune.pipeline.stages.inputs import Inputs, roles
from gprune.study import Study

TEXTS = ("python-reference", "science-docs", "python-code")


@pytest.mark.slow
@pytest.mark.long
def test_every_row_of_every_table_is_filled_by_its_own_run(store):
    run_tables(store, "all", "study")
    assert work.missing(tables.choose_tables(["all", "study"]), a_series(), ResultLookup(store)) == []
    # those of repairs and experts stand in test_repair_document.py and test_experts_table.py
    for name in set(tables.TABLES) - {"repair", "experts"}:
        table = assemble_table(store, name)
        assert table.filled == len(table.answers) > 0
        assert REASON not in table.display.columns
    for answer in assemble_table(store, "main").answers:
        expected = [perplexity_of(answer.row.study, answer.row.method, text) for text in TEXTS]
        assert [value.value for value in answer.values] == expected


def test_a_lost_result_an_unfinished_run_or_another_size_fill_nothing(store):
    (entry,) = work.needed_studies([tables.TABLES["figure-3a"]], a_series())
    chosen = [tables.TABLES["ablation"]]
    finish(store, entry.study, state="running")
    assert len(work.missing(chosen, a_series(), ResultLookup(store))) == 3
    finish(store, entry.study)
    assert len(work.missing(chosen, a_series(), ResultLookup(store))) == 2
    assert len(work.missing(chosen, a_series(samples=48), ResultLookup(store))) == 3
    key = stages.perplexity(opened(store, entry.study).graph, "gprune", TEXTS[1]).key
    (store.root / "perplexity" / key / "losses.npy").unlink()
    assert len(work.missing(chosen, a_series(), ResultLookup(store))) == 3


@pytest.mark.parametrize(
    ("changed", "current"),
    [
        ({}, (True, True)),
        ({"model": "0" * 64}, (False, False)),
        ({"calibration": {"primary": "0" * 64}}, (False, False)),
        # what is measured on does not enter the drift
        ({"evaluation": {"python-code": "0" * 64}}, (True, False)),
    ],
)
def test_a_changed_model_or_text_makes_results_old(store, changed, current):
    drift, perplexity = tables.TABLES["figure-1a"].rows(a_series())[0], tables.ablation(a_series())[-1]
    assert drift.study == perplexity.study
    finish(store, drift.study, changed=changed)
    finished = ResultLookup(store)
    assert tuple(finished.answer(row) is not None for row in (drift, perplexity)) == current


def test_more_texts_another_device_or_a_third_text_answer_as_well(store, tmp_path):
    (tmp_path / "more.txt").write_text("another text")
    study = a_series().study(methods=("flap", "gprune"))
    other = study.with_settings({"device": "cuda:1", "group": "", "substitute": "python-code", "name": "from the app"})
    finish(store, other.with_settings({"evaluation.texts": [str(tmp_path / "more.txt"), *reversed(TEXTS)]}))
    answers = assemble_table(store, "ablation").answers
    assert [answer.filled for answer in answers] == [True, False, False, True]
    assert [value.subject for value in answers[0].values] == list(TEXTS)


def test_a_failed_study_and_a_method_that_cannot_run_say_why_and_the_rest_is_there(store):
    for entry in work.needed_studies([tables.TABLES["main"]], a_series()):
        if entry.study.metric == "twflap" and entry.study.retention == 0.7:
            finish(store, entry, state="failed", error="the disk is full: free some space")
        else:
            finish(store, entry, unavailable={"llm_pruner": "no gradients in this model: leave it out"})
    table = assemble_table(store, "main")
    reasons = {(answer.row.method_id, answer.row.target): answer.reason for answer in table.answers if answer.reason}
    expected = {("llm_pruner", retention): "no gradients in this model: leave it out" for retention in (0.8, 0.7, 0.5)}
    assert reasons == expected | {("gprune:twflap", 0.7): "the disk is full: free some space"}
    assert table.filled == len(table.answers) - 4
    assert (table.display[REASON] != "").sum() == 4
    # what cannot run is not tried again, what failed is
    left = work.missing([tables.TABLES["main"]], a_series(), ResultLookup(store))
    assert [(entry.study.metric, entry.study.retention) for entry in left] == [("twflap", 0.7)]


def test_mean_and_population_deviation_over_seeds(store):
    # the paper's own numbers: 36.31, 36.85 and 37.55 are 36.90 ± 0.51
    perplexities = (36.31, 36.85, 37.55)
    run_tables(store, "seeds", value=lambda study, method, _: perplexities[study.seed] if method == "fang" else 40.0)
    table = assemble_table(store, "seeds")
    summary = table.display[table.display["seed"] == "mean ± s.d."]
    assert list(summary["method"]) == ["FANG", "GPrune (twFLAP)"]
    assert list(summary["science-docs PPL"]) == ["36.90 ± 0.51", "40.00 ± 0.00"]


def test_figures_read_drift_agreement_and_bins(store):
    run_tables(store, "figure-1a", "figure-1b", "figure-3a")
    correlations = {a.row.item: a.values[0].value for a in assemble_table(store, "figure-1a").answers}
    assert correlations == {
        "A | B": CORRELATIONS["correlation"],
        "half A | half B": CORRELATIONS["correlation_half"],
        "A resampled": CORRELATIONS["correlation_primary"],
        "B resampled": CORRELATIONS["correlation_auxiliary"],
    }
    swap = assemble_table(store, "figure-1b").answers[0]
    # the sixth comparison of two layers: 0.5 and 0.7
    assert swap.row.item == "swap"
    np.testing.assert_allclose([swap.values[0].value, swap.values[0].error], [0.6, 0.1], rtol=1e-12)
    bins = assemble_table(store, "figure-3b").answers
    figures = [{value.measure: value.value for value in answer.values} for answer in bins]
    np.testing.assert_allclose([values["retained, GPrune"] for values in figures], 0.5)
    np.testing.assert_allclose([values["retained, FLAP"] for values in figures], 0.25)
    np.testing.assert_allclose([values["Jaccard"] for values in figures], 0.5)
    np.testing.assert_allclose([values["Jaccard by chance"] for values in figures], 0.125 / 0.625)
    drifts = [values["mean drift"] for values in figures]
    assert drifts == sorted(drifts)


def test_a_comparison_that_the_run_could_not_make_says_so(store):
    (entry,) = work.needed_studies([tables.TABLES["figure-1b"]], a_series())
    finish(store, entry.study.with_settings({"metric": "twflap"}))
    row = next(row for row in entry.rows if row.item == "fang_ab")
    (agreed,) = work.needed_studies([tables.TABLES["module-overlap"]], a_series())
    finish(store, agreed)
    assert ResultLookup(store).answer(row).filled  # type: ignore[union-attr]
    other = ResultLookup(store).answer(replace(agreed.rows[0], item="fang_ab"))
    assert other is not None and "no comparison 'FANG: A and B'" in other.reason


def test_the_control_of_fangs_groups_is_made_anew_where_it_is_not_there(store):
    (entry,) = work.needed_studies([tables.TABLES["figure-1b"]], a_series())
    run = finish(store, entry)
    control = next(row for row in entry.rows if row.item == "fang_other_seed")
    assert control.extra and control.method == "fang"
    assert ResultLookup(store).answer(control).filled  # type: ignore[union-attr]
    graph = opened(store, control.study).graph
    shutil.rmtree(store.folder("agreement", stages.agreements(graph)["fang_other_seed"].key))
    assert ResultLookup(store).answer(control) is None
    assert assemble_table(store, "figure-1b").filled == len(entry.rows) - 1
    # without FANG at all it is the method that cannot run
    groups = {"key": stages.groups(graph).key, "reason": "FANG cannot run on this model: leave it out"}
    record = runs.read(store, run) or {}
    runs.save(store, run, record | {"unavailable": {"groups_primary": groups}})
    refused = ResultLookup(store).answer(control)
    assert refused is not None and (refused.reason, refused.run) == (groups["reason"], run)
    # what is there is not taken back
    assert assemble_table(store, "figure-1b").filled == len(entry.rows) - 1


def test_derived_tables_take_measured_rows_only(store):
    def value(study, method, text):
        return {"wanda_sp": 60.0, "flap": 40.0}.get(
            method, {"wanda_sp": 35.0, "flap": 30.0, "twflap": 29.0}[study.metric]
        )

    run_tables(store, "main", value=value, series=a_series(tasks=("none",)))
    gaps = assemble_table(store, "metric-gap", tasks=("none",)).long
    assert set(gaps["metric"]) == {f"ppl:{text}" for text in TEXTS}
    assert set(gaps["before"]) == {20.0} and set(gaps["after"]) == {5.0} and set(gaps["reduction"]) == {0.75}
    gains = assemble_table(store, "gain-by-retention", tasks=("none",)).long
    flap = gains[(gains["base"] == "flap") & (gains["retention"] == 0.8)]
    assert set(flap["gain"]) == {0.75}
    assert set(gains["base"]) == {"flap", "wanda_sp", "fang"}
    display = assemble_table(store, "gain-by-retention", tasks=("none",)).display
    first_row = "Wanda-sp | GPrune (Wanda-sp) | 80% | python-reference PPL | 60 | 35 | 0.5833 | ratio | yes"
    assert " | ".join(display.loc[0]) == first_row
    # the paper's own sentence: from 2.55 to 0.69 points at 70 %, a reduction of 73 %
    published = assemble_table(store, "metric-gap").published
    seventy = published[(published["retention"] == "70%") & (published["metric"] == "accuracy (max)")].iloc[0].to_dict()
    assert set(published["metric"]) == {"accuracy (max)", "accuracy (fixed)"}
    columns = ["retention", "before", "after", "reduction", "metric"]
    assert [seventy[name] for name in columns] == ["70%", "2.55", "0.69", "0.7294", "accuracy (max)"]


def test_a_row_is_looked_up_by_all_that_its_study_reads(store, monkeypatch):
    studies = []
    monkeypatch.setattr(lookup, "read_inputs", lambda study, *_, **__: studies.append(study) or Inputs.unknown(study))
    base_study = Study("demo", "a", "b", retention=0.8, methods=("dense", "llm_pruner", "flap"))
    for study in (
        base_study.with_settings({"baselines.taylor_text": "own.jsonl"}),
        replace(base_study, methods=("flap",)),
    ):
        ResultLookup(store)._read_inputs(study)
        assert roles(studies[-1]) == roles(study) and studies[-1].retention == 0.8
