"""The studies on the compare page, over tables in their true form: filled, partial, missing, damaged."""

from __future__ import annotations

import json
from dataclasses import replace
from math import nan
from pathlib import Path

import pandas as pd
import pytest
from app_driver import charts, linked, words
from streamlit.testing.v1 import AppTest
from synthetic_run import a_study, write_run
from synthetic_tables import filled, write_tables

from gprune.app.pages.comparison import studies
from gprune.experiments.reproduction import catalogue, tables
from gprune.experiments.reproduction.grid import Row
from gprune.experiments.reproduction.lookup import Answer
from gprune.experiments.reproduction.scale import choose
from gprune.pipeline.runs.opened import all_runs
from gprune.records import Accuracy

# every test walks through pages
pytestmark = pytest.mark.slow


def on_studies(table: str, **query: str) -> AppTest:
    return linked("comparison", cp_view="studies", cp_study=table, **query)


def cells(app: AppTest, index: int = 0) -> pd.DataFrame:
    frame: pd.DataFrame = app.dataframe[index].value
    return frame


def unescaped(app: AppTest) -> str:
    return words(app).replace("\\", "")


def commands(app: AppTest) -> list[str]:
    return [code.value for code in app.code if "reproduce" in code.value]


def grouped_runs(cache: Path, count: int = 3) -> tuple[str, list[str]]:
    own = write_run(cache)
    made = [
        write_run(cache, study=a_study(group="reproduce", seed=seed, name="part"))
        for seed in range(1, count + 1)
    ]
    return own, made


def test_a_table_that_is_not_there_says_how_to_make_it(cache: Path) -> None:
    write_run(cache, study=a_study(model="/models/my model"))
    app = on_studies("ablation")
    assert "This table has not been made here yet" in words(app) and not charts(app)
    assert commands(app) == ["python -m gprune reproduce ablation --model '/models/my model' --scale demo"]
    assert "It takes 3 studies of 96 sequences" in words(app).replace("\\", "")


def test_the_time_it_takes_is_that_of_the_runs_of_studies(cache: Path) -> None:
    grouped_runs(cache, 2)
    runs = all_runs(str(cache))[0]
    # 9 pairs of quantiles at 90 seconds
    assert "about 13 min 30 s at the pace of the 2" in studies.effort("quantile-sweep", "demo", "demo", runs)
    assert "pace" not in studies.effort("quantile-sweep", "/models/other", "demo", runs)


def test_main_shows_rows_differences_gains_and_the_gap(cache: Path) -> None:
    write_run(cache)
    write_tables(cache, "main")
    app = on_studies("main")
    table = cells(app)
    assert table["method"].tolist()[:3] == ["dense", "LLM-Pruner", "Wanda-sp"] and len(table) == 34
    assert "controls among them; rows that the paper does not have, as controls: 12" in unescaped(app)
    text = table.columns[3]
    assert text == "python-reference PPL ↓"
    # FLAP at 80 %: 50 * 0.5 / 0.8 = 31.25, against the dense model's 20 at 50 %
    assert table[text][table.index[4]] == "31.25 ± 1.00 (+56.2 %)"
    assert table[text][table.index[7]].endswith("★") and table[text][table.index[5]].endswith("☆")
    assert "GPrune improves python-reference PPL in 9 of 9 comparisons" in words(app)
    # 100 - 50 before and 60 - 40 after, at every retention and text
    assert "narrows the gap between Wanda-sp and FLAP in 9 of 9 cases" in words(app)
    gap = cells(app, len(app.dataframe) - 1)
    assert gap["reduction"].tolist() == pytest.approx([0.6] * 9)
    slopes, gains = charts(app)
    assert len(slopes["data"]) == 9 and len(gains["data"]) == 3


def test_a_table_that_is_half_there_gives_the_reasons_and_the_command(cache: Path) -> None:
    write_run(cache)

    def half(row: Row) -> Answer:
        adapts = row.study.reliability.selection != "none"
        return filled(row) if adapts else Answer(row, reason="the disk is <b>full</b>")

    write_tables(cache, "ablation", fill=half)
    app = on_studies("ablation")
    assert cells(app)["not filled because"].tolist() == ["", *["the disk is <b>full</b>"] * 2, *[""] * 4]
    assert cells(app).iloc[1, 5] == "–" and "5 of 7 rows" in words(app)
    assert "2 of 7 rows: the disk is \\<b\\>full" in words(app)
    assert commands(app) == ["python -m gprune reproduce ablation --model demo --scale demo"]
    assert "is best on every measure" not in words(app)
    drawn = [trace["name"] for trace in charts(app)[0]["data"]]
    controls = [
        "control: FLAP, one ratio",
        "control: MSL, one module a layer (FLAP) · MSL",
        "control: MSL, shuffled modules (FLAP) · MSL",
    ]
    assert drawn == ["FLAP", "GPrune (FLAP) · BCM · RASA · MSL", *controls]


def test_a_table_without_any_number_says_why(cache: Path) -> None:
    write_run(cache)
    write_tables(cache, "ablation", fill=lambda row: Answer(row, reason="not run yet"))
    app = on_studies("ablation")
    assert "No row of this table has its numbers yet" in words(app)
    assert "7 of 7 rows: not run yet" in words(app) and not charts(app)


