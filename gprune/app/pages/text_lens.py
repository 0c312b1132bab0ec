"""The Text lens tab: tokens that a pruned model predicts worse than the dense one, and continuations."""

import contextlib
import functools
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st

from gprune.analysis import token_loss
from gprune.analysis.formatting import format_signed
from gprune.analysis.token_loss import Token
from gprune.app import preview
from gprune.app.ui import address, asking, components, frame, slides, tables
from gprune.app.ui import card as cards
from gprune.app.ui.chart_style import control_label
from gprune.app.ui.text import escape, escape_error
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.records import Array
from gprune.system.errors import StoreError

_LIVE = "lens_live"
"""address key: whether the worker may run the models"""
_POLL_SECONDS = 0.5
"""seconds between two reads of an answer"""
_SOURCES = {"window": "A window of an evaluation text", "typed": "My own text"}
_MOST_WINDOWS = 10**6
"""maximum number of a window while the number of windows of the text is unknown"""
_MOST_SEED = 2**31 - 1
_QUOTED_CHARACTERS = 200
"""maximum length of the prompt on the slide; the models read all of it"""
_MOST_TOKENS = 256
"""maximum number of tokens of a continuation"""
_PROMPT, _PROMPT_KEY = "The first thing to know about", "lens_prompt"
"""default prompt, and session key of the reader's"""


@dataclass(frozen=True, slots=True, eq=False)
class _Models:
    """The dense model and the pruned models to compare with it."""

    questions: tuple[preview.Question, ...]
    """the dense model first"""
    labels: tuple[str, ...]
    """labels of the pruned models"""


@frame.declare_page(
    "Text lens", "Which words does a pruned model predict worse than the dense one, and how does it continue?"
)
def show(run: Run) -> None:
    """Draw the page."""
    models = _choose_models(run)
    if models is None:
        return
    live = asking.can_ask(run, address.toggle("Ask the model", _LIVE, asking.is_live_by_default(run)))
    if not live:
        st.caption("The model runs locally; nothing leaves this machine.")
    with cards.card("lens_reading", "Where does the pruned model do worse?", run) as card:
        _show_reading(run, card, models, live)
    with cards.card("lens_writing", "How do the models continue?", run):
        _show_writing(run, models, live)


def _choose_models(run: Run) -> _Models | None:
    labels = {name: control_label(name) for name in run.methods_with_masks}
    if not labels:
        with cards.card("lens_reading", "Where does the pruned model do worse?", run):
            # raises MissingResultError, which the card shows
            run.require(labels, stages.masks)
        return None
    first, second = _default_methods(labels)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        left = address.selectbox("Left model", labels, "lens_left", first, width=280)
        right = address.selectbox("Right model", labels, "lens_right", second, width=280)
    return _make_models(left, right)


def _default_methods(names: Iterable[str]) -> tuple[str, str]:
    methods = list(names)
    return methods[0], "flap" if "flap" in methods else methods[min(1, len(methods) - 1)]


def _make_models(*methods: str) -> _Models:
    names = list(dict.fromkeys(methods))
    questions = (preview.Question("", preview.DENSE), *(preview.Question("", name) for name in names))
    return _Models(questions, tuple(map(control_label, names)))


def _show_answer(
    run: Run,
    request: preview.Passage | preview.Prompt,
    models: _Models,
    key: str,
    draw: Callable[[preview.Reading], None],
) -> None:
    """Send a request to the models, and redraw their answer until it is complete."""
    source = preview.Source(run.root, run.graph)
    identity = preview.pool().read(source, request, models.questions, asking.owner(key))

    def draw_answer(refining: bool) -> None:
        reading = preview.pool().reading(identity)
        if reading is not None and reading.problem:
            st.error(escape_error(reading.problem), icon=":material/error:")
        elif reading is not None:
            draw(reading)
        if refining:
            st.caption(asking.describe_wait(run, "Waiting for the worker.", warm="The worker is reading."))

    asking.draw_until_complete(lambda: asking.is_reading([identity]), draw_answer, _POLL_SECONDS)


def _text_area(label: str, key: str, default: str = "", **options: Any) -> str:
    """Draw a text field of several lines; its text is kept for the session and is not written into the address."""
    widget = f"{key}_area"
    if widget not in st.session_state:
        st.session_state[widget] = st.session_state.get(key, default)
    st.session_state[key] = st.text_area(label, key=widget, **options)
    return str(st.session_state[key])


def _show_reading(run: Run, card: cards.Card, models: _Models, live: bool) -> None:
    source = address.segmented_control("Source", _SOURCES, "lens_what", "window", label_visibility="collapsed")
    passage = _type_passage() if source == "typed" else _choose_window(run, models)
    if passage is None:
        return
    if not live:
        st.caption(
            "Switch on “Ask the model” above to see the passage coloured by loss increase, and the largest loss "
            "increases."
        )
        return
    _show_answer(run, passage, models, "reading", functools.partial(_draw_reading, card, models))


