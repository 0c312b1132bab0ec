"""Text lens: what does the pruned model get wrong, token by token, and how does it continue?"""

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st

from gprune.analysis import token_loss
from gprune.analysis.formatting import signed
from gprune.analysis.token_loss import Token
from gprune.app import preview
from gprune.app.preview import DENSE, Passage, Prompt, Question, Read, Reading, Source, Written
from gprune.app.preview.token_requests import MOST_CHARACTERS
from gprune.app.ui import asking, buttons, frame, tables, tokens, url_state
from gprune.app.ui.card import Card, card
from gprune.app.ui.chart_style import called
from gprune.app.ui.text import plain, said
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.records import Array
from gprune.system.errors import StoreError

LIVE = "lens_live"
"""whether the model may be asked, in the address"""
EVERY = 0.5
"""seconds between two looks"""
WHAT, TEXT, WINDOW = "lens_what", "lens_text", "lens_window"
WHATS = {"window": "A window of an evaluation text", "typed": "My own text"}
_MOST_WINDOWS = 10**6
LEFT, RIGHT = "lens_left", "lens_right"
TEMPERATURE, HOTTEST = 0.8, 2.0
_SEEDS = 2**31 - 1


@frame.page(
    "Text lens",
    "Which words does a pruned model predict worse than the dense one, and how does it continue?",
)
def show(run: Run) -> None:
    """Draws the page."""
    chosen = _choose(run)
    if chosen is None:
        return
    live = asking.allowed(run, url_state.toggle("Ask the model", LIVE, False))
    if not live:
        st.caption("A worker then loads the model of the run and reads; nothing leaves this machine.")
    _reading(run, chosen, live)
    _writing(run, chosen, live)


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """Two pruned models and what they are called."""

    questions: tuple[Question, ...]
    """the dense model first, then those chosen"""
    labels: tuple[str, ...]
    """of the pruned ones"""


def _choose(run: Run) -> Chosen | None:
    """Draws the fields; None after the reason has been shown where there is no pruned model."""
    names = {name: called(name) for name in run.cut}
    if not names:
        wanted = stages.masks(run.graph).title
        st.info(f"Needs “{wanted}”, which this run does not have.", icon=":material/hourglass_empty:")
        return None
    first = list(names)
    other = "flap" if "flap" in names else first[min(1, len(first) - 1)]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        left = url_state.selectbox("On the left", names, LEFT, first[0], width=280)
        right = url_state.selectbox("On the right", names, RIGHT, other, width=280)
    picked = list(dict.fromkeys((left, right)))
    questions = (Question("", name) for name in picked)
    return Chosen((Question("", DENSE), *questions), tuple(names[name] for name in picked))


def _look(run: Run, identity: str, show: Callable[[Reading], None]) -> None:
    """Shows a reading, and looks again as long as it is not complete."""

    def draw(refining: bool) -> None:
        found = preview.pool().reading(identity)
        if found is not None and found.problem:
            st.error(said(found.problem), icon=":material/error:")
        elif found is not None:
            show(found)
        if refining:
            st.caption(asking.waits(run, "The worker is asked.", warm="The worker reads."))

    asking.look(run, lambda: asking.unread([identity]), draw, EVERY)


def _area(label: str, key: str, default: str = "", **options: Any) -> str:
    """A field of several lines: kept while the session lasts, whichever page is shown, in no address."""
    widget = f"{key}_area"
    if widget not in st.session_state:
        st.session_state[widget] = st.session_state.get(key, default)
    st.session_state[key] = st.text_area(label, key=widget, **options)
    return str(st.session_state[key])


def _reading(run: Run, chosen: Chosen, live: bool) -> None:
    """The card that colours a passage, and lists the tokens that pruned models do worst on."""
    with card("lens_reading", "Where does the pruned model do worse?", run) as drawn:
        wanted = _passage(run, chosen)
        if wanted is None:
            return
        if not live:
            st.caption(
                "Here will be the passage, coloured by what each pruned model predicts worse, and the "
                "largest loss increases: switch on “Ask the model” above."
            )
            return
        source = Source(run.root, run.graph)
        identity = preview.pool().read(source, wanted, chosen.questions, asking.owner("reading"))
        _look(run, identity, functools.partial(_show, drawn, chosen))


def _passage(run: Run, chosen: Chosen) -> Passage | None:
    """What the reader wants to be read; None where nothing was typed."""
    what = url_state.segmented("What is read", WHATS, WHAT, "window", label_visibility="collapsed")
    if what == "typed":
        words = _area("Text", "lens_typed", height=140, placeholder="Type or paste a text, then press Read.")
        buttons.act("Read", "lens_read", "visibility", url_state.put, LIVE, True)
        if not words.strip():
            st.caption("The text is empty: type or paste some words.")
            return None
        if len(words) > MOST_CHARACTERS:
            st.caption(f"Of {len(words):,} characters the first {MOST_CHARACTERS:,} are looked at.")
        return Passage(typed=words)
    texts = run.study.evaluation.texts
    with st.container(horizontal=True, vertical_alignment="bottom"):
        text = url_state.selectbox("Text", list(texts), TEXT, texts[0], width=320)
        known = (_stored(run, one, text) for one in run.study.methods)
        count = next((len(found) for found in known if len(found)), 0)
        last = (count or _MOST_WINDOWS) - 1
        opening, why = _opening(run, chosen, text)
        number = url_state.number_field("Window", WINDOW, opening, 0, last, 1, width=160)
        if count:
            st.caption(f"of {count}, numbered from 0: the windows of the run. {why}")
    return Passage(text, min(number, last))


