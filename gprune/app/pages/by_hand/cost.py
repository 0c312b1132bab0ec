"""What a list of edits costs: perplexity beside the method's own masks, paired over windows."""

from collections.abc import Callable, Sequence

import streamlit as st

from gprune.analysis.mask_edits import Edited
from gprune.app import preview
from gprune.app.preview import Answer, Question, Source
from gprune.app.ui import asking, packed, repaired_value, story, url_state
from gprune.app.ui.chart_style import called
from gprune.evaluation.holdout import unseen
from gprune.pipeline.runs.opened import Run

LIVE, TEXT, REPAIR = "hand_live", "hand_text", "hand_repair"
VALUE = "hand_value"
"""key of what holds the value; whoever waits for one looks there"""


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
        wanted = url_state.toggle("Live evaluation", LIVE, False)
        text = url_state.selectbox("Text", known, TEXT, default, width=280)
    if not wanted:
        st.caption("A worker then loads the model and measures the windows with these units silent.")
    if not asking.allowed(run, wanted):
        return
    repaired = repaired_value.switch(run, REPAIR, method)
    source, question = Source(run.root, run.graph), Question(text, method, found.masks, fitted=False)
    # with the repair beside it, the method itself is shown before and after it as well
    base, itself = Question(text, method, fitted=not repaired), f"{called(method)} itself"
    owner = asking.owner("edits")
    identity = preview.pool().ask(source, question, owner, base)
    asked = repaired_value.ask(source, question, base, owner) if repaired else None

    def draw(answers: dict[str, Answer | None]) -> None:
        asking.paired(text, answers[identity], itself, VALUE)
        if asked is not None:
            repaired_value.show(text, asked, answers, itself)

    look(run, [identity, *(asked.identities if asked is not None else ())], draw)


def look(run: Run, asked: Sequence[str], draw: Callable[[dict[str, Answer | None]], None]) -> None:
    """Shows answers while windows are still coming; `draw` is told them by what they are asked for by."""

    def drawn(refining: bool) -> None:
        draw({identity: preview.pool().latest(identity) for identity in asked})
        if refining:
            asking.standing(run, "Windows are still coming.")

    asking.look(run, lambda: asking.coming(asked), drawn)
