"""A sweep from the page: what is typed makes the studies of the command, and each has a line in the table."""

import json

import pytest
from app_driver import open_page, words

from gprune import jobs
from gprune.__main__ import main
from gprune.app.pages.jobs import sweep_form
from gprune.experiments.sweep.plan import from_file
from gprune.jobs import local
from gprune.jobs.state import JobState, write_state
from gprune.study.demo import demo_study

TYPED = "retention = 0.3, 0.5; seed = 0, 1"


def form(typed=TYPED, title="mine"):
    return open_page("jobs", sweep_space=typed, sweep_title=title)


def table(app):
    return next(item.value for item in app.dataframe if "what there is to say" in item.value)


@pytest.mark.long
def test_a_sweep_is_started_as_the_command_would_and_its_table_says_where_each_study_stands(cache, monkeypatch):
    monkeypatch.setattr(local, "start_supervisor", lambda _: None)
    app = form()
    assert table(app)["study"].tolist()[:2] == ["retention 0.3, seed 0", "retention 0.3, seed 1"]
    assert set(table(app)["state"]) == {"missing"} and "4 studies: 4 missing" in words(app)
    app.button(key="sweep_start").click().run()
    assert not app.exception and not app.error
    found = jobs.jobs(cache)[::-1]
    assert [job.arguments for job in found] == [("--until", "perplexity")] * 4
    studies = [jobs.study_of(cache, job.id) for job in found]
    assert [(one.retention, one.seed) for one in studies] == [(0.3, 0), (0.3, 1), (0.5, 0), (0.5, 1)]
    assert {one.group for one in studies} == {"mine"} and studies[0].name == "mine: retention 0.3, seed 0"
    assert table(app)["state"].tolist() == ["running", "queued", "queued", "queued"]
    write_state(found[0].folder, JobState("failed", error="the text is gone"))
    app = form()
    line = table(app).iloc[0]
    assert (line["state"], line["what there is to say"]) == ("failed", "the text is gone")
    # what is under way or has failed is not started again unasked
    app.button(key="sweep_start").click().run()
    assert len(jobs.jobs(cache)) == 4 and "Nothing is left to start" in words(app)
    app.toggle(key="sweep_again").set_value(True).run()
    app.button(key="sweep_start").click().run()
    assert [job.state for job in jobs.jobs(cache) if job.label == found[0].label] == ["queued", "failed"]


def test_the_file_of_the_page_makes_the_same_studies(cache, tmp_path, capsys):
    sweep = sweep_form.planned(
        demo_study(), 'reliability.drift_quantile = 0.8, 0.9; methods = ["dense"], ["flap"]', "", "masks"
    )
    file = tmp_path / "sweep.json"
    values = {"title": "sweep", "study": demo_study().to_dict(), "until": "masks"}
    file.write_text(json.dumps(values | {"space": dict(sweep.space)}))
    assert [one.study for one in from_file(file).variations()] == [one.study for one in sweep.variations()]
    assert sweep.count == 4 and main(["sweep", str(file), "--status", "--json", "--cache", str(cache)]) == 0
    assert json.loads(capsys.readouterr().out)["counts"] == {"missing": 4}


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("seed", "is no field with values"),
        ("seed = 0; seed = 1", "is named twice"),
        ("sneed = 0, 1", "a study has no field 'sneed'"),
        ("retention = 0.5, 2", r"retention must be more than 0"),
        ("seed = 0, 0", "are the same study"),
        ("seed = " + ", ".join(map(str, range(101))), "the queue takes at most 100"),
        ("name = a, b", "studies are named by the sweep"),
        ("methods = [[[", "methods"),
    ],
)
def test_what_is_no_sweep_is_told_and_cannot_be_started(cache, typed, told):
    app = form(typed)
    assert told in "".join(item.value for item in app.error).replace("\\", "")
    assert "sweep_start" not in [button.key for button in app.button] and not app.exception


def test_a_study_whose_text_is_missing_starts_none(cache, started):
    app = form("auxiliary = science-docs, /no/such/text")
    app.button(key="sweep_start").click().run()
    assert "/no/such/text" in "".join(item.value for item in app.error).replace("\\", "") and not started
