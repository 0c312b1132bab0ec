"""The cards of exports and of accuracy: what is offered, what is started, what is told."""

import shutil
from pathlib import Path

import pytest
from app_driver import open_page, show, words
from made_runs import an_accuracy
from synthetic_measurements import ACCURACY, EVIL
from synthetic_run import a_study, folder_of, the_run, write_run

from gprune.analysis import accuracy
from gprune.app.pages.speed_export import accuracy_card, export_card
from gprune.jobs import folder as files
from gprune.jobs import submit
from gprune.pipeline import runs, stages
from gprune.store import Store
from gprune.study.settings import EvaluationSettings
from gprune.system.units import amount


def page(**query):
    return open_page("speed_export", **query)


def test_a_checkpoint_comes_with_its_snippets_and_its_plan(cache):
    folder = folder_of(cache, write_run(cache), stages.checkpoint) / "model"
    app = page()
    codes = [code.value for code in app.code]
    assert str(folder) in codes and "loads anywhere" in words(app)
    anywhere = next(code for code in codes if code.startswith("from transformers"))
    assert anywhere.count("trust_remote_code=True") == 2
    compile(anywhere, "snippet", "exec")
    compile(export_card.load_here(Path('/it\'s "here"')), "snippet", "exec")
    command = export_card.measure_with_lm_eval(Path("/a folder"))
    assert "'pretrained=/a folder,trust_remote_code=True'" in command
    assert [item.proto.label for item in app.get("download_button") if "plan" in item.proto.label]


def test_padding_is_a_job_below_the_cache(cache, started):
    name = write_run(cache)
    folder = folder_of(cache, name, stages.checkpoint) / "model"
    app = page()
    app.button(key="sx_pad").click().run()
    ((study, arguments),) = started
    out = Path(arguments[2])
    assert study == a_study() and arguments[:2] == ("pad", str(folder))
    assert out.parent == cache / "exports" / name and out.name == f"padded-{folder.parent.name[:8]}"
    out.mkdir(parents=True)
    (out / "model.safetensors").write_bytes(b"x" * 3072)
    app = page()
    assert "Made: 3.0 KiB on disk" in words(app)
    assert "sx_pad" not in [button.key for button in app.button]


@pytest.mark.parametrize("present", [False, True])
def test_gguf_is_offered_where_its_package_is(cache, started, monkeypatch, present):
    monkeypatch.setattr(export_card, "find_spec", lambda name: object() if present else None)
    app = show("speed_export", cache)
    assert ("make gguf" in words(app)) is not present
    assert ("sx_gguf" in [button.key for button in app.button]) is present
    if present:
        app.button(key="sx_gguf").click().run()
        assert started[0][1][0] == "gguf" and started[0][1][2].endswith(".gguf")


@pytest.mark.parametrize(
    ("state", "words_"), [("running", "At work: starting"), ("failed", "the disk is full")]
)
def test_the_export_that_is_at_work_or_failed_says_so(cache, monkeypatch, state, words_):
    monkeypatch.setattr("gprune.jobs.local.start_supervisor", lambda folder: None)
    monkeypatch.setattr("gprune.jobs.queue.reconcile", lambda cache: None)
    folder = folder_of(cache, write_run(cache), stages.checkpoint) / "model"
    out = export_card.destination(the_run(cache), export_card.PADDED)
    job = submit(cache, a_study(), arguments=("pad", str(folder), str(out)))
    if state == "failed":
        values = {"state": "failed", "error": "the disk is full", "started": 1.0, "ended": 2.0}
        files.write_json(job.folder / files.STATE, values)
    shown = words(page())
    assert words_ in shown and ("At work" in shown) == (state == "running")


def test_a_run_without_a_model_folder_can_be_finished(cache, started):
    shutil.rmtree(folder_of(cache, write_run(cache), stages.checkpoint))
    app = page()
    assert "has lost the folder of its model" in words(app)
    app.button(key="sx_finish").click().run()
    assert started == [(a_study(), ())]
    write_run(cache, stages="masks")
    assert "has not written its model" in words(page())


