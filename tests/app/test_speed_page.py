"""The page of speed, widths, exports and accuracy in every state: what is offered, started and told."""

import json
import math
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from app_driver import charts, open_page, show, words
from made_runs import an_accuracy
from synthetic_measurements import ACCURACY, EVIL, a_throughput, speed_rows
from synthetic_run import a_study, exchange, folder_of, names, the_run, write_run

from gprune.analysis import accuracy
from gprune.analysis import speed as analysis
from gprune.app.pages.speed_export import accuracy_card, export_card, panels, widths_card
from gprune.app.ui.chart_style import METHOD_COLORS, is_wide
from gprune.jobs import folder as files
from gprune.jobs import submit
from gprune.jobs.state import JobState, write_state
from gprune.pipeline import stages
from gprune.records import Accuracy, ModelShape, Perplexity, PrunedModel, PruningMasks
from gprune.study.settings import EvaluationSettings, SparsitySettings
from gprune.system.units import amount


def a_timed_study(**changes):
    evaluation = EvaluationSettings(texts=a_study().evaluation.texts, windows=96, speed="cpu")
    return a_study(**({"methods": ("dense", "gprune", "flap"), "evaluation": evaluation} | changes))


def page(**query):
    return open_page("speed_export", **query)


def exports(**query):
    return open_page("export", **query)


def test_measured_speed_is_drawn_with_its_spread_in_every_phase_and_mode(cache):
    app = show("speed_export", cache, study=a_timed_study())
    figure = charts(app)[0]
    assert [trace["y"] for trace in figure["data"]] == [["Dense"], ["GPrune"], ["FLAP"]]
    assert figure["data"][1]["marker"]["color"] == METHOD_COLORS["gprune"]
    assert figure["layout"]["shapes"][0]["x0"] == 50
    assert "faster than the dense model: 1.50 times its speed (interquartile range 0.10)" in words(app)
    # elsewhere ± is half a 95 % interval
    drawn = json.dumps(figure)
    assert "median and quartiles" in figure["layout"]["xaxis"]["title"]["text"] and "quartiles %{" in drawn
    assert "whiskers their quartiles and no 95 % interval" in words(app) and "±" not in drawn
    table = next(item.value for item in app.dataframe if "parameters" in item.value)
    assert table["ratio (IQR)"].tolist() == ["1.00 (IQR 0.00)", "1.50 (IQR 0.10)", "1.20 (IQR 0.10)"]
    assert table["memory"].tolist() == ["3.0 MiB"] * 3
    assert "![x](" not in words(app) and "This model is small" in words(app) and not app.error
    name = write_run(cache, study=a_timed_study())
    exchange(cache, name, a_throughput(modes=("eager", "graph")), stages.speed)
    app = page()
    assert list(charts(app)[0]["data"][0]["y"]) == ["Dense, eager", "Dense, graph"]
    app.selectbox(key="sx_phase_selectbox").set_value("prefill").run()
    figure = charts(app)[0]
    assert len(figure["data"]) == 3 and "prefill" in figure["layout"]["xaxis"]["title"]["text"]
    assert "GPrune decodes faster" in words(app)


@pytest.mark.parametrize(("ratio", "words_"), [(1.05, "as fast as"), (0.7, "slower than"), (1.3, "faster than")])
def test_the_headline_says_no_more_than_the_spread_allows(ratio, words_):
    assert f"GPrune decodes {words_} the dense model" in panels.headline(speed_rows(ratio=ratio))
    noise = panels.headline(speed_rows(ratio=ratio))
    assert ("the dense model within noise: " in noise) == (ratio == 1.05)
    without = [row for row in speed_rows() if row["model"] == "flap"]
    assert panels.headline(without) == "Tokens a second beside FLAP"


def test_whiskers_are_quartiles_and_captured_graphs_are_open():
    table = analysis.speed_table(speed_rows(modes=("eager", "graph")), "decode")
    figure = panels.rate_dots(table, "decode")
    # on a phone it has the width of the window, and every dot is seen at once
    assert not is_wide(figure)
    model = table["model"].iloc[2]
    low, middle, high = table[["low", "tokens/s", "high"]].to_numpy()[2]
    drawn = next(trace for trace in figure.data if trace.marker.color == METHOD_COLORS[model])
    assert len({trace.marker.color for trace in figure.data}) == len(figure.data) == table["model"].nunique()
    assert list(drawn.x) == list(table[table["model"] == model]["tokens/s"])
    assert drawn.error_x.array[0] == pytest.approx(high - middle)
    assert drawn.error_x.arrayminus[0] == pytest.approx(middle - low)
    assert drawn.marker.symbol == ("circle", "circle-open")
    assert figure.layout.xaxis.range[0] == 0 and len(figure.layout.shapes) == 2


