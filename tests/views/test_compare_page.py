"""The compare page over synthetic runs: every method, the choice of runs, and the published figures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest
from views.app_driver import charts, on, opened, words
from views.synthetic_run import a_study, exchange, names, read, write_run

from gprune import stages
from gprune.methods import DEFAULT
from gprune.store import Store
from gprune.views.comparison import paper
from gprune.views.frame import derived
from gprune.views.frame.loaders import all_runs


def cells(app: AppTest, index: int = 0) -> pd.DataFrame:
    frame: pd.DataFrame = app.dataframe[index].value
    return frame


def grouped_runs(cache: Path, count: int = 3) -> tuple[str, list[str]]:
    own = write_run(cache)
    made = [
        write_run(cache, study=a_study(group="reproduce", seed=seed, name="part"))
        for seed in range(1, count + 1)
    ]
    return own, made


def leave_out(cache: Path, **reasons: str) -> str:
    """A run of methods that could not run besides the usual ones."""
    return write_run(cache, study=a_study(methods=(*DEFAULT, *reasons)), unavailable=reasons)


# ---- the methods of runs -----------------------------------------------------------------------------------


def test_a_method_that_could_not_run_stands_in_the_table_with_its_reason(cache: Path) -> None:
    leave_out(cache, fang="it needs more samples", llm_pruner="it needs 12 layers")
    app = on(opened(), "comparison")
    table = cells(app).set_index("method")
    assert table.loc["FANG", "left out because"] == "it needs more samples"
    assert table.loc["FANG", "python-reference (A) ↓"] == "–" and np.isnan(table.loc["FANG", "kept"])
    assert table.loc["GPrune", "left out because"] == "" and "±" in table.loc["GPrune"].iloc[2]
    assert "Left out: LLM\\-Pruner. it needs 12 layers." in words(app)
    # it is no candidate for the pinned row, and does not stop a winner from being called
    assert "FANG" not in app.selectbox(key="cp_pinned").options
    assert "GPrune has the lowest perplexity" in words(app)


def test_without_such_a_method_the_table_has_no_column_for_reasons(cache: Path) -> None:
    write_run(cache)
    assert "left out because" not in cells(on(opened(), "comparison")).columns


def test_the_filter_ranks_what_is_left(cache: Path) -> None:
    write_run(cache)
    app = on(opened(), "comparison")
    chooser = next(box for box in app.multiselect if box.label == "Methods")
    assert chooser.value == ["dense", "gprune", "wanda_sp", "flap", "flap_no_bias"]
    chooser.set_value(["dense", "flap", "wanda_sp"]).run()
    assert cells(app)["method"].tolist() == ["Dense", "FLAP", "Wanda-sp"]
    assert (
        "FLAP has the lowest perplexity" in words(app) and "GPrune" not in charts(app)[0]["data"][0]["name"]
    )
    next(box for box in app.multiselect if box.label == "Methods").set_value([]).run()
    assert len(cells(app)) == 5


def test_differences_can_be_left_out(cache: Path) -> None:
    write_run(cache)
    app = on(opened(), "comparison")
    assert "%" in cells(app)["python-reference (A) ↓"][1]
    app.toggle(key="cp_deltas").set_value(False).run()
    assert "%" not in "".join(cells(app)["python-reference (A) ↓"])
    assert "in brackets" not in words(app) and "★" in "".join(cells(app)["python-reference (A) ↓"])


def test_an_unfinished_run_names_the_methods_still_to_come(cache: Path) -> None:
    some = (*names("masks"), "perplexity.dense.0", "perplexity.gprune.0")
    write_run(cache, stages=some, state="running")
    shown = words(on(opened(), "comparison"))
    assert "Not measured yet: FLAP, FLAP, no bias compensation, Wanda\\-sp." in shown


def test_every_method_gets_its_own_masks_and_biases(cache: Path) -> None:
    methods = (*DEFAULT, "flap_pooled", "wanda_sp_pooled")
    name = write_run(cache, study=a_study(methods=methods))
    (run,), _ = all_runs(str(cache))
    for method in ("flap_pooled", "wanda_sp_pooled"):
        exchange(cache, name, run.load(stages.masks, "flap"), stages.masks, method)
    found = {item.method: item for item in derived.measurements(run)}
    assert found["flap_pooled"].retention == found["wanda_sp_pooled"].retention == found["flap"].retention
    assert run.size is not None
    assert found["flap_pooled"].parameters == found["flap"].parameters
    assert found["flap"].parameters - found["wanda_sp_pooled"].parameters == run.size.missing_biases


# ---- the runs of studies do not drown the others -----------------------------------------------------------


def test_runs_of_studies_are_offered_only_when_asked_for(cache: Path) -> None:
    own, made = grouped_runs(cache)
    app = on(opened(), "comparison")
    chooser = app.selectbox(key="frame_run")
    assert chooser.value == own and len(chooser.options) == 1
    assert app.toggle(key="frame_studies").label == "Show the 3 runs of studies"
    assert app.multiselect(key="cp_runs").options == [own]
    app.toggle(key="frame_studies").set_value(True).run()
    options = app.selectbox(key="frame_run").options
    assert len(options) == 4 and [text.startswith("reproduce · ") for text in options] == [False] + [True] * 3
    assert set(app.multiselect(key="cp_runs").options) == {own, *made}


def test_a_chosen_run_of_a_study_is_offered_without_asking(cache: Path) -> None:
    own, made = grouped_runs(cache)
    app = on(opened(run=made[1]), "comparison")
    assert (
        app.selectbox(key="frame_run").value == made[1] and len(app.selectbox(key="frame_run").options) == 2
    )
    assert set(app.multiselect(key="cp_runs").options) == {own, made[1]}
    assert app.toggle(key="frame_studies").value is False


def test_where_all_runs_are_of_studies_all_are_offered(cache: Path) -> None:
    for seed in (1, 2):
        write_run(cache, study=a_study(group="reproduce", seed=seed))
    app = opened()
    assert len(app.selectbox(key="frame_run").options) == 2
    assert "frame_studies" not in [toggle.key for toggle in app.toggle]


def test_compare_follows_the_frame_while_it_shows_one_run_only(cache: Path) -> None:
    own, made = grouped_runs(cache, 1)
    app = on(opened(), "comparison")
    app.toggle(key="frame_studies").set_value(True).run()
    app.selectbox(key="frame_run").set_value(made[0]).run()
    assert app.multiselect(key="cp_runs").value == [made[0]]
    app.multiselect(key="cp_runs").set_value([made[0], own]).run()
    app.selectbox(key="frame_run").set_value(own).run()
    assert app.multiselect(key="cp_runs").value == [made[0], own] and not app.exception


# ---- what the paper reports --------------------------------------------------------------------------------


def test_the_paper_is_shown_without_any_run(cache: Path) -> None:
    app = on(opened(), "comparison")
    assert "What the paper reports" in words(app) and "published, not run here" in words(app)
    assert cells(app)["wikitext2 PPL ↓"][0] == "12.19"


def test_numbers_that_cannot_be_right_carry_a_sign_and_the_sentence(cache: Path) -> None:
    app = on(opened(cp_view="Paper", cp_paper_model="LLaMA2-13B"), "comparison")
    table = cells(app)
    flap = table[(table["retention"] == "40%") & (table["method"] == "FLAP")].iloc[0]
    assert flap["piqa"] == "52.98 ⚠" and flap["accuracy"] == "43.49 ⚠" and flap["boolq"] == "62.08"
    assert "52.98 under max, below the 58.11 under fixed" in words(app).replace("\\", "")
    app.radio(key="cp_paper_rule").set_value("fixed").run()
    assert "⚠" not in " ".join(cells(app).to_numpy().ravel())


@pytest.mark.parametrize("name", [*paper.DERIVED, "speed", "quantile-sweep", "seeds", "module-overlap"])
def test_every_published_table_is_text(name: str) -> None:
    table = paper.shown("LLaMA2-7B", name, "max")
    assert len(table) and all(isinstance(value, str) for value in table.to_numpy().ravel())


def test_published_throughput_keeps_its_unit_and_parameters() -> None:
    table = paper.shown("LLaMA2-7B", "speed", "max")
    assert "tokens per second" in table.columns and table["parameters"].str.contains(",").all()


# ---- damaged records --------------------------------------------------------------------------------------


@pytest.mark.parametrize("unavailable", [["fang"], {"masks_fang": "a reason"}, {"masks_fang": {"key": "0"}}])
def test_reasons_of_the_wrong_form_are_passed_over(cache: Path, unavailable: object) -> None:
    name = write_run(cache)
    Store(cache).save_run(name, read(cache, name) | {"unavailable": unavailable})
    assert derived.unavailable(all_runs(str(cache))[0][0]) == {}


def test_a_method_that_another_run_has_made_since_is_not_left_out(cache: Path) -> None:
    first = leave_out(cache, fang="it needs more samples")
    (run,), _ = all_runs(str(cache))
    assert derived.unavailable(run) == {"fang": "it needs more samples"}
    write_run(cache, study=a_study(methods=(*DEFAULT, "fang"), name="Again"))
    run = next(run for run in all_runs(str(cache))[0] if run.name == first)
    assert derived.unavailable(run) == {}
