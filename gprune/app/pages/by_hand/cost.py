"""What a list of edits costs: perplexity beside the method's own masks, paired over windows."""

import uuid

import streamlit as st

from gprune.analysis.mask_edits import Edited
from gprune.app import preview
from gprune.app.preview import Answer, Question, Source
from gprune.app.ui import packed, paired_value, story, url_state
from gprune.app.ui.chart_style import called
from gprune.app.ui.text import plain
from gprune.evaluation.holdout import unseen
from gprune.pipeline.runs.opened import Run
from gprune.study.methods import knowing

LIVE, TEXT = "hand_live", "hand_text"
VALUE = "hand_value"
"""key of what holds the value; whoever waits for one looks there"""
EVERY = 0.7
"""seconds between two looks while windows are still coming"""
_ME = "hand_owner"


def owner(place: str) -> str:
    """Who asks: this session, for one place of the page."""
    return f"{st.session_state.setdefault(_ME, uuid.uuid4().hex)}:{place}"


def text_of(run: Run) -> str:
    """The text that is measured: one that no method has read, where there is one."""
    known = list(run.study.evaluation.texts)
    return url_state.choice(TEXT, known, (unseen(story.standings(run)) or known)[0])


def live(run: Run) -> bool:
    """Whether the worker may be asked."""
    return url_state.flag(LIVE) and not packed.lacking(run)


def show(run: Run, method: str, found: Edited) -> None:
    """Draws the switch and the value."""
    known, default = list(run.study.evaluation.texts), text_of(run)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        wanted = url_state.toggle("Measure while I look", LIVE, False)
        text = url_state.selectbox("Text", known, TEXT, default, width=280)
    if wanted and (missing := packed.lacking(run)):
        st.info(plain(missing), icon=":material/inventory_2:")
        return
    if not wanted:
        st.caption("A worker then loads the model and measures the windows with these units silent.")
        return
    if told := preview.left_out(run.graph, method):
        st.caption(told)
    source, question = Source(run.root, run.graph), Question(text, method, found.masks, fitted=False)
    identity = preview.pool().ask(source, question, owner("edits"), Question(text, method))
    look(
        run,
        [identity],
        lambda answers: paired_value.show(text, answers[0], f"{called(method)} itself", VALUE),
    )


def look(run: Run, asked: list[str], draw: object) -> None:
    """Shows answers while windows are still coming; `draw` is told them in the order of `asked`."""

    def latest() -> list[Answer | None]:
        return [preview.pool().latest(identity) for identity in asked]

    def more(answers: list[Answer | None]) -> bool:
        return any(one is None or one.progress == "open" for one in answers)

    refining = more(latest())

    def answers() -> None:
        found = latest()
        draw(found)  # type: ignore[operator]
        state = preview.pool().state(Source(run.root, run.graph))
        words = {"loading": "The worker loads the model.", "waiting": "The worker waits for its turn."}
        if refining:
            st.caption(plain(state.reason or words.get(state.phase, "Windows are still coming.")))
            if not more(found) and url_state.in_fragment():
                # all is there: the timer goes with the next drawing; not while the page itself is drawn, of
                # which fields would then show the browser their defaults
                st.rerun(scope="app")

    st.fragment(run_every=EVERY if refining else None)(knowing(run.told)(answers))()
