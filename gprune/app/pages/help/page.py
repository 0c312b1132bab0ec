"""The help: how each page is read, the glossary, and the keys."""

from pathlib import Path

import pandas as pd
import streamlit as st

from gprune.app.ui import glossary, help_drawer, places, tables, url_state
from gprune.app.ui.glossary import TERMS
from gprune.app.ui.page_names import HELP, HELP_PARTS, PAGE_OF, PAGES
from gprune.app.ui.recorded import parts_of

READ = dict(parts_of(Path(__file__).with_name("reading.md").read_text("utf-8")).parts)
"""of each place: what to look at and, in a paragraph of its own, what it does not say"""
KEYS = (
    ("Alt+H", "opens and closes this help"),
    ("Escape", "closes this help, gives the window back where a card fills it, and ends presenting"),
    ("Tab, Shift+Tab", "goes through buttons, fields, tabs and lines, and leaves a table"),
    ("Enter, Space", "presses what has the focus"),
    (
        "Arrow keys",
        "move a slider, or the line of a chart, by one step; go from tab to tab and through a table",
    ),
    (
        "Page Up, Page Down",
        "move the line of a chart by ten steps; on slides, go to the one before and after",
    ),
    ("Home, End", "move the line of a chart to its end; on slides, go to the first and last"),
    ("Space, ← →, ↑ ↓", "on slides, go on and back; Escape leaves them"),
    ("P, N", "go to the previous or next neuron or module, on the tab Inspector"),
    ("Alt+0 … Alt+4", "set the lines by a preset, on the tab RASA thresholds; Alt+0 is the run’s own"),
)
"""every key of the app, and what it does"""


def show() -> None:
    """Draws the open part of the help."""
    part = url_state.segmented("Part of the help", HELP_PARTS, HELP, "", label_visibility="collapsed")
    {"words": _words, "keys": _keys}.get(part, _reading)()


def _reading() -> None:
    """How the page at hand is read, then every other."""
    place = url_state.page()
    _read(place)
    st.divider()
    st.markdown("**Every page**")
    for page in PAGES:
        st.caption(f"{page.name}: {page.question}")
        for other in page.places:
            if other != place:
                _read(other)


def _read(place: str) -> None:
    """The way to a place, what to look at there, and what it does not say."""
    look, silent = (" ".join(told.split()) for told in READ[place].split("\n\n"))
    page = PAGE_OF[place]
    places.link(place, page.places[place], page.icon)
    st.markdown(f"{look} :grey[It does not say {silent}]")


def _keys() -> None:
    for keys, what in KEYS:
        st.markdown(f"**{keys}** {what}.")


def _words() -> None:
    wanted = url_state.text_field(
        "Search",
        help_drawer.SEARCH,
        help_drawer.LONGEST,
        placeholder="a word, as in ARI; or several: seed, ARI",
    )
    hits = glossary.search(wanted)
    for word in hits:
        st.markdown(f"**{word}**  \n{TERMS[word]}")
    if not hits:
        st.caption("No word of the glossary matches.")
    table = pd.DataFrame({"word": list(TERMS), "meaning": list(TERMS.values())})
    tables.download("CSV", lambda: tables.csv(table), "glossary.csv", "text/csv", "help_words_csv", type="tertiary")
