"""The pages that ask the preview: a text read token by token, and units that are decided by hand."""

import base64
import json

import numpy as np
import pytest
from app_driver import on, open_page, opened, plain_words, show, words
from fake_pool import FakePool
from synthetic_run import a_study, the_run

from gprune.analysis import token_loss
from gprune.analysis.token_loss import Token
from gprune.app.preview import Continuation, Passage, Piece, Prompt, Reading, TokenLosses
from gprune.app.ui import components
from gprune.pipeline import stages

EVIL = "<img src=x onerror=alert(1)>"
PIECES = ("The", " river", "\n", EVIL, "\u202eabc", "🙂", "", " [a](javascript:1)")


def pieces():
    split = {5: (1, 2), 6: (2, 2)}
    return tuple(Piece(text, *split.get(location, (1, 1))) for location, text in enumerate(PIECES))


class FakeReader(FakePool):
    """Has read everything already: the n-th model loses n / 10 nats more on every token."""

    problem, total, places, answer_length = "", len(PIECES), 0, None

    def reading(self, identity):
        request, models = self.asked[int(identity.split()[0])]
        if self.problem:
            return Reading("failed", (None,) * len(models), self.problem)
        if isinstance(request, Prompt):
            ids = [(5, 6, *range(n))[: self.answer_length] for n in range(len(models))]
            answers = [
                Continuation("", item, True, 3, self.total, pieces()[: len(item)], np.full(len(item), n / 4))
                for n, item in enumerate(ids)
            ]
            return Reading("complete", tuple(answers))
        losses = np.array([np.nan, *np.linspace(1, 2, len(PIECES) - 1)])
        sides = [losses + n * np.arange(len(PIECES)) / 10 for n in range(len(models))]
        return Reading("complete", tuple(TokenLosses(pieces(), side, self.total, self.places) for side in sides))


@pytest.fixture
def pool(monkeypatch):
    return FakeReader().installed(monkeypatch)


def test_nothing_is_asked_before_it_is_switched_on_and_then_a_window_of_the_run(cache, pool):
    app = show("lens", cache)
    assert pool.asked == [] and "nothing leaves this machine" in words(app)
    assert "to see the passage coloured by loss increase" in words(app)
    assert "compare the continuations of the dense" in words(app)
    app.toggle(key="lens_live_toggle").set_value(True).run()
    assert "Switch on" not in words(app)
    (passage, models), (prompt, same) = pool.asked
    # it opens on the window on which the method on the left loses most, by what the run has stored
    dense, pruned = (
        the_run(cache).load(stages.perplexity, item, "python-reference").losses for item in ("dense", "gprune")
    )
    worst = int((pruned - dense).argmax())
    assert worst > 0 and passage == Passage("python-reference", worst) and models == same
    loss = f"the loss of GPrune rises most there, +{(pruned - dense).max():.2f} nats/token"
    assert f"Window {worst} is the default: {loss}" in plain_words(app)
    assert [model.method for model in models] == ["dense", "gprune", "flap"]
    assert (prompt.most, prompt.temperature, prompt.seed) == (48, 0.8, 0) and prompt.typed and not prompt.is_chat
    assert "Sampled at temperature 0.8 with seed 0" in words(app)
    assert app.number_input(key="lens_window_number").max == 95
    app.number_input(key="lens_window_number").set_value(7).run()
    assert pool.asked[-2][0] == Passage("python-reference", 7)
    app.number_input(key="lens_seed_number").set_value(5).run()
    assert pool.asked[-1][0].seed == 5 and app.query_params["lens_seed"] == "5"
    app.number_input(key="lens_temperature_number").set_value(0.0).run()
    assert pool.asked[-1][0].temperature == 0 and "Always the most likely token" in words(app)
    app.number_input(key="lens_tokens_number").set_value(200).run()
    app.toggle(key="lens_chat_toggle").set_value(True).run()
    assert pool.asked[-1][0].most == 200 and pool.asked[-1][0].is_chat
    assert app.query_params["lens_tokens"] == "200" and app.query_params["lens_chat"] == "1"


