"""Rows of studies: seeds gathered, best and second within a block, changes against a pinned row."""

import math
from dataclasses import replace

import numpy as np
import pytest

from gprune.analysis import studies, tables
from gprune.analysis.comparison import BEST, SECOND
from gprune.analysis.studies import Setting, StudyRow


def row(method: str, value: float | None = None, **changes: object) -> StudyRow:
    labels = {"retention": "50%", "method": method}
    known = {} if value is None else {"ppl:wiki": value, "accuracy": 100.0 - value}
    base = StudyRow(labels, method, 0.5, 0, "run-a", known, kept=0.5)
    return replace(base, **changes)  # type: ignore[arg-type]


def seeds(method: str, *values: float | None) -> list[StudyRow]:
    labels = {"retention": "50%", "method": method}
    return [
        row(
            method,
            value,
            seed=seed,
            labels=labels | {"seed": str(seed)},
            reason="" if value is not None else "the disk is full",
        )
        for seed, value in enumerate(values)
    ]


def test_seeds_of_one_setting_become_one_row_with_mean_and_population_deviation():
    table = studies.settings([*seeds("flap", 40.0, 44.0, 42.0), *seeds("gprune:flap", 30.0)])
    assert [(setting.method, len(setting.rows)) for setting in table] == [("flap", 3), ("gprune:flap", 1)]
    assert table[0].mean("ppl:wiki") == 42.0
    assert table[0].spread("ppl:wiki") == pytest.approx(math.sqrt((4 + 4 + 0) / 3), rel=1e-12)
    assert table[0].labels == {"retention": "50%", "method": "flap"}
    table = studies.settings(seeds("flap", 40.0, 44.0), each_seed=True)
    assert [setting.labels["seed"] for setting in table] == ["0", "1"]
    other = row("flap", 41.0, retention=0.7, labels={"retention": "70%", "method": "flap"})
    assert len(studies.settings([*seeds("flap", 40.0, 42.0), other])) == 2
    setting = studies.settings(seeds("flap", 40.0, None, 44.0))[0]
    assert len(setting.filled) == 2 and setting.mean("ppl:wiki") == 42.0
    assert setting.reason == "seed 1: the disk is full"
    labels = {"method": "GPrune (FLAP)", "BCM": "yes", "RASA": "", "MSL": "yes"}
    assert studies.settings([row("gprune:flap", 40.0, labels=labels)])[0].name == "GPrune (FLAP) · BCM · MSL"


def test_of_one_seed_the_rows_own_error_is_the_spread():
    known = studies.settings([row("flap", 40.0, errors={"ppl:wiki": 1.5})])[0]
    assert known.spread("ppl:wiki") == 1.5 and math.isnan(known.spread("accuracy"))
    empty = studies.settings([row("flap", reason="not run yet")])[0]
    assert math.isnan(empty.mean("ppl:wiki")) and math.isnan(empty.spread("ppl:wiki"))
    assert empty.reason == "not run yet" and not empty.ranked


def competing() -> list[Setting]:
    rows = [row("dense", 10.0, labels={"retention": "100%", "method": "dense"}, retention=1.0, kept=1.0)]
    rows += [row("flap", 50.0), row("gprune:flap", 40.0), row("wanda_sp", 60.0)]
    rows.append(row("wanda_sp_dense", 20.0, control=True, labels={"retention": "50%", "method": "control"}))
    later = {"retention": 0.8, "kept": 0.8}
    for method, value in (("flap", 15.0), ("gprune:flap", 18.0)):
        rows.append(row(method, value, labels={"retention": "80%", "method": method}, **later))
    return studies.settings(rows)


