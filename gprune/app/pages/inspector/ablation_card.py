"""What the dense model loses on every text without one neuron: asked for with a button, then refined."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
import streamlit as st

from gprune.analysis.formatting import signed
from gprune.app import preview
from gprune.app.pages.inspector.response_card import texts
from gprune.app.preview import DENSE, Answer, Question, Source
from gprune.app.ui import asking, buttons, url_state
from gprune.app.ui.card import Card
from gprune.app.ui.text import plain, said, short
from gprune.app.ui.unit import Selection
from gprune.pipeline.runs.opened import Run

ABLATED = "ins_ablated"
"""layer and number of the neuron that is measured, in the address"""


def draw(run: Run, drawn: Card, unit: Selection) -> None:
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
    asking.look(
        run, lambda: asking.coming(asked.values()), lambda refining: _show(run, drawn, asked, names, refining)
    )


def _show(run: Run, drawn: Card, asked: dict[str, str], names: dict[str, str], refining: bool) -> None:
    answers = {letter: preview.pool().latest(identity) for letter, identity in asked.items()}
    known = {letter: one for letter, one in answers.items() if one is not None}
    for problem in dict.fromkeys(one.problem for one in known.values() if one.problem):
        st.error(said(problem), icon=":material/error:")
    for column, (letter, answer) in zip(st.columns(len(known) or 1), known.items(), strict=False):
        with column:
            _measured(f"{letter} {plain(names[letter])}", answer)
    table = _table(known, names)
    if not refining and len(table):
        drawn.title(_title(table))
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


def _measured(text: str, answer: Answer) -> None:
    """The change on one text, as far as it is known."""
    found = answer.difference
    windows = f"{answer.done:,} of {answer.windows:,} windows" if answer.windows else "no window is known yet"
    if found is None:
        st.metric(text, "–", windows, delta_color="off", delta_arrow="off")
        return
    error = f"{found.nats_margin:.5f}" if np.isfinite(found.nats_margin) else "unknown"
    value = f"{signed(found.nats, '.5f')} ± {error}"
    st.metric(f"{text}, nats/token", value, windows, delta_color="off", delta_arrow="off")


def _table(known: Mapping[str, Answer], names: Mapping[str, str]) -> pd.DataFrame:
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


def _title(table: pd.DataFrame) -> str:
    """Where the loss changes most, or that it changes nowhere measurably."""
    told = table[table["measurable"].astype(bool)]
    if not len(told):
        return "Without it the loss changes measurably on no text"
    most = told.loc[told["change of loss (nats/token)"].abs().idxmax()]
    change, error = signed(most["change of loss (nats/token)"], ".5f"), most["± (95 % interval)"]
    text = plain(most["text"])
    return f"Without it the loss changes most on {text}: {change} ± {error:.5f} nats/token"
