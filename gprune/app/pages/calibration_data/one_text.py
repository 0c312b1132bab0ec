"""The card of one calibration text: is it good enough, and would another one give another model?"""

from collections.abc import Mapping
from functools import partial

import streamlit as st

from gprune.analysis import calibration as analysis
from gprune.analysis import calibration_report
from gprune.analysis.calibration_report import TextCard, writing
from gprune.app.pages.calibration_data import panels
from gprune.app.ui import tables as drawn_tables
from gprune.app.ui import url_state
from gprune.app.ui.card import card, card_of, panel_card
from gprune.app.ui.text import plain, short
from gprune.pipeline.runs.opened import Run
from gprune.pipeline.stages.inputs import roles as roles_of

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
    return url_state.segmented("View", views, "cd_view", ALL, label_visibility="collapsed")


def draw(run: Run, letter: str) -> None:
    """Draws the view of one text."""
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


def _beside(found: TextCard, share: float) -> None:
    """Every measure against every other text; all rows are in sight."""
    table = writing.against(found, share)
    heading = st.column_config.TextColumn(width=360)
    drawn_tables.show(
        table,
        alt="the other texts of the run beside this one",
        height="content",
        column_config={"measure": heading},
    )
