"""Page *Texts*: the calibration card of each text, and all texts with their distances."""

from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from gprune.analysis import calibration as analysis
from gprune.analysis import calibration_report
from gprune.analysis.calibration_report import TextCard, writing
from gprune.app.figures import calibration_data as figures
from gprune.app.ui import address, frame, tables
from gprune.app.ui import card as cards
from gprune.app.ui.text import escape, join_numbers, name_texts, text_names
from gprune.models import vocabulary
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run, record

_ICONS = {True: ":green[:material/check_circle:]", False: ":orange[:material/warning:]", None: ":gray[:material/info:]"}
"""icon of a verdict that is good, not good, or neither"""
_FORMATS = {".html": ("Page", "text/html", writing.page), ".json": ("JSON", "application/json", writing.as_json)}
"""label, MIME type and writer of each file of a card, by suffix"""


@frame.declare_page("All texts", "What am I calibrating on, and how stable is it?")
def show(run: Run) -> None:
    """Draw all texts of the run side by side."""
    with cards.card("cd_texts", "The calibration texts", run) as card:
        _show_texts(run, card)
    with cards.card_of(figures.texts, run) as card:
        measures = dict(figures.MEASURES)
        if run.study.prunes_experts:
            del measures[figures.RANKS]
        measure = address.selectbox("Measure", measures, "cd_measure", next(iter(measures)), width=280)
        card.show(figures.texts(run, measure=measure))


def _show_texts(run: Run, card: cards.Card) -> None:
    texts = run.require(figures.load_tokens(run), stages.tokens)
    roles = {letter: role for role, letter in analysis.ROLES.items() if letter in texts}
    keys = tuple((letter, run.key(stages.tokens, role)) for letter, role in roles.items())
    table = _text_table(run.root, keys, _vocabulary_size(run.study.model))
    # a cached table may come from another run, in which the same text has another name
    table["name"] = [getattr(run.study, roles[letter]) for letter in table["text"]]
    sizes = {f"{tokens.ids.shape[0]:,} sequences of {tokens.ids.shape[1]:,}" for tokens in texts.values()}
    card.set_title(f"{len(texts)} texts, {' / '.join(sorted(sizes))} tokens each")
    sequences = [f"{used:,} of {total:,}" for used, total in zip(table["sequences"], table["available"], strict=True)]
    # the title shows the length of a sequence
    names = text_names(run.study)
    columns = table.assign(name=table["text"].map(names), sequences=sequences).drop(
        columns=["text", "available", "tokens each"]
    )
    tables.show(columns, column_config=_column_config(table, run), placeholder="–", alt="the calibration texts")
    notes = run.record.get("texts") or {}
    origins = [f"{escape(names[letter])}: {escape(notes[role])}." for letter, role in roles.items() if notes.get(role)]
    card.tools(
        lambda: table,
        switch=False,
        caption="One row per text: the sequences drawn and the tokens shared with the other texts.",
        how="Columns: sequences drawn and available, share of the vocabulary in use, and share of tokens among the "
        f"{analysis.MOST_FREQUENT} most frequent. The last columns give the share of the text's distinct tokens "
        f"that also occur in the others. {' '.join(origins)}",
    )
    if not run.study.substitute:
        st.caption("This run has no third text C: its field `substitute` is empty.")


def _column_config(table: pd.DataFrame, run: Run) -> dict[str, Any]:
    """Return short headings for all columns, with the full names as help."""
    headings = {
        "distinct tokens": "distinct",
        "% of vocabulary": "% vocab.",
        f"% in {analysis.MOST_FREQUENT} most frequent tokens": f"% top {analysis.MOST_FREQUENT}",
    }
    text, number = st.column_config.TextColumn, st.column_config.NumberColumn
    columns: dict[str, Any] = {
        "name": text(width=114),
        "content": text(help="first digits of the SHA-256 of the exact tokens", width=74),
        "sequences": text(help="number of sequences drawn, and of disjoint sequences available", width=92),
    }
    for name in table.columns[table.columns.get_loc("tokens") :]:
        heading = headings.get(name) or name_texts(name.replace("% of distinct also in", "% in"), run.study)
        form, width = ("%.1f", 63 if name in headings else 128) if name.startswith("%") else ("localized", 66)
        columns[name] = number(heading, help=name_texts(name, run.study), format=form, width=width)
    return columns


