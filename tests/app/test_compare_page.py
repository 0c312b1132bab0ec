"""The compare page over synthetic runs: every method, the choice of runs, and the published figures."""

import re

import numpy as np
import pytest
from app_driver import charts, numbers, open_page, opened, plain_words, show, words
from synthetic_run import a_study, exchange, grouped_runs, names, the_run, write_run

from gprune.app.figures.comparison import RUN_COLORS
from gprune.app.pages import studies
from gprune.app.ui import derived_cache, run_choice
from gprune.app.ui.chart_style import GREY
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import all_runs
from gprune.pipeline.stages import Results
from gprune.study.methods import DEFAULT
from gprune.study.settings import EvaluationSettings, ReliabilitySettings

# every test walks through pages
pytestmark = pytest.mark.slow


def leave_out(cache, **reasons):
    """A run of methods that could not run besides the usual ones."""
    return write_run(cache, study=a_study(methods=(*DEFAULT, *reasons)), unavailable=reasons)


def test_a_method_that_could_not_run_stands_in_the_table_with_its_reason(cache):
    leave_out(cache, fang="it needs more samples", llm_pruner="it needs 12 layers")
    app = open_page("compare")
    table = numbers(app).set_index("method")
    assert np.isnan(table.loc["FANG", "PPL ↓"]) and np.isnan(table.loc["FANG", "retention"])
    assert table.loc["GPrune", "±"] > 0 and "Left out: FANG (it needs more samples)." in words(app)
    assert "Left out: LLM\\-Pruner (it needs 12 layers)." in words(app)
    # it is no candidate for the pinned row, and does not stop a winner from being called
    assert "FANG" not in app.selectbox(key="cp_pinned_selectbox").options
    assert "GPrune has the lowest perplexity" in words(app)


def test_the_filter_ranks_what_is_left(cache):
    app = show("compare", cache)
    chooser = next(box for box in app.multiselect if box.label == "Methods")
    assert chooser.options == ["Dense", "GPrune", "Wanda-sp", "FLAP", "FLAP, no bias compensation"]
    assert chooser.value == [] and len(numbers(app)) == 5
    chooser.set_value(["dense", "flap", "wanda_sp"]).run()
    assert numbers(app)["method"].tolist() == ["Dense", "FLAP", "Wanda-sp"]
    assert "FLAP has the lowest perplexity" in words(app)
    assert {row for trace in charts(app)[0]["data"] for row in trace["y"]} == {"Dense", "Wanda-sp"}
    next(box for box in app.multiselect if box.label == "Methods").set_value([]).run()
    assert len(numbers(app)) == 5
    write_run(cache)
    assert "Left out" not in words(open_page("compare"))


def test_no_winner_is_called_before_every_method_is_measured_on_every_text(cache):
    measured = [stage for stage in names() if stage.startswith("perplexity.")]
    rest = [*names("masks"), *(stage for stage in measured if "wanda_sp" not in stage)]
    write_run(cache, stages=rest, state="running")
    visible = words(open_page("compare"))
    assert "Not measured yet: Wanda\\-sp." in visible and "has the lowest perplexity" not in visible
    write_run(cache, stages=[*rest, "perplexity.wanda_sp.0"], state="running")
    # on a text that every method has there are stars already
    for text, stars in (("python-reference", 1), ("science-docs", 0)):
        app = open_page("compare", cp_text=text)
        assert "Not measured yet: Wanda\\-sp." in words(app) and "has the lowest perplexity" not in words(app)
        assert numbers(app)[""].tolist().count("★") == stars
    write_run(cache)
    assert "has the lowest perplexity" in words(open_page("compare"))


