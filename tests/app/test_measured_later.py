"""What is measured later of a run's models stands on its own pages, attached by the keys of its masks."""

import pytest
from app_driver import open_page, opened, words
from synthetic_run import a_study, read, write_run

import gprune
from gprune.app.pages import speed_export as speed_page
from gprune.app.ui import run_choice
from gprune.pipeline import runs, stages
from gprune.pipeline.runs import RunNotes, notes
from gprune.pipeline.runs.opened import all_runs
from gprune.store import Store
from gprune.study import EvaluationSettings

TEXTS = {"texts": ("science-docs",), "windows": 16}


def measured(root, hour, state="done", missing=None, retention=0.5, **evaluation):
    """A run of the same masks, unless its retention is another, that was started at an hour of one day."""
    methods = ("dense", "gprune", "flap")
    study = a_study(evaluation=EvaluationSettings(**(TEXTS | evaluation)), retention=retention, methods=methods)
    name = write_run(root, study=study, state=state, missing_tasks=missing)
    runs.save(Store(root), name, read(root, name) | {"started": f"2026-11-21T{hour}:00:00+00:00", "owner": None})
    return name


def of(root):
    return {run.name: run for run in all_runs(str(root))[0]}


def test_tasks_and_speed_of_the_same_masks_are_attached_and_of_others_not(cache):
    first, other = measured(cache, "10"), measured(cache, "11", retention=0.7)
    tasks = measured(cache, "12", tasks=("piqa",), limit=20)
    # of what is asked of fewer documents there is nothing to compare
    fewer = measured(cache, "13", tasks=("piqa", "boolq"), limit=10)
    speed = measured(cache, "14", speed="cpu")
    result = of(cache)
    assert result[first].measured.tasks == ("piqa", "boolq") and result[first].measured.limit == 10
    assert result[tasks].measured.tasks == ("piqa",) and result[tasks].measured.limit == 20
    key = result[fewer].key(stages.accuracy, "gprune", "boolq")
    assert result[first].key(stages.accuracy, "gprune", "boolq") == key
    assert result[first].has(stages.answers, "flap", "piqa")
    assert [row["model"] for row in speed_page.load_speed(result[first]).rows][:1] == ["dense"]
    assert result[first].later.sources == (speed, fewer) and result[first].study.evaluation.tasks == ()
    assert result[other].measured == result[other].study.evaluation and not result[other].later.sources
    # what an earlier run shows whole needs no entry of its own
    shown_by = {name: run.shown_by for name, run in result.items()}
    assert shown_by == {first: "", other: "", tasks: "", fewer: first, speed: first}
    assert len(gprune.open(first, cache=cache).accuracy) == 2 * 3


@pytest.mark.slow
def test_the_first_runs_pages_show_what_was_measured_later(cache):
    first, other = measured(cache, "10"), measured(cache, "11", retention=0.7)
    requested = "measured on no task"
    assert requested in words(open_page("flipped_questions", run=first))
    later = measured(cache, "12", tasks=("piqa", "boolq"), missing={"boolq": "its data is not here"})
    app = open_page("flipped_questions", run=first)
    assert requested not in words(app) and app.selectbox(key="fq_task_selectbox").options == ["piqa"]
    assert "boolq was left out: its data is not here" in words(app).replace("\\", "")
    assert requested in words(open_page("flipped_questions", run=other))
    # lists have the run once, by the name that its own page has; a link to the later one still opens it
    app = opened(run=first)
    assert len(app.selectbox(key="frame_run").options) == 2
    assert opened(run=later).selectbox(key="frame_run").value == later
    notes.save_notes(Store(cache), later, RunNotes(name="On its own"))
    assert "On its own" in opened(run=first).selectbox(key="frame_run").options


def test_a_run_at_work_or_of_other_methods_measures_what_it_shares(cache):
    first = measured(cache, "10")
    half = measured(cache, "12", "failed", tasks=("piqa",))
    assert of(cache)[half].shown_by == ""
    more = write_run(cache, study=a_study(evaluation=EvaluationSettings(**TEXTS, speed="cpu")))
    # in another order, or beside others, speed is another measurement
    assert of(cache)[first].measured.speed == "none" and of(cache)[more].shown_by == ""
    assert run_choice.listed(list(of(cache).values()), (half,))