def test_published_speed_stands_apart_and_what_is_missing_can_be_measured(cache, started):
    app = show("speed_export", cache)
    published = next(item.value for item in app.dataframe if "params" in item.value)
    assert published["tokens/s"].tolist()[0] == "97.04" and "GPrune (FLAP)" in published["method"].tolist()
    assert "published, not run here" in words(app)
    assert "has not been measured" in words(app)
    assert any('evaluation.speed="cpu"' in code.value for code in app.code)
    app.selectbox(key="sx_preset_selectbox").set_value("auto").run()
    app.button(key="sx_measure").click().run()
    assert started == [(a_study().with_settings({"evaluation.speed": "auto"}), ())]


def test_speed_known_of_the_same_masks_is_shown(cache):
    first = write_run(cache)
    write_run(cache, study=a_study(evaluation=EvaluationSettings(texts=("c4",), speed="cpu")))
    app = page(run=first)
    assert app.session_state["frame_run"] == first and "GPrune decodes faster" in words(app)


def test_widths_are_counted_from_the_masks_and_the_cost_of_padding_is_told(cache, name, monkeypatch):
    neurons, groups = charts(page())
    kept = analysis.widths(the_run(cache).masks()["gprune"])
    assert neurons["data"][1]["name"] == "GPrune"
    run = the_run(cache)
    figure = panels.width_bars(kept.neurons, 60, "gprune", "FFN neurons")
    np.testing.assert_array_equal(figure.data[1].y, run.masks()["gprune"].ffn.sum(axis=1))
    assert figure.layout.yaxis.dtick is None and groups["layout"]["yaxis"]["dtick"] == 1
    assert list(figure.data[0].y) == [60] * 4
    run = the_run(cache)
    made = analysis.padding(run.shape, run.size, PrunedModel(run.masks()["gprune"]), "llama")
    shown = words(page())
    for count in (made.dense, made.pruned, made.padded):
        assert f"{count:,} parameters" in shown
    assert not kept.equal and analysis.Widths(np.full(3, 5), np.ones(3)).equal
    with monkeypatch.context() as changed:
        changed.setattr(analysis.Widths, "equal", True)
        assert "nothing has to be padded" in words(page())
    gone = write_run(cache, study=a_study(model="/nowhere/model", name="Gone"))
    assert "its family and the cost of padding are not known" in words(page(run=gone))


@pytest.mark.parametrize(
    ("kept", "words_"),
    [([8, 24], "8 to 24 of 27 neurons a layer, all multiples of 8"), ([13, 27], "not aligned to 8 or more")],
)
def test_the_alignment_found_is_named(kept, words_):
    shape = ModelShape(layers=2, neurons=27, heads=4, kv_heads=2, head_width=4, hidden=16)
    ffn = np.arange(27) < np.array(kept)[:, None]
    masks = PruningMasks("gprune", ffn, np.ones((2, 2), bool), 0.5, 0.5)
    assert words_ in panels._finding("gprune", analysis.widths(masks), shape)


def test_another_alignment_starts_a_study_named_after_it(cache, started):
    app = show("speed_export", cache)
    control = app.get_by_key("sx_alignment_segmented")
    assert control.value == "1"
    control.set_value("16").run()
    assert app.query_params["sx_alignment"] in ("16", ["16"])
    app.button(key="sx_align").click().run()
    ((study, _),) = started
    assert study == a_study().with_settings({"sparsity.alignment": 16, "name": "Synthetic, alignment 16"})
    again = widths_card.aligned_study(study, 64)
    assert (again.name, again.sparsity.alignment) == ("Synthetic, alignment 64", 64)
    assert widths_card.aligned_study(again, 1).name == "Synthetic"
    assert widths_card.aligned_study(a_study(name=""), 8).name == ""