def test_every_method_gets_its_own_masks_and_biases(cache):
    methods = (*DEFAULT, "flap_pooled", "wanda_sp_pooled")
    name = write_run(cache, study=a_study(methods=methods))
    run = the_run(cache)
    for method in ("flap_pooled", "wanda_sp_pooled"):
        exchange(cache, name, run.load(stages.masks, "flap"), stages.masks, method)
    results = {item.method: item for item in derived_cache.measurements(run)}
    assert results["flap_pooled"].retention == results["wanda_sp_pooled"].retention == results["flap"].retention
    assert results["flap_pooled"].parameters == results["flap"].parameters
    assert results["flap"].parameters - results["wanda_sp_pooled"].parameters == run.size.missing_biases


def test_the_metrics_own_method_is_the_baseline_and_any_other_can_be(cache):
    run = write_run(cache)
    app = open_page("compare")
    table = numbers(app).set_index("method")
    assert np.isnan(table.loc["FLAP", "change"]) and "Difference from FLAP" in words(app)
    assert "cp_pinned" not in app.query_params, "it is the default baseline"
    app.selectbox(key="cp_pinned_selectbox").set_value(f"wanda_sp@{run}").run()
    assert app.query_params["cp_pinned"] == f"wanda_sp@{run}" and "Difference from Wanda\\-sp" in words(app)
    # (1 + change) the one way is 1 / (1 + change) the other way
    after = numbers(app).set_index("method").loc["FLAP", "change"]
    assert (1 + after / 100) * (1 + table.loc["Wanda-sp", "change"] / 100) == pytest.approx(1.0)
    app = open_page("compare", cp_pinned="flap@elsewhere")
    assert 'Unknown cp\\_pinned "flap@elsewhere"' in words(app)
    assert np.isnan(numbers(app).set_index("method").loc["FLAP", "change"])


def test_rows_are_sorted_with_a_star_for_the_best_and_a_sign_for_each_change(cache):
    table = numbers(show("compare", cache))
    assert table["PPL ↓"].is_monotonic_increasing and list(table)[2] == "PPL ↓"
    assert table.loc[table["method"] != "Dense", ""].tolist()[:2] == ["★", "☆"]
    for change, error, sign in table[["change", "±", "Δ"]].dropna().itertuples(index=False):
        beyond = abs(np.log1p(change / 100)) > error / (100 + change)
        assert sign == (("▼" if change < 0 else "▲") if beyond else "≈")


def test_the_chip_of_a_text_relates_it_to_the_calibration_texts_and_unseen_texts_come_first(cache):
    texts = EvaluationSettings(texts=("python-reference", "science-docs", "c4"), windows=96)
    write_run(cache, study=a_study(evaluation=texts))
    app = open_page("compare")
    labels = app.get_by_key("cp_text_segmented").options
    assert labels == ["c4 · unseen", "python-reference · in-domain", "science-docs · in-domain"]
    table = numbers(app)
    assert all(table.dropna()["±"] > 0) and all(table["PPL ↓"] > 0)
    assert "no comparison with" not in words(app)
    app = open_page("compare", cp_form="perplexity")
    assert "not the overlap of whiskers" in words(app)
    assert not any("key/value groups" in item.value for item in app.dataframe)


def test_what_methods_were_given_and_what_texts_are_is_said_with_their_protocol(cache):
    methods = (*DEFAULT, "flap_uniform")
    app = show("compare", cache, study=a_study(methods=methods))
    visible = plain_words(app)
    assert "python-reference: another split of the corpus of python-reference, not unseen; " in visible
    assert "Perplexity over 96 windows of 128 tokens (at most 96); one stream" in visible
    facts = next(item.value for item in app.dataframe if "learning steps" in item.value.columns)
    steps = facts.set_index("method")["learning steps"]
    assert steps["GPrune"] == 40 and steps["FLAP, one ratio (control)"] == 0 and "Dense" not in steps.index


