"""The tabs Speed and Export in every state: what is offered, started and told."""

import io
import json
import shutil
import zipfile
from pathlib import Path

import pytest
from app_driver import charts, open_page, show, words
from synthetic_measurements import a_throughput, speed_rows
from synthetic_run import a_study, exchange, folder_of, the_run, write_run

from gprune.analysis import speed as analysis
from gprune.app.figures import speed_export as figures
from gprune.app.pages import export
from gprune.app.ui.chart_style import METHOD_COLORS, is_wide
from gprune.jobs import submit
from gprune.jobs.folder import JobState, write_state
from gprune.pipeline import stages
from gprune.records import PrunedModel
from gprune.study.settings import EvaluationSettings


def a_timed_study(**changes):
    evaluation = EvaluationSettings(texts=a_study().evaluation.texts, windows=96, speed="cpu")
    return a_study(**({"methods": ("dense", "gprune", "flap"), "evaluation": evaluation} | changes))


def test_measured_speed_is_drawn_with_its_spread_in_every_phase_and_mode(cache):
    app = show("speed", cache, study=a_timed_study())
    figure = charts(app)[0]
    assert [trace["y"] for trace in figure["data"]] == [["Dense"], ["GPrune"], ["FLAP"]]
    assert figure["data"][1]["marker"]["color"] == METHOD_COLORS["gprune"]
    assert figure["layout"]["shapes"][0]["x0"] == 50
    assert "faster than the dense model: 1.50× its speed (interquartile range 0.10)" in words(app)
    # elsewhere ± is half a 95 % interval
    rendered = json.dumps(figure)
    assert "median and quartiles" in figure["layout"]["xaxis"]["title"]["text"] and "quartiles %{" in rendered
    assert "with quartiles (not a 95% interval)" in words(app) and "±" not in rendered
    table = next(item.value for item in app.dataframe if "parameters" in item.value)
    assert table["× dense (IQR)"].tolist() == ["1.00 (IQR 0.00)", "1.50 (IQR 0.10)", "1.20 (IQR 0.10)"]
    assert table["memory"].tolist() == ["3.0 MiB"] * 3
    assert "![x](" not in words(app) and "This model is small" in words(app) and not app.error
    name = write_run(cache, study=a_timed_study())
    exchange(cache, name, a_throughput(modes=("eager", "graph")), stages.speed)
    app = open_page("speed")
    assert list(charts(app)[0]["data"][0]["y"]) == ["Dense, eager", "Dense, graph"]
    app.selectbox(key="sx_phase_selectbox").set_value("prefill").run()
    figure = charts(app)[0]
    assert len(figure["data"]) == 3 and "prefill" in figure["layout"]["xaxis"]["title"]["text"]
    assert "GPrune decodes faster" in words(app)


@pytest.mark.parametrize(("ratio", "words_"), [(1.05, "as fast as"), (0.7, "slower than"), (1.3, "faster than")])
def test_the_headline_says_no_more_than_the_spread_allows(ratio, words_):
    assert f"GPrune decodes {words_} the dense model" in figures.speed_headline(speed_rows(ratio=ratio))
    noise = figures.speed_headline(speed_rows(ratio=ratio))
    assert ("the dense model within noise: " in noise) == (ratio == 1.05)
    without = [row for row in speed_rows() if row["model"] == "flap"]
    assert figures.speed_headline(without) == "Tokens per second against FLAP"


def test_whiskers_are_quartiles_and_captured_graphs_are_open():
    table = analysis.speed_table(speed_rows(modes=("eager", "graph")), "decode")
    figure = figures.plot_rates(table, "decode")
    # on a phone it has the width of the window, and every dot is seen at once
    assert not is_wide(figure)
    model = table["model"].iloc[2]
    low, middle, high = table[["low", "tokens/s", "high"]].to_numpy()[2]
    rendered = next(trace for trace in figure.data if trace.marker.color == METHOD_COLORS[model])
    assert len({trace.marker.color for trace in figure.data}) == len(figure.data) == table["model"].nunique()
    assert list(rendered.x) == list(table[table["model"] == model]["tokens/s"])
    assert rendered.error_x.array[0] == pytest.approx(high - middle)
    assert rendered.error_x.arrayminus[0] == pytest.approx(middle - low)
    assert rendered.marker.symbol == ("circle", "circle-open")
    assert figure.layout.xaxis.range[0] == 0 and len(figure.layout.shapes) == 2


def test_published_speed_stands_apart_and_what_is_missing_can_be_measured(cache, started):
    app = show("speed", cache)
    published = next(item.value for item in app.dataframe if "params" in item.value)
    assert published["tokens/s"].tolist()[0] == "97.04" and "GPrune (FLAP)" in published["method"].tolist()
    assert "published, not run here" in words(app)
    assert "has not been measured" in words(app)
    assert any('evaluation.speed="cpu"' in code.value for code in app.code)
    app.selectbox(key="sx_preset_selectbox").set_value("auto").run()
    app.button(key="sx_measure").click().run()
    assert started == [(a_study().with_settings({"evaluation.speed": "auto"}), ())]


def test_a_folder_of_equal_widths_is_told_to_need_no_code_and_no_padding(cache):
    folder = folder_of(cache, write_run(cache), stages.checkpoint) / "model"
    (folder / "config.json").write_text('{"model_type": "llama"}')
    app = open_page("export")
    codes = [code.value for code in app.code]
    assert "trust_remote_code=True" not in "".join(codes)
    assert "no code of its own (every layer has the same width)" in words(app)
    assert "sx_padded" not in [button.key for button in app.button]
    (folder / "config.json").write_text('{"auto_map": {}}')
    assert export.has_code(folder) and not open_page("export").exception


