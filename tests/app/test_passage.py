"""The passage of a retention: what is asked of the worker, when, and what is shown of its answers."""

import base64
import json

import numpy as np
import pytest
from app_driver import open_page, opened, words
from synthetic_run import the_run

from gprune.app import preview
from gprune.app.preview import DENSE, Piece, Read, Reading, State
from gprune.app.ui import derived_cache, passage
from gprune.app.ui.tour import STEPS
from gprune.pipeline.runs.opened import Run
from gprune.system.errors import SettingsError

LAST = str(len(STEPS))
TOKENS = ("The", " river", " <b>")


class FakeReader:
    """Reads at once what it is asked for, but for what it is told to hold back; loses 1 / kept nats more."""

    def __init__(self):
        self.asked, self.owners, self.problem, self.read_parts = [], [], "", 1000

    def read(self, source, what, models, owner):
        self.asked.append((what, list(models)))
        self.owners.append(owner)
        return str(len(self.asked) - 1)

    def reading(self, identity):
        _, models = self.asked[int(identity)]
        if self.problem:
            return Reading("failed", (None,) * len(models), self.problem)
        found = tuple(self._found(model) if n < self.read_parts else None for n, model in enumerate(models))
        return Reading("complete" if all(found) else "open", found)

    def _found(self, model):
        pieces = tuple(Piece(text) for text in TOKENS)
        worse = 0.0 if model.method == DENSE else 1 / model.masks.retention
        return Read(pieces, np.array([np.nan, 1.0, 2.0]) + worse, len(TOKENS))

    def state(self, source):
        return State("loading", "the model is being loaded")

    def ask(self, *asked):
        return "measured"

    def ask_many(self, source, questions, owner):
        return ["measured"] * len(questions)

    def latest(self, identity):
        return None


@pytest.fixture
def reader(monkeypatch, name):
    made = FakeReader()
    monkeypatch.setattr(preview, "pool", lambda: made)
    return made


def slide(number=LAST, **query):
    return opened(tour=number, present="1", **query)


def drawn(app):
    found = [json.loads(item.proto.json) for item in app.get("bidi_component")]
    return next((one for one in found if "levels" in one), None)


def until_rest(app):
    """Looks again, as the browser does, until everything is read."""
    for _ in range(7):
        app.run()
    return app


def test_retentions_are_read_from_coarse_to_fine_and_each_once():
    found = passage.order(0.5, 0.5)
    assert found[0] == 0.5 and sorted(found) == sorted(passage.GRID)
    gaps = [min(abs(one - before) for before in found[:place]) for place, one in enumerate(found) if place]
    assert gaps == sorted(gaps, reverse=True)
    # what was chosen comes first, also where no grid has it
    assert passage.order(0.47, 0.5)[:2] == [0.47, 0.5]


def test_what_is_drawn_at_a_retention_was_read_with_the_masks_of_that_retention(reader, cache):
    app = until_rest(slide())
    sent = drawn(app)
    run = the_run(cache)
    levels = [one["retention"] for one in sent["levels"]]
    assert levels == sorted(levels) and set(levels) <= set(passage.GRID) and len(levels) > 10
    assert sent["retention"] == run.study.retention and sent["tokens"] == ["The", "·river", "·<b>"]
    losses = np.frombuffer(base64.b64decode(sent["losses"]), "<f4").reshape(len(levels), len(TOKENS))
    dense = np.frombuffer(base64.b64decode(sent["dense"]), "<f4")
    _, models = reader.asked[-1]
    kept = {round(model.masks.retention, 2): 1 / model.masks.retention for model in models[1:]}
    for level, own, told in zip(levels, losses, sent["levels"], strict=True):
        masks = next(model.masks for model in models[1:] if abs(model.masks.retention - level) < 0.03)
        np.testing.assert_allclose((own - dense)[1:], 1 / masks.retention, rtol=1e-5)
        assert told["label"] == f"GPrune, {100 * level:.0f} % kept"
        assert told["change"] == f"+{1 / masks.retention:.2f} nats/token"
    assert len(kept) == len(levels) and all(not model.fitted for model in models[1:])
    # nothing more to wait for, and no other slider
    assert sent["fills"] and "retentions are read" not in sent["told"] and not app.slider


