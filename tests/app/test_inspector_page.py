"""The Inspector: every state of its cards, what it finds, what is missing, and its lists of neurons."""

import json

import numpy as np
import pytest
from app_driver import charts, on, open_page, plain_words, show, words
from fake_pool import FakePool
from synthetic_run import a_study, change_record, names, the_run, write_run

from gprune.app.figures import neurons as figures
from gprune.app.pages import inspector
from gprune.app.preview import Neuron, PassageActivations, Piece, PromotedTokens, Reading, TextActivations
from gprune.app.ui import contexts
from gprune.app.ui.chart_style import TEXT_LOOKS
from gprune.models.vocabulary import text_around, tokenizer
from gprune.pipeline import stages
from gprune.study import CalibrationSettings

# every test walks through pages
pytestmark = pytest.mark.slow
NEURON, TEXTS = {"layer": "2", "neuron": "7"}, ("python-reference", "science-docs", "python-code")


def passages(app):
    """What each component of passages was given."""
    return [json.loads(item.proto.json) for item in app.get("bidi_component")]


def badges(app):
    return "\n".join(item.value.replace("\\", "") for item in app.markdown if "badge" in item.value)


def test_with_nothing_selected_it_opens_on_the_most_drifting_neuron(cache, name):
    app, moved = open_page("inspector"), the_run(cache).load(stages.drift).magnitude
    layer, neuron = np.argwhere(moved == moved.max())[0]
    assert "No neuron selected. Showing the one with the highest drift." in words(app)
    assert f"Neuron {neuron} of layer {layer}: rank" in words(app) and len(passages(app)) == 3
    assert "frame_selection" not in [button.key for button in app.button] and not app.error
    app.button(key="ins_next").click().run()
    assert app.query_params["neuron"] == str(neuron + 1) and "No neuron selected" not in words(app)


def test_nothing_selected_or_nothing_there_says_so(cache):
    app = show("inspector", cache, stages=[name for name in names() if not name.startswith("drift")])
    assert "No neuron selected. Search" in words(app)
    assert app.button(key="ins_next").disabled
    assert not app.error and not passages(app)
    write_run(cache)
    app = open_page("inspector", layer="2", neuron="60")
    assert app.warning[0].value == "This run has no neuron 60: a layer has 60." and not app.error
    assert "Layer 2: 60 neurons" in words(app)
    assert "No neuron selected" in words(open_page("inspector", layer="99"))


def test_a_neuron_shows_its_numbers_and_where_it_fires_and_leads_on(cache, run):
    app = open_page("inspector", layer="2", neuron="7")
    visible = {metric.label: metric.value for metric in app.metric}
    drift = float(run.load(stages.drift).magnitude[2, 7])
    score = float(run.load(stages.scores, "auxiliary").ffn[2, 7])
    assert visible["Rank drift"] == f"{drift:.3f}" and visible["Score on science-docs"] == f"{score:.3g}"
    mask = run.load(stages.masks, "flap").ffn[2, 7]
    assert f"FLAP: {'kept' if mask else 'removed'}" in badges(app)
    result = passages(app)
    assert [item["alt"] for item in result] == [f"top-activating examples on {text}" for text in TEXTS]
    positions, tokens = run.load(stages.positions, "primary"), run.load(stages.tokens, "primary")
    sequence, location = int(positions.sequences[2, 7, 0]), int(positions.positions[2, 7, 0])
    first = result[0]["passages"][0]
    ids = tokens.ids[sequence, max(location - 16, 0) : location + 17].tolist()
    assert (first["before"], first["token"], first["after"]) == text_around(tokenizer("demo"), ids, min(location, 16))
    assert first["value"] == f"{positions.values[2, 7, 0]:+#.3g}".replace("-", "−") and len(result[0]["passages"]) == 8
    assert max(item["passages"][0]["strength"] for item in result) == 1.0
    app = show("inspector", cache, NEURON)
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


