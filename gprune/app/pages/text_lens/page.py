"""Text lens: what does the pruned model get wrong, token by token, and how does it go on?"""

import streamlit as st

from gprune.app.pages.text_lens import models, polling, reading_card, writing_card
from gprune.app.ui import frame, packed, url_state
from gprune.app.ui.text import plain


def show() -> None:
    """Draws the page."""
    frame.page_title(
        "Text lens",
        "Which words does a pruned model predict worse than the dense one, and how does it go on?",
    )
    run = frame.require_run()
    if run is None:
        return
    chosen = models.choose(run)
    if chosen is None:
        return
    live = url_state.toggle("Ask the model", polling.LIVE, False)
    if live and (missing := packed.lacking(run)):
        st.info(plain(missing), icon=":material/inventory_2:")
        live = False
    if not live:
        st.caption("A worker then loads the model of the run and reads; nothing leaves this machine.")
    reading_card.show(run, chosen, live)
    writing_card.show(run, chosen, live)
