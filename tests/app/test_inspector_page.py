"""The Inspector: every state of its cards, what it finds, and what it says where something is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from app_driver import charts, on, opened, words
from streamlit.testing.v1 import AppTest
from synthetic_run import a_study, exchange, names, read, write_run

from gprune import records
from gprune.app.pages.inspector import panels
from gprune.models.vocabulary import around, tokenizer
from gprune.pipeline import runs, stages
from gprune.pipeline.runs.opened import Run, all_runs
from gprune.store import Store
from gprune.study import CalibrationSettings

# every test walks through pages
pytestmark = pytest.mark.slow


def inspected(**query: str) -> AppTest:
    return on(opened(**query), "inspection")


def run_of(cache: Path) -> Run:
    return all_runs(str(cache))[0][0]


def passages(app: AppTest) -> list[dict[str, Any]]:
    """What each component of passages was given."""
    return [json.loads(item.proto.json) for item in app.get("bidi_component")]


def badges(app: AppTest) -> str:
    return "\n".join(item.value.replace("\\", "") for item in app.markdown if "badge" in item.value)


def test_nothing_selected_says_how_to_select_and_what_predicts(cache: Path) -> None:
    write_run(cache)
    app = inspected()
    assert "Nothing is selected" in words(app) and "says most" in words(app)
    assert app.button(key="ins_next").disabled and app.button(key="ins_pin_button").disabled
    assert not app.error and not passages(app)


def test_a_neuron_shows_its_numbers_its_keepers_and_where_it_fires(cache: Path) -> None:
    write_run(cache)
    run = run_of(cache)
    app = inspected(layer="2", neuron="7")
    shown = {metric.label: metric.value for metric in app.metric}
    drift = float(run.load(stages.drift).magnitude[2, 7])
    score = float(run.load(stages.scores, "auxiliary").ffn[2, 7])
    assert shown["Drift A|B"] == f"{drift:.3f}" and shown["Score on B"] == f"{score:.4g}"
    kept = run.load(stages.masks, "flap").ffn[2, 7]
    assert f"FLAP: {'kept' if kept else 'removed'}" in badges(app)
    found = passages(app)
    assert [one["alt"] for one in found] == [f"strongest positions on {letter}" for letter in "ABC"]
    positions, tokens = run.load(stages.positions, "primary"), run.load(stages.tokens, "primary")
    sequence, place = int(positions.sequences[2, 7, 0]), int(positions.positions[2, 7, 0])
    first = found[0]["passages"][0]
    ids = tokens.ids[sequence, max(place - 16, 0) : place + 17].tolist()
    assert (first["before"], first["token"], first["after"]) == around(tokenizer("demo"), ids, min(place, 16))
    assert first["value"] == f"{positions.values[2, 7, 0]:+.3g}" and len(found[0]["passages"]) == 8
    assert max(one["passages"][0]["strength"] for one in found) == 1.0


def test_the_figure_of_ranks_is_that_of_the_records(small_run: Run) -> None:
    figure = panels.neuron_ranks(small_run, layer=1, neuron=3).figure
    scores = small_run.load(stages.scores, "primary").ffn[1]
    # of every text its whisker, which is the range over halves wherever the rank lies, and its rank
    whiskers, ranks = figure.data[::2], figure.data[1::2]
    assert ranks[0].x[0] == (scores < scores[3]).sum() / (len(scores) - 1)
    assert len(ranks) == 3 and all(low <= high for low, high in (one.x for one in whiskers))
    drawn = panels.score_histograms(small_run, layer=1, module=0, neuron=3).figure
    assert [sum(one.y) for one in drawn.data] == pytest.approx([100.0] * 3)


def test_previous_next_and_search_find_their_unit_and_say_what_is_not_there(cache: Path) -> None:
    write_run(cache)
    app = inspected(layer="2", neuron="7")
    app.button(key="ins_next").click().run()
    assert "Neuron 8 of layer 2" in words(app)
    app.text_input(key="ins_search").set_value("module 3 of layer 1").run()
    assert "Module 3 of layer 1" in words(app) and app.text_input(key="ins_search").value == ""
    app.button(key="ins_previous").click().run()
    assert "Module 2 of layer 1" in words(app)
    app.text_input(key="ins_search").set_value("layer 0").run()
    assert app.button(key="ins_previous").disabled and "Layer 0: 60 neurons, 6 modules" in words(app)
    for typed, sentence in (
        ("3/60", "this run has no neuron 60: a layer has 60"),
        ("layer 9", "this run has no layer 9: its layers are 0 to 3"),
        ("<b>x</b>", "names no layer, module or neuron"),
    ):
        app.text_input(key="ins_search").set_value(typed).run()
        assert sentence in app.error[0].value.replace("\\", "")
        assert "Layer 0: 60 neurons" in words(app)


def test_an_address_of_a_neuron_that_does_not_exist_gets_a_sentence(cache: Path) -> None:
    write_run(cache)
    app = inspected(layer="2", neuron="60")
    assert app.warning[0].value == "This run has no neuron 60: a layer has 60." and not app.error
    assert "Layer 2: 60 neurons" in words(app)
    assert "Nothing is selected" in words(inspected(layer="99", ins_pin="1-x-999"))


def test_a_pinned_neuron_stays_beside_the_next_one(cache: Path) -> None:
    write_run(cache)
    app = inspected(layer="2", neuron="7")
    app.button(key="ins_pin_button").click().run()
    app.button(key="ins_next").click().run()
    assert {"Neuron 7 of layer 2", "Neuron 8 of layer 2"} <= {
        words_of.split(":")[0].removeprefix("#### ") for words_of in words(app).splitlines()
    }
    assert len(passages(app)) == 6 and not app.exception
    app.button(key="ins_pin_button").click().run()
    assert len(passages(app)) == 3


def test_a_module_shows_what_rasa_did_and_its_members(cache: Path) -> None:
    write_run(cache)
    run = run_of(cache)
    partition, adapted = run.load(stages.partition), run.load(stages.adapted)
    place = int(np.flatnonzero(adapted.adapted)[0])
    layer = int(partition.module_layer[place])
    module = place - int(partition.offsets[layer])
    app = inspected(layer=str(layer), module=str(module))
    told = "scored from B" if adapted.source[place] else "adapted, from A"
    assert f"by RASA {told}" in words(app) and "u on A" in {metric.label for metric in app.metric}
    members = next(item.value for item in app.dataframe if "rank on C" in item.value.columns)
    assert sorted(members["neuron"]) == np.flatnonzero(partition.labels[layer] == module).tolist()
    assert len(charts(app)) == 1


def test_a_run_without_positions_says_how_to_get_them_and_starts_the_job(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(cache, stages=[name for name in names() if not name.startswith("positions")])
    app = inspected(layer="2", neuron="7")
    assert "were not kept when this run was made" in words(app) and not app.error and not passages(app)
    assert any("--until positions" in code.value for code in app.code)
    asked: list[Any] = []
    monkeypatch.setattr("gprune.app.ui.work.start", lambda *told: asked.append(told))
    app.button(key="ins_fires_make").click().run()
    ((root, study, arguments),) = asked
    assert arguments == ("--until", "positions") and study == run_of(cache).study and root == str(cache)


def test_a_study_that_keeps_none_and_a_pack_say_so(cache: Path) -> None:
    none = CalibrationSettings(samples=32, length=16, shards=4, positions=0)
    name = write_run(cache, study=a_study(calibration=none))
    app = inspected(layer="2", neuron="7")
    assert "calibration.positions is 0" in words(app) and not app.error
    app.button(key="ins_next").click().run()
    (cache / "runs" / name / "run.json").unlink()
    gone = a_study(model="/nowhere/model")
    without = [one for one in names() if not one.startswith(("positions", "tokens"))]
    name = write_run(cache, study=gone, stages=without)
    packed = {"packed": {"left_out": {"positions_primary": "texts", "tokens_primary": "texts"}}}
    runs.save(Store(cache), name, read(cache, name) | packed)
    app = inspected(layer="2", neuron="7")
    assert "--with-contexts" in words(app).replace("\\", "") and not app.error
    assert "Neuron 7 of layer 2" in words(app)


def test_positions_of_other_tokens_and_a_model_without_tokenizer_get_a_sentence(cache: Path) -> None:
    name = write_run(cache)
    tokens = run_of(cache).load(stages.tokens, "auxiliary")
    other = records.Tokens(tokens.text, "another", tokens.ids, tokens.available)
    exchange(cache, name, other, stages.tokens, "auxiliary")
    app = inspected(layer="2", neuron="7")
    assert "not those of the tokens of" in app.error[0].value and len(app.error) == 1
    name = write_run(cache, study=a_study(model=str(cache / "no model")))
    app = inspected(run=name, layer="2", neuron="7")
    assert "without the model’s tokenizer" in app.error[0].value.replace("'", "’")


def test_a_list_takes_what_is_selected_and_is_read_back(cache: Path) -> None:
    write_run(cache)
    app = inspected(layer="2", neuron="7")
    app.text_input(key="ins_lists_name").set_value("quotes [x](http://e.org)")
    app.button(key="ins_lists_add").click().run()
    app.button(key="ins_next").click().run()
    app.button(key="ins_lists_add").click().run()
    listed = next(item.value for item in app.dataframe if list(item.value.columns)[-1] == "kept")
    assert listed[["layer", "neuron"]].to_numpy().tolist() == [[2, 7], [2, 8]]
    assert "quotes \\[x\\]" in words(app)
    app.button(key="ins_lists_delete").click().run()
    assert "A list keeps neurons under a name" in words(app)


def test_a_character_of_several_tokens_is_shown_whole_wherever_the_peak_is() -> None:
    reader = tokenizer("demo")
    text = "say “☃” and é\n\tthen  end"
    ids = reader.encode(text).ids
    whole = reader.decode(ids, skip_special_tokens=False)
    assert len(ids) > 12 and "\ufffd" in reader.decode(ids[:4])
    for at in range(len(ids)):
        before, token, after = around(reader, ids, at)
        assert before + token + after == whole and token and "\ufffd" not in token