def test_the_strongest_activation_is_titled_with_its_sign(cache, run):
    roles = ("primary", "auxiliary", "substitute")
    values = np.concatenate([run.load(stages.positions, role).values for role in roles], axis=2)
    strongest = np.take_along_axis(values, np.abs(values).argmax(axis=2)[:, :, None], axis=2)[:, :, 0]
    for layer, neuron in (np.argwhere(strongest < 0)[0], np.argwhere(strongest > 0)[0]):
        number = f"{strongest[layer, neuron]:.3g}".replace("-", "−")
        titles = [line for line in words(open_page("inspector", layer=str(layer), neuron=str(neuron))).splitlines()]
        assert any("activates most on" in line and line.endswith(f": {number}") for line in titles)


def test_the_figure_of_ranks_is_that_of_the_records(small_run):
    figure = figures.neuron_ranks(small_run, layer=1, neuron=3).figure
    scores = small_run.load(stages.scores, "primary").ffn[1]
    # of every text its whisker, which is the range over halves wherever the rank lies, and its rank
    whiskers, ranks = figure.data[::2], figure.data[1::2]
    assert ranks[0].x[0] == (scores < scores[3]).sum() / (len(scores) - 1)
    assert len(ranks) == 3 and all(low <= high for low, high in (whisker.x for whisker in whiskers))
    rendered = figures.score_histograms(small_run, layer=1, module=0).figure
    assert [sum(whisker.y) for whisker in rendered.data] == pytest.approx([100.0] * 3)


def test_a_module_shows_what_rasa_did_and_its_members(run):
    partition, adapted = run.load(stages.partition), run.load(stages.adapted_scores)
    location = int(np.flatnonzero(adapted.adapted)[0])
    layer = int(partition.module_layer[location])
    module = location - int(partition.offsets[layer])
    app = open_page("inspector", layer=str(layer), module=str(module))
    message = "adapted, re-scored" if adapted.source[location] else "adapted, not re-scored"
    assert f"by RASA {message}" in words(app) and "u on python-reference" in {metric.label for metric in app.metric}
    members = next(item.value for item in app.dataframe if "rank on C" in item.value.columns)
    assert sorted(members["neuron"]) == np.flatnonzero(partition.labels[layer] == module).tolist()
    assert len(charts(app)) == 1


def test_a_run_without_positions_says_how_to_get_them_and_starts_the_job(cache, monkeypatch):
    app = show("inspector", cache, NEURON, stages=[name for name in names() if not name.startswith("positions")])
    assert "This run did not record the top-activating examples" in words(app) and not app.error and not passages(app)
    assert any("--until all" in code.value for code in app.code)
    requested = []
    monkeypatch.setattr("gprune.app.ui.work.start", lambda *arguments: requested.append(arguments))
    app.button(key="ins_fires_make").click().run()
    ((root, study, arguments),) = requested
    assert arguments == ("--until", "all") and study == the_run(cache).study and root == str(cache)


def test_a_study_that_keeps_none_and_a_pack_say_so(cache):
    none = CalibrationSettings(samples=32, length=16, shards=4, positions=0)
    name = write_run(cache, study=a_study(calibration=none))
    app = open_page("inspector", layer="2", neuron="7")
    assert "calibration.positions is 0" in words(app) and not app.error
    app.button(key="ins_next").click().run()
    (cache / "runs" / name / "run.json").unlink()
    gone = a_study(model="/nowhere/model")
    without = [item for item in names() if not item.startswith(("positions", "tokens"))]
    name = write_run(cache, study=gone, stages=without)
    change_record(cache, name, packed={"left_out": {"positions_primary": "texts", "tokens_primary": "texts"}})
    app = open_page("inspector", layer="2", neuron="7")
    assert "--with-contexts" in plain_words(app) and not app.error
    assert "Neuron 7 of layer 2" in words(app)