@st.cache_data(max_entries=64, show_spinner=False)
def _text_table(root: str, keys: tuple[tuple[str, str], ...], vocabulary_size: int | None) -> pd.DataFrame:
    texts = {letter: record(root, "tokens", key, "Tokens") for letter, key in keys}
    return analysis.text_table(texts, vocabulary_size)


_vocabulary_size = st.cache_data(max_entries=64, show_spinner=False)(vocabulary.vocabulary_size)


@frame.declare_page(
    "Calibration card",
    "Is this text large enough, and does its choice change the model?",
    "A calibration card compares samples of a text by scores of neurons; All texts compares the texts of this run.",
)
def show_card(run: Run) -> None:
    """Draw the card of one text."""
    labels = text_names(run.study)
    letter = address.segmented_control("Text", labels, "cd_view", "A", label_visibility="collapsed")
    # stays None if the card shows an error instead
    text_card: TextCard | None = None
    with cards.card("cd_card", f"Calibration card of {escape(labels[letter])}", run):
        with st.spinner("Comparing samples of the texts …"):
            text_card = figures.text_card(run, letter)
        st.caption(" – ".join(escape(line) for line in (text_card.name, text_card.described) if line))
        share = _choose_share()
        for verdict in calibration_report.verdicts(text_card, share):
            question, answer = (escape(words) for words in (verdict.question, verdict.answer))
            st.markdown(f"{_ICONS[verdict.good]} **{question}** {join_numbers(answer)}".strip())
        with st.container(horizontal=True):
            for name, value in writing.size(text_card):
                st.metric(name, value, border=True, width="content")
        if text_card.size.rendered:
            st.caption("The first sequence, as the chat template writes it")
            st.code(text_card.size.rendered, language=None, wrap_lines=True, height=160)
        _offer_files(run, text_card, share)
    if text_card is not None:
        _show_evidence(run, text_card, share)


def _choose_share() -> float:
    return address.slider(
        "Allowed sampling share",
        "cd_share",
        calibration_report.DEFAULT_SHARE,
        0.05,
        1.0,
        0.05,
        width=320,
        help="A text is large enough if sampling alone shifts ranks by at most this share of the drift to the "
        "nearest other text.",
    )


def _offer_files(run: Run, text_card: TextCard, share: float) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.caption("Download this card as a page, or its numbers as JSON", width="content")
        for suffix, (name, mime, _) in _FORMATS.items():
            # the file is written when the button is clicked
            data, file = partial(_write_card, suffix, text_card, share), f"{run.name}-card-{text_card.letter}{suffix}"
            tables.download_button(name, data, file, mime, f"cd_card_{suffix[1:]}", type="tertiary")


def _write_card(suffix: str, text_card: TextCard, share: float) -> bytes:
    *_, write = _FORMATS[suffix]
    return write(text_card, share).encode("utf-8", "replace")


def _show_evidence(run: Run, text_card: TextCard, share: float) -> None:
    left, right = st.columns(2)
    with left:
        cards.panel_card(figures.text_noise, run, text=text_card.letter, share=share)
    with right, cards.card_of(figures.text_overlap, run) as card:
        if text_card.others:
            card.show(figures.text_overlap(run, text=text_card.letter))
        else:
            st.info("The run has no statistics of another text.", icon=":material/info:")
    if text_card.others:
        with cards.card("cd_card_beside", f"{escape(text_card.label)} and the other texts", run):
            table = writing.comparison_table(text_card, share)
            tables.show(
                table,
                alt="comparison with the other texts of the run",
                height="content",
                column_config={"measure": st.column_config.TextColumn(width=200)},
            )