def test_runs_that_differ_in_alignment_alone_stand_side_by_side(cache):
    first = write_run(cache, stages=[name for name in names() if name != "perplexity.gprune.1"])
    known = Perplexity("python-reference", "128", 128, 96, 12.5, 0.1, np.zeros(96))
    exchange(cache, first, known, stages.perplexity, "gprune", "python-reference")
    aligned = a_timed_study(sparsity=SparsitySettings(alignment=8), name="Other")
    write_run(cache, study=aligned)
    write_run(cache, study=a_study(retention=0.7))
    fewer = replace(aligned.evaluation, windows=5)
    write_run(cache, study=replace(aligned, evaluation=fewer))
    app = page(run=first)
    table = next(item.value for item in app.dataframe if "alignment" in item.value)
    assert table["alignment"].tolist() == [1, 8] and table[""].tolist() == ["→", ""]
    assert table["python-reference ↓"].tolist()[0] == "12.5" and table["science-docs ↓"].tolist()[0] == "–"
    assert table["decode ratio"].tolist() == ["not measured", "1.50 (IQR 0.10)"]
    assert "differs from this one in alignment alone" not in words(app)


def test_runs_beside_each_other_may_leave_gprune_out(cache):
    for alignment in (1, 8):
        for methods in (("dense", "flap"), ("dense", "flap", "gprune")):
            changes = {"methods": methods, "sparsity": SparsitySettings(alignment=alignment)}
            name = write_run(cache, study=a_study(**changes))
    app = page(run=name)
    table = next(item.value for item in app.dataframe if "alignment" in item.value)
    assert table["alignment"].tolist() == [1, 1, 8, 8] and table["FFN widths"].isna().sum() == 2


def test_half_a_run_says_what_it_lacks(cache):
    write_run(cache, stages="drift", state="cancelled")
    shown = words(page())
    assert "Needs “the masks of any method”" in shown and "has not been measured" in shown
    assert "has not written its model" in words(exports())


def test_a_folder_of_equal_widths_is_told_to_need_no_code_and_no_padding(cache):
    folder = folder_of(cache, write_run(cache), stages.checkpoint) / "model"
    (folder / "config.json").write_text('{"model_type": "llama"}')
    app = exports()
    codes = [code.value for code in app.code]
    assert "trust_remote_code=True" not in "".join(codes)
    assert "no code of its own (every layer has the same width)" in words(app)
    assert "sx_padded" not in [button.key for button in app.button]
    (folder / "config.json").write_text('{"auto_map": {}}')
    assert export_card.has_code(folder) and not exports().exception


def test_a_checkpoint_comes_with_its_kept_units_and_padding_is_a_job(cache, started, name):
    folder = folder_of(cache, write_run(cache), stages.checkpoint) / "model"
    app = exports()
    codes = [code.value for code in app.code]
    assert str(folder) in codes and "loads anywhere" in words(app)
    anywhere = next(code for code in codes if code.startswith("from transformers"))
    assert anywhere.count("trust_remote_code=True") == 2
    compile(anywhere, "snippet", "exec")
    compile(export_card.load_here(Path('/it\'s "here"')), "snippet", "exec")
    command = export_card.measure_with_lm_eval(Path("/a folder"))
    assert "'pretrained=/a folder,trust_remote_code=True'" in command
    assert [item.proto.label for item in app.get("download_button") if "pruning.json" in item.proto.label]
    folder = folder_of(cache, name, stages.checkpoint) / "model"
    app.button(key="sx_padded").click().run()
    ((study, arguments),) = started
    out = Path(arguments[2])
    assert study == a_study() and (*arguments[:2], arguments[3]) == ("export", str(folder), "--padded")
    assert out.parent == cache / "exports" / name and out.name == f"padded-{folder.parent.name[:8]}"
    out.mkdir(parents=True)
    (out / "model.safetensors").write_bytes(b"x" * 3072)
    app = exports()
    assert "Made: 3.0 KiB on disk" in words(app)
    assert "sx_padded" not in [button.key for button in app.button]


@pytest.mark.parametrize("present", [False, True])
def test_gguf_is_offered_where_its_package_is(cache, started, monkeypatch, present):
    monkeypatch.setattr(export_card, "find_spec", lambda name: object() if present else None)
    app = show("export", cache)
    assert ("make gguf" in words(app)) is not present
    assert ("sx_gguf" in [button.key for button in app.button]) is present
    if present:
        app.button(key="sx_gguf").click().run()
        assert started[0][1][0] == "gguf" and started[0][1][2].endswith(".gguf")