def test_a_checkpoint_comes_with_its_kept_units_and_padding_is_a_job(cache, started, name):
    folder = folder_of(cache, write_run(cache), stages.checkpoint) / "model"
    app = open_page("export")
    codes = [code.value for code in app.code]
    assert str(folder) in codes and "The pruned model is a transformers folder" in words(app)
    anywhere = next(code for code in codes if code.startswith("from transformers"))
    assert anywhere.count("trust_remote_code=True") == 2
    compile(anywhere, "snippet", "exec")
    compile(export.gprune_code(Path('/it\'s "here"')), "snippet", "exec")
    command = export.lm_eval_command(Path("/a folder"))
    assert "'pretrained=/a folder,trust_remote_code=True'" in command
    assert [item.proto.label for item in app.get("download_button")][0].startswith("Download the model (")
    folder = folder_of(cache, name, stages.checkpoint) / "model"
    app.button(key="sx_padded").click().run()
    ((study, arguments),) = started
    out = Path(arguments[2])
    assert study == a_study() and (*arguments[:2], arguments[3]) == ("export", str(folder), "--padded")
    assert out.parent == cache / "exports" / name and out.name == f"padded-{folder.parent.name[:8]}"
    out.mkdir(parents=True)
    (out / "model.safetensors").write_bytes(b"x" * 3072)
    app = open_page("export")
    assert "Exported: 3.0 KiB on disk" in words(app)
    assert "sx_padded" not in [button.key for button in app.button]


@pytest.mark.parametrize("present", [False, True])
def test_gguf_is_offered_where_its_package_is(cache, started, monkeypatch, present):
    monkeypatch.setattr(export, "find_spec", lambda name: object() if present else None)
    app = show("export", cache)
    assert ("make gguf" in words(app)) is not present
    assert ("sx_gguf" in [button.key for button in app.button]) is present
    if present:
        app.button(key="sx_gguf").click().run()
        assert started[0][1][0] == "gguf" and started[0][1][2].endswith(".gguf")


@pytest.mark.parametrize(("state", "words_"), [("running", "Running: starting"), ("failed", "the disk is full")])
def test_the_export_that_is_at_work_or_failed_says_so(cache, monkeypatch, state, words_):
    monkeypatch.setattr("gprune.jobs.queue.start_worker", lambda *_: None)
    monkeypatch.setattr("gprune.jobs.queue.reconcile", lambda cache: None)
    folder = folder_of(cache, write_run(cache), stages.checkpoint) / "model"
    out = export.destination(the_run(cache), export.PADDED)
    job = submit(cache, a_study(), arguments=("export", str(folder), str(out), "--padded"))
    values = {"error": "the disk is full", "ended": 2.0} if state == "failed" else {}
    write_state(job.folder, JobState(state, started=1.0, **values))
    visible = words(open_page("export"))
    assert words_ in visible and ("Running:" in visible) == (state == "running")


def test_a_run_without_a_model_folder_can_be_finished(cache, started):
    shutil.rmtree(folder_of(cache, write_run(cache), stages.checkpoint))
    app = open_page("export")
    assert "has lost its model folder" in words(app)
    app.button(key="sx_finish").click().run()
    assert started == [(a_study(), ())]
    write_run(cache, stages="masks")
    assert "has not written its model" in words(open_page("export"))


def test_every_method_has_its_folder_or_the_button_that_writes_it(cache, started):
    app = show("export", cache, study=a_study(methods=("dense", "flap")))
    assert "does not include GPrune" in words(app) and not app.error
    assert "Export the model of any method" in words(app)
    buttons = [button.key for button in app.button if str(button.key).startswith("sx_write_")]
    assert buttons == ["sx_write_flap"]
    app.button(key="sx_write_flap").click().run()
    ((_, arguments),) = started
    name, out = the_run(cache).name, Path(arguments[3])
    assert arguments == ("export", name, "flap", str(out), "--cache", str(cache))
    assert out.parent == cache / "exports" / name and out.name.startswith("flap-")
    out.mkdir(parents=True)
    (out / "pruning.json").write_text("{}")
    app = open_page("export")
    assert str(out) in [code.value for code in app.code]
    assert "sx_write_flap" not in [button.key for button in app.button]


def test_what_the_run_has_written_needs_no_button(cache):
    folder = folder_of(cache, write_run(cache), stages.checkpoint) / "model"
    app = open_page("export")
    visible = [str(button.key) for button in app.button]
    assert "sx_write_gprune" not in visible and "sx_write_flap" in visible
    assert [code.value for code in app.code].count(str(folder)) == 2


def test_the_model_is_a_zip_or_where_it_is_large_the_commands_that_copy_it(cache, name, monkeypatch):
    folder = folder_of(cache, name, stages.checkpoint) / "model"
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with zipfile.ZipFile(io.BytesIO(export.zip_folder(folder))) as archive:
        assert {member: archive.read(member) for member in archive.namelist()} == files and "pruning.json" in files
    monkeypatch.setattr(export, "MOST_DOWNLOADED", 1)
    app = open_page("export")
    assert "sx_zip" not in [item.proto.id.rpartition("-")[2] for item in app.get("download_button")]
    command = next(code.value for code in app.code if code.value.startswith("scp -r "))
    assert str(folder) in command and f"hf upload USER/NAME {folder}" in command


def test_the_padded_form_says_what_padding_costs(cache, name):
    run = the_run(cache)
    padding = analysis.padding(run.shape, run.size, PrunedModel(run.masks()["gprune"]), "llama")
    visible = words(open_page("export"))
    for count in (padding.dense, padding.pruned, padding.padded):
        assert f"{count:,} parameters" in visible
    gone = write_run(cache, study=a_study(model="/nowhere/model", name="Gone"))
    assert "Padding leaves" not in words(open_page("export", run=gone))
