"""Runs are named, annotated, hidden and deleted in the app; what other runs need stays."""

import json
from dataclasses import replace

import pytest
from app_driver import on, open_page, opened, plain_words, words
from synthetic_run import a_study, change_record, the_run, write_run

from gprune.app.pages import jobs
from gprune.app.ui import run_choice
from gprune.app.ui.chart_style import label
from gprune.app.ui.run_choice import labels
from gprune.jobs import folder as job_files
from gprune.jobs import folder as job_records
from gprune.jobs import processes
from gprune.jobs.folder import worker_command
from gprune.pipeline import cache as disk_use
from gprune.pipeline import runs as run_records
from gprune.pipeline import stages
from gprune.pipeline.runs import RunNotes, read_notes, save_notes
from gprune.pipeline.runs.opened import all_runs
from gprune.store import Store
from gprune.system import units
from gprune.system.errors import SettingsError, StoreError
from gprune.system.files import Lock

pytestmark = pytest.mark.slow


def on_runs(run, chosen=""):
    """The tab of the runs, as a click opens it."""
    app = open_page("launch", run=run)
    app.query_params["jobs_tab"] = "runs"
    if chosen:
        app.query_params[jobs.CHOSEN] = chosen
    return app.run()


def two(cache):
    """Two runs that share all but what follows from the retention."""
    first, second = a_study(name="First"), a_study(name="Second", retention=0.7)
    return write_run(cache, study=first), write_run(cache, study=second)


def test_a_name_is_shown_wherever_a_run_is_chosen(cache):
    first, second = two(cache)
    app = on_runs(first)
    app.text_input(key=f"runs_name_{first}").input("  Best *of* all ")
    next(button for button in app.button if button.label == "Save").click().run()
    assert not app.exception and the_run(cache, first).about.name == "Best *of* all"
    assert app.selectbox(key="frame_run").options == ["Second", "Best *of* all"]
    app.query_params["jobs_tab"] = "start"
    assert "Uses the masks of Best \\*of\\* all without" in words(app.run())
    assert set(on(app, "compare").multiselect(key="cp_runs_multiselect").options) == {
        "Second", "Best *of* all",
    }  # fmt: skip
    # whoever computes the run anew does not write over it
    write_run(cache, study=a_study(name="First"))
    assert the_run(cache, first).about.name == "Best *of* all"


def test_a_hidden_run_is_left_out_of_lists_and_shown_again(cache):
    first, second = two(cache)
    on_runs(first, second).button(key=f"runs_hide_{second}").click().run()
    assert the_run(cache, second).about.hidden
    app = on_runs(first, second)
    assert app.selectbox(key="frame_run").options == ["First"]
    assert open_page("compare").multiselect(key="cp_runs_multiselect").options == ["First"]
    # a link to it still opens it
    assert opened(run=second).selectbox(key="frame_run").value == second
    app.button(key=f"runs_hide_{second}").click().run()
    assert set(opened().selectbox(key="frame_run").options) == {"First", "Second"}


def test_where_every_run_is_hidden_one_is_shown_all_the_same(cache, name):
    save_notes(Store(cache), name, RunNotes(hidden=True))
    app = opened()
    assert not app.exception and app.selectbox(key="frame_run").value == name


def test_deleting_frees_what_the_dialog_says_and_no_result_of_another_run(cache):
    first, second = two(cache)
    store = Store(cache)
    needed = disk_use.needed_by(store)
    of_first_alone = {location for location, runs in needed.items() if runs == {first}}
    size = disk_use.overview(store).runs[first].unshared
    app = on_runs(first)
    app.button(key=f"runs_delete_{first}").click().run()
    said = words(app)
    assert units.amount(size) in said and "that other runs also need are kept" in said
    app.button(key="runs_delete_yes").click().run()
    assert not app.exception and "was deleted" in app.success[0].value
    assert [run.name for run in all_runs(str(cache))[0]] == [second]
    left = {(entry.kind, entry.key) for entry in disk_use.cache_entries(store)}
    assert of_first_alone and left == set(needed) - of_first_alone
    assert not list((cache / "runs").glob(".*"))
    # the pages and the address go on with the run that is left
    assert app.selectbox(key="frame_run").value == second and app.query_params["run"] == second


def test_a_run_at_work_is_not_deleted(cache):
    name = write_run(cache, state="running", stages="drift")
    change_record(cache, name, owner=processes.identify_process())
    app = on_runs(name)
    app.button(key=f"runs_delete_{name}").click().run()
    assert "stop it first, then delete it" in words(app)
    assert "runs_delete_yes" not in [button.key for button in app.button]
    with pytest.raises(StoreError, match="is being computed: stop it first, then delete it"):
        disk_use.remove_run(Store(cache), name)
    # a starter that has not written anything yet holds its lock
    done = write_run(cache, study=a_study(seed=1))
    lock = Lock(run_records.lock_path(cache, done))
    assert lock.acquire(0)
    with pytest.raises(StoreError, match="is being computed"):
        disk_use.remove_run(Store(cache), done)
    lock.release()
    assert disk_use.remove_run(Store(cache), done) > 0
    with pytest.raises(StoreError, match="there is no run"):
        disk_use.remove_run(Store(cache), done)


