"""Calibration data: what is calibrated on, how far apart are the texts, and how many sequences are enough?"""

from typing import Any

import pandas as pd
import streamlit as st

from gprune.analysis import calibration as analysis
from gprune.app.pages.calibration_data import one_text, own_drift, own_text, panels
from gprune.app.pages.calibration_data.panels import MEASURES, RANKS, names_of, tokens_of
from gprune.app.ui import frame, tables, url_state
from gprune.app.ui.card import Card, card, card_of
from gprune.app.ui.text import plain, short
from gprune.models import vocabulary
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import MissingResultError, Run, record


def show() -> None:
    """Draws the page."""
    frame.page_title("Calibration data", "What am I calibrating on, and how stable is it?")
    run = frame.require_run()
    if run is None:
        return
    view = one_text.chosen(run)
    if view == one_text.ALL:
        _all(run)
    else:
        one_text.draw(run, view)


def _all(run: Run) -> None:
    """All texts of the run beside each other."""
    with card("cd_texts", "The calibration texts", run) as drawn:
        _texts(run, drawn)
    left, right = st.columns([2, 3])
    with left, card_of(panels.texts, run) as drawn:
        _pairs(run, drawn)
    with right:
        # takes seconds at the size of a real model the first time: the rest of the page does not wait for it
        curves = st.container(height="stretch")
    brought = None
    with card("cd_own", "Bring your own text", run):
        brought = own_text.draw(run, tokens_of(run))
    if brought is not None:
        own_drift.show(run, brought)
    with curves, card_of(panels.sequences, run) as drawn:
        with st.spinner("Scoring parts of the texts …"):
            shown = panels.sequences(run)
        drawn.show(shown)


def _texts(run: Run, drawn: Card) -> None:
    texts = tokens_of(run)
    if not texts:
        raise MissingResultError(stages.tokens(run.graph).title)
    keys = tuple(
        (letter, run.key(stages.tokens, role)) for role, letter in analysis.ROLES.items() if letter in texts
    )
    table = _text_table(run.root, keys, _entries(run.study.model))
    # the result may be another run's, which calls the same text by another name
    table["name"] = [names_of(run)[letter] for letter in table["text"]]
    counts = {f"{tokens.ids.shape[0]:,} sequences of {tokens.ids.shape[1]:,}" for tokens in texts.values()}
    drawn.title(f"{len(texts)} texts, {' / '.join(sorted(counts))} tokens each")
    tables.show(
        _shown(table),
        column_config=_columns(table),
        placeholder="–",
        alt="the calibration texts",
    )
    drawn.tools(
        lambda: table,
        switch=False,
        caption="One row a text: what was drawn of it, and how much of it the other texts share.",
        how="The sequences drawn and available, how much of the vocabulary they use, the share of all "
        f"tokens that falls on the {analysis.MOST_FREQUENT} most frequent ones, and how many of the text's "
        f"distinct tokens the others use as well. {_described(run)}",
    )
    if not run.study.substitute:
        st.caption("No third text C was chosen: its field `substitute` is empty.")


def _shown(table: pd.DataFrame) -> pd.DataFrame:
    """The columns that have room beside each other; the length of a sequence stands in the title."""
    drawn = [
        f"{used:,} of {there:,}" for used, there in zip(table["sequences"], table["available"], strict=True)
    ]
    names = [short(name) for name in table["name"]]
    return table.assign(name=names, sequences=drawn).drop(columns=["available", "tokens each"])


def _columns(table: pd.DataFrame) -> dict[str, Any]:
    """Headings short enough for all columns to stand side by side, with the long ones as help."""
    headings = {
        "distinct tokens": "distinct",
        "% of vocabulary": "% vocab.",
        f"% in {analysis.MOST_FREQUENT} most frequent": f"% top {analysis.MOST_FREQUENT}",
    }
    text, number = st.column_config.TextColumn, st.column_config.NumberColumn
    columns: dict[str, Any] = {
        "text": text(width=36),
        "name": text(width=114),
        "content": text(help="first digits of the SHA-256 of the exact tokens", width=74),
        "sequences": text(help="drawn, of the disjoint ones that the text would give", width=98),
    }
    for name in table.columns[table.columns.get_loc("tokens") :]:
        heading = headings.get(name, name.replace("% of distinct also in", "% in"))
        form, width = ("%.1f", 63) if name.startswith("%") else ("localized", 66)
        columns[name] = number(heading, help=name, format=form, width=width)
    return columns


def _described(run: Run) -> str:
    """What each text is, as the run noted it."""
    notes = run.record.get("texts") or {}
    known = [(letter, notes[role]) for role, letter in analysis.ROLES.items() if notes.get(role)]
    return " ".join(f"{letter}: {plain(words)}." for letter, words in known)


@st.cache_data(max_entries=64, show_spinner=False)
def _text_table(root: str, keys: tuple[tuple[str, str], ...], entries: int | None) -> pd.DataFrame:
    texts = {letter: record(root, "tokens", key, "Tokens") for letter, key in keys}
    return analysis.text_table(texts, entries)


_entries = st.cache_data(max_entries=64, show_spinner=False)(vocabulary.entries)


def _pairs(run: Run, drawn: Card) -> None:
    measure = url_state.selectbox("Measure", MEASURES, "cd_measure", RANKS, width=280)
    if not panels.measured(panels.table_of(run, measure)):
        st.info("This run does not have what it takes to compute this measure.", icon=":material/info:")
        return
    drawn.show(panels.texts(run, measure=measure))
