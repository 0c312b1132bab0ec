"""The compare page over synthetic runs: every method, the choice of runs, and the published figures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest
from views.app_driver import charts, on, opened, words
from views.synthetic_run import DRIFT_ONLY, a_study, read, write_run

from gprune.methods import METHODS
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
        write_run(cache, study=a_study(group="reproduce", seed=seed, name="part"), seed=seed)
        for seed in range(1, count + 1)
    ]
    return own, made


def leave_out(cache: Path, name: str, **reasons: str) -> None:
    """Gives a run methods that could not run."""
    record = read(cache, name)
    record["study"]["methods"] = [*record["study"]["methods"], *reasons]
    record["result"] = {"run": name, "unavailable": reasons}
    Store(cache).save_run(name, record)


# ---- the methods of runs -----------------------------------------------------------------------------------


def test_a_method_that_could_not_run_stands_in_the_table_with_its_reason(cache: Path) -> None:
    leave_out(cache, write_run(cache), fang="it needs more samples", llm_pruner="it needs 12 layers")
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
    some = (*DRIFT_ONLY, "masks_gprune", "perplexity.dense.0", "perplexity.gprune.0")
    write_run(cache, stages=some, state="running")
    shown = words(on(opened(), "comparison"))
    assert "Not measured yet: FLAP, FLAP, no bias compensation, Wanda\\-sp." in shown


def test_every_method_gets_its_own_masks_and_biases(cache: Path) -> None:
    name = write_run(cache)
    record = read(cache, name)
    for method in ("flap_pooled", "wanda_sp_pooled"):
        record["stages"][f"masks_{method}"] = record["stages"]["masks_flap"]
        record["stages"][f"perplexity.{method}.0"] = record["stages"]["perplexity.flap.0"]
    Store(cache).save_run(name, record)
    found = {item.method: item for item in derived.measurements(all_runs(str(cache))[0][0])}
    assert found["flap_pooled"].retention == found["wanda_sp_pooled"].retention == found["flap"].retention
    biases = record["size"]["missing_biases"]
    assert found["flap_pooled"].parameters == found["flap"].parameters
    assert found["flap"].parameters - found["wanda_sp_pooled"].parameters == biases


def test_a_method_of_another_version_is_measured_without_a_size(cache: Path) -> None:
    name = write_run(cache)
    record = read(cache, name)
    record["stages"]["perplexity.unheard_of.0"] = record["stages"]["perplexity.flap.0"]
    Store(cache).save_run(name, record)
    app = on(opened(), "comparison")
    assert "unheard_of" in cells(app)["method"].tolist() and not app.error


# ---- the runs of studies do not drown the others -----------------------------------------------------------


def test_runs_of_studies_are_offered_only_when_asked_for(cache: Path) -> None:
    own, made = grouped_runs(cache)
    app = on(opened(), "comparison")
    chooser = app.selectbox(key="run")
    assert chooser.value == own and len(chooser.options) == 1
    assert app.toggle(key="frame_studies").label == "Show the 3 runs of studies"
    assert app.multiselect(key="cp_runs").options == [own]
    app.toggle(key="frame_studies").set_value(True).run()
    options = app.selectbox(key="run").options
    assert len(options) == 4 and [text.startswith("reproduce · ") for text in options] == [False] + [True] * 3
    assert set(app.multiselect(key="cp_runs").options) == {own, *made}


def test_a_chosen_run_of_a_study_is_offered_without_asking(cache: Path) -> None:
    own, made = grouped_runs(cache)
    app = on(opened(run=made[1]), "comparison")
    assert app.selectbox(key="run").value == made[1] and len(app.selectbox(key="run").options) == 2
    assert set(app.multiselect(key="cp_runs").options) == {own, made[1]}
    assert app.toggle(key="frame_studies").value is False


def test_where_all_runs_are_of_studies_all_are_offered(cache: Path) -> None:
    for seed in (1, 2):
        write_run(cache, study=a_study(group="reproduce", seed=seed), seed=seed)
    app = opened()
    assert len(app.selectbox(key="run").options) == 2
    assert "frame_studies" not in [toggle.key for toggle in app.toggle]


def test_compare_follows_the_frame_while_it_shows_one_run_only(cache: Path) -> None:
    own, made = grouped_runs(cache, 1)
    app = on(opened(), "comparison")
    app.toggle(key="frame_studies").set_value(True).run()
    app.selectbox(key="run").set_value(made[0]).run()
    assert app.multiselect(key="cp_runs").value == [made[0]]
    app.multiselect(key="cp_runs").set_value([made[0], own]).run()
    app.selectbox(key="run").set_value(own).run()
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
    app.radio(key="cp_paper_protocol").set_value("fixed").run()
    assert "⚠" not in " ".join(cells(app).to_numpy().ravel())


@pytest.mark.parametrize("name", [*paper.DERIVED, "speed", "quantile-sweep", "seeds", "module-overlap"])
def test_every_published_table_is_text(name: str) -> None:
    table = paper.shown("LLaMA2-7B", name, "max")
    assert len(table) and all(isinstance(value, str) for value in table.to_numpy().ravel())


def test_published_throughput_keeps_its_unit_and_parameters() -> None:
    table = paper.shown("LLaMA2-7B", "speed", "max")
    assert "tokens per second" in table.columns and table["parameters"].str.contains(",").all()


# ---- words -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["flap", "wanda_sp", "twflap"])
@pytest.mark.parametrize("methods", [("dense",), ("fang", "flap_pooled"), tuple(METHODS)], ids=str)
@pytest.mark.parametrize("third", ["", "python-code"])
def test_the_stages_of_every_study_are_titled_and_counted(
    metric: str, methods: tuple[str, ...], third: str
) -> None:
    study = a_study(metric=metric, methods=methods, substitute=third)
    wanted = stages.expected(study)
    assert len(set(wanted)) == len(wanted)
    assert not any("_" in stages.title(stage) for stage in wanted)
    for count in (0, len(wanted) // 2, len(wanted)):
        present = {*wanted[:count], "a stage that nobody expects"}
        step, steps = stages.step(study, present)
        assert 0 <= stages.share(study, present) <= 1 and 1 <= step <= steps
    assert stages.share(study, set(wanted)) == 1.0
    assert ("masks_gprune" in wanted) is ("gprune" in methods)
    assert ("agreement" in wanted) is bool(third or "fang" in methods or metric == "twflap")


@pytest.mark.parametrize(
    ("stage", "words_"),
    [
        ("contexts_substitute", "contexts of C"),
        ("context_statistics_auxiliary", "statistics by context on B"),
        ("context_statistics_auxiliary_by_auxiliary", "statistics by context on B, contexts of B"),
        ("groups_primary_other_seed", "FANG’s functional groups on A, other seed"),
        ("scores_wanda_sp_auxiliary", "importance scores of Wanda-sp on B"),
        ("drift_flap_primary_substitute", "rank drift of FLAP between A and C"),
        ("masks_fang_pooled", "masks of FANG, pooled"),
        ("accuracy.flap.boolq", "accuracy of FLAP, boolq"),
        ("first_partition_ba", "first modules for the agreement (ba)"),
    ],
)
def test_titles_of_the_new_stages(stage: str, words_: str) -> None:
    assert stages.title(stage) == words_


def test_reasons_of_the_wrong_form_are_passed_over(cache: Path) -> None:
    name = write_run(cache)
    Store(cache).save_run(name, read(cache, name) | {"result": {"unavailable": ["fang"]}})
    assert derived.unavailable(all_runs(str(cache))[0][0]) == {}