def test_a_run_that_a_job_waits_for_is_not_deleted(cache, monkeypatch):
    name, home = write_run(cache), job_files.root(cache)
    home.mkdir()
    job = job_records.create(home, a_study(), "mine", (), worker_command)
    monkeypatch.setattr("gprune.jobs.queue.reconcile", lambda _: None)
    app = on_runs(name)
    app.button(key=f"runs_delete_{name}").click().run()
    assert f"gprune jobs cancel {job.id}" in plain_words(app)
    assert "runs_delete_yes" not in [button.key for button in app.button]


def test_a_run_that_cannot_be_read_can_be_deleted(cache):
    good = write_run(cache)
    (cache / "runs" / "broken").mkdir()
    (cache / "runs" / "broken" / "run.json").write_text("{", encoding="utf-8")
    app = on_runs(good, "broken")
    assert "is not JSON" in app.error[0].value
    app.button(key="runs_delete_broken").click().run()
    app.button(key="runs_delete_yes").click().run()
    assert not (cache / "runs" / "broken").exists() and not all_runs(str(cache))[1]


def test_a_link_in_place_of_a_run_is_removed_and_not_followed(cache, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "run.json").write_text("{}", encoding="utf-8")
    (cache / "runs").mkdir()
    (cache / "runs" / "link").symlink_to(elsewhere)
    disk_use.remove_run(Store(cache), "link")
    assert (elsewhere / "run.json").exists() and not (cache / "runs" / "link").is_symlink()


def test_a_tab_whose_run_was_deleted_says_so_and_its_address_follows(cache):
    first, second = two(cache)
    app = opened(run=first)
    disk_use.remove_run(Store(cache), first)
    app.run()
    assert "The run “First” was deleted" in words(app) and app.selectbox(key="frame_run").value is None
    app.button(key="frame_go_on").click().run()
    assert app.query_params["run"] == second and "was deleted" not in words(app)


def test_a_cache_that_cannot_be_written_is_told(cache, monkeypatch, name):

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(run_records, "write_json", refuse)
    app = on_runs(name)
    app.button(key=f"runs_hide_{name}").click().run()
    assert "cannot be written \\(read\\-only\\)" in app.error[0].value and not the_run(cache, name).about.hidden


@pytest.mark.parametrize(
    "content",
    ['{"name": 3}', '{"name": "x", "hidden": "no"}', "[1]", '{"name": "' + "x" * 3000 + '"}', "[" * 9000]
    + [f'{{"name": "{text}"}}' for text in ("two\\nlines", "\\ud800", "\\u0000")],
)
def test_what_is_said_of_a_run_may_be_damaged(cache, content, name):
    (cache / "runs" / name / run_records.NOTES).write_text(content, encoding="utf-8")
    assert "saving replaces them" in read_notes(cache / "runs" / name)[1]
    run = the_run(cache, name)
    assert run.about == RunNotes() and labels([run]) == {name: "Synthetic"} and len(run.complaint) < 400
    app = on_runs(name)
    assert "saving replaces them" in words(app) and not app.exception
    save_notes(Store(cache), name, RunNotes(name="Mended"))
    assert json.loads((cache / "runs" / name / run_records.NOTES).read_text())["name"] == "Mended"


def test_labels_are_never_alike(cache):
    for seed in range(3):
        name = write_run(cache, study=a_study(seed=seed))
        save_notes(Store(cache), name, RunNotes(name="The same"))
    assert len(set(labels(all_runs(str(cache))[0]).values())) == 3
    with pytest.raises(SettingsError, match="at most 80 characters"):
        RunNotes(name="x" * 81)


def test_a_study_of_a_sweep_is_not_named_twice_over(cache):
    message = "Thresholds: drift quantile 0.85, seed 1"
    write_run(cache, study=replace(a_study(name=message, group="Thresholds"), seed=1))
    run = the_run(cache)
    assert run_choice.run_label(run, labels([run])) == message


def test_the_table_has_the_settings_and_the_best_result_of_each_run(cache, monkeypatch):
    runs = [the_run(cache, name) for name in two(cache)]
    table = jobs.table_of_runs(runs, [], {run.name: run.title for run in runs}, {})
    text = "science-docs"
    # the first text that a run was not calibrated on; here it was calibrated on both
    values = {name: runs[0].load(stages.perplexity, name, "python-reference").perplexity for name in runs[0].masks_of}
    best = min(values, key=values.get)
    assert table["keep"].tolist() == ["50%", "70%"] and set(table["texts"]) == {f"python-reference | {text}"}
    assert table["best PPL"][0] == f"{values[best]:.4g} {label(best)}, python-reference"
    assert table["γ"].tolist() == ["0.90 / 0.90"] * 2
    assert "list" not in table and table["model"].tolist() == ["demo", "demo"]


def test_a_run_is_cloned_into_the_form(cache):
    first, second = two(cache)
    app = on_runs(first, second).button(key=f"runs_clone_{second}").click().run()
    assert not app.exception and "The settings of “Second” are in the form below" in app.success[0].value
    assert app.number_input(key="launch_retention").value == 0.7 and app.query_params["run"] == first
