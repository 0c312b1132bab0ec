"""The calibration data page and the view of one text, in every state."""

from dataclasses import replace

import numpy as np
import pytest
from app_driver import charts, open_page, plain_words, show, words
from synthetic_run import a_study, exchange, folder_of, names, the_run, write_run

from gprune import records
from gprune.analysis import calibration as analysis
from gprune.analysis import calibration_report
from gprune.app.figures import calibration_data as figures
from gprune.app.figures.calibration_data import MEASURES
from gprune.app.ui.chart_style import is_wide
from gprune.models import vocabulary
from gprune.pipeline import stages
from gprune.pruning import scoring
from gprune.store import Store
from gprune.study import CalibrationSettings
from gprune.system.errors import ModelError


def test_a_finished_run_fills_the_page_and_its_matrix(cache):
    app = show("calibration", cache)
    (matrix,) = charts(app)
    assert not app.error and matrix["data"][0]["x"] == ["A", "B", "C"]
    table = app.dataframe[0].value
    assert table["name"].tolist() == ["python-reference", "science-docs", "python-code"]
    assert table["% of vocabulary"].notna().all()
    assert table["sequences"].tolist() == ["32 of 64", "32 of 96", "32 of 128"]
    assert "3 texts, 32 sequences of 16 tokens each" in words(app)
    assert "What is known of python-reference" in plain_words(app)
    drift = the_run(cache).load(stages.drift)
    values = np.array(charts(open_page("calibration"))[0]["data"][0]["text"], dtype=float)
    assert values[0, 1] == pytest.approx(np.median(drift.correlation), abs=6e-4)
    assert values[0, 0] == pytest.approx(np.median(drift.correlation_primary), abs=6e-4)
    other = the_run(cache).load(stages.drift, "primary", "substitute")
    assert values[0, 2] == pytest.approx(np.median(other.correlation), abs=6e-4)
    assert 0 < values[2, 2] <= 1


def test_a_text_has_the_name_that_this_run_gives_it(cache, name):
    folder = folder_of(cache, name, stages.tokens, "auxiliary")
    tokens = Store(cache).get("tokens", folder.name, records.Tokens)
    exchange(cache, name, replace(tokens, text="/elsewhere/the same.txt"), stages.tokens, "auxiliary")
    assert open_page("calibration").dataframe[0].value["name"][1] == "science-docs"


def test_where_a_drift_is_not_there_the_matrix_shows_what_the_scores_say(cache):
    write_run(cache, stages=[name for name in names() if not name.startswith("drift_")])
    values = np.array(charts(open_page("calibration"))[0]["data"][0]["text"], dtype=float)
    scores = [the_run(cache).load(stages.scores, role).ffn for role in ("primary", "substitute")]
    assert values[0, 2] == pytest.approx(analysis.correlation_and_drift(*scores)[0], abs=6e-4)
    assert 0 < values[2, 2] <= 1


def test_every_measure_has_its_matrix_and_its_caption(cache):
    app = show("calibration", cache)
    message = {"tokens": "Jensen-Shannon distance", "drift": "from first to last"}
    for measure, caption in message.items():
        app.selectbox(key="cd_measure_selectbox").set_value(measure).run()
        assert caption in words(app) and f"#### {MEASURES[measure]}: " in words(app)
        assert len(charts(app)) == 1 and not app.error


def test_half_a_run_shows_the_two_texts_that_are_there(cache):
    app = show("calibration", cache, study=a_study(substitute=""), stages="drift", state="cancelled")
    (matrix,) = charts(app)
    assert matrix["data"][0]["x"] == ["A", "B"] and "`substitute` is empty" in words(app)


@pytest.mark.parametrize("metric", ["flap", "wanda_sp"])
def test_parts_are_scored_as_the_whole_model_is(metric, run):
    moments, norms = run.load(stages.statistics, "primary"), run.load(stages.norms)
    keys = run.key(stages.statistics, "primary"), run.key(stages.norms)
    score, sizes = figures.part_scorer(run.root, metric, *keys)
    full = scoring.score(metric, moments, norms, run.shape, CalibrationSettings(), [1, 3])
    assert np.array_equal(score([1, 3]), full.ffn) and sizes.tolist() == [8, 8, 8, 8]


def test_a_model_that_is_gone_leaves_the_vocabulary_open(cache):
    app = show("calibration", cache, study=a_study(model="/nowhere/model"))
    assert app.dataframe[0].value["% of vocabulary"].isna().all() and len(charts(app)) == 1


def test_the_matrix_prints_its_numbers():
    table = analysis.square({("A", "B"): 0.125, ("A", "A"): 0.875, ("A", "C"): 0.5})
    figure = figures.plot_pairs(table, {"A": "one", "B": "two", "C": "three"}, 1.0)
    (heat,) = figure.data
    assert list(heat.text[0]) == ["0.875", "0.125", "0.500"] and heat.text[1][2] == ""
    # on a phone, its numbers would run into each other
    assert is_wide(figure) and heat.customdata[0][1] == "one and two"
    assert (heat.zmin, heat.zmax) == (0, 1) and figure.layout.yaxis.autorange == "reversed"


def test_a_model_without_a_fast_tokenizer_says_what_to_do(tmp_path):
    with pytest.raises(ModelError, match=r"no tokenizer.json.*Runs & export"):
        vocabulary.tokenizer(str(tmp_path))
    (tmp_path / "tokenizer.json").write_text("{", encoding="utf-8")
    with pytest.raises(ModelError, match="copy the model again"):
        vocabulary.tokenizer(str(tmp_path))


def test_the_address_opens_the_card_that_is_the_runs(name, run):
    app = open_page("card", cd_view="B", cd_share="0.5")
    text = words(app)
    assert not app.exception and not app.error
    for question in ("Is {} large enough?", "Does the choice of {} change the model?", "Is {} distinct from the other"):
        assert question.format("science-docs") in text.replace("\\", "")
    noise, overlap = charts(app)
    assert noise["data"][0]["name"] == "two samples of science-docs"
    assert overlap["data"][1]["y"] == ["python-reference", "python-code"]
    assert app.dataframe[0].value.columns.tolist() == ["measure", "python-reference", "python-code"]
    assert {metric.label: metric.value for metric in app.metric}["Sequences"] == "32 of 96"
    assert app.slider(key="cd_share_slider").value == 0.5
    assert [item.label for item in app.get("download_button")][:3] == ["Page", "JSON", "CSV"]
    card = calibration_report.measure(run.results, name, run.record.get("texts"))["A"]
    text = plain_words(open_page("card", cd_view="A"))
    assert all(verdict.answer in text for verdict in calibration_report.verdicts(card))
    app = open_page("card", cd_view="Q")
    assert len(charts(app)) == 2 and "Is python-reference large enough?" in plain_words(app)
    assert "cd_view" in plain_words(app)
