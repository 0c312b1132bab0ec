"""One neuron's activations on every text, and the tokens that it promotes: the worker computes both."""

import functools

import pandas as pd
import streamlit as st

from gprune.analysis import calibration as analysis
from gprune.analysis import token_loss
from gprune.analysis.formatting import signed
from gprune.app.pages.inspector import charts, every_token, panels
from gprune.app.preview import Counted, Direction, Promoted, Spread
from gprune.app.preview.token_answers import Found
from gprune.app.ui import tables
from gprune.app.ui.card import Card
from gprune.app.ui.panel import Panel
from gprune.app.ui.text import plain
from gprune.app.ui.unit import Selection
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import MissingResultError, Run
from gprune.pipeline.stages.inputs import roles as roles_of

_OFF = "switch on “Ask the model” above."
_DIRECT = (
    "Logits that an activation of 1 adds on the direct path: the unembedding head times the scale of the "
    "final norm times the neuron's column of down_proj. An approximation: later layers are left out, and so "
    "is what the final norm divides by, which depends on the data. A negative activation swaps the sides."
)
_HOW_PROMOTED = (
    "Tokens on the left become likelier as next token when the neuron is active, those on the right less "
    "likely. Tokens of one kind name what the neuron is for; a mixed list means that later layers decide."
)


def texts(run: Run) -> dict[str, str]:
    """Roles of the calibration texts whose sequences are here, by letter; MissingResultError without any."""
    letters = {analysis.ROLES[role]: role for role in roles_of(run.study) if role in analysis.ROLES}
    found = {letter: role for letter, role in letters.items() if run.has(stages.tokens, role)}
    if not found:
        raise MissingResultError(stages.tokens(run.graph).title)
    return found


def draw_spread(run: Run, drawn: Card, unit: Selection, live: bool) -> None:
    """Draws the histogram of a neuron's activations; MissingResultError where no text was drawn yet."""
    asked = {letter: Spread(role, unit.layer or 0, unit.neuron or 0) for letter, role in texts(run).items()}
    if not live:
        st.caption(f"Here will be the histogram of its activations on {', '.join(asked)}: {_OFF}")
        return
    every_token.ask(run, asked, drawn.key, functools.partial(_counted, run, drawn, len(asked)))


def _counted(run: Run, drawn: Card, texts: int, answers: dict[str, Found], refining: bool) -> None:
    found = {letter: one for letter, one in answers.items() if isinstance(one, Counted)}
    read = {letter: f"{one.sequences:,} of {one.total:,}" for letter, one in found.items()}
    told = f"Sequences read: {', '.join(f'{letter} {words}' for letter, words in read.items())}"
    if refining or len(found) < texts:
        st.caption(told if read else "No sequence is read yet.")
        return
    drawn.show(_panel(run, found, told))


def _panel(run: Run, found: dict[str, Counted], told: str) -> Panel:
    """The histograms of all texts, once they are complete."""
    shown = {letter: one.histogram for letter, one in found.items()}
    table = charts.binned(shown)
    means = ", ".join(f"{100 * one.above(0.0):.0f} % on {letter}" for letter, one in shown.items())
    return Panel(
        charts.activations(table, panels.drawn_names(run)),
        f"{told}; every token counts once. The share is on a logarithmic axis.",
        title=f"Its activation is 0 or more at {means} of the tokens",
        alt="histogram of the activations on each text",
        table=lambda: table,
        how="The activation is the neuron's input of down_proj in the dense model, as everywhere on this "
        "page. Bins are equally wide on all texts, 0 is an edge, and a bin without a token has no mark.",
    )


def draw_promoted(run: Run, drawn: Card, unit: Selection, live: bool) -> None:
    """Draws the tokens to whose logits a neuron adds most, and least."""
    if not live:
        st.caption(f"Here will be the tokens that it promotes and suppresses: {_OFF}")
        return
    asked = {"direction": Direction(unit.layer or 0, unit.neuron or 0)}
    every_token.ask(run, asked, drawn.key, functools.partial(_named, drawn))


def _named(drawn: Card, answers: dict[str, Found], refining: bool) -> None:
    found = answers.get("direction")
    if not isinstance(found, Promoted):
        return
    sides = {"promotes": found.promoted, "suppresses": found.suppressed}
    first = [f"{word} “{token_loss.visible(side[0][0])}”" for word, side in sides.items() if side]
    drawn.title(plain("It " + " and ".join(first)))
    for column, (word, side) in zip(st.columns(2), sides.items(), strict=True):
        with column:
            tables.show(_tokens(side, word), alt=f"the tokens that it {word} most", height="content")
    drawn.tools(lambda: _both(found), switch=False, caption=_DIRECT, how=_HOW_PROMOTED)


def _tokens(side: tuple[tuple[str, float], ...], word: str) -> pd.DataFrame:
    return pd.DataFrame(
        {
            word: [token_loss.visible(text) for text, _ in side],
            "logit": [signed(value, ".3f") for _, value in side],
        }
    )


def _both(found: Promoted) -> pd.DataFrame:
    rows = [*found.promoted, *reversed(found.suppressed)]
    return pd.DataFrame({"token": [text for text, _ in rows], "logit": [value for _, value in rows]})