@pytest.mark.parametrize(("state", "words_"), [("running", "At work: starting"), ("failed", "the disk is full")])
def test_the_export_that_is_at_work_or_failed_says_so(cache, monkeypatch, state, words_):
    monkeypatch.setattr("gprune.jobs.local.start_worker", lambda *_: None)
    monkeypatch.setattr("gprune.jobs.queue.reconcile", lambda cache: None)
    folder = folder_of(cache, write_run(cache), stages.checkpoint) / "model"
    out = export_card.destination(the_run(cache), export_card.PADDED)
    job = submit(cache, a_study(), arguments=("export", str(folder), str(out), "--padded"))
    values = {"error": "the disk is full", "ended": 2.0} if state == "failed" else {}
    write_state(job.folder, JobState(state, started=1.0, **values))
    shown = words(exports())
    assert words_ in shown and ("At work" in shown) == (state == "running")


def test_a_run_without_a_model_folder_can_be_finished(cache, started):
    shutil.rmtree(folder_of(cache, write_run(cache), stages.checkpoint))
    app = exports()
    assert "has lost the folder of its model" in words(app)
    app.button(key="sx_finish").click().run()
    assert started == [(a_study(), ())]
    write_run(cache, stages="masks")
    assert "has not written its model" in words(exports())


def test_every_method_has_its_folder_or_the_button_that_writes_it(cache, started):
    app = show("export", cache, study=a_study(methods=("dense", "flap")))
    assert "does without GPrune" in words(app) and not app.error
    assert "Every method leaves a model that loads anywhere" in words(app)
    buttons = [button.key for button in app.button if str(button.key).startswith("sx_write_")]
    assert buttons == ["sx_write_flap"]
    app.button(key="sx_write_flap").click().run()
    ((_, arguments),) = started
    name, out = the_run(cache).name, Path(arguments[3])
    assert arguments == ("export", name, "flap", str(out), "--cache", str(cache))
    assert out.parent == cache / "exports" / name and out.name.startswith("flap-")
    out.mkdir(parents=True)
    (out / "pruning.json").write_text("{}")
    app = exports()
    assert str(out) in [code.value for code in app.code]
    assert "sx_write_flap" not in [button.key for button in app.button]


def test_what_the_run_has_written_needs_no_button(cache):
    folder = folder_of(cache, write_run(cache), stages.checkpoint) / "model"
    app = exports()
    shown = [str(button.key) for button in app.button]
    assert "sx_write_gprune" not in shown and "sx_write_flap" in shown
    assert [code.value for code in app.code].count(str(folder)) == 2


def test_a_task_of_another_metric_is_named_and_in_the_mean_if_it_is_a_share():
    figures = {"acc_norm": math.nan, "acc_error": 0.1, "acc_norm_error": math.nan, "samples": 8, "limit": 0}
    figures |= {"chance": math.nan, "version": "", "data": ""}
    exact = Accuracy(task="gsm8k", acc=0.25, metric="exact_match,strict-match", **figures)
    words = Accuracy(task="wikitext", acc=12.345, metric="word_perplexity", is_share=False, **figures)
    words = replace(words, higher_is_better=False)
    plain = Accuracy(task="boolq", acc=0.75, **figures)
    found = {"dense": {each.task: each for each in (exact, words, plain)}}
    table = accuracy_card.summary(found, "max").set_index("task")["Dense"]
    assert table["gsm8k (exact_match,strict-match)"].startswith("25.0 ±")
    assert table["wikitext (word_perplexity, lower is better)"] == "12.35"
    assert table["mean of 2 tasks"].startswith("50.0 ±")


