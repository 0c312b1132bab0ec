"""Gains over base metrics, the gap between them, and the spread over seeds, on rows made by hand."""

import math

import numpy as np
import pandas as pd
import pytest

from gprune.analysis import tables
from gprune.system.errors import SettingsError


def rows(lines: list[tuple[str, float, float, float]]) -> pd.DataFrame:
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
    assert first[["method", "before", "after", "gain", "unit", "better"]].tolist() == [
        "gprune:wanda_sp",
        40.0,
        30.0,
        0.75,
        "ratio",
        True,
    ]
    second = table.loc[("flap", 0.5, "ppl:news")]
    assert second.gain == 1.25 and not second.better
    third = table.loc[("flap", 0.8, "accuracy")]
    assert (third.gain, third.unit, third.better) == (3.0, "points", True)
    assert not table.loc[("wanda_sp", 0.8, "ppl:news")].better  # equal is no improvement
    assert len(table) == 8


def test_gain_is_paired_by_seed():
    seeded = pd.concat(
        [
            rows([("flap", 0.5, 20.0, 40.0), ("gprune:flap", 0.5, 10.0, 41.0)]).assign(seed=0),
            rows([("flap", 0.5, 30.0, 40.0), ("gprune:flap", 0.5, 20.0, 44.0)]).assign(seed=1),
            rows([("gprune:flap", 0.5, 1.0, 99.0)]).assign(seed=2),
        ]
    )
    table = tables.gain_by_retention(seeded)
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
    made = FOUR.rename(columns={"accuracy": "accuracy:piqa"}).assign(note="text")
    assert tables.metrics(made) == ["ppl:news", "accuracy:piqa"]
    table = tables.gain_by_retention(made)
    assert set(table[table.metric == "accuracy:piqa"].unit) == {"points"}
    lines = [("gprune:twflap", 0.5, 10.0, 50.0), ("twflap", 0.5, 20.0, 40.0), ("fang", 0.5, 16.0, 45.0)]
    table = tables.gain_by_retention(rows(lines))
    assert set(table.base) == {"fang"} and table["gain"].tolist() == [0.625, 5.0]
    assert set(tables.gain_by_retention(rows(lines[:2])).base) == {"twflap"}


def test_spread_over_seeds_divides_by_their_number():
    generator = np.random.default_rng(0)
    values = generator.normal(50, 3, size=(2, 4))
    lines = [
        {"method": method, "retention": 0.5, "seed": seed, "accuracy": values[index, seed]}
        for index, method in enumerate(("flap", "gprune:flap"))
        for seed in range(4)
    ]
    table = tables.over_seeds(pd.DataFrame(lines)).set_index("method")
    for index, method in enumerate(("flap", "gprune:flap")):
        mean = sum(values[index]) / 4
        spread = math.sqrt(sum((value - mean) ** 2 for value in values[index]) / 4)
        assert math.isclose(table.loc[method, "mean"], mean, rel_tol=1e-12)
        assert math.isclose(table.loc[method, "std"], spread, rel_tol=1e-12)
        assert table.loc[method, "seeds"] == 4


def test_ambiguous_and_incomplete_rows_are_refused():
    twice = pd.concat([FOUR, FOUR[FOUR.method == "flap"]])
    with pytest.raises(SettingsError, match="flap is there twice with retention 0.5"):
        tables.gain_by_retention(twice)
    with pytest.raises(SettingsError, match="flap is there twice"):
        tables.metric_gap(twice)
    with pytest.raises(SettingsError, match="missing: retention"):
        tables.metric_gap(FOUR.drop(columns="retention"))
    with pytest.raises(SettingsError, match="add the column seed"):
        tables.over_seeds(FOUR)
    with pytest.raises(SettingsError, match="there twice with one retention and seed"):
        tables.over_seeds(twice.assign(seed=0))