def test_a_run_without_gprune_exports_nothing(cache):
    app = show("speed_export", cache, study=a_study(methods=("dense", "flap")))
    assert "does without GPrune" in words(app) and not app.error


def test_a_task_whose_file_fits_another_split_is_doubted_beside_its_figures(cache):
    evaluation = EvaluationSettings(texts=("c4",), tasks=("piqa",))
    name = write_run(cache, study=a_study(methods=("dense", "gprune"), evaluation=evaluation))
    store = Store(cache)
    record = runs.read(store, name) or {}
    doubt = (
        f"'/data/piqa.jsonl' may be another split: its 16,113 rows are as many as the split train has {EVIL}"
    )
    runs.save(store, name, record | {"doubtful_tasks": {"piqa": doubt}})
    app = page()
    shown = [item.value for item in app.warning]
    assert len(shown) == 1 and shown[0].startswith("piqa: ") and "16,113 rows are as many" in shown[0]
    assert "![x](" not in shown[0]


def test_accuracy_shows_what_counts_under_each_rule(cache):
    evaluation = EvaluationSettings(texts=("c4",), tasks=("piqa", "hellaswag", "boolq"), limit=200)
    study = a_study(methods=("dense", "gprune"), evaluation=evaluation)
    app = show("speed_export", cache, study=study, missing_tasks={"hellaswag": f"no data {EVIL}"})
    table = next(item.value for item in app.dataframe if "task" in item.value)
    assert table["task"].tolist() == ["piqa", "boolq", "mean of 2 tasks"]
    assert table["Dense"].tolist() == ["80.0 ± 3.0", "60.0 ± 3.0", "70.0 ± 2.1"]
    assert table["GPrune"].tolist()[:2] == ["70.0 ± 4.0ⁿ", "55.0 ± 3.0"]
    assert table["chance"].tolist() == ["50.0", "50.0", "50.0"]
    shown = words(app)
    assert "limited to 200 documents a task" in shown and r"lm\-eval 0\.4\.13" in shown
    assert "hellaswag was left out" in shown and "![x](" not in shown
    app.radio(key="sx_rule_radio").set_value("fixed").run()
    table = next(item.value for item in app.dataframe if "task" in item.value)
    assert table["Dense"].tolist()[:2] == ["70.0 ± 4.0ⁿ", "60.0 ± 3.0"]


def test_both_figures_are_in_the_table_behind(cache):
    evaluation = EvaluationSettings(tasks=("piqa", "boolq"))
    write_run(cache, study=a_study(methods=("dense", "gprune"), evaluation=evaluation))
    found = accuracy_card.accuracies(the_run(cache))
    table = accuracy_card.details(found, "max")
    assert table["task"].tolist() == ["boolq", "boolq", "piqa", "piqa"]
    assert table["acc_norm"].isna().tolist() == [True, True, False, False]
    assert table["counts"].tolist() == ["acc", "acc", "acc", "acc_norm"]
    mean = accuracy.mean_accuracy(found["gprune"].values(), "max")
    assert mean.value == pytest.approx((0.7 + 0.55) / 2)


def test_a_method_without_all_tasks_gets_no_mean():
    partly = ACCURACY | {"flap": {"piqa": an_accuracy("piqa", 0.5, 0.7)}}
    table = accuracy_card.summary(partly, "max")
    assert table["FLAP"].tolist() == ["70.0 ± 4.0ⁿ", "–", "–"]


def test_accuracy_that_is_missing_can_be_measured_without_data(cache, started):
    app = show("speed_export", cache)
    assert "measured on no task" in words(app)
    app.button(key="sx_tasks").click().run()
    ((study, _),) = started
    assert study.evaluation.tasks and all(task.startswith("demo_") for task in study.evaluation.tasks)


def test_sizes_are_told_in_the_unit_that_fits():
    assert [amount(n) for n in (100, 2**20, 1.5 * 2**30)] == ["0.1 KiB", "1.0 MiB", "1.5 GiB"]