def test_a_model_without_tokenizer_gets_a_sentence(cache):
    name = write_run(cache, study=a_study(model=str(cache / "no model")))
    app = open_page("inspector", run=name, layer="2", neuron="7")
    assert "without the model’s tokenizer" in app.error[0].value.replace("'", "’")


def test_a_character_of_several_tokens_is_shown_whole_wherever_the_peak_is():
    reader = contexts.load_tokenizer("demo", "before")
    assert reader is not contexts.load_tokenizer("demo", "after")
    text = "say “☃” and é\n\tthen  end"
    ids = reader.encode(text).ids
    full = reader.decode(ids, skip_special_tokens=False)
    assert len(ids) > 12 and "\ufffd" in reader.decode(ids[:4])
    for at in range(len(ids)):
        before, token, after = text_around(reader, ids, at)
        assert before + token + after == full and token and "\ufffd" not in token


VALUES = {"primary": [0.5, 0.5, -0.25], "auxiliary": [1.0, -0.5], "substitute": [0.25] * 4}


class FiringPool(FakePool):
    """Answers at once: the n-th token of a passage has n / 10 of the asked neuron's number, signs in turn."""

    def reading(self, identity):
        request, models = self.asked[int(identity.split()[0])]
        assert isinstance(request, Neuron) and [model.method for model in models] == ["dense"]
        if request.role and not request.passages:
            return Reading("complete", (TextActivations(np.array(VALUES[request.role]), 2, 2, 9),))
        if not request.role:
            return Reading("complete", (PromotedTokens((("[x](y)", 0.5), ("a", 0.25)), (("ing", -0.75),)),))
        fired = []
        for _, first, last in request.passages:
            count = last - first + 1
            values = np.arange(count) * np.where(np.arange(count) % 2, -0.1, 0.1)
            fired.append((tuple(Piece(f" w{location}") for location in range(count)), values))
        return Reading("complete", (PassageActivations(tuple(fired)),))


def test_every_token_has_its_colour_once_that_is_asked_for(cache, run, monkeypatch):
    pool = FiringPool().installed(monkeypatch)
    app = open_page("inspector", layer="2", neuron="7")
    assert pool.asked == [] and not any(
        element["tokens"] for visible in passages(app) for element in visible["passages"]
    )
    app.toggle(key="ins_every_token_toggle").set_value(True).run()
    assert [request.role for request, _ in pool.asked[-3:]] == ["primary", "auxiliary", "substitute"]
    request = pool.asked[-3][0]
    positions = run.load(stages.positions, "primary")
    sequence, location = int(positions.sequences[2, 7, 0]), int(positions.positions[2, 7, 0])
    length = run.load(stages.tokens, "primary").ids.shape[1]
    first = max(location - 16, 0)
    assert (request.layer, request.neuron) == (2, 7)
    assert request.passages[0] == (sequence, first, min(location + 16, length - 1))
    tokens = passages(app)[0]["passages"][0]["tokens"]
    assert [token["text"] for token in tokens[:3]] == [" w0", " w1", " w2"]
    assert [token["peak"] for token in tokens].index(True) == location - first
    assert tokens[3]["value"] == "-0.3" and tokens[3]["negative"] and not tokens[2]["negative"]
    maximum = max(
        np.abs(run.load(stages.positions, role).values[2, 7]).max() for role in ("primary", "auxiliary", "substitute")
    )
    assert tokens[2]["strength"] == pytest.approx(min(0.2 / maximum, 1.0))
    assert "Tokens are coloured by their activation" in words(app) and not app.exception
    # the histogram and the tokens of its column come with the same switch, all of the same neuron
    assert {(request.layer, request.neuron) for request, _ in pool.asked} == {(2, 7)}
    assert "67% on python-reference, 50% on science-docs, 100% on python-code" in plain_words(app)
    assert "Sequences read: python-reference 2 of 9, science-docs" in plain_words(app) and len(charts(app)) == 2
    assert "It promotes “[x](y)” and suppresses “ing”" in plain_words(app)
    assert [item.value.iloc[0].tolist() for item in app.dataframe[:2]] == [["[x](y)", "+0.500"], ["ing", "−0.750"]]


