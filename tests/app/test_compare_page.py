"""The compare page over synthetic runs: every method, the choice of runs, and the published figures."""

import numpy as np
import pytest
from app_driver import charts, displayed, numbers, open_page, opened, show, words
from synthetic_run import a_study, exchange, grouped_runs, names, read, the_run, write_run

from gprune.analysis.formatting import signed
from gprune.app.pages.comparison import paper
from gprune.app.ui import derived_cache, run_choice
from gprune.pipeline import runs as run_records
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import all_runs
from gprune.pipeline.stages import Results
from gprune.store import Store
from gprune.study.methods import DEFAULT
from gprune.study.settings import EvaluationSettings

# every test walks through pages
pytestmark = pytest.mark.slow

TEXT = "python-reference · other split of A"


def cells(app, index=0):
    return app.dataframe[index].value


def leave_out(cache, **reasons):
    """A run of methods that could not run besides the usual ones."""
    return write_run(cache, study=a_study(methods=(*DEFAULT, *reasons)), unavailable=reasons)


def test_a_method_that_could_not_run_stands_in_the_table_with_its_reason(cache):
    leave_out(cache, fang="it needs more samples", llm_pruner="it needs 12 layers")
    app = open_page("comparison")
    table = numbers(app).set_index("method")
    assert table.loc["FANG", "left out because"] == "it needs more samples"
    assert np.isnan(table.loc["FANG", f"{TEXT} PPL ↓"]) and np.isnan(table.loc["FANG", "retention"])
    assert table.loc["GPrune", "left out because"] == "" and table.loc["GPrune", f"{TEXT} ± %"] > 0
    assert "Left out: LLM\\-Pruner. it needs 12 layers." in words(app)
    # it is no candidate for the pinned row, and does not stop a winner from being called
    assert "FANG" not in app.selectbox(key="cp_pinned_selectbox").options
    assert "GPrune has the lowest perplexity" in words(app)


def test_the_filter_ranks_what_is_left_and_differences_can_be_left_out(cache):
    app = show("comparison", cache)
    chooser = next(box for box in app.multiselect if box.label == "Methods")
    assert chooser.options == ["Dense", "GPrune", "Wanda-sp", "FLAP", "FLAP, no bias compensation"]
    assert chooser.value == [] and len(numbers(app)) == 5
    chooser.set_value(["dense", "flap", "wanda_sp"]).run()
    assert numbers(app)["method"].tolist() == ["FLAP", "Dense", "Wanda-sp"]
    assert "FLAP has the lowest perplexity" in words(app)
    assert {row for trace in charts(app)[0]["data"] for row in trace["y"]} == {"Dense", "Wanda-sp"}
    next(box for box in app.multiselect if box.label == "Methods").set_value([]).run()
    assert len(numbers(app)) == 5
    write_run(cache)
    assert "left out because" not in numbers(open_page("comparison")).columns
    assert {f"{TEXT} Δ %", f"{TEXT} ± %"} < set(numbers(app).columns) and "Δ: change against" in words(app)
    app.toggle(key="cp_deltas_toggle").set_value(False).run()
    assert "%" not in "".join(numbers(app).columns)
    assert "Δ: change" not in words(app) and "★" in "".join(displayed(app)[f"{TEXT} PPL ↓"])


def test_an_unfinished_run_names_the_methods_still_to_come(cache):
    some = (*names("masks"), "perplexity.dense.0", "perplexity.gprune.0")
    write_run(cache, stages=some, state="running")
    shown = words(open_page("comparison"))
    assert "Not measured yet: FLAP, FLAP, no bias compensation, Wanda\\-sp, GPrune." in shown


def test_no_winner_is_called_before_every_method_is_measured_on_every_text(cache):
    measured = [stage for stage in names() if stage.startswith("perplexity.")]
    rest = [*names("masks"), *(stage for stage in measured if "wanda_sp" not in stage)]
    write_run(cache, stages=rest, state="running")
    shown = words(open_page("comparison"))
    assert "Not measured yet: Wanda\\-sp." in shown and "has the lowest perplexity" not in shown
    write_run(cache, stages=[*rest, "perplexity.wanda_sp.0"], state="running")
    app = open_page("comparison")
    shown, drawn = words(app), displayed(app)
    assert "Not measured yet: Wanda\\-sp." in shown and "has the lowest perplexity" not in shown
    # on a text that every method has there are stars already
    assert ["★" in "".join(map(str, drawn[f"{text} PPL ↓"])) for text in (TEXT, "science-docs · other split of B")] == [
        True,
        False,
    ]
    write_run(cache)
    assert "has the lowest perplexity" in words(open_page("comparison"))