def _type_passage() -> preview.Passage | None:
    text = _text_area("Text", "lens_typed", height=140, placeholder="Type or paste a text, then press Read.")
    components.action_button("Read", "lens_read", "visibility", address.set_value, _LIVE, True)
    if not text.strip():
        st.caption("The text is empty: type or paste some words.")
        return None
    if len(text) > preview.MOST_CHARACTERS:
        st.caption(f"Only the first {preview.MOST_CHARACTERS:,} of {len(text):,} characters are read.")
    return preview.Passage(typed=text)


def _choose_window(run: Run, models: _Models) -> preview.Passage:
    texts = run.study.evaluation.texts
    with st.container(horizontal=True, vertical_alignment="bottom"):
        text = address.selectbox("Text", list(texts), "lens_text", texts[0], width=320)
        losses = (_stored_losses(run, method, text) for method in run.study.methods)
        count = next((len(values) for values in losses if len(values)), 0)
        last = (count or _MOST_WINDOWS) - 1
        default, reason = _worst_window(run, models, text)
        number = address.number_field("Window", "lens_window", default, 0, last, 1, width=160)
        if count:
            st.caption(f"Windows 0 to {last} of the run. {reason}")
    return preview.Passage(text, min(number, last))


def _stored_losses(run: Run, method: str, text: str) -> Array:
    """Return the (windows,) stored losses of a method on a text; empty if they are missing or damaged."""
    # damaged losses are ignored, because the worker counts the windows itself
    with contextlib.suppress(StoreError):
        if (perplexity := run.find(stages.perplexity, method, text)) is not None:
            return perplexity.losses
    return np.empty(0)


def _worst_window(run: Run, models: _Models, text: str) -> tuple[int, str]:
    """Return the window in which the loss of the first measured pruned model rises most, and a sentence that says so.

    Without stored losses, returns window 0 and an empty sentence.
    """
    dense = _stored_losses(run, preview.DENSE, text)
    for question, label in zip(models.questions[1:], models.labels, strict=True):
        pruned = _stored_losses(run, question.method, text)
        if 0 < len(pruned) == len(dense):
            number, nats = token_loss.worst_window(dense, pruned)
            change = f"{format_signed(nats, '.2f')} nats/token, from the run's stored losses"
            return number, f"Window {number} is the default: the loss of {escape(label)} rises most there, {change}."
    return 0, ""


def _draw_reading(card: cards.Card, models: _Models, reading: preview.Reading) -> None:
    """Draw the token losses that have arrived, one column per pruned model."""
    dense, *pruned = reading.answers
    losses = {
        label: answer.losses
        for label, answer in zip(models.labels, pruned, strict=True)
        if isinstance(answer, preview.TokenLosses)
    }
    if not isinstance(dense, preview.TokenLosses) or not losses:
        return
    pieces = [Token(piece.text, piece.number, piece.count) for piece in dense.pieces]
    if reading.progress == "complete":
        changes = {label: token_loss.loss_change(dense.losses, values) for label, values in losses.items()}
        card.set_title(escape(token_loss.loss_title(changes)))
    if len(pieces) < dense.total:
        reason = "Context length reached" if len(pieces) == dense.context_length else "Display limit reached"
        st.caption(f"{reason}: the first {len(pieces):,} of {dense.total:,} tokens are read.")
    limit = token_loss.color_scale_limit([values - dense.losses for values in losses.values()])
    words = [token_loss.mark_spaces(piece) for piece in pieces]
    for index, (column, label) in enumerate(zip(st.columns(len(models.labels)), models.labels, strict=True)):
        with column:
            if label in losses:
                components.draw_losses(words, dense.losses, losses[label], limit, label, key=f"lens_tokens_{index}")
            else:
                st.caption(f"Waiting for {escape(label)}.")
    _show_worst_tokens(card, pieces, dense.losses, losses)


def _show_worst_tokens(card: cards.Card, pieces: list[Token], dense: Array, losses: dict[str, Array]) -> None:
    table = token_loss.worst_tokens(pieces, dense, losses)
    st.caption("Largest loss increases, each token in its context")
    if table.empty:
        st.caption("No token is predicted worse than by the dense model.")
        return
    probability = st.column_config.NumberColumn(format="%.2g", width=80)
    nats = st.column_config.NumberColumn(format="%.2f", width=110)
    columns = {"p dense": probability, "p pruned": probability, "worse by (nats)": nats}
    tables.show(table, column_config=columns, height=320, alt="largest loss increases, with their context")
    card.tools(
        lambda: token_loss.worst_tokens(pieces, dense, losses, int(np.isfinite(dense).sum())),
        switch=False,
        caption="Orange: the pruned model predicts the token worse; purple: better. Hover over a token for its "
        "probabilities. The CSV has every token that gets worse.",
        how="A loss is the negative log-probability of a token given the tokens before it. It is measured like the "
        "run's perplexity, with the same model, number type, removed units and biases. Dots are spaces and ↵ is "
        "a line end. A character split over several tokens appears with the first of them.",
    )