def test_a_control_that_does_as_well_is_named_below_the_table(cache):
    name = write_run(cache, study=a_study(methods=(*DEFAULT, "flap_uniform")))
    run = the_run(cache)
    actual = run.load(stages.perplexity, "gprune", "science-docs")
    exchange(cache, name, actual, stages.perplexity, "flap_uniform", "science-docs")
    # of another budget it would decide nothing
    exchange(cache, name, run.load(stages.masks), stages.masks, "flap_uniform")
    visible, other = (words(open_page("compare", cp_text=text)) for text in ("science-docs", "python-reference"))
    assert "On science-docs, a control does as well: FLAP, one ratio (+0.0% perplexity)" in visible.replace("\\", "")
    assert "a control does as well" not in other


def test_a_figure_of_another_protocol_has_a_mark_and_a_footnote(monkeypatch, name):
    created = Results.details

    def other(self, stage):
        return created(self, stage) | ({"torch": "9.9"} if stage.name == "perplexity.flap.1" else {})

    monkeypatch.setattr(Results, "details", other)
    app = open_page("compare", cp_text="science-docs")
    marked = numbers(app).set_index("method")[""].str.contains("ᵃ")
    assert marked[marked].index.tolist() == ["FLAP"]
    assert "ᵃ torch 9.9 instead of torch " in plain_words(app)


def test_other_windows_have_a_dash_and_the_reason(cache):
    first = write_run(cache)
    few = EvaluationSettings(texts=("python-reference", "science-docs"), windows=48)
    second = write_run(cache, study=a_study(evaluation=few, name="Few"))
    app = open_page("compare", run=second)
    app.multiselect(key="cp_runs_multiselect").set_value([first, second]).run()
    table = numbers(app).set_index("method")
    of_few = table.index.str.endswith("Few")
    assert of_few.sum() == 5 and table["change"].isna()[of_few | (table.index == "FLAP · Synthetic")].all()
    visible = plain_words(app)
    assert "(48 windows of 128 tokens against 96 windows of 128 tokens)" in visible
    assert "Settings that differ: evaluation.windows: 96 / 48." in visible


def test_runs_of_several_seeds_are_one_line_with_their_spread(cache):
    created = [write_run(cache, study=a_study(seed=seed)) for seed in range(3)]
    app = open_page("compare", run=created[0])
    table = numbers(app).set_index("method")
    assert table["seeds"].to_dict() == {name: 1 if name == "Dense" else 3 for name in table.index}
    assert len(table) == 5 and (table["s.d."].drop("Dense") > 0).all() and "one seed" not in words(app)
    app.toggle(key="cp_seeds_toggle").set_value(False).run()
    assert len(numbers(app)) == 5 and "one seed" in words(app)
    app.multiselect(key="cp_runs_multiselect").set_value(created).run()
    assert len(numbers(app)) == 1 + 3 * 4 and "seeds" not in numbers(app).columns


def offered(cache):
    """What lists call the runs."""
    runs = all_runs(str(cache))[0]
    return {run.name: run_choice.run_label(run, run_choice.labels(runs)) for run in runs}


def test_runs_of_studies_are_offered_only_when_asked_for_or_chosen(cache):
    main_run, created = grouped_runs(cache)
    app = open_page("compare")
    chooser = app.selectbox(key="frame_run")
    assert chooser.value == main_run and len(chooser.options) == 1
    assert app.toggle(key="frame_studies").label == "Show the 3 runs of studies"
    called = offered(cache)
    assert app.multiselect(key="cp_runs_multiselect").options == [called[main_run]]
    app.toggle(key="frame_studies").set_value(True).run()
    options = app.selectbox(key="frame_run").options
    assert len(options) == 4 and [text.startswith("reproduce · ") for text in options] == [False] + [True] * 3
    assert set(app.multiselect(key="cp_runs_multiselect").options) == {called[name] for name in (main_run, *created)}
    app = open_page("compare", run=created[1])
    assert app.selectbox(key="frame_run").value == created[1] and len(app.selectbox(key="frame_run").options) == 2
    called = offered(cache)
    assert set(app.multiselect(key="cp_runs_multiselect").options) == {called[main_run], called[created[1]]}
    assert app.toggle(key="frame_studies").value is False