def test_every_method_gets_its_own_masks_and_biases(cache):
    methods = (*DEFAULT, "flap_pooled", "wanda_sp_pooled")
    name = write_run(cache, study=a_study(methods=methods))
    run = the_run(cache)
    for method in ("flap_pooled", "wanda_sp_pooled"):
        exchange(cache, name, run.load(stages.masks, "flap"), stages.masks, method)
    found = {item.method: item for item in derived_cache.measurements(run)}
    assert found["flap_pooled"].retention == found["wanda_sp_pooled"].retention == found["flap"].retention
    assert found["flap_pooled"].parameters == found["flap"].parameters
    assert found["flap"].parameters - found["wanda_sp_pooled"].parameters == run.size.missing_biases


def test_the_metrics_own_method_is_pinned_and_any_other_can_be_and_units_are_compared(cache):
    run = write_run(cache)
    app = open_page("comparison")
    assert numbers(app)["method"][0] == "FLAP" and np.isnan(numbers(app)[f"{TEXT} Δ %"][0])
    assert "cp_pinned" not in app.query_params, "it is what is pinned where nothing was chosen"
    before = numbers(app).set_index("method").loc["Wanda-sp", f"{TEXT} Δ %"]
    app.selectbox(key="cp_pinned_selectbox").set_value(f"wanda_sp@{run}").run()
    assert app.query_params["cp_pinned"] == f"wanda_sp@{run}"
    assert numbers(app)["method"][0] == "Wanda-sp" and "Difference to Wanda\\-sp" in words(app)
    # (1 + change) the one way is 1 / (1 + change) the other way
    after = numbers(app).set_index("method").loc["FLAP", f"{TEXT} Δ %"]
    assert (1 + after / 100) * (1 + before / 100) == pytest.approx(1.0)
    assert numbers(open_page("comparison", cp_pinned=f"dense@{run}"))["method"][0] == "Dense"
    app = open_page("comparison")
    (found,) = all_runs(str(cache))[0]
    flap, ours = (found.load(stages.masks, name) for name in ("flap", "gprune"))
    table = next(one.value for one in app.dataframe if "Jaccard" in one.value.columns).set_index("units")
    line = table.loc["FFN neurons"]
    assert line["both"] == (flap.ffn & ours.ffn).sum() and line["only FLAP"] == (flap.ffn & ~ours.ffn).sum()
    bars = charts(app)[-1]["data"]
    assert [bar["name"] for bar in bars] == ["only FLAP", "both", "only GPrune"]
    app.get_by_key("cp_kind_segmented").set_value("groups").run()
    assert "share key/value groups at a Jaccard" in words(app)
    app.selectbox(key="cp_other_selectbox").set_value(f"flap_no_bias@{run}").run()
    assert "Jaccard of 1.00" in words(app)
    assert charts(app)[-1]["data"][2]["marker"]["pattern"]["shape"] == "/"
    app = open_page("comparison", cp_pinned=f"wanda_sp@{run}", cp_deltas="0", cp_kind="groups")
    assert numbers(app)["method"][0] == "Wanda-sp" and "%" not in "".join(numbers(app).columns)
    assert "share key/value groups" in words(app)
    asked = open_page("comparison", cp_pinned="flap@elsewhere")
    assert "cp\\_pinned = flap@elsewhere" in words(asked) and numbers(asked)["method"][0] == "FLAP"


def test_signs_say_better_worse_or_within_noise_and_cells_stay_numbers(cache):
    app = show("comparison", cache)
    drawn, values = displayed(app), numbers(app)
    for change, error, words_ in zip(
        values[f"{TEXT} Δ %"][1:], values[f"{TEXT} ± %"][1:], drawn[f"{TEXT} Δ %"][1:], strict=True
    ):
        beyond = abs(np.log1p(change / 100)) > 2 * error / (100 + change)
        assert words_ == f"{('▼' if change < 0 else '▲') if beyond else '≈'} {signed(change, '.1f')}"
    best = values[f"{TEXT} PPL ↓"].where(values["method"] != "Dense").idxmin()
    assert drawn[f"{TEXT} PPL ↓"][best].endswith("★")


