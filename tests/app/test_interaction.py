"""What happens when a reader moves a slider, fills the form, or presses a button."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from app_driver import charts, displayed, numbers, on, opened, words
from synthetic_run import a_study, read, write_run

from gprune.analysis import agreement
from gprune.app.pages.jobs import launch
from gprune.app.ui import derived_cache
from gprune.jobs import queue
from gprune.pipeline import runs
from gprune.records import Agreement
from gprune.store import Store
from gprune.study import EvaluationSettings, Study, run_name
from gprune.study.demo import demo_study


def test_sliders_and_number_fields_stay_in_step(cache: Path) -> None:
    write_run(cache)
    app = on(opened(), "reliability")
    before = app.metric[0].value
    app.slider(key="rasa_qd_slider").set_value(0.3).run()
    assert app.number_input(key="rasa_qd_number").value == 0.3
    app.number_input(key="rasa_qs_number").set_value(0.955).run()
    assert app.slider(key="rasa_qs_slider").value == 0.955
    assert app.metric[0].value != before and not app.exception


def test_presets_set_the_lines_and_the_rule(cache: Path) -> None:
    write_run(cache)
    app = on(opened(), "reliability")
    app.button(key="rasa_preset_Paper, Vicuna: 0.90 / 0.85").click().run()
    assert app.slider(key="rasa_qs_slider").value == 0.85
    app.button(key="rasa_preset_None").click().run()
    assert app.metric[0].value == "0 / 24"


def test_the_thresholds_start_a_run_that_reuses_the_rest(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = watch_submissions(monkeypatch)
    write_run(cache)
    app = on(opened(), "reliability")
    assert "These are the thresholds of this run" in words(app)
    app.slider(key="rasa_qd_slider").set_value(0.8).run()
    app.button(key="rasa_prune").click().run()
    assert [study.reliability.drift_quantile for study in started] == [0.8]
    assert started[0].calibration == a_study().calibration and run_name(started[0]) != run_name(a_study())


def test_a_changed_rule_gets_a_name_of_its_own(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = watch_submissions(monkeypatch)
    write_run(cache, study=a_study(name="Mine, RASA γ 0.50/0.50"))
    app = on(opened(), "reliability")
    app.button(key="rasa_preset_Paper, Vicuna: 0.90 / 0.85").click().run()
    app.button(key="rasa_prune").click().run()
    app.button(key="rasa_preset_None").click().run()
    app.button(key="rasa_prune").click().run()
    assert [study.name for study in started] == ["Mine, RASA γ 0.90/0.85", "Mine, RASA no adaptation"]


def test_scatter_and_captions_follow_the_rule(cache: Path) -> None:
    write_run(cache)
    app = on(opened(), "reliability")
    assert "In the shaded corner" in words(app) and "With standardized scores" in words(app)
    app.button(key="rasa_preset_Drift only").click().run()
    assert "whatever its score" in words(app) and "Each bar counts the adapted modules" in words(app)
    app.button(key="rasa_preset_None").click().run()
    assert "Nothing is adapted" in words(app) and "there are no bars" in words(app)
    assert "With standardized scores" not in words(app)
    assert json.loads(app.get("bidi_component")[0].proto.json)["selection"] == "none"
    app.toggle(key="rasa_figure_toggle").set_value(True).run()
    assert not charts(app)[0]["layout"].get("shapes")


def test_the_rule_is_restored_from_the_address(cache: Path) -> None:
    write_run(cache)
    app = on(opened(rasa_selection="drift", rasa_qs="nonsense"), "reliability")
    assert "whatever its score" in words(app)
    assert app.slider(key="rasa_qs_slider").value == a_study().reliability.score_quantile


def test_a_missing_folder_or_text_is_told_before_a_job_starts(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = watch_submissions(monkeypatch)
    write_run(cache, study=a_study(model="/nowhere/model"))
    app = on(opened(), "jobs")
    app.selectbox(key="launch_model").set_value("/nowhere/model").run()
    assert not app.error
    app.button(key="launch_start").click().run()
    assert started == [] and len(app.error) == 2, "at the top of the form and beside the button"
    assert all("there is no model folder" in error.value for error in app.error)


def test_inputs_are_checked_without_the_hub(tmp_path: Path) -> None:
    latin = tmp_path / "latin.txt"
    latin.write_bytes("fürs Grüne".encode("latin-1"))
    assert launch.input_problem(a_study()) == ""
    assert launch.input_problem(a_study(model="owner/name", auxiliary="wikitext2")) == ""
    assert "is not UTF-8" in launch.input_problem(a_study(auxiliary=str(latin)))
    assert "there is no text" in launch.input_problem(a_study(substitute=str(tmp_path / "none.txt")))
    assert "has no config.json" in launch.input_problem(a_study(model=str(tmp_path)))


def watch_submissions(monkeypatch: pytest.MonkeyPatch) -> list[Study]:
    """Replaces the queue by a list; no process is started."""
    started: list[Study] = []

    class Accepted:
        id, label, state, active = "20260101-000000-00000000", "a run", "running", False

    def submit(_: Path, study: Study, *__: Any, **___: Any) -> Any:
        started.append(study)
        return Accepted()

    monkeypatch.setattr(queue, "submit", submit)
    return started


def test_the_form_starts_the_study_that_it_shows(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = watch_submissions(monkeypatch)
    app = on(opened(), "jobs")
    app.number_input(key="launch_retention").set_value(0.7).run()
    app.selectbox(key="launch_metric").set_value("wanda_sp").run()
    assert any("--retention 0.7" in code.value and "wanda_sp" in code.value for code in app.code)
    app.button(key="launch_start").click().run()
    assert [(study.retention, study.metric, study.model) for study in started] == [(0.7, "wanda_sp", "demo")]


def test_the_untouched_form_has_the_texts_and_sizes_of_the_demo(cache: Path) -> None:
    app = on(opened(), "jobs")
    study = demo_study()
    samples = f"--samples {study.calibration.samples}"
    assert any(samples in code.value and study.primary in code.value for code in app.code)
    assert not app.error


def test_a_form_with_a_mistake_says_so_once_and_cannot_be_started(cache: Path) -> None:
    app = on(opened(), "jobs")
    app.number_input(key="launch_retention").set_value(1.5).run()
    assert [error.value for error in app.error] == [
        r"retention must be more than 0 and less than 1\: 0\.5 keeps half of the decoder's weights "
        r"\(got 1\.5\)"
    ]
    assert not [button for button in app.button if button.key == "launch_start"]
    app.number_input(key="launch_retention").set_value(0.5).run()
    app.selectbox(key="launch_auxiliary").set_value("python-reference").run()
    assert len(app.error) == 1 and "the same text" in app.error[0].value


def test_measuring_on_other_texts_keeps_the_rest_of_the_study(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = watch_submissions(monkeypatch)
    write_run(cache)
    app = on(opened(), "jobs")
    app.multiselect(key="measure_evaluate").set_value(["wikitext2"]).run()
    app.button(key="measure_start").click().run()
    assert started == [a_study().with_settings({"evaluation.texts": ["wikitext2"]})]


def test_a_missing_third_text_is_asked_for_with_the_command(cache: Path) -> None:
    write_run(cache, study=a_study(substitute=""))
    app = on(opened(), "module_agreement")
    assert "`substitute` is empty" in words(app)
    app.selectbox(key="ma_substitute").set_value("c4").run()
    assert any("--substitute c4" in code.value for code in app.code)
    app.selectbox(key="ma_substitute").set_value("science-docs").run()
    assert "substitute is already the auxiliary text" in words(app)


def test_no_winner_is_called_between_different_budgets(cache: Path) -> None:
    first = write_run(cache)
    second = write_run(cache, study=a_study(retention=0.7))
    app = on(opened(), "comparison")
    assert "GPrune has the lowest perplexity" in words(app)
    app.multiselect(key="cp_runs_multiselect").set_value([first, second]).run()
    assert "No winner is called" in words(app) and "lowest perplexity" not in words(app)
    drawn = " ".join(str(value) for value in displayed(app).to_numpy().ravel())
    assert "★" not in drawn and "≠" in drawn


def test_compare_pairs_its_differences_and_marks_the_calibration_texts(cache: Path) -> None:
    texts = EvaluationSettings(texts=("python-reference", "science-docs", "c4"), windows=96)
    write_run(cache, study=a_study(evaluation=texts))
    app = on(opened(), "comparison")
    titles = list(dict.fromkeys(group for group, _ in app.dataframe[0].value.columns if group))
    assert titles == [
        "c4 · unseen",
        "python-reference · other split of A",
        "science-docs · other split of B",
    ]
    cells = app.dataframe[0].value[titles[1]]
    assert np.isnan(cells["± %"][0]) and all(cells["± %"][1:] > 0) and all(cells["PPL ↓"] > 0)
    assert "no difference to" not in words(app) and "overlapping whiskers decide nothing" in words(app)


def test_a_run_without_perplexities_is_named_in_compare(cache: Path) -> None:
    first = write_run(cache)
    second = write_run(cache, study=a_study(name="Unfinished", retention=0.7), stages="drift", seed=1)
    app = on(opened(run=first), "comparison")
    app.multiselect(key="cp_runs_multiselect").set_value([first, second]).run()
    assert "Unfinished has no perplexities yet" in words(app)


def test_names_in_compare_hold_only_what_the_runs_differ_in(cache: Path) -> None:
    first = write_run(cache)
    second = write_run(cache, study=a_study(retention=0.7))
    app = on(opened(run=first), "comparison")
    app.multiselect(key="cp_runs_multiselect").set_value([first, second]).run()
    names = numbers(app)["method"].tolist()
    assert names[:3] == ["FLAP · keep 50 %", "Dense", "GPrune · keep 50 %"]
    assert "GPrune · keep 70 %" in names


def test_the_overview_counts_adapted_modules_and_shows_the_seed_control(cache: Path) -> None:
    write_run(cache)
    metrics = {metric.label: metric for metric in on(opened(), "overview").metric}
    assert "re-scored from B" in metrics["Modules adapted"].delta
    assert metrics["Module ARI"].delta.startswith("another seed: 0.")


def test_a_run_that_was_asked_for_a_part_offers_the_rest(cache: Path, started: list[Any]) -> None:
    name = write_run(cache, stages="drift")
    runs.save(Store(cache), name, read(cache, name) | {"until": "drift", "result": None})
    app = on(opened(), "rank_drift")
    assert "This run was only asked for “drift”." in words(app) and len(charts(app)) == 4
    app.button(key="frame_rest").click().run()
    assert started == [(a_study(), ())]


def test_results_of_an_earlier_version_are_told_and_made_again(cache: Path, started: list[Any]) -> None:
    name = write_run(cache)
    record = read(cache, name)
    record["stages"]["drift"]["key"] = "0" * 32
    runs.save(Store(cache), name, record)
    app = on(opened(), "rank_drift")
    told = f"1 of {len(record['stages'])} results of this run were made by an earlier version"
    assert told in words(app) and not app.error
    app.button(key="frame_again").click().run()
    assert started == [(a_study(), ())]


def test_the_overview_of_a_run_without_gprune_shows_no_masks_of_another_run(cache: Path) -> None:
    write_run(cache)
    name = write_run(cache, study=a_study(methods=("dense", "flap")))
    metrics = {metric.label: metric.value for metric in on(opened(run=name), "overview").metric}
    assert metrics["Decoder weights kept"] == "–" and metrics["Modules adapted"] != "–"


def an_agreement(*means: float) -> Agreement:
    names = ("ab_ac", "other_seed", "initialization")
    ari = np.repeat(np.array(means)[:, None], 3, axis=1)
    return Agreement(names[: len(means)], ari, ari)


def test_the_shared_seeds_part_in_the_agreement_is_said_where_it_is_large() -> None:
    words_ = derived_cache.seed_sentence(an_agreement(0.5, 0.16, 0.9))
    assert words_.startswith("Most of the agreement comes from the shared k-means seed")
    assert "only 0.16, and the initialization alone agrees at 0.90" in words_
    assert derived_cache.seed_sentence(an_agreement(0.5, 0.4)).startswith("Part of the agreement")
    assert derived_cache.seed_sentence(an_agreement(0.5, 0.6, 0.9)) == ""
    assert derived_cache.seed_sentence(an_agreement(0.5)) == ""
    assert agreement.controls(an_agreement(0.5, 0.4)) == (pytest.approx(0.4), None)
