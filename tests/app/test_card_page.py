"""The view of one text on the page Calibration data: its card, from an address, in every state."""

from app_driver import charts, linked, words
from synthetic_run import names, the_run, write_run

from gprune.analysis import calibration_report


def test_the_address_opens_the_card_of_a_text(cache):
    write_run(cache)
    app = linked("calibration_data", cd_view="B", cd_share="0.5")
    told = words(app)
    assert not app.exception and not app.error
    for question in (
        "Is B large enough?",
        "Would another text than B give another model?",
        "Is B a text of its",
    ):
        assert question in told.replace("\\", "")
    noise, overlap = charts(app)
    assert noise["data"][0]["name"] == "two samples of B" and overlap["data"][1]["y"] == [
        "B and A",
        "B and C",
    ]
    assert app.dataframe[0].value.columns.tolist() == ["measure", "A: python-reference", "C: python-code"]
    assert {metric.label: metric.value for metric in app.metric}["Sequences"] == "32 of 96"
    assert app.slider(key="cd_share_slider").value == 0.5
    assert [one.label for one in app.get("download_button")][:3] == ["Page", "JSON", "CSV"]


def test_the_card_on_the_page_is_the_card_of_the_run(cache):
    name = write_run(cache)
    run = the_run(cache)
    card = calibration_report.measure(run.results, name, run.record.get("texts"))["A"]
    told = words(linked("calibration_data", cd_view="A")).replace("\\", "")
    for verdict in calibration_report.verdicts(card):
        assert verdict.answer in told


def test_a_run_without_statistics_says_what_the_card_needs(cache):
    write_run(cache, stages=["tokens_primary"])
    app = linked("calibration_data", cd_view="A")
    assert not app.exception and "Needs “activation statistics on A”" in words(app)
    assert not charts(app) and not app.dataframe


def test_a_view_that_is_none_leaves_all_texts(cache):
    write_run(cache)
    app = linked("calibration_data", cd_view="Q")
    assert len(charts(app)) == 2 and "3 texts, 32 sequences" in words(app)
    assert "cd_view" in words(app).replace("\\", "")


def test_a_text_without_another_has_a_card(cache):
    write_run(
        cache, stages=[name for name in names() if not name.startswith(("statistics_aux", "statistics_sub"))]
    )
    app = linked("calibration_data", cd_view="A")
    assert not app.exception and "no other text to hold" in words(app)
    assert len(charts(app)) == 1 and not app.dataframe