def test_what_was_calibrated_on_is_said_and_unseen_texts_come_first(cache):
    texts = EvaluationSettings(texts=("python-reference", "science-docs", "c4"), windows=96)
    write_run(cache, study=a_study(evaluation=texts))
    app = open_page("comparison")
    groups = list(dict.fromkeys(group for group, _ in cells(app).columns if group))
    assert groups == ["c4 · unseen", TEXT, "science-docs · other split of B"]
    found = cells(app)[TEXT]
    assert np.isnan(found["± %"][0]) and all(found["± %"][1:] > 0) and all(found["PPL ↓"] > 0)
    assert "no difference to" not in words(app) and "overlapping whiskers decide nothing" in words(app)


def test_what_methods_were_given_and_what_texts_are_is_said_with_their_protocol(cache):
    methods = (*DEFAULT, "flap_uniform")
    app = show("comparison", cache, study=a_study(methods=methods))
    shown = words(app).replace("\\", "")
    assert "Not given the same: GPrune has A and B and 40 steps of learning; 4 methods have A" in shown
    assert "Repair of the kept weights: FLAP by bias compensation on A; the others not at all" in shown
    assert "science-docs: another split of the corpus of B, not unseen; " in shown
    assert "none of it stands word for word in A, 0.04 % in B (runs of 17 tokens)" in shown
    assert "perplexity over 96 windows of 128 tokens (at most 96); one stream" in shown
    facts = next(one.value for one in app.dataframe if "steps of learning" in one.value.columns)
    steps = facts.set_index("method")["steps of learning"]
    assert steps["GPrune"] == 40 and steps["FLAP, one ratio (control)"] == 0 and "Dense" not in steps.index


def test_a_control_that_does_as_well_is_named_below_the_table(cache):
    name = write_run(cache, study=a_study(methods=(*DEFAULT, "flap_uniform")))
    run = the_run(cache)
    ours = run.load(stages.perplexity, "gprune", "science-docs")
    exchange(cache, name, ours, stages.perplexity, "flap_uniform", "science-docs")
    # of another budget it would decide nothing
    exchange(cache, name, run.load(stages.masks), stages.masks, "flap_uniform")
    shown = words(open_page("comparison")).replace("\\", "")
    assert "On science-docs: a control does as well: FLAP, one ratio (+0.0 % perplexity)" in shown
    assert "On python-reference" not in shown


def test_a_figure_of_another_protocol_has_a_mark_and_a_footnote(monkeypatch, name):
    made = Results.details

    def other(self, stage):
        return made(self, stage) | ({"torch": "9.9"} if stage.name == "perplexity.flap.1" else {})

    monkeypatch.setattr(Results, "details", other)
    app = open_page("comparison")
    drawn = displayed(app)
    marked = {c: [w for w in drawn[c] if "ᵃ" in str(w)] for c in drawn.columns if "PPL" in c}
    assert [len(cells) for cells in marked.values()] == [0, 1]
    assert "ᵃ torch 9.9 instead of torch " in words(app).replace("\\", "")


def test_other_windows_have_a_dash_and_the_reason(cache):
    first = write_run(cache)
    few = EvaluationSettings(texts=("python-reference", "science-docs"), windows=48)
    second = write_run(cache, study=a_study(evaluation=few, name="Few"))
    app = open_page("comparison", run=second)
    app.multiselect(key="cp_runs_multiselect").set_value([first, second]).run()
    table = numbers(app).set_index("method")
    of_few = table.index.str.endswith("Few")
    assert of_few.sum() == 4 and table[f"{TEXT} Δ %"].isna()[of_few | (table.index == "FLAP · Synthetic")].all()
    shown = words(app).replace("\\", "")
    assert "because of 48 windows of 128 tokens against 96 windows of 128 tokens" in shown
    assert "#### The runs differ in 1 setting\n" in shown
    settings = next(one.value for one in app.dataframe if "setting" in one.value.columns)
    assert settings["setting"].tolist() == ["evaluation.windows"]


def test_runs_of_several_seeds_are_one_line_with_their_spread(cache):
    made = [write_run(cache, study=a_study(seed=seed)) for seed in range(3)]
    app = open_page("comparison", run=made[0])
    assert "one seed" in words(app)
    app.multiselect(key="cp_runs_multiselect").set_value(made).run()
    table = numbers(app).set_index("method")
    assert table["seeds"].to_dict() == {name: 1 if name == "Dense" else 3 for name in table.index}
    assert len(table) == 5 and (table[f"{TEXT} s.d."].drop("Dense") > 0).all() and "one seed" not in words(app)
    app.toggle(key="cp_seeds_toggle").set_value(False).run()
    assert len(numbers(app)) == 1 + 3 * 4 and "seeds" not in numbers(app).columns


