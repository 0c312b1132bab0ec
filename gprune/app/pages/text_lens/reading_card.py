"""The card that colours a passage, and lists the tokens that pruned models do worst on."""

import contextlib
import functools

import numpy as np
import streamlit as st

from gprune.analysis import token_loss
from gprune.analysis.token_loss import Token
from gprune.app import preview
from gprune.app.pages.text_lens import polling, text_field, tokens
from gprune.app.pages.text_lens.models import Chosen
from gprune.app.preview import Passage, Read, Reading, Source
from gprune.app.preview.token_requests import MOST_CHARACTERS
from gprune.app.ui import tables, url_state
from gprune.app.ui.card import Card, card
from gprune.app.ui.text import plain
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.records import Array
from gprune.system.errors import StoreError

WHAT, TEXT, WINDOW = "lens_what", "lens_text", "lens_window"
WHATS = {"window": "A window of an evaluation text", "typed": "My own text"}
_MOST_WINDOWS = 10**6
_TYPED = "lens_typed"


def show(run: Run, chosen: Chosen, live: bool) -> None:
    """Draws the card."""
    with card("lens_reading", "Where does the pruned model do worse?", run) as drawn:
        passage = _passage(run)
        if passage is None:
            return
        if not live:
            st.caption(
                "Here will be the passage, coloured by what each pruned model predicts worse, and the tokens "
                "that get worst: switch on “Ask the model” above."
            )
            return
        source = Source(run.root, run.graph)
        identity = preview.pool().read(source, passage, chosen.questions, polling.owner("reading"))
        polling.look(run, identity, functools.partial(_show, drawn, chosen))


def _passage(run: Run) -> Passage | None:
    """What the reader wants to be read; None where nothing was typed."""
    what = url_state.segmented("What is read", WHATS, WHAT, "window", label_visibility="collapsed")
    if what == "typed":
        words = text_field.area(
            "Text", _TYPED, height=140, placeholder="Type or paste a text, then press Read."
        )
        st.button("Read", key="lens_read", icon=":material/visibility:", on_click=url_state.put,
                  args=(polling.LIVE, True))  # fmt: skip
        if not words.strip():
            st.caption("The text is empty: type or paste some words.")
            return None
        if len(words) > MOST_CHARACTERS:
            st.caption(f"Of {len(words):,} characters the first {MOST_CHARACTERS:,} are looked at.")
        return Passage(typed=words)
    texts = run.study.evaluation.texts
    with st.container(horizontal=True, vertical_alignment="bottom"):
        text = url_state.selectbox("Text", list(texts), TEXT, texts[0], width=320)
        count = _windows(run, text)
        last = (count or _MOST_WINDOWS) - 1
        number = url_state.number_field("Window", WINDOW, 0, 0, last, 1, width=160)
        if count:
            st.caption(f"of {count}, numbered from 0: the windows of the run")
    return Passage(text, min(number, last))


def _windows(run: Run, text: str) -> int:
    """Windows of a text, as far as the run knows; 0 where it does not."""
    for method in run.study.methods:
        # a damaged result says nothing of its text, and the worker counts the windows by itself
        with contextlib.suppress(StoreError):
            if run.has(stages.perplexity, method, text):
                return len(run.load(stages.perplexity, method, text).losses)
    return 0


def _show(drawn: Card, chosen: Chosen, reading: Reading) -> None:
    """Draws what is there; pruned models follow one after the other."""
    dense, *pruned = reading.found
    there = {
        label: found for label, found in zip(chosen.labels, pruned, strict=True) if isinstance(found, Read)
    }
    if not isinstance(dense, Read) or not there:
        return
    shown = [Token(piece.text, piece.place, piece.of) for piece in dense.pieces]
    losses = {label: found.losses for label, found in there.items()}
    if reading.progress == "complete":
        changes = {label: token_loss.change(dense.losses, own) for label, own in losses.items()}
        drawn.title(plain(token_loss.headline(changes)))
    if len(shown) < dense.total:
        why = "the model has places for" if len(shown) == dense.places else "the page shows"
        st.caption(f"The first {len(shown):,} of {dense.total:,} tokens are read: {why} no more.")
    _passages(chosen, shown, dense.losses, losses)
    _listed(drawn, shown, dense.losses, losses)


def _passages(chosen: Chosen, shown: list[Token], dense: Array, losses: dict[str, Array]) -> None:
    limit = token_loss.scale([own - dense for own in losses.values()])
    words = [token_loss.marked(token) for token in shown]
    for place, (column, label) in enumerate(zip(st.columns(len(chosen.labels)), chosen.labels, strict=True)):
        with column:
            if label in losses:
                tokens.draw(words, dense, losses[label], limit, label, key=f"lens_tokens_{place}")
            else:
                st.caption(f"{plain(label)} is being asked.")


def _listed(drawn: Card, shown: list[Token], dense: Array, losses: dict[str, Array]) -> None:
    table = token_loss.worst(shown, dense, losses)
    st.caption("The tokens that get worst, in their context")
    if table.empty:
        st.caption("No token is predicted worse than by the dense model.")
        return
    decimals = st.column_config.NumberColumn(format="%.2g", width=80)
    columns = {"p dense": decimals, "p pruned": decimals}
    columns["worse by (nats)"] = st.column_config.NumberColumn(format="%.2f", width=110)
    tables.show(table, column_config=columns, height=320, alt="the tokens that get worst, with their context")
    drawn.tools(
        lambda: token_loss.worst(shown, dense, losses, int(np.isfinite(dense).sum())),
        switch=False,
        caption="Orange: the pruned model predicts the token worse; purple: better. Hold the pointer over a "
        "token for its probabilities. The CSV has every token that gets worse.",
        how="A loss is the negative log-probability of a token after those before it, measured as the run "
        "measures perplexity: the same model, number type, silent units and biases. Dots are spaces, ↵ ends "
        "a line; a character that is split over several tokens stands with the first of them.",
    )