def test_where_all_runs_are_of_studies_all_are_offered(cache):
    for seed in (1, 2):
        write_run(cache, study=a_study(group="reproduce", seed=seed))
    app = opened()
    assert len(app.selectbox(key="frame_run").options) == 2
    assert "frame_studies" not in [toggle.key for toggle in app.toggle]


def test_compare_follows_the_frame_while_it_shows_one_run_only(cache):
    main_run, created = grouped_runs(cache, 1)
    app = open_page("compare")
    app.toggle(key="frame_studies").set_value(True).run()
    app.selectbox(key="frame_run").set_value(created[0]).run()
    assert app.multiselect(key="cp_runs_multiselect").value == [created[0]]
    app.multiselect(key="cp_runs_multiselect").set_value([created[0], main_run]).run()
    app.selectbox(key="frame_run").set_value(main_run).run()
    assert app.multiselect(key="cp_runs_multiselect").value == [created[0], main_run] and not app.exception


def test_the_paper_is_shown_without_any_run(cache):
    app = open_page("studies")
    assert "Results reported by the paper" in words(app) and "published, not run here" in words(app)
    assert numbers(app)["wikitext2 PPL ↓"][0] == "12.19"
    app = open_page("studies", cp_view="paper", cp_paper_model="LLaMA2-13B")
    table = numbers(app)
    flap = table[(table["retention"] == "40%") & (table["method"] == "FLAP")].iloc[0]
    assert flap["piqa"] == "52.98" and flap["accuracy"] == "43.49" and flap["boolq"] == "62.08"
    app.get_by_key("cp_paper_rule_segmented").set_value("fixed").run()
    fixed = numbers(app)
    assert fixed[(fixed["retention"] == "40%") & (fixed["method"] == "FLAP")].iloc[0]["piqa"] == "58.11"


def test_every_published_table_is_text_and_throughput_keeps_its_unit():
    for name in ("speed", "quantile-sweep", "seeds", "module-overlap"):
        table = studies.published_table("LLaMA2-7B", name, "max")
        assert len(table) and all(isinstance(value, str) for value in table.to_numpy().ravel()), name
    table = studies.published_table("LLaMA2-7B", "speed", "max")
    assert "tokens per second" in table.columns and table["parameters"].str.contains(",").all()


def test_a_method_that_another_run_has_made_since_is_not_left_out(cache):
    first = leave_out(cache, fang="it needs more samples")
    run = the_run(cache)
    assert derived_cache.unavailable(run) == {"fang": "it needs more samples"}
    write_run(cache, study=a_study(methods=(*DEFAULT, "fang"), name="Again"))
    run = the_run(cache, first)
    assert derived_cache.unavailable(run) == {}


def test_two_runs_show_shared_baselines_once_and_compare_their_own_models_first(cache):
    first = write_run(cache)
    second = write_run(cache, study=a_study(reliability=ReliabilitySettings(selection="drift")))
    app = open_page("compare", run=first, cp_runs=[first, second])
    names = [f"GPrune · {rule}" for rule in ("γ_drift 0.90, γ_score 0.90", "γ_drift 0.90 drift only")]
    methods = numbers(app)["method"].tolist()
    assert set(methods) == {"Dense", "FLAP", "FLAP, no bias compensation", "Wanda-sp", *names}
    visible = plain_words(app)
    assert "Settings that differ: reliability.selection: drift_and_score / drift. GPrune" in visible
    assert re.search(rf"{names[0]} (and|has a (lower|higher) perplexity than) {names[1]}", visible)
    rows = [name.replace(" · ", "<br>") for name in names]
    traces = {trace["y"][0]: trace["marker"] for trace in charts(app)[0]["data"]}
    assert [traces[name]["color"] for name in rows] == list(RUN_COLORS[:2])
    assert len({traces[name]["symbol"] for name in rows}) == 1 and traces["Wanda-sp"]["color"] == GREY
