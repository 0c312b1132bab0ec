"""Asking the worker from a page: whether it may be asked, looking until all is there, and what is shown."""

import uuid
from collections.abc import Callable, Iterable

import streamlit as st

from gprune.analysis.formatting import signed
from gprune.analysis.paired_test import interval_in_percent
from gprune.app import preview
from gprune.app.preview import Answer, Source
from gprune.app.ui import packed, url_state
from gprune.app.ui.text import plain, said
from gprune.pipeline.runs.opened import Run

EVERY = 0.7
"""seconds between two looks while windows are still coming"""
_WORDS = {"loading": "The worker loads the model.", "waiting": "The worker waits for its turn."}


def owner(place: str) -> str:
    """Who asks: this session, for one place of a page, where a new question takes the place of the last."""
    return f"{st.session_state.setdefault('preview_owner', uuid.uuid4().hex)}:{place}"


def allowed(run: Run, wanted: bool) -> bool:
    """Whether the worker can be asked where a reader wants it; else says what a packed run lacks."""
    missing = packed.lacking(run) if wanted else ""
    if missing:
        st.info(said(missing), icon=":material/inventory_2:")
    return wanted and not missing


def coming(asked: Iterable[str]) -> bool:
    """Whether windows of some answers are still coming."""
    found = [preview.pool().latest(identity) for identity in asked]
    return any(one is None or one.progress == "open" for one in found)


def unread(asked: Iterable[str]) -> bool:
    """Whether some readings, token by token, are still to come."""
    found = [preview.pool().reading(identity) for identity in asked]
    return any(one is None or one.progress == "open" for one in found)


def waits(run: Run, otherwise: str, **words: str) -> str:
    """Why an answer is not there yet; `words` are of phases of the worker, and else there is `otherwise`."""
    state = preview.pool().state(Source(run.root, run.graph))
    return said(state.reason or (_WORDS | words).get(state.phase, otherwise))


def standing(run: Run, otherwise: str) -> None:
    """Draws where the worker stands: a bar while it fits weights, else the words of `waits`."""
    state = preview.pool().state(Source(run.root, run.graph))
    if state.phase == "fitting":
        st.progress(state.share, text=said(state.reason))
    else:
        st.caption(waits(run, otherwise))


def look(run: Run, more: Callable[[], bool], draw: Callable[[bool], None], every: float = EVERY) -> None:
    """Shows answers, and looks again after so many seconds as long as there will be more.

    `draw` is told whether there was more to come when the page was drawn.
    """
    refining = more()

    def answers() -> None:
        if refining and url_state.in_fragment() and not more():
            # all is there: the timer goes with the next drawing, in which the card gets its title; not while
            # the page itself is drawn, of which fields would then show the browser their defaults
            st.rerun(scope="app")
        draw(refining)

    st.fragment(run_every=every if refining else None)(answers)()


def paired(text: str, answer: Answer | None, against: str, slot: str | None = None, title: str | None = None) -> None:
    """Draws the answer for one text; no digit stands in its slot before a value is known.

    `title` stands above the value, as Markdown; it is *perplexity on* the text where left out.
    """
    if answer is not None and answer.problem:
        st.error(f"{plain(text)}: {said(answer.problem)}", icon=":material/error:")
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        with st.container(key=slot, width=230):
            if answer is not None and answer.done:
                st.metric(
                    title or f"perplexity on {plain(text)}",
                    f"{answer.perplexity:.2f}",
                    answer.verdict,
                    delta_color="off",
                    delta_arrow="off",
                )
            else:
                st.markdown("measuring …")
        st.caption(_beside(text, answer, against), width="stretch")


def _beside(text: str, answer: Answer | None, against: str) -> str:
    """What a value is held against, and how much of the text is known."""
    found = answer.difference if answer is not None else None
    if answer is None or found is None:
        return f"{plain(text)}: no window is known yet"
    return (
        f"against {answer.base_perplexity:.2f} of {against}  \n"
        f"{signed(found.change, '.2%')} {interval_in_percent(found, 2)} of perplexity, "
        f"{signed(found.nats, '.4f')} ± {found.nats_margin:.4f} nats/token, "
        "95 % interval, paired over windows  \n"
        f"{answer.done} of {answer.windows} windows" + ("" if answer.progress != "open" else " …")
    )