def test_accuracy_shows_what_counts_under_each_rule(cache):
    evaluation = EvaluationSettings(texts=("c4",), tasks=("piqa", "hellaswag", "boolq"), limit=200)
    study = a_study(methods=("dense", "gprune"), evaluation=evaluation)
    app = show("speed_export", cache, study=study, missing_tasks={"hellaswag": f"no data {EVIL}"})
    table = next(item.value for item in app.dataframe if "task" in item.value)
    assert table["task"].tolist() == ["piqa", "boolq", "mean of 2 tasks"]
    assert table["Dense"].tolist() == ["80.0 ± 5.9", "60.0 ± 5.9", "70.0 ± 4.2"]
    assert table["GPrune"].tolist()[:2] == ["70.0 ± 7.8ⁿ", "55.0 ± 5.9"]
    assert table["chance"].tolist() == ["50.0", "50.0", "50.0"]
    shown = words(app)
    assert "limited to 200 documents a task" in shown and r"lm\-eval 0\.4\.13" in shown
    assert "hellaswag was left out" in shown and "![x](" not in shown
    app.radio(key="sx_rule_radio").set_value("fixed").run()
    table = next(item.value for item in app.dataframe if "task" in item.value)
    assert table["Dense"].tolist()[:2] == ["70.0 ± 7.8ⁿ", "60.0 ± 5.9"]


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


def test_a_method_without_all_tasks_gets_no_mean_and_sizes_have_a_unit():
    partly = ACCURACY | {"flap": {"piqa": an_accuracy("piqa", 0.5, 0.7)}}
    table = accuracy_card.summary(partly, "max")
    assert table["FLAP"].tolist() == ["70.0 ± 7.8ⁿ", "–", "–"]
    assert [amount(n) for n in (100, 2**20, 1.5 * 2**30)] == ["0.1 KiB", "1.0 MiB", "1.5 GiB"]


def test_accuracy_that_is_missing_can_be_measured_without_data(cache, started):
    app = show("speed_export", cache)
    assert "measured on no task" in words(app)
    app.button(key="sx_tasks").click().run()
    ((study, _),) = started
    assert study.evaluation.tasks and all(task.startswith("demo_") for task in study.evaluation.tasks)


def a_model(folder):
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "llama"}')
    return str(folder)


def test_any_models_are_measured_by_a_job_and_the_last_one_is_shown(cache, started, tmp_path):
    app = show("speed_export", cache, study=a_study(model=a_model(tmp_path / "model")))
    dense = app.text_area(key="sx_models").value.splitlines()[0]
    app.text_area(key="sx_models").set_value(f"{dense}\nrandom:llama2-7b#layers=2@0.5").run()
    app.selectbox(key="sx_models_preset_selectbox").set_value("cpu").run()
    arguments = ("speed", str(tmp_path / "model"), "random:llama2-7b#layers=2@0.5", "--preset", "cpu")
    assert any(code.value == f"python -m gprune {shlex.join(arguments)}" for code in app.code)
    app.button(key="sx_models_start").click().run()
    ((study, told),) = started
    assert told == arguments and study.model == dense


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("", "name 1 to 12 models"),
        ("--json=/etc/passwd", "begins with a hyphen"),
        ("/no/such/folder", "no model folder"),
        ("random:gpt9", "no model with random weights"),
        ("random:llama2-7b@2", "between 0 and 1"),
    ],
)
def test_what_is_no_model_to_measure_is_told_and_starts_nothing(cache, started, typed, told):
    app = show("speed_export", cache)
    app.text_area(key="sx_models").set_value(typed).run()
    assert told in "".join(item.value for item in app.error).replace("\\", "")
    assert "sx_models_start" not in [button.key for button in app.button] and not started


def test_the_last_measurement_of_models_stands_in_its_card(cache, tmp_path, monkeypatch):
    monkeypatch.setattr("gprune.jobs.local.start_worker", lambda *_: None)
    write_run(cache, study=a_study(model=a_model(tmp_path / "model")))
    job = submit(cache, a_study(), "Speed of two", ("speed", "a", "b"))
    values = {"machine": {"threads": "2"}, "rows": speed_rows(ratio=1.7)}
    files.write_json(job.folder / files.SPEEDS, values)
    write_state(job.folder, JobState("done", ended=1.0))
    shown = page()
    assert "Speed of two, job" in words(shown) and "threads 2" in words(shown)
    table = next(item.value for item in shown.dataframe if "tokens/s" in item.value and "params" not in item.value)
    assert "1.70 (IQR 0.10)" in table["ratio (IQR)"].tolist() and not shown.error
    (job.folder / files.SPEEDS).write_text('{"rows": 3}')
    assert "cannot be read: measure again" in words(page())
