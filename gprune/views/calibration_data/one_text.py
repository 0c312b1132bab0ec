"""The card of one calibration text: is it good enough, and would another one give another model?"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import plotly.graph_objects as go
import streamlit as st

from gprune import stages, text_card
from gprune.analysis import calibration as analysis
from gprune.analysis.signs import percent
from gprune.settings import require_choice
from gprune.stages.inputs import roles as roles_of
from gprune.text_card import TextCard, figures, tables, writing
from gprune.views.frame import address
from gprune.views.frame import tables as drawn_tables
from gprune.views.frame.card import Card, card
from gprune.views.frame.chart_style import label
from gprune.views.frame.loaders import MissingResultError, Run
from gprune.views.frame.picture import picture, shown
from gprune.views.frame.text import plain, short

ALL = "all"
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


def chosen(run: Run) -> str:
    """Which text a person looks at alone, by its letter; ALL for all of them."""
    letters = {analysis.ROLES[role]: text for role, text in roles_of(run.study).items()}
    views = {ALL: "All texts"} | {letter: f"Card of {letter}" for letter in letters}
    return address.segmented("View", views, "cd_view", ALL, label_visibility="collapsed")


@picture("text_noise", at={"cd_view": "A"})
def text_noise(run: Run, *, text: str = "A", share: float = text_card.DEFAULT_SHARE) -> go.Figure:
    """What sampling alone does to the ranks of a text, beside its drift to the others."""
    return figures.noise(_asked(run, text), share)


@picture("text_overlap", at={"cd_view": "A"})
def text_overlap(run: Run, *, text: str = "A") -> go.Figure:
    """How many of the neurons kept by a text another text and another sample of it keep as well."""
    return figures.overlap(_asked(run, text))


def _asked(run: Run, text: str) -> TextCard:
    require_choice("text", text, tuple(analysis.ROLES[role] for role in roles_of(run.study)))
    return _card(run, text)


def draw(run: Run, letter: str) -> None:
    """Draws the view of one text.

    Args:
        run: the run that is shown.
        letter: A, B or C.
    """
    found: TextCard | None = None
    with card("cd_card", f"Calibration card of {letter}", run) as drawn:
        found = _card(run, letter)
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
    with left, card("cd_card_noise", "What sampling alone does to ranks", run) as drawn:
        drawn.title(_noise_title(found, share))
        drawn.chart(
            shown("text_noise", figures.noise(found, share), text=letter, share=share),
            "Where the dotted line falls below a dashed one, sampling is a small part of that drift.",
            table=lambda: tables.numbers(found, share),
            how=f"{writing.HOW} Points: mean and range over all draws. Scores: {label(found.origin.metric)}."
            + (
                ""
                if found.origin.metric == run.study.metric
                else " This run's own cannot score parts of a text."
            ),
        )
    with right, card("cd_card_overlap", "The same neurons with another text?", run) as drawn:
        if found.others:
            _overlap(found, drawn)
        else:
            st.info("The run has no other text whose statistics are there.", icon=":material/info:")
    if found.others:
        with card("cd_card_beside", f"{found.letter} beside the other texts", run):
            _beside(found, share)


def _card(run: Run, letter: str) -> TextCard:
    """The card of a text.

    Raises:
        MissingResultError: its statistics are not there.
    """
    role = {value: key for key, value in analysis.ROLES.items()}[letter]
    there = text_card.measurable(run.results)
    if role not in there:
        raise MissingResultError(stages.statistics(run.graph, role).title)
    keys = tuple(
        run.key(kind, one)
        for one in there
        for kind in (stages.statistics, stages.tokens)
        if run.has(kind, one)
    )
    study = run.study
    asked = (study.metric, f"{study.retention}", *there, run.key(stages.norms), *keys)
    return _cards(run.root, run.name, asked, run)[letter]


@st.cache_data(max_entries=16, show_spinner="Comparing samples of the texts …")
def _cards(root: str, name: str, asked: tuple[str, ...], _run: Run) -> dict[str, TextCard]:
    described = _run.record.get("texts") or {}
    return text_card.measure(_run.results, name, described)


def _share() -> float:
    return address.slider(
        "Part of the drift that sampling may be",
        "cd_share",
        text_card.DEFAULT_SHARE,
        0.05,
        1.0,
        0.05,
        width=320,
        help="A text is called large enough where sampling alone moves ranks by no more than this part of "
        "the drift to the nearest other text.",
    )


def _said(found: TextCard, share: float) -> None:
    for verdict in text_card.verdicts(found, share):
        mark = _MARKS[verdict.good]
        st.markdown(f"{mark} **{plain(verdict.question)}** {plain(verdict.answer)}".strip())


def _size(found: TextCard) -> None:
    with st.container(horizontal=True):
        for name, value in tables.size(found):
            st.metric(name, value, border=True, width="content")


def _offered(run: Run, found: TextCard, share: float) -> None:
    """The card as a file, made when somebody asks for it."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.caption("This card as a file that stands alone, and its numbers", width="content")
        for form, (words, mime) in _FORMS.items():
            st.download_button(
                words,
                data=partial(_written, form, found, share),
                file_name=f"{run.name}-card-{found.letter}{form}",
                mime=mime,
                key=f"cd_card_{form[1:]}",
                icon=":material/download:",
                type="tertiary",
                on_click="ignore",
            )


def _written(form: str, found: TextCard, share: float) -> bytes:
    return _WRITERS[form](found, share).encode("utf-8", "replace")


def _noise_title(found: TextCard, share: float) -> str:
    needed, near = found.recommended(share), found.nearest
    if needed is None or near is None:
        return "What sampling alone does to ranks"
    return f"{needed:,} sequences bring sampling to {percent(share)} of the drift to {near.letter}"


def _overlap(found: TextCard, drawn: Card) -> None:
    lowest = min(found.others, key=lambda other: other.jaccard)
    changed = percent(lowest.changed, 1)
    drawn.title(f"With {lowest.letter} in its place {changed} of the neurons are decided differently")
    drawn.chart(
        shown("text_overlap", figures.overlap(found), text=found.letter),
        "From what chance leaves in common to what another sample of the same text leaves.",
        how=f"{writing.HOW} The Jaccard index is what both keep among what either keeps. "
        f"{percent(found.origin.retention)} of the weights are kept.",
    )


def _beside(found: TextCard, share: float) -> None:
    """Every measure against every other text; all rows are in sight."""
    table = tables.against(found, share)
    heading = st.column_config.TextColumn(width=360)
    drawn_tables.show(
        table,
        alt="the other texts of the run beside this one",
        height="content",
        column_config={"measure": heading},
    )
