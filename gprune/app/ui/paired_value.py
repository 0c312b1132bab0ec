"""How a page shows an answer of the preview: the value, its verdict, and the paired change with its error."""

import streamlit as st

from gprune.analysis.formatting import percent, signed
from gprune.app.preview import Answer
from gprune.app.ui.text import plain, said


def show(
    text: str, answer: Answer | None, against: str, slot: str | None = None, title: str | None = None
) -> None:
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
        f"{signed(found.change, '.2%')} ± {percent(found.margin, 2)} of perplexity, "
        f"{signed(found.nats, '.4f')} ± {found.nats_margin:.4f} nats/token, "
        "95 % interval, paired over windows  \n"
        f"{answer.done} of {answer.windows} windows" + ("" if answer.progress != "open" else " …")
    )
