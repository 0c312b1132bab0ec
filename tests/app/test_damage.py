"""What is damaged, odd or closed to writing costs the cards that draw it, or one run, and never a page."""

import json

import odd_records
import pytest
from app_driver import CHARTS, PAGES, charts, on, open_page, opened, words
from synthetic_run import a_study, folder_of, read, write_run
from unwritable import unwritable

from gprune.app.ui.run_choice import labels
from gprune.pipeline import runs as run_records
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import all_runs
from gprune.store import Store
from gprune.study import EvaluationSettings
from gprune.study.methods import DEFAULT

pytestmark = pytest.mark.slow
SHOWN = {
    "shape": "inspection reliability overview rank_drift module_agreement pruning_decisions "
    "comparison decision speed_export neuron_map mask_atlas retention",
    "tokens": "calibration_data inspection",
    "statistics": "calibration_data inspection neuron_map",
    "groups": "module_agreement",
    "scores": "overview rank_drift reliability inspection mask_atlas retention",
    "drift": "inspection overview rank_drift reliability pruning_decisions calibration_data mask_atlas",
    "partition": "rank_drift module_agreement reliability pruning_decisions neuron_map mask_atlas retention",
    "modules": "overview reliability retention",
    "masks": "inspection overview reliability pruning_decisions comparison decision speed_export "
    "neuron_map mask_atlas retention",
    "perplexity": "overview comparison decision retention",
    "accuracy": "speed_export",
    "answers": "flipped_questions",
    "questions": "flipped_questions",
    "speed": "speed_export",
    "agreement": "overview module_agreement",
    "adapted": "overview inspection",
}
"""the pages that draw a kind of result"""


KINDS = [name if name in ("drift", "masks") else pytest.param(name, marks=pytest.mark.long) for name in SHOWN]


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_result_costs_its_cards_only(cache, kind):
    evaluation = EvaluationSettings(texts=("c4",), tasks=("piqa",), speed="cpu")
    write_run(cache, study=a_study(methods=(*DEFAULT, "fang"), evaluation=evaluation))
    for folder in (cache / kind).iterdir():
        arrays = [path for path in folder.iterdir() if path.suffix == ".npy"]
        (arrays or [folder / "meta.json"])[0].unlink()
    app = opened()
    told = {page: [error.value for error in on(app, page).error] for page in PAGES}
    assert {page for page, errors in told.items() if errors} == set(SHOWN[kind].split())
    assert all("no whole result" in error for errors in told.values() for error in errors)


def test_every_page_is_drawn_and_nothing_is_written(cache):
    evaluation = EvaluationSettings(texts=("c4",), tasks=("piqa",), speed="cpu")
    write_run(cache, study=a_study(evaluation=evaluation))
    with unwritable(cache) as tried:
        app = opened()
        for page in PAGES:
            assert not on(app, page).error, page
    assert tried == []


def test_damage_is_told_on_the_page_and_left_where_it_is(cache, name):
    path = folder_of(cache, name, stages.drift) / "magnitude.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with unwritable(cache) as tried:
        app = open_page("rank_drift")
        told = "\n".join(one.value for one in app.error)
    assert "magnitude.npy does not hold what was written" in told.replace("\\", "")
    assert "run the study again, it is made anew and finished stages are kept" in told
    assert tried == [] and path.exists() and words(app)


READABLE = ("number", "text", "path", "null", "truth")


@pytest.fixture
def record(tmp_path):
    values = read(tmp_path, write_run(tmp_path, state="failed", study=a_study(seed=9)))
    return values | {"owner": {"pid": 1, "started": 2.0, "host": "elsewhere", "boot": "1"}}


@pytest.mark.long
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
    # all are read by the test before this one; here every page reads them anew
    odd = {name: record[name] for name in record if name != "provenance"}
    assert {kind for _, kind in odd_records.write_all(cache, odd, every=7).values()} == set(odd_records.ODD)
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
