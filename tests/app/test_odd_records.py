"""A record that is damaged or hostile is one run that cannot be read; every page draws the others."""

import json

import odd_records
import pytest
from app_driver import CHARTS, PAGES, charts, on, opened, words
from synthetic_run import a_study, read, write_run

from gprune.app.ui.run_choice import labels
from gprune.pipeline import runs as run_records
from gprune.pipeline.runs.opened import all_runs
from gprune.store import Store

READABLE = ("number", "text", "path", "null", "truth")


@pytest.fixture
def record(tmp_path):
    values = read(tmp_path, write_run(tmp_path, state="failed", study=a_study(seed=9)))
    return values | {"owner": {"pid": 1, "started": 2.0, "host": "elsewhere", "boot": "1"}}


def test_every_odd_field_is_one_run_that_cannot_be_read_or_does_no_harm(tmp_path, record):
    odd = odd_records.write_all(tmp_path / "odd", record)
    runs, unreadable = all_runs(str(tmp_path / "odd"))
    assert len(runs) + len(unreadable) == len(odd) > 1500
    for broken in unreadable:
        assert len(broken.reason) <= 420 and broken.name in broken.reason, odd[broken.name]
    # no number has 400 digits, nothing nests 5,000 levels deep, no text is half a letter
    # but reasons for what is unavailable are explanations, and passed over where they are none
    told = {field for field, _ in odd.values() if field.startswith("unavailable")}
    for kind in ("digits", "deep", "huge", "nan", "beyond"):
        assert {odd[run.name][0] for run in runs if odd[run.name][1] == kind} <= told, kind
    kept = {odd[run.name][0] for run in runs if odd[run.name][1] in ("list", "object", "names")}
    # what nobody looks into, tables without what they may hold, and lists of a study that take a text
    lists = {"study.methods", "study.evaluation.texts", "study.evaluation.tasks"}
    # facts of plug-ins that are of another form are passed over
    inputs = {"provenance.inputs", "provenance.inputs.plugins"}
    assert kept <= {"result", "owner", *inputs, *told, *lists}, kept
    assert len(labels(runs)) == len(runs)
    assert {run.state for run in runs} <= {"failed", "done", "cancelled", "interrupted", ""}


@pytest.mark.long
def test_every_page_draws_a_run_beside_odd_ones(cache, record):
    good = write_run(cache)
    odd_records.write_all(cache, {name: record[name] for name in record if name != "provenance"})
    app = opened(run=good)
    for page in PAGES:
        on(app, page)
        assert len(charts(app)) == CHARTS[page], page
        assert "cannot be read" in " ".join(item.label for item in app.expander)


@pytest.mark.long
@pytest.mark.parametrize("kind", READABLE)
def test_every_page_draws_a_run_that_is_odd_and_readable(cache, record, kind):
    def readable(values):
        path = cache / "runs" / "odd" / "run.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(values), encoding="utf-8")
        return "odd" in [run.name for run in all_runs(str(cache))[0]]

    # another study or other texts have no results, and whole tables are better kept than replaced by nothing
    kept = ("study", "provenance.inputs") + (("provenance", "stages") if kind == "null" else ())
    values = odd_records.everywhere(record, kind, readable, but=kept)
    run_records.save(Store(cache), "odd", values)
    app = opened(run="odd")
    for page in PAGES:
        on(app, page)
        assert "odd" in str(app.sidebar.selectbox[0].value) and "went wrong" not in words(app), page
        assert len(charts(app)) == CHARTS[page], page
