"""What happens when a reader moves a slider or presses a button, and whose code runs then."""

import ast
import json

import numpy as np
import pytest
from app_driver import charts, numbers, open_page, show, words
from synthetic_run import a_study, change_record, read, write_run

from gprune.analysis import agreement
from gprune.app import server
from gprune.app.pages import launch
from gprune.app.preview import Question, Source, manager
from gprune.app.ui import derived_cache, work
from gprune.jobs import queue
from gprune.pipeline.stages import Graph, Inputs
from gprune.records import Agreement
from gprune.study import ReliabilitySettings, Study, run_name
from gprune.system.errors import SettingsError


def test_presets_or_the_address_set_the_rule_and_captions_follow(cache):
    app = show("rasa", cache)
    app.button(key="rasa_preset_Paper, Vicuna: 0.90 / 0.85").click().run()
    assert app.slider(key="rasa_qs_slider").value == 0.85
    app.button(key="rasa_preset_None").click().run()
    assert app.metric[0].value == "0 / 24"
    app = open_page("rasa")
    assert "A module in the shaded corner" in words(app)
    app.button(key="rasa_preset_Drift only").click().run()
    assert "whatever its score" in words(app)
    app.button(key="rasa_preset_None").click().run()
    assert "No module is adapted" in words(app)
    assert json.loads(app.get("bidi_component")[0].proto.json)["selection"] == "none"
    app.toggle(key="rasa_figure_toggle").set_value(True).run()
    assert not charts(app)[0]["layout"].get("shapes")
    app = show("rasa", cache, {"rasa_selection": "drift", "rasa_qs": "nonsense"})
    assert "whatever its score" in words(app)
    assert app.slider(key="rasa_qs_slider").value == a_study().reliability.score_quantile


def test_the_runs_own_rule_comes_back_with_its_scale_and_papers_presets_take_raw_scores(cache):
    rule = ReliabilitySettings(selection="random", score_scale="standardized", drift_quantile=0.8)
    app = show("rasa", cache, study=a_study(reliability=rule))
    assert app.segmented_control(key="rasa_selection_segmented").value == "random"
    assert "The rule adapts as many random modules" in words(app)
    assert "These are the thresholds and the retention of this run" in words(app)
    app.button(key="rasa_preset_Paper, Vicuna: 0.90 / 0.85").click().run()
    assert app.segmented_control(key="rasa_scale_segmented").value == "raw"
    assert app.segmented_control(key="rasa_selection_segmented").value == "drift_and_score"
    app.button(key="rasa_preset_own").click().run()
    assert app.segmented_control(key="rasa_scale_segmented").value == "standardized"
    assert app.slider(key="rasa_qd_slider").value == 0.8
    assert "These are the thresholds and the retention of this run" in words(app)
    app = show("rasa", cache)
    assert "random" not in app.segmented_control(key="rasa_selection_segmented").options


def test_the_thresholds_start_runs_that_reuse_the_rest_under_names_of_their_own(cache, started):
    own = a_study(name="Mine, RASA γ_drift 0.50, γ_score 0.50")
    app = show("rasa", cache, study=own)
    for preset in ("Paper, Vicuna: 0.90 / 0.85", "None"):
        app.button(key=f"rasa_preset_{preset}").click().run()
        app.button(key="rasa_prune").click().run()
    studies = [study for study, _ in started]
    assert [study.name for study in studies] == ["Mine, RASA γ_drift 0.90, γ_score 0.85", "Mine, RASA no adaptation"]
    assert studies[0].reliability.score_quantile == 0.85 and studies[0].calibration == own.calibration
    assert len({run_name(study) for study in (own, *studies)}) == 3


def test_inputs_are_checked_without_the_hub(tmp_path):
    latin = tmp_path / "latin.txt"
    latin.write_bytes("fürs Grüne".encode("latin-1"))
    assert launch.input_problem(a_study()) == ""
    assert launch.input_problem(a_study(model="owner/name", auxiliary="wikitext2")) == ""
    assert "is not UTF-8" in launch.input_problem(a_study(auxiliary=str(latin)))
    assert "there is no text" in launch.input_problem(a_study(substitute=str(tmp_path / "none.txt")))
    assert "has no config.json" in launch.input_problem(a_study(model=str(tmp_path)))


def test_a_missing_third_text_is_asked_for_with_the_command(cache):
    app = show("agreement", cache, study=a_study(substitute=""))
    assert "`substitute` is empty" in words(app)
    app.selectbox(key="ma_substitute").set_value("c4").run()
    assert any("--substitute c4" in code.value for code in app.code)
    app.selectbox(key="ma_substitute").set_value("science-docs").run()
    assert "substitute is already the auxiliary text" in words(app)


def test_runs_of_different_budgets_have_names_and_no_winner(cache):
    first = write_run(cache)
    second = write_run(cache, study=a_study(retention=0.7))
    app = open_page("compare")
    assert "GPrune has the lowest perplexity" in words(app)
    app.multiselect(key="cp_runs_multiselect").set_value([first, second]).run()
    assert "No winner: " in words(app) and "lowest perplexity" not in words(app)
    assert not numbers(app)[""].any() and "" in numbers(app)["Δ"].tolist()
    app = open_page("compare", run=first)
    app.multiselect(key="cp_runs_multiselect").set_value([first, second]).run()
    names = numbers(app)["method"].tolist()
    assert names.count("Dense") == 1 and {"GPrune · keep 50%", "GPrune · keep 70%"} < set(names)