def test_best_and_second_are_called_within_a_block_without_dense_and_with_controls():
    assert studies.marks(competing(), "ppl:wiki") == {4: BEST, 2: SECOND, 5: BEST, 6: SECOND}
    paper = [setting for setting in competing() if not setting.control]
    assert studies.marks(paper, "ppl:wiki") == {2: BEST, 1: SECOND, 4: BEST, 5: SECOND}
    assert studies.marks(competing(), "accuracy") == {4: BEST, 2: SECOND, 5: BEST, 6: SECOND}
    table = studies.settings(
        [row("a", values={"ARI": 0.5, "accuracy:boolq": 50.0}), row("b", values={"ARI": 0.7})]
    )
    assert studies.marks(table, "ARI") == {} and studies.marks(table, "accuracy:boolq") == {}
    table = studies.settings([row("a", 40.0), row("b", 40.0), row("c", float("inf"))])
    assert studies.marks(table, "ppl:wiki") == {0: BEST, 1: BEST}
    _, flap, ours, *_ = competing()
    assert studies.change(ours, flap, "ppl:wiki") == pytest.approx(-0.2)
    assert studies.change(ours, flap, "accuracy") == pytest.approx(10.0)


def test_a_control_that_is_as_good_as_gprune_is_named_with_the_measures():
    # perplexities 20 against 40, and accuracy is 90 less the perplexity
    assert studies.ahead(competing()) == {"50 % · control": ["ppl:wiki", "accuracy"]}
    worse = row("flap_uniform", 41.0, control=True, labels={"retention": "50%", "method": "control"})
    assert studies.ahead(studies.settings([row("gprune:flap", 40.0), worse])) == {}
    equal = replace(worse, values={"ppl:wiki": 40.0})
    assert studies.ahead(studies.settings([row("gprune:flap", 40.0), equal])) == {
        "50 % · control": ["ppl:wiki"]
    }
    # nothing is said where GPrune has no number
    assert studies.ahead(studies.settings([row("flap", 50.0), worse])) == {}


@pytest.mark.parametrize(("gap", "fair"), [(0.0049, True), (0.0051, False)])
def test_a_block_of_unequal_budgets_has_no_best(gap, fair):
    table = competing()
    table[1] = replace(table[1], rows=(replace(table[1].rows[0], kept=0.5 + gap),))
    marks, reasons = studies.marks(table, "ppl:wiki"), studies.obstacles(table)
    assert (2 in marks) is fair and 5 in marks
    assert len(reasons) == (0 if fair else 1)
    assert fair or "at 50 % differ by 0.5 %, more than 0.5 %" in next(iter(reasons.values()))


def test_the_frame_leaves_out_controls_and_rows_without_numbers():
    rows = [
        row("flap", 50.0),
        row("gprune:flap", 40.0),
        row("wanda_sp"),
        row("wanda_sp_dense", 9, control=True),
    ]
    frame = studies.frame(rows)
    assert frame["method"].tolist() == ["flap", "gprune:flap"]
    gain = tables.gain_by_retention(frame).set_index("metric")["gain"]
    assert gain["ppl:wiki"] == pytest.approx(0.8) and gain["accuracy"] == pytest.approx(10.0)
    assert list(studies.frame([]).columns) == ["method", "retention", "seed"]


def test_the_long_table_has_every_number_and_every_reason():
    table = studies.settings([*seeds("flap", 40.0, 44.0), *seeds("gprune:flap", None)])
    long = studies.long_table(table, table[0])
    assert long["measure"].tolist() == ["ppl:wiki", "accuracy", ""]
    assert long["seeds"].tolist() == [2, 2, 0] and long["spread"][0] == 2.0
    assert long["spread over"].tolist()[:2] == ["seeds", "seeds"]
    np.testing.assert_allclose(long["change against baseline"][:2], [0.0, 0.0])
    assert long["reason"][2] == "the disk is full" and long["runs"][0] == "run-a"


def test_addresses_know_settings_by_method_and_retention_whatever_else_is_shown():
    rows = [row("dense", 10.0, retention=1.0), row("flap", 20.0, labels={"retention": "50%", "method": "a"})]
    rows.append(row("flap", 21.0, labels={"retention": "50%", "method": "b"}))
    table = studies.settings(rows)
    assert studies.keys(table) == ["dense@1", "flap@0.5", "flap@0.5/2"]
    assert [setting.name for setting in table[1:]] == ["50 % · a", "50 % · b"]