def test_seeds_are_one_row_with_their_spread_or_a_row_each(cache: Path) -> None:
    write_run(cache)
    write_tables(cache, "seeds")
    app = on_studies("seeds")
    # 45, 45.45 and 45.9: mean 45.45, deviation 0.45 * sqrt(2 / 3)
    assert cells(app)["n"].tolist() == [3, 3]
    assert cells(app).iloc[0, 3] == "45.45 ± 0.37 ☆"
    assert cells(app).iloc[1, 3] == "38.38 ± 0.31 (−15.6 %) ★"
    app.toggle(key="cp_study_each_toggle").set_value(True).run()
    assert cells(app)["seed"].tolist() == ["0", "1", "2"] * 2 and "n" not in cells(app).columns


def test_no_best_is_called_where_the_budgets_differ(cache: Path) -> None:
    write_run(cache)

    def uneven(row: Row) -> Answer:
        return replace(filled(row), retention=0.52 if row.method == "flap" else 0.5)

    write_tables(cache, "ablation", fill=uneven)
    app = on_studies("ablation")
    assert "No best is called: the retentions differ by 2" in words(app).replace("\\", "")
    assert "★" not in " ".join(cells(app).astype(str).to_numpy().ravel())


def test_the_run_behind_a_row_becomes_the_run_of_every_page(cache: Path) -> None:
    own, made = grouped_runs(cache)
    write_tables(cache, "ablation", fill=lambda row: filled(row, made[2]))
    app = on_studies("ablation")
    assert app.selectbox(key="frame_run").value == own
    assert app.selectbox(key="cp_study_run_selectbox").options == ["FLAP · part · seed 3"]
    app.button(key="cp_study_open").click().run()
    assert app.selectbox(key="frame_run").value == made[2] and not app.exception


@pytest.mark.parametrize(
    ("name", "traces"), [("figure-1a", 4), ("figure-1b", 10), ("figure-3a", 2), ("figure-3b", 2)]
)
def test_figures_are_drawn_from_the_same_files(cache: Path, name: str, traces: int) -> None:
    run = write_run(cache)
    write_tables(cache, name, fill=lambda row: filled(row, run))
    app = on_studies(name)
    assert [len(chart["data"]) for chart in charts(app)] == [traces] and not app.error
    assert "★" not in " ".join(cells(app).astype(str).to_numpy().ravel())
    assert "cp_study_deltas_toggle" not in [toggle.key for toggle in app.toggle]


@pytest.mark.parametrize("name", [table for table in tables.TABLES if not table.startswith("figure-1a")])
def test_every_table_can_be_shown(cache: Path, name: str) -> None:
    write_run(cache)
    write_tables(cache, name)
    app = on_studies(name)
    assert "measured here" in words(app) and not app.error and charts(app)


def test_published_figures_stand_in_a_table_of_their_own(cache: Path) -> None:
    write_run(cache)
    write_tables(cache, "ablation")
    app = on_studies("ablation")
    measured, beside = cells(app, 0), cells(app, 1)
    assert "42.81" in beside.to_numpy().ravel() and "42.81" not in measured.to_numpy().ravel()
    assert not set(measured.columns) & {"wikitext2 PPL", "protocol"}
    assert "published, not run here" in words(app)


def test_accuracies_follow_the_rule_and_their_mean_comes_first(cache: Path) -> None:
    def with_tasks(row: Row) -> Answer:
        figures = (("boolq", 0.6, nan), ("piqa", 0.7, 0.65))
        made = [Accuracy(t, a, n, 0.02, 0.02, 200, 0, 0.5, "1.0", "") for t, a, n in figures]
        return replace(filled(row), accuracies=tuple(made))

    write_tables(cache, "ablation", fill=with_tasks)
    made = studies.found(str(cache))[0]
    values = {p: studies.read(str(cache), made, "ablation", p).rows[0].values for p in ("max", "fixed")}  # type: ignore[union-attr]
    assert values["max"]["accuracy"] == pytest.approx(65.0)
    assert values["fixed"]["accuracy"] == pytest.approx(62.5)
    assert values["max"]["accuracy:piqa"] == pytest.approx(70.0)


def test_a_damaged_table_costs_itself_only(cache: Path) -> None:
    write_run(cache)
    folder = write_tables(cache, "ablation", "seeds")
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    index["tables"]["ablation"]["rows"]["max"][0].pop("values")
    (folder / "index.json").write_text(json.dumps(index), encoding="utf-8")
    app = on_studies("ablation")
    assert len(app.error) == 1 and "the table 'ablation' in" in app.error[0].value
    assert "a row lacks 'values'" in app.error[0].value
    assert not on_studies("seeds").error
    # the files beside the index are for other programs
    (folder / "seeds.csv").unlink()
    assert not on_studies("seeds").error
    (folder / "index.json").write_text("{", encoding="utf-8")
    assert "has not been made here yet" in words(on_studies("seeds"))


def test_names_in_reproduced_tables_are_text_and_nothing_else(cache: Path) -> None:
    write_run(cache)
    evil = "<script>alert(1)</script> ![x](http://example.org/x.png)"
    write_tables(cache, "ablation", fill=lambda row: replace(filled(row), run=evil), model=evil)
    app = on_studies("ablation")
    assert "![x](" not in words(app) and "<script>" not in str(charts(app)) and not app.exception


def test_a_scale_of_its_own_goes_on_by_its_recorded_command(cache: Path) -> None:
    write_tables(cache, "ablation", scale=choose("demo", "demo", {"samples": 32}))
    write_tables(cache, "ablation")
    found = {made.name: studies._command("ablation", made) for made in studies.found(str(cache))}
    assert found.pop("demo-demo").endswith("--scale demo")
    assert list(found.values()) == ["python -m gprune reproduce ablation --model demo"]
    assert all(isinstance(made, catalogue.Reproduction) for made in studies.found(str(cache)))