def test_the_title_the_list_the_tokens_and_the_continuations(cache, pool):
    app = show("lens", cache, {"lens_live": "1"})
    text = plain_words(app)
    # the slopes of the first and second model, over tokens 1 to 7
    assert "GPrune +0.40 nats/token" in text and "FLAP +0.80 nats/token" in text
    assert f"perplexity {np.exp(1.5):.1f}" in text
    table = app.dataframe[0].value
    assert table["method"].tolist()[:2] == ["FLAP", "FLAP"] and table["position"][0] == 7
    assert table["worse by (nats)"][0] == pytest.approx(1.4) and len(table) == 14
    assert table["token"][1] == "🙂 2/2" and table["p dense"][0] == pytest.approx(np.exp(-2))
    assert table["before"][0].startswith("The river↵<img") and "‹U+202E›" in table["before"][0]
    # the look of the page and its history, and nothing that a text has brought
    assert not app.exception and all(EVIL not in item.proto.body for item in app.get("html"))
    assert len(app.get("html")) == 2
    rendered = [json.loads(item.proto.json) for item in app.get("bidi_component")]
    assert [element["label"] for element in rendered] == ["GPrune", "FLAP", "Dense model", "GPrune", "FLAP"]
    assert rendered[0]["tokens"][:4] == ["The", "·river", "↵\n", EVIL.replace(" ", "·")]
    assert rendered[0]["tokens"][4:7] == ["‹U+202E›abc", "🙂", "‹2/2›"]
    assert rendered[0]["limit"] == rendered[1]["limit"]
    scripts = [components.FOLDER / name for name in ("tokens.js", "passages.js")]
    markup = "".join(path.read_text(encoding="utf-8") for path in scripts)
    assert "innerHTML" not in markup and "insertAdjacentHTML" not in markup and "textContent" in markup
    assert all(EVIL not in item.value for item in app.markdown)
    # how a small model goes on decides no title
    assert "How do the models continue?" in words(app) and "in common" not in words(app)
    answers = rendered[2:]
    assert [element["tokens"] for element in answers] == [
        ["The", "·river"],
        rendered[0]["tokens"][:3],
        rendered[0]["tokens"][:4],
    ]
    kl = [np.frombuffer(base64.b64decode(element["pruned"]), "<f4").tolist() for element in answers]
    assert kl == [[0, 0], [0.25] * 3, [0.5] * 4]
    assert [element["limit"] for element in answers] == [0, 0.5, 0.5]
    assert [element["legend"]["worse"] for element in answers] == ["", "0.50", "0.50"]
    assert "4 tokens, mean KL 0.50 nats" in text and "2 tokens\n" in text


def test_an_answer_that_ends_at_once_gets_a_sentence(cache, pool):
    pool.answer_length = 0
    app = show("lens", cache, {"lens_live": "1"})
    assert words(app).count("The model ends its answer at once.") == 3 and not app.exception


def test_own_text_and_what_is_too_long_or_empty(cache, pool):
    app = show("lens", cache, {"lens_what": "typed"})
    assert "The text is empty" in words(app)
    app.text_area(key="lens_typed_area").set_value(" \n ").run()
    app.button(key="lens_read").click().run()
    assert not any(isinstance(request, Passage) for request, _ in pool.asked)
    pool.total = 1_234_567
    app.text_area(key="lens_typed_area").set_value("א" * 2_000_000).run()
    passage = next(request for request, _ in reversed(pool.asked) if isinstance(request, Passage))
    assert len(passage.typed) == 2_000_000 and not app.exception
    assert "Display limit reached: the first 8 of 1,234,567 tokens are read" in words(app)
    pool.places = len(PIECES)
    app.run()
    assert "Context length reached: the first 8 of 1,234,567 tokens are read" in words(app)
    assert "The last 3 of 1,234,567 tokens of the prompt are read, because no more fit" in words(app)
    assert "א" not in str(dict(app.query_params))
    # it is there still after another page
    app = on(on(app, "home"), "lens")
    assert len(app.text_area(key="lens_typed_area").value) == 2_000_000


def test_what_goes_wrong_is_one_sentence(pool, name):
    pool.problem = "the model folder '/gone' has changed since the run: put the model back"
    app = open_page("lens", lens_live="1")
    assert [error.value for error in app.error][0].startswith("the model folder") and not app.exception


def test_a_run_of_one_method_shows_one_panel(cache, pool):
    app = show("lens", cache, {"lens_live": "1"}, study=a_study(methods=("dense", "flap")))
    assert len(app.get("bidi_component")) == 3 and len(pool.asked[0][1]) == 2


def test_the_slide_has_the_answers_of_three_models_and_a_pack_says_what_it_lacks(pool, name, monkeypatch):
    app = opened(slide="7")
    ((prompt, models),) = pool.asked
    assert prompt == Prompt("The first thing to know about") and prompt.typed in words(app)
    assert [model.method for model in models] == ["dense", "gprune", "flap"]
    assert "the pruned models continue the same prompt" in words(app) and "mean KL 0.50 nats" in words(app)
    monkeypatch.setattr("gprune.app.ui.run_status.missing_inputs", lambda run: "Needs the model.")
    assert "Needs the model." in plain_words(opened(slide="7")) and len(pool.asked) == 1


def test_differences_scale_and_signs_and_the_payload_of_a_long_passage():
    dense, pruned = np.array([np.nan, 1.0, 2.0, 3.0]), np.array([np.nan, 1.5, 1.0, 3.0])
    result = token_loss.loss_change(dense, pruned)
    assert result.nats == pytest.approx(-0.5 / 3) and result.dense == pytest.approx(np.exp(2))
    assert token_loss.color_scale_limit([pruned - dense]) == pytest.approx(np.quantile([0.5, 1, 0], 0.98))
    assert token_loss.color_scale_limit([np.array([np.nan])]) == 0.1
    table = token_loss.worst_tokens([Token(text) for text in "abcd"], dense, {"one": pruned})
    assert table["position"].tolist() == [1] and table["after"].tolist() == ["cd"]
    assert token_loss.visible("a\r\x00\x7f\ud800\u00ad\u2028") == "a␍␀␡\ufffd‹U+00AD›␍"
    assert token_loss.worst_window(np.array([1.0, 2, 3]), np.array([2.0, 2.5, 4])) == (0, 1.0)
    losses = np.linspace(0, 9, 4096)
    sent = components.losses_data(["·word"] * 4096, losses, losses + 1, 2.0, "GPrune")
    assert len(json.dumps(sent, ensure_ascii=False).encode()) < 100_000
