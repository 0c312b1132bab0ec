"""Calibration data: what is calibrated on, how far apart are the texts, and how many sequences are enough?"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from gprune.analysis import calibration as analysis
from gprune.analysis import calibration_report
from gprune.analysis.calibration_report import TextCard, writing
from gprune.analysis.calibration_report.measuring import texts_of
from gprune.app.pages.calibration_data import panels
from gprune.app.pages.calibration_data.panels import MEASURES, RANKS, names_of, tokens_of
from gprune.app.ui import frame, tables, url_state
from gprune.app.ui.card import Card, card, card_of, panel_card
from gprune.app.ui.text import plain, short
from gprune.models import vocabulary
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run, record

_MARKS = {
    True: ":green[:material/check_circle:]",
    False: ":orange[:material/warning:]",
    None: ":gray[:material/info:]",
}
_FORMS: Mapping[str, tuple[str, str]] = {
    ".html": ("Page", "text/html"),
    ".json": ("JSON", "application/json"),
    ".csv": ("CSV", "text/csv"),
}
_WRITERS = {".html": writing.page, ".json": writing.as_json, ".csv": writing.as_csv}


@frame.page("All texts", "What am I calibrating on, and how stable is it?")
def show(run: Run) -> None:
    """Draws all texts of the run beside each other."""
    with card("cd_texts", "The calibration texts", run) as drawn:
        _texts(run, drawn)
    left, right = st.columns([2, 3])
    with left, card_of(panels.texts, run) as drawn:
        _pairs(run, drawn)
    with right:
        # takes seconds at the size of a real model the first time: the rest of the page does not wait for it
        curves = st.container(height="stretch")
    with curves, card_of(panels.sequences, run) as drawn:
        with st.spinner("Scoring parts of the texts …"):
            shown = panels.sequences(run)
        drawn.show(shown)


def _texts(run: Run, drawn: Card) -> None:
    texts = run.require(tokens_of(run), stages.tokens)
    keys = tuple((letter, run.key(stages.tokens, role)) for role, letter in analysis.ROLES.items() if letter in texts)
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
    drawn = [f"{used:,} of {there:,}" for used, there in zip(table["sequences"], table["available"], strict=True)]
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


@frame.page("Calibration card", "Is this text large enough, and would another one give another model?")
def show_card(run: Run) -> None:
    """Draws the card of one text."""
    texts = texts_of(run.study).items()
    views = {analysis.ROLES[role]: f"{analysis.ROLES[role]}: {short(text)}" for role, text in texts}
    letter = url_state.segmented("Text", views, "cd_view", "A", label_visibility="collapsed")
    found: TextCard | None = None
    with card("cd_card", f"Calibration card of {letter}", run) as drawn:
        with st.spinner("Comparing samples of the texts …"):
            found = panels.card_of_text(run, letter)
        drawn.title(f"Calibration card of {letter}: {plain(short(found.name))}")
        st.caption(" – ".join(plain(words) for words in (found.name, found.described) if words))
        share = _share()
        _said(found, share)
        _size(found)
        _offered(run, found, share)
    if found is not None:
        _charts(run, found, share)


def _charts(run: Run, found: TextCard, share: float) -> None:
    """What the answers rest on."""
    letter = found.letter
    left, right = st.columns(2)
    with left:
        panel_card(panels.text_noise, run, text=letter, share=share)
    with right, card_of(panels.text_overlap, run) as drawn:
        if found.others:
            drawn.show(panels.text_overlap(run, text=letter))
        else:
            st.info("The run has no other text whose statistics are there.", icon=":material/info:")
    if found.others:
        with card("cd_card_beside", f"{found.letter} beside the other texts", run):
            _beside(found, share)


def _share() -> float:
    return url_state.slider(
        "Part of the drift that sampling may be",
        "cd_share",
        calibration_report.DEFAULT_SHARE,
        0.05,
        1.0,
        0.05,
        width=320,
        help="A text is called large enough where sampling alone moves ranks by no more than this part of "
        "the drift to the nearest other text.",
    )


def _said(found: TextCard, share: float) -> None:
    for verdict in calibration_report.verdicts(found, share):
        mark = _MARKS[verdict.good]
        st.markdown(f"{mark} **{plain(verdict.question)}** {plain(verdict.answer)}".strip())


def _size(found: TextCard) -> None:
    with st.container(horizontal=True):
        for name, value in writing.size(found):
            st.metric(name, value, border=True, width="content")


def _offered(run: Run, found: TextCard, share: float) -> None:
    """The card as a file, made when somebody asks for it."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.caption("This card as a file that stands alone, and its numbers", width="content")
        for form, (words, mime) in _FORMS.items():
            made, file = partial(_written, form, found, share), f"{run.name}-card-{found.letter}{form}"
            tables.download(words, made, file, mime, f"cd_card_{form[1:]}", type="tertiary")


def _written(form: str, found: TextCard, share: float) -> bytes:
    return _WRITERS[form](found, share).encode("utf-8", "replace")


def _beside(found: TextCard, share: float) -> None:
    """Every measure against every other text; all rows are in sight."""
    table = writing.against(found, share)
    heading = st.column_config.TextColumn(width=360)
    tables.show(
        table,
        alt="the other texts of the run beside this one",
        height="content",
        column_config={"measure": heading},
    )