def test_it_is_read_while_the_first_slide_is_shown_and_not_twice(reader):
    app = until_rest(slide("1"))
    assert drawn(app) is None and reader.asked
    what, models = reader.asked[-1]
    count = len(reader.asked)
    # a first look decides the masks of one retention, which is quick at any size
    assert [len(one) for _, one in reader.asked][0] == 2 and len(models) > 10
    assert len(set(reader.owners)) == 1 and what.window >= 0
    app.query_params["tour"] = LAST
    app.run()
    assert len(drawn(app)["levels"]) == len(models) - 1 and len(reader.asked) == count


def test_tune_draws_it_for_the_choice_of_the_page_and_says_why_a_method_cannot_be_decided(reader):
    app = until_rest(open_page("retention", rasa_live="1", rasa_method="flap", rasa_text="primary", rasa_keep="0.3"))
    sent, (_, models) = drawn(app), reader.asked[-1]
    assert not sent["fills"] and sent["retention"] == 0.3 and len(sent["levels"]) > 10
    assert {one["label"][:6] for one in sent["levels"]} == {"FLAP, "}
    assert {model.method for model in models[1:]} == {"flap"} and not app.error
    # another retention is the same passage, and another text of the scores is not
    count = len(reader.asked)
    app.slider(key="rasa_keep_slider").set_value(0.5).run()
    assert drawn(app)["retention"] == 0.5 and len(reader.asked) == count
    app.selectbox(key="rasa_method_selectbox").set_value("wanda_sp").run()
    told = [error.value for error in app.error]
    assert drawn(app) is None and any("need a pass of the model" in one for one in told)


def test_what_is_there_is_drawn_and_told_while_the_rest_is_read(reader):
    reader.read_parts = 0
    app = slide()
    told = words(app)
    assert drawn(app) is None and "The model is being loaded, " in told and "so far" in told
    assert "Window " in told and "as measured loses most on" in told
    reader.read_parts = 2
    app.run()
    sent = drawn(app)
    assert len(sent["levels"]) == 1 and "1 of " in sent["told"] and "retentions are read" in sent["told"]


def test_a_worker_that_cannot_read_is_a_sentence_and_is_not_asked_at_every_slide(reader):
    reader.problem = "the model folder '/gone' has changed since the run: put the model back"
    app = slide("1")
    for number in ("2", "3", "4"):
        app.query_params["tour"] = number
        app.run()
    assert len(reader.asked) == 1 and not app.error
    app.query_params["tour"] = LAST
    app.run()
    assert [error.value for error in app.error][0].startswith("the model folder") and not app.exception


def test_retentions_that_the_floors_do_not_allow_are_left_out(reader, monkeypatch):
    def masks_of(run, choice):
        if choice.retention < 0.3:
            raise SettingsError("the floors of the layers cost more")
        return real(run, choice)

    real = derived_cache.masks_of
    monkeypatch.setattr(derived_cache, "masks_of", masks_of)
    app = until_rest(slide())
    sent = drawn(app)
    assert min(one["retention"] for one in sent["levels"]) == sent["reach"][0] == 0.3 and not app.error
    assert "retentions are read" not in sent["told"]


def test_a_run_that_has_cut_no_model_is_shown_without_a_passage(reader, monkeypatch):
    monkeypatch.setattr(Run, "cut", {})
    app = slide("1")
    app.query_params["tour"] = LAST
    app.run()
    assert not reader.asked and drawn(app) is None and not app.exception


def test_a_run_of_a_pack_says_why_nothing_can_be_read(reader, monkeypatch):
    missing = "Needs what the pack of this run did not bring (the model): put it there."
    monkeypatch.setattr("gprune.app.ui.packed.lacking", lambda run: missing)
    monkeypatch.setattr(Run, "packed", True)
    monkeypatch.setattr(Run, "left_out", {})
    app = slide("1")
    app.query_params["tour"] = LAST
    app.run()
    assert not reader.asked and "Needs what the pack" in app.info[0].value