def _show_writing(run: Run, models: _Models, live: bool) -> None:
    text = _text_area("Prompt", _PROMPT_KEY, _PROMPT, height=80)
    is_chat = address.toggle(
        "Chat message", "lens_chat", help="Send the prompt as one user message in the tokenizer’s chat template."
    )
    with st.container(horizontal=True, vertical_alignment="bottom"):
        temperature = address.number_field(
            "Temperature", "lens_temperature", 0.8, 0.0, 2.0, 0.1, width=160,
            help="Divisor of the logits before a token is sampled; 0 selects the most likely token."
        )  # fmt: skip
        seed = address.number_field("Seed", "lens_seed", 0, 0, _MOST_SEED, 1, width=160)
        length = address.number_field("Tokens", "lens_tokens", preview.MOST_WRITTEN, 1, _MOST_TOKENS, 1, width=160)
        components.action_button("Continue", "lens_write", "edit", address.set_value, _LIVE, True)
    if not text.strip():
        st.caption("The prompt is empty: type some words.")
        return
    if not live:
        st.caption("Switch on “Ask the model” above to compare the continuations of the dense and the pruned models.")
        return
    prompt = preview.Prompt(text, length, temperature, seed, is_chat)
    _show_answer(run, prompt, models, "writing", functools.partial(_draw_continuations, models, prompt))


def _draw_continuations(models: _Models, prompt: preview.Prompt, reading: preview.Reading) -> None:
    dense = reading.answers[0]
    if isinstance(dense, preview.Continuation) and dense.read < dense.total:
        st.caption(
            f"The last {dense.read:,} of {dense.total:,} tokens of the prompt are read, because no more fit into the "
            "context. Shorten the prompt, or generate fewer tokens."
        )
    labels = ("Dense model", *models.labels)
    continuations = [answer for answer in reading.answers if isinstance(answer, preview.Continuation)]
    limit = token_loss.color_scale_limit([np.empty(0), *(answer.divergences for answer in continuations[1:])])
    for column, label, answer in zip(st.columns(len(labels)), labels, reading.answers, strict=True):
        with column:
            if isinstance(answer, preview.Continuation):
                _draw_continuation(answer, label, limit if answer is not dense else 0.0)
            else:
                st.caption(f"**{escape(label)}**: waiting")
    st.caption(
        "Orange: the pruned model's next-token distribution differs from the dense model's after the same tokens, in "
        "nats of KL(pruned ‖ dense). Hover over a token for its value."
    )
    sampling = "Always the most likely token, so the same prompt gives the same continuation."
    if prompt.temperature:
        sampling = (
            f"Sampled at temperature {prompt.temperature:g} with seed {prompt.seed}. All models use the same random "
            "numbers, so they diverge where their predictions differ. Another seed gives other words, and one "
            "continuation says little about a model."
        )
    st.caption(f"{sampling} At most {prompt.most} tokens.")


def _draw_continuation(answer: preview.Continuation, label: str, limit: float) -> None:
    """Draw one continuation; the colour scale ends at `limit` nats, and the dense model has the limit 0."""
    if answer.complete and not answer.ids:
        st.markdown(f"**{escape(label)}**")
        st.caption("The model ends its answer at once.")
        return
    tokens = [token_loss.mark_spaces(Token(piece.text, piece.number, piece.count)) for piece in answer.pieces]
    components.draw_divergences(tokens, answer.divergences, limit, label, key=f"lens_answer_{label}")
    mean = f", mean KL {answer.divergences.mean():.2f} nats" if limit and tokens else ""
    st.caption(f"{len(answer.ids)} tokens{mean}" + ("" if answer.complete else " …"))


def draw_continuation_slide(run: Run, _: object) -> None:
    """Draw the slide: the continuations of the reader's prompt, always with the most likely token.

    Raises MissingResultError if no masks exist.
    """
    names = run.require(run.methods_with_masks, stages.masks)
    prompt = preview.Prompt(st.session_state.get(_PROMPT_KEY, "").strip() or _PROMPT)
    with st.container(key=slides.FRAME):
        st.markdown(f"“{escape(textwrap.shorten(prompt.typed, _QUOTED_CHARACTERS, placeholder=' …'))}”")
        if asking.can_ask(run, is_requested=True):
            models = _make_models(*_default_methods(names))
            _show_answer(run, prompt, models, "slide", functools.partial(_draw_continuations, models, prompt))
