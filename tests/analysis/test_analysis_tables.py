"""Gains over base metrics, the gap between them, and the spread over seeds, on rows made by hand."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from gprune.analysis import studies, tables
from gprune.analysis.studies import StudyRow
from gprune.analysis.verdict import BEST, SECOND


def rows(lines):
    return pd.DataFrame(lines, columns=["method", "retention", "ppl:news", "accuracy"])


FOUR = rows(
    [
        ("dense", 1.0, 8.0, 70.0),
        ("wanda_sp", 0.5, 40.0, 40.0),
        ("flap", 0.5, 20.0, 44.0),
        ("gprune:wanda_sp", 0.5, 30.0, 46.0),
        ("gprune:flap", 0.5, 25.0, 45.0),
        ("wanda_sp", 0.8, 10.0, 60.0),
        ("flap", 0.8, 12.0, 60.0),
        ("gprune:wanda_sp", 0.8, 10.0, 61.0),
        ("gprune:flap", 0.8, 9.0, 63.0),
    ]
)


def test_gap_before_and_after():
    table = tables.metric_gap(FOUR)
    assert list(table.columns) == ["retention", "before", "after", "reduction"]
    assert table["retention"].tolist() == [0.8, 0.5]
    assert table.loc[1].tolist() == [0.5, 4.0, 1.0, 0.75]
    # no gap to begin with: its growth has no relative size
    assert table.loc[0, ["before", "after"]].tolist() == [0.0, 2.0] and math.isnan(table.loc[0, "reduction"])
    last_bit = FOUR.assign(accuracy=FOUR.accuracy + np.where(FOUR.method == "wanda_sp", 1e-14, 0.0))
    assert math.isnan(tables.metric_gap(last_bit).loc[0, "reduction"])
    assert tables.metric_gap(FOUR, "ppl:news").set_index("retention").loc[0.5].tolist() == [20.0, 5.0, 0.75]
    swapped = tables.metric_gap(FOUR, bases=("flap", "wanda_sp"))
    pd.testing.assert_frame_equal(swapped, tables.metric_gap(FOUR))
    missing = FOUR[~((FOUR.method == "gprune:flap") & (FOUR.retention == 0.8))]
    assert tables.metric_gap(missing)["retention"].tolist() == [0.5]
    unknown = FOUR.assign(accuracy=FOUR.accuracy.where(FOUR.retention != 0.5))
    assert tables.metric_gap(unknown)["retention"].tolist() == [0.8]
    assert tables.metric_gap(FOUR.drop(columns="accuracy")).empty
    assert tables.metric_gap(FOUR[FOUR.method == "flap"]).empty


def test_gain_is_a_ratio_of_perplexity_and_points_of_accuracy():
    table = tables.gain_by_retention(FOUR).set_index(["base", "retention", "metric"])
    first = table.loc[("wanda_sp", 0.5, "ppl:news")]
    columns = ["method", "before", "after", "gain", "unit", "better"]
    assert first[columns].tolist() == ["gprune:wanda_sp", 40.0, 30.0, 0.75, "ratio", True]
    second = table.loc[("flap", 0.5, "ppl:news")]
    assert second.gain == 1.25 and not second.better
    third = table.loc[("flap", 0.8, "accuracy")]
    assert (third.gain, third.unit, third.better) == (3.0, "points", True)
    assert not table.loc[("wanda_sp", 0.8, "ppl:news")].better  # equal is no improvement
    assert len(table) == 8


def test_gain_is_paired_by_seed():
    seeds = (
        [("flap", 0.5, 20.0, 40.0), ("gprune:flap", 0.5, 10.0, 41.0)],
        [("flap", 0.5, 30.0, 40.0), ("gprune:flap", 0.5, 20.0, 44.0)],
        [("gprune:flap", 0.5, 1.0, 99.0)],
    )
    table = tables.gain_by_retention(pd.concat([rows(lines).assign(seed=seed) for seed, lines in enumerate(seeds)]))
    points = table[table.metric == "accuracy"].set_index("seed")["gain"]
    assert points.to_dict() == {0: 1.0, 1: 4.0}


def test_gain_without_accuracy_without_a_base_and_with_overflow():
    table = tables.gain_by_retention(FOUR.drop(columns="accuracy"))
    assert set(table.metric) == {"ppl:news"} and len(table) == 4
    alone = tables.gain_by_retention(FOUR[FOUR.method == "gprune:flap"])
    assert alone.empty and "gain" in alone.columns
    lines = [("flap", 0.3, np.inf, 30.0), ("gprune:flap", 0.3, 100.0, 35.0)]
    table = tables.gain_by_retention(rows(lines)).set_index("metric")
    assert table.loc["ppl:news", "gain"] == 0.0 and table.loc["ppl:news", "better"]
    created = FOUR.rename(columns={"accuracy": "accuracy:piqa"}).assign(note="text")
    assert tables.metrics(created) == ["ppl:news", "accuracy:piqa"]
    table = tables.gain_by_retention(created)
    assert set(table[table.metric == "accuracy:piqa"].unit) == {"points"}
    lines = [("gprune:twflap", 0.5, 10.0, 50.0), ("twflap", 0.5, 20.0, 40.0), ("fang", 0.5, 16.0, 45.0)]
    table = tables.gain_by_retention(rows(lines))
    assert set(table.base) == {"fang"} and table["gain"].tolist() == [0.625, 5.0]
    assert set(tables.gain_by_retention(rows(lines[:2])).base) == {"twflap"}


def test_spread_over_seeds_divides_by_their_number():
    generator = np.random.default_rng(0)
    values = generator.normal(50, 3, size=(2, 4))
    figures = dict(zip(("flap", "gprune:flap"), values, strict=True))
    lines = [(method, 0.5, seed, row[seed]) for method, row in figures.items() for seed in range(4)]
    frame = pd.DataFrame(lines, columns=["method", "retention", "seed", "accuracy"])
    table = tables.over_seeds(frame).set_index("method")
    for method, row in figures.items():
        mean = sum(row) / 4
        spread = math.sqrt(sum((value - mean) ** 2 for value in row) / 4)
        assert table.loc[method, ["mean", "std", "seeds"]].tolist() == pytest.approx([mean, spread, 4], rel=1e-12)


def row(method, value=None, **changes):
    labels = {"retention": "50%", "method": method}
    reference = {} if value is None else {"ppl:wiki": value, "accuracy": 100.0 - value}
    base = StudyRow(labels, method, 0.5, 0, "run-a", reference, {name: 0.1 for name in reference}, kept=0.5)
    return replace(base, **changes)  # type: ignore[arg-type]


def seeds(method, *values):
    rows = []
    for seed, value in enumerate(values):
        labels, reason = {"retention": "50%", "method": method, "seed": str(seed)}, "the disk is full"
        rows.append(row(method, value, seed=seed, labels=labels, reason="" if value is not None else reason))
    return rows


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


def test_of_one_seed_half_its_interval_is_the_spread_and_of_a_figure_its_deviation():
    reference = studies.settings([row("flap", 40.0, errors={"ppl:wiki": 1.5})])[0]
    assert reference.spread("ppl:wiki") == pytest.approx(1.96 * 1.5, rel=1e-3)
    assert math.isnan(reference.spread("accuracy"))
    figure = studies.StudyRow({}, "flap", 0.5, 0, values={"ARI": 0.5}, errors={"ARI": 0.1})
    assert studies.settings([figure])[0].spread("ARI") == 0.1
    empty = studies.settings([row("flap", reason="not run yet")])[0]
    assert math.isnan(empty.mean("ppl:wiki")) and math.isnan(empty.spread("ppl:wiki"))
    assert empty.reason == "not run yet" and not empty.ranked


def competing():
    rows = [row("dense", 10.0, labels={"retention": "100%", "method": "dense"}, retention=1.0, kept=1.0)]
    rows += [row("flap", 50.0), row("gprune:flap", 40.0), row("wanda_sp", 60.0)]
    rows.append(row("wanda_sp_dense", 20.0, control=True, labels={"retention": "50%", "method": "control"}))
    later = {"retention": 0.8, "kept": 0.8}
    for method, value in (("flap", 15.0), ("gprune:flap", 18.0)):
        rows.append(row(method, value, labels={"retention": "80%", "method": method}, **later))
    return studies.settings(rows)


def test_best_and_second_are_called_within_a_block_without_dense_and_with_controls():
    assert studies.mark_settings(competing(), "ppl:wiki") == {4: BEST, 2: SECOND, 5: BEST, 6: SECOND}
    paper = [setting for setting in competing() if not setting.control]
    assert studies.mark_settings(paper, "ppl:wiki") == {2: BEST, 1: SECOND, 4: BEST, 5: SECOND}
    assert studies.mark_settings(competing(), "accuracy") == {4: BEST, 2: SECOND, 5: BEST, 6: SECOND}
    table = studies.settings([row("a", values={"ARI": 0.5, "accuracy:boolq": 50.0}), row("b", values={"ARI": 0.7})])
    assert studies.mark_settings(table, "ARI") == {} and studies.mark_settings(table, "accuracy:boolq") == {}
    table = studies.settings([row("a", 40.0), row("b", 40.0), row("c", float("inf"))])
    assert studies.mark_settings(table, "ppl:wiki") == {0: BEST, 1: BEST}
    _, flap, actual, *_ = competing()
    assert studies.relative_change(actual, flap, "ppl:wiki") == pytest.approx(-0.2)
    assert studies.relative_change(actual, flap, "accuracy") == pytest.approx(10.0)


def test_a_control_that_is_as_good_as_gprune_is_named_with_the_measures():
    # perplexities 20 against 40, and accuracy is 90 less the perplexity
    assert studies.good_controls(competing()) == {"50% · control": ["ppl:wiki", "accuracy"]}
    worse = row("flap_uniform", 41.0, control=True, labels={"retention": "50%", "method": "control"})
    assert studies.good_controls(studies.settings([row("gprune:flap", 40.0), worse])) == {}
    equal = replace(worse, values={"ppl:wiki": 40.0})
    assert studies.good_controls(studies.settings([row("gprune:flap", 40.0), equal])) == {"50% · control": ["ppl:wiki"]}
    # nothing is said where GPrune has no number
    assert studies.good_controls(studies.settings([row("flap", 50.0), worse])) == {}


@pytest.mark.parametrize(("gap", "fair"), [(0.0049, True), (0.0051, False)])
def test_a_block_of_unequal_budgets_has_no_best(gap, fair):
    table = competing()
    table[1] = replace(table[1], rows=(replace(table[1].rows[0], kept=0.5 + gap),))
    marks, reasons = studies.mark_settings(table, "ppl:wiki"), studies.unfair_blocks(table)
    assert (2 in marks) is fair and 5 in marks
    assert len(reasons) == (0 if fair else 1)
    assert fair or "at 50% differ by 0.5%, more than 0.5%" in next(iter(reasons.values()))


def test_the_frame_leaves_out_controls_and_rows_without_numbers():
    rows = [row("flap", 50.0), row("gprune:flap", 40.0), row("wanda_sp"), row("wanda_sp_dense", 9, control=True)]
    frame = studies.frame(rows)
    assert frame["method"].tolist() == ["flap", "gprune:flap"]
    gain = tables.gain_by_retention(frame).set_index("metric")["gain"]
    assert gain["ppl:wiki"] == pytest.approx(0.8) and gain["accuracy"] == pytest.approx(10.0)
    assert list(studies.frame([]).columns) == ["method", "retention", "seed"]


def test_the_long_table_has_every_number_and_every_reason():
    table = studies.settings([*seeds("flap", 40.0, 44.0), *seeds("gprune:flap", None)])
    long = studies.settings_table(table, table[0])
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
    assert [setting.name for setting in table[1:]] == ["50% · a", "50% · b"]
