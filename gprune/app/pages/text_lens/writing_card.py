"""The card that has the dense model and pruned ones go on from one prompt."""

import functools

import streamlit as st

from gprune.analysis import token_loss
from gprune.app import preview
from gprune.app.pages.text_lens import polling, text_field
from gprune.app.pages.text_lens.models import Chosen
from gprune.app.preview import Prompt, Reading, Source, Written
from gprune.app.ui import url_state
from gprune.app.ui.card import Card, card
from gprune.app.ui.text import plain
from gprune.pipeline.runs.opened import Run

_PROMPT = "lens_prompt"
_FIRST = "The first thing to know about"


def show(run: Run, chosen: Chosen, live: bool) -> None:
    """Draws the card."""
    with card("lens_writing", "How do they go on?", run) as drawn:
        prompt = text_field.area("Prompt", _PROMPT, _FIRST, height=80)
        st.button("Go on", key="lens_write", icon=":material/edit:", on_click=url_state.put,
                  args=(polling.LIVE, True))  # fmt: skip
        if not prompt.strip():
            st.caption("The prompt is empty: type some words.")
            return
        if not live:
            st.caption(
                "Here will be how the dense model and the pruned ones go on, side by side: switch on "
                "“Ask the model” above."
            )
            return
        source = Source(run.root, run.graph)
        asked = preview.pool().read(source, Prompt(prompt), chosen.questions, polling.owner("writing"))
        polling.look(run, asked, functools.partial(_show, drawn, chosen))


def _show(drawn: Card, chosen: Chosen, reading: Reading) -> None:
    dense = reading.found[0]
    if isinstance(dense, Written) and dense.read < dense.total:
        st.caption(f"The last {dense.read:,} of {dense.total:,} tokens of the prompt are read.")
    labels = ("The dense model", *chosen.labels)
    columns = st.columns(len(labels))
    for column, label, found in zip(columns, labels, reading.found, strict=True):
        with column:
            st.markdown(f"**{plain(label)}**")
            if isinstance(found, Written):
                st.code(token_loss.readable(found.text) or "(nothing)", language=None, wrap_lines=True)
                st.caption(f"{len(found.ids)} tokens" + ("" if found.ended else " …"))
    if reading.progress == "complete":
        drawn.title(plain(_headline(chosen, reading)))
    st.caption("Always the likeliest token, at most 40 of them: the same question gives the same answer.")


def _headline(chosen: Chosen, reading: Reading) -> str:
    """After how many tokens each leaves the words of the dense model."""
    dense, *others = (found.ids if isinstance(found, Written) else () for found in reading.found)
    parts = []
    for label, ids in zip(chosen.labels, others, strict=True):
        same = token_loss.shared(dense, ids)
        whole = same == len(dense) == len(ids)
        parts.append(f"{label} {'all' if whole else same} of {len(dense)}")
    return f"First tokens in common with the dense model: {', '.join(parts)}"