def test_one_click_measures_what_the_neuron_is_worth_on_every_text(cache, run, monkeypatch):
    pool = FiringPool().installed(monkeypatch)
    pool.more = 0.05
    app = show("inspector", cache, NEURON)
    assert pool.asked == []
    app.button(key="ins_ablation_now").click().run()
    assert [(element.role, element.neuron, element.method) for element, _ in pool.asked] == [
        (role, (2, 7), "dense") for role in ("primary", "auxiliary", "substitute")
    ]
    result = pool.latest("1").difference
    visible = {item.label: (item.value, item.delta) for item in app.metric if "nats/token" in item.label}
    assert [label.replace("\\", "") for label in visible] == [f"{text}, nats/token" for text in TEXTS]
    assert set(visible.values()) == {(f"+{result.nats:.5f} ± {result.nats_margin:.5f}", "40 of 40 windows")}
    assert "changes most on python-reference" in plain_words(app) and app.query_params["ins_ablated"] == "2-7"
    # what was asked of one neuron is not asked of the next
    app.button(key="ins_next").click().run()
    assert len(pool.asked) == 3 and app.button(key="ins_ablation_now").label == "Ablate now"
    pool.more = 0.0
    assert "Without it, the loss does not change measurably on any text" in words(
        open_page("inspector", **NEURON, ins_ablated="2-7")
    )


def test_bins_that_all_texts_share_hold_every_token():
    rng = np.random.default_rng(0)
    values = {"A": rng.normal(0, 1, 400), "B": rng.normal(5, 0.01, 300), "C": np.zeros(3)}
    table = figures.bin_activations(values)
    assert len(table) <= figures.MOST_ACTIVATION_BINS
    edges = np.append(table["from"], table["to"].iloc[-1])
    for letter, item in values.items():
        assert np.array_equal(table[letter], np.histogram(item, edges)[0])
    figure = figures.plot_activations(table, dict.fromkeys("ABC", "text"))
    assert [trace.line.color for trace in figure.data] == [color for color, _ in TEXT_LOOKS.values()]
    assert np.nansum(figure.data[1].y) == pytest.approx(100) and figure.layout.yaxis.type == "log"
    assert "(no unit)" in figure.layout.xaxis.title.text and "(%)" in figure.layout.yaxis.title.text


def test_the_field_of_every_page_selects_and_opens_the_inspector(name):
    for typed, heading in (("l1n5", "Neuron 5 of layer 1: rank"), ("L1 M3", "Module 3 of layer 1"), ("L3", "Layer 3")):
        app = open_page("drift")
        app.text_input(key="frame_find").set_value(typed).run()
        assert heading in words(app) and "Inspector" in [item.value for item in app.title]
    app = open_page("drift")
    app.text_input(key="frame_find").set_value("L9N1").run()
    assert "this run has no layer 9" in app.error[0].value and app.title[0].value == "Rank drift"
    # it is there still after another page, and the Inspector's own field stands in its place
    app = on(app, "inspector")
    assert [item.key for item in app.text_input if item.label == "Find"] == ["ins_search"]


def test_tokens_of_one_character_share_its_colour():
    pieces = (Piece("a"), Piece("é", 1, 2), Piece("", 2, 2), Piece("b"))
    result = inspector.color_tokens(pieces, np.array([0.1, 0.2, -0.8, 0.4]), 2, 1.6)
    assert [(item.text, item.value, item.strength, item.peak) for item in result] == [
        ("a", "+0.1", pytest.approx(0.0625), False),
        ("é", "-0.8", pytest.approx(0.5), True),
        ("b", "+0.4", pytest.approx(0.25), False),
    ]