def test_a_run_without_perplexities_is_named_in_compare(cache):
    first = write_run(cache)
    second = write_run(cache, study=a_study(name="Unfinished", retention=0.7), stages="drift", seed=1)
    app = open_page("compare", run=first)
    app.multiselect(key="cp_runs_multiselect").set_value([first, second]).run()
    assert "Unfinished has no perplexities yet" in words(app)


def test_a_run_that_was_asked_for_a_part_offers_the_rest(cache, started):
    name = write_run(cache, stages="drift")
    change_record(cache, name, until="drift", result=None)
    app = open_page("drift")
    assert "This run was limited to “drift”." in words(app) and len(charts(app)) == 3
    app.button(key="frame_rest").click().run()
    assert started == [(a_study(), ())]


def test_results_of_an_earlier_version_are_told_and_made_again(cache, started, name):
    record = read(cache, name)
    record["stages"]["drift"]["key"] = "0" * 32
    change_record(cache, name, stages=record["stages"])
    app = open_page("drift")
    message = f"1 of {len(record['stages'])} results of this run were made by an earlier version"
    assert message in words(app) and not app.error
    app.button(key="frame_again").click().run()
    assert started == [(a_study(), ())]


def an_agreement(*means):
    names = ("ab_ac", "other_seed", "initialization")
    ari = np.repeat(np.array(means)[:, None], 3, axis=1)
    return Agreement(names[: len(means)], ari, ari)


def test_the_shared_seeds_part_in_the_agreement_is_said_where_it_is_large():
    words_ = derived_cache.seed_sentence(an_agreement(0.5, 0.16, 0.9))
    assert words_.startswith("Most of the agreement comes from the shared k-means seed")
    assert "only 0.16, and the initialization alone agrees at 0.90" in words_
    assert derived_cache.seed_sentence(an_agreement(0.5, 0.4)).startswith("Part of the agreement")
    assert derived_cache.seed_sentence(an_agreement(0.5, 0.6, 0.9)) == ""
    assert derived_cache.seed_sentence(an_agreement(0.5)) == ""
    assert agreement.controls(an_agreement(0.5, 0.4)) == (pytest.approx(0.4), None)


TRUSTING = a_study(trust_remote_code=True)
Started = list[tuple[Study, tuple[str, ...]]]


def refused():
    return pytest.raises(SettingsError, match="trust_remote_code is on, but .* --trust-remote-code, or run")


def test_terms_are_those_of_the_start_and_trust_nothing_before(monkeypatch):
    monkeypatch.setattr(server, "_options", [])
    assert server.current_options() is None
    server.require_trust(False)
    for supplied in (None, server.ServerOptions()):
        if supplied is not None:
            server.store_options(supplied)
        with refused():
            server.require_trust(True)
    server.store_options(server.ServerOptions(trust_remote_code=True))
    server.require_trust(True)


POOL = manager.Client(start=lambda *_: pytest.fail("a worker was started"))
SOURCE = Source("/nowhere", Graph(TRUSTING, Inputs.unknown(TRUSTING)))
QUESTION = Question(TRUSTING.evaluation.texts[0])


@pytest.mark.parametrize(
    "start",
    [
        lambda cache: work.submit(cache, TRUSTING),
        lambda cache: work.submit(cache, TRUSTING, "an export", ("export", "a", "b", "--padded")),
        lambda cache: work.resume(cache, "20260101-000000-00000000"),
        lambda _: POOL.ask(SOURCE, QUESTION, "me"),
        lambda _: POOL.ask_many(SOURCE, [QUESTION], "me"),
    ],
)
def test_no_job_and_no_preview_of_the_app_runs_code_of_a_model(cache, started, monkeypatch, start):
    # a job of the command line may be of such a study
    monkeypatch.setattr(queue, "study_of", lambda *_: TRUSTING)
    monkeypatch.setattr(queue, "resume", lambda *_: pytest.fail("it was started"))
    with refused():
        start(str(cache))
    assert started == []


def test_the_form_offers_it_only_where_it_is_allowed(cache, started):
    app = open_page("launch")
    assert app.toggle(key="launch_trust").disabled
    assert "This server does not run code that comes with a model." in words(app)
    # a value that was left in the session, or sent by hand, counts for nothing
    app.session_state["launch_trust"] = True
    app.run()
    app.button(key="launch_start").click().run()
    assert [study.trust_remote_code for study, _ in started] == [False]


def test_the_form_hands_it_on_where_the_server_may(cache, started, monkeypatch):
    monkeypatch.setattr(server, "_options", [])
    server.store_options(server.ServerOptions(trust_remote_code=True))
    app = open_page("launch")
    app.toggle(key="launch_trust").set_value(True).run()
    assert "This server does not run code that comes with a model." not in words(app)
    app.button(key="launch_start").click().run()
    assert [study.trust_remote_code for study, _ in started] == [True]


def test_every_page_starts_its_jobs_by_the_one_function_that_asks(project):
    result = set()
    for path in (project / "gprune" / "app").rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Attribute) and call.attr in ("submit", "resume"):
                if getattr(call.value, "id", "") == "queue":
                    result.add(path.name)
    assert result == {"work.py"}
