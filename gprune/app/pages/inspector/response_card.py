"""One neuron's activations on every text, the tokens that it promotes, and what is lost without it.

The worker computes all of it: what is lost without the neuron where a button asks for it.
"""

import functools
from collections.abc import Mapping

import numpy as np
import pandas as pd
import streamlit as st

from gprune.analysis import calibration as analysis
from gprune.analysis import token_loss
from gprune.analysis.calibration_report.measuring import texts_of
from gprune.analysis.formatting import signed
from gprune.app import preview
from gprune.app.pages.inspector import charts, every_token, panels
from gprune.app.preview import DENSE, Answer, Counted, Direction, Promoted, Question, Source, Spread
from gprune.app.preview.token_answers import Found
from gprune.app.ui import asking, buttons, tables, url_state
from gprune.app.ui.card import Card
from gprune.app.ui.panel import Panel
from gprune.app.ui.text import plain, said, short
from gprune.app.ui.unit import Selection
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run

ABLATED = "ins_ablated"
"""layer and number of the neuron that is silenced, in the address"""
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
    found = {analysis.ROLES[role]: role for role in texts_of(run.study) if run.has(stages.tokens, role)}
    return run.require(found, stages.tokens)


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


def draw_ablation(run: Run, drawn: Card, unit: Selection) -> None:
    """Draws the card; MissingResultError where no text was drawn yet."""
    roles, wanted = texts(run), f"{unit.layer}-{unit.neuron}"
    measured = url_state.text(ABLATED) == wanted
    if not measured:
        with st.container(horizontal=True, vertical_alignment="center"):
            buttons.act("Ablate now", f"{drawn.key}_now", "content_cut", url_state.put, ABLATED, wanted)
            st.caption(
                f"A worker sets this one neuron to 0 and measures the change of loss on {', '.join(roles)}.",
                width="stretch",
            )
    if not asking.allowed(run, measured):
        return
    source, neuron = Source(run.root, run.graph), (unit.layer or 0, unit.neuron or 0)
    asked = {
        letter: preview.pool().ask(
            source,
            Question("", DENSE, role=role, neuron=neuron),
            asking.owner(f"{drawn.key} {letter}"),
        )
        for letter, role in roles.items()
    }
    names = {letter: short(getattr(run.study, role)) for letter, role in roles.items()}
    asking.look(run, lambda: asking.coming(asked.values()), lambda refining: _lost(run, drawn, asked, names, refining))


def _lost(run: Run, drawn: Card, asked: dict[str, str], names: dict[str, str], refining: bool) -> None:
    answers = {letter: preview.pool().latest(identity) for letter, identity in asked.items()}
    known = {letter: one for letter, one in answers.items() if one is not None}
    for problem in dict.fromkeys(one.problem for one in known.values() if one.problem):
        st.error(said(problem), icon=":material/error:")
    for column, (letter, answer) in zip(st.columns(len(known) or 1), known.items(), strict=False):
        with column:
            _change(f"{letter} {plain(names[letter])}", answer)
    table = _change_table(known, names)
    if not refining and len(table):
        drawn.title(_change_title(table))
    drawn.tools(
        lambda: table,
        switch=False,
        caption="Change of the dense model's loss while this neuron's input of down_proj is 0, paired over "
        "windows: the sequences that the run has drawn for calibration. ± is the 95 % interval over them. "
        "Nothing else is changed or refitted.",
        how="Above 0 the model predicts worse without the neuron, below 0 better. A change "
        "whose 95 % interval holds 0 cannot be told from 0 on these windows.",
    )
    if refining:
        asking.standing(run, "The worker is asked.")


def _change(text: str, answer: Answer) -> None:
    """The change on one text, as far as it is known."""
    found = answer.difference
    windows = f"{answer.done:,} of {answer.windows:,} windows" if answer.windows else "no window is known yet"
    if found is None:
        st.metric(text, "–", windows, delta_color="off", delta_arrow="off")
        return
    error = f"{found.nats_margin:.5f}" if np.isfinite(found.nats_margin) else "unknown"
    value = f"{signed(found.nats, '.5f')} ± {error}"
    st.metric(f"{text}, nats/token", value, windows, delta_color="off", delta_arrow="off")


def _change_table(known: Mapping[str, Answer], names: Mapping[str, str]) -> pd.DataFrame:
    """One row a text of which something is known."""
    rows = [
        {
            "text": f"{letter} {names[letter]}",
            "change of loss (nats/token)": found.nats,
            "standard error": found.nats_error,
            "± (95 % interval)": found.nats_margin,
            "windows": answer.done,
            "of": answer.windows,
            "measurable": not found.close,
        }
        for letter, answer in known.items()
        if (found := answer.difference) is not None
    ]
    return pd.DataFrame(rows)


def _change_title(table: pd.DataFrame) -> str:
    """Where the loss changes most, or that it changes nowhere measurably."""
    told = table[table["measurable"].astype(bool)]
    if not len(told):
        return "Without it the loss changes measurably on no text"
    most = told.loc[told["change of loss (nats/token)"].abs().idxmax()]
    change, error = signed(most["change of loss (nats/token)"], ".5f"), most["± (95 % interval)"]
    text = plain(most["text"])
    return f"Without it the loss changes most on {text}: {change} ± {error:.5f} nats/token"