def offered(cache):
    """What lists call the runs."""
    runs = all_runs(str(cache))[0]
    return {run.name: run_choice.run_label(run, run_choice.labels(runs)) for run in runs}


def test_runs_of_studies_are_offered_only_when_asked_for_or_chosen(cache):
    own, made = grouped_runs(cache)
    app = open_page("comparison")
    chooser = app.selectbox(key="frame_run")
    assert chooser.value == own and len(chooser.options) == 1
    assert app.toggle(key="frame_studies").label == "Show the 3 runs of studies"
    called = offered(cache)
    assert app.multiselect(key="cp_runs_multiselect").options == [called[own]]
    app.toggle(key="frame_studies").set_value(True).run()
    options = app.selectbox(key="frame_run").options
    assert len(options) == 4 and [text.startswith("reproduce · ") for text in options] == [False] + [True] * 3
    assert set(app.multiselect(key="cp_runs_multiselect").options) == {called[name] for name in (own, *made)}
    app = open_page("comparison", run=made[1])
    assert app.selectbox(key="frame_run").value == made[1] and len(app.selectbox(key="frame_run").options) == 2
    called = offered(cache)
    assert set(app.multiselect(key="cp_runs_multiselect").options) == {called[own], called[made[1]]}
    assert app.toggle(key="frame_studies").value is False


def test_where_all_runs_are_of_studies_all_are_offered(cache):
    for seed in (1, 2):
        write_run(cache, study=a_study(group="reproduce", seed=seed))
    app = opened()
    assert len(app.selectbox(key="frame_run").options) == 2
    assert "frame_studies" not in [toggle.key for toggle in app.toggle]


def test_compare_follows_the_frame_while_it_shows_one_run_only(cache):
    own, made = grouped_runs(cache, 1)
    app = open_page("comparison")
    app.toggle(key="frame_studies").set_value(True).run()
    app.selectbox(key="frame_run").set_value(made[0]).run()
    assert app.multiselect(key="cp_runs_multiselect").value == [made[0]]
    app.multiselect(key="cp_runs_multiselect").set_value([made[0], own]).run()
    app.selectbox(key="frame_run").set_value(own).run()
    assert app.multiselect(key="cp_runs_multiselect").value == [made[0], own] and not app.exception


def test_the_paper_is_shown_without_any_run(cache):
    app = open_page("comparison")
    assert "What the paper reports" in words(app) and "published, not run here" in words(app)
    assert cells(app)["wikitext2 PPL ↓"][0] == "12.19"
    app = open_page("comparison", cp_view="paper", cp_paper_model="LLaMA2-13B")
    table = cells(app)
    flap = table[(table["retention"] == "40 %") & (table["method"] == "FLAP")].iloc[0]
    assert flap["piqa"] == "52.98" and flap["accuracy"] == "43.49" and flap["boolq"] == "62.08"
    app.get_by_key("cp_paper_rule_segmented").set_value("fixed").run()
    fixed = cells(app)
    assert fixed[(fixed["retention"] == "40 %") & (fixed["method"] == "FLAP")].iloc[0]["piqa"] == "58.11"


def test_every_published_table_is_text_and_throughput_keeps_its_unit():
    for name in [*paper.DERIVED, "speed", "quantile-sweep", "seeds", "module-overlap"]:
        table = paper.shown("LLaMA2-7B", name, "max")
        assert len(table) and all(isinstance(value, str) for value in table.to_numpy().ravel()), name
    table = paper.shown("LLaMA2-7B", "speed", "max")
    assert "tokens per second" in table.columns and table["parameters"].str.contains(",").all()


def test_reasons_of_the_wrong_form_are_passed_over(cache, name):
    for unavailable in (["fang"], {"masks_fang": "a reason"}, {"masks_fang": {"key": "0"}}):
        run_records.save(Store(cache), name, read(cache, name) | {"unavailable": unavailable})
        assert derived_cache.unavailable(the_run(cache)) == {}


def test_a_method_that_another_run_has_made_since_is_not_left_out(cache):
    first = leave_out(cache, fang="it needs more samples")
    run = the_run(cache)
    assert derived_cache.unavailable(run) == {"fang": "it needs more samples"}
    write_run(cache, study=a_study(methods=(*DEFAULT, "fang"), name="Again"))
    run = next(run for run in all_runs(str(cache))[0] if run.name == first)
    assert derived_cache.unavailable(run) == {}