def _stored(run: Run, method: str, text: str) -> Array:
    """(windows,) losses that the run has stored; none where it has not, or they are damaged."""
    # a damaged result says nothing of its text, and the worker counts the windows by itself
    with contextlib.suppress(StoreError):
        if (found := run.find(stages.perplexity, method, text)) is not None:
            return found.losses
    return np.empty(0)


def _opening(run: Run, chosen: Chosen, text: str) -> tuple[int, str]:
    """The window that is shown where none was chosen, and why it is that one."""
    dense = _stored(run, DENSE, text)
    for question, label in zip(chosen.questions[1:], chosen.labels, strict=True):
        pruned = _stored(run, question.method, text)
        if 0 < len(pruned) == len(dense):
            number, nats = token_loss.worst_window(dense, pruned)
            change = f"{signed(nats, '.2f')} nats/token, by the losses that the run has stored"
            return number, f"Window {number} comes first: {plain(label)} loses most there, {change}."
    return 0, ""


def _show(drawn: Card, chosen: Chosen, reading: Reading) -> None:
    """Draws what is there; pruned models follow one after the other."""
    dense, *pruned = reading.found
    there = {label: found for label, found in zip(chosen.labels, pruned, strict=True) if isinstance(found, Read)}
    if not isinstance(dense, Read) or not there:
        return
    shown = [Token(piece.text, piece.place, piece.of) for piece in dense.pieces]
    losses = {label: found.losses for label, found in there.items()}
    if reading.progress == "complete":
        changes = {label: token_loss.change(dense.losses, own) for label, own in losses.items()}
        drawn.title(plain(token_loss.loss_title(changes)))
    if len(shown) < dense.total:
        why = "Context length reached" if len(shown) == dense.places else "The page shows no more"
        st.caption(f"{why}: the first {len(shown):,} of {dense.total:,} tokens are read.")
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
    st.caption("Largest loss increases, each token in its context")
    if table.empty:
        st.caption("No token is predicted worse than by the dense model.")
        return
    decimals = st.column_config.NumberColumn(format="%.2g", width=80)
    columns = {"p dense": decimals, "p pruned": decimals}
    columns["worse by (nats)"] = st.column_config.NumberColumn(format="%.2f", width=110)
    tables.show(table, column_config=columns, height=320, alt="largest loss increases, with their context")
    drawn.tools(
        lambda: token_loss.worst(shown, dense, losses, int(np.isfinite(dense).sum())),
        switch=False,
        caption="Orange: the pruned model predicts the token worse; purple: better. Hold the pointer over a "
        "token for its probabilities. The CSV has every token that gets worse.",
        how="A loss is the negative log-probability of a token after those before it, measured as the run "
        "measures perplexity: the same model, number type, silent units and biases. Dots are spaces, ↵ ends "
        "a line; a character that is split over several tokens stands with the first of them.",
    )


def _writing(run: Run, chosen: Chosen, live: bool) -> None:
    """The card that has the dense model and pruned ones go on from one prompt."""
    with card("lens_writing", "How do they continue?", run):
        prompt = _area("Prompt", "lens_prompt", "The first thing to know about", height=80)
        with st.container(horizontal=True, vertical_alignment="bottom"):
            heat = url_state.number_field(
                "Temperature", "lens_temperature", TEMPERATURE, 0.0, HOTTEST, 0.1, width=160,
                help="What logits are divided by before a token is drawn; 0 takes the likeliest."
            )  # fmt: skip
            seed = url_state.number_field("Seed", "lens_seed", 0, 0, _SEEDS, 1, width=160)
            buttons.act("Go on", "lens_write", "edit", url_state.put, LIVE, True)
        if not prompt.strip():
            st.caption("The prompt is empty: type some words.")
            return
        if not live:
            st.caption(
                "Here will be how the dense model and the pruned ones go on, side by side: switch on "
                "“Ask the model” above."
            )
            return
        source = Source(run.root, run.graph)
        what = Prompt(prompt, temperature=heat, seed=seed)
        asked = preview.pool().read(source, what, chosen.questions, asking.owner("writing"))
        _look(run, asked, functools.partial(_written, chosen, what))


def _written(chosen: Chosen, what: Prompt, reading: Reading) -> None:
    dense = reading.found[0]
    if isinstance(dense, Written) and dense.read < dense.total:
        st.caption(f"The last {dense.read:,} of {dense.total:,} tokens of the prompt are read.")
    labels = ("The dense model", *chosen.labels)
    columns = st.columns(len(labels))
    for column, label, found in zip(columns, labels, reading.found, strict=True):
        with column:
            st.markdown(f"**{plain(label)}**")
            if isinstance(found, Written):
                st.code(token_loss.readable(found.text) or "(nothing)", language=None, wrap_lines=True)
                st.caption(f"{len(found.ids)} tokens" + ("" if found.ended else " …"))
    drawn = "Always the likeliest token: the same question gives the same answer."
    if what.temperature:
        drawn = (
            f"Sampled at temperature {what.temperature:g} with seed {what.seed}, all models with the same "
            "random numbers: they part where their predictions do. Another seed gives other words, and one "
            "continuation says little of a model."
        )
    st.caption(f"{drawn} At most {what.most} tokens.")
