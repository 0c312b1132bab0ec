"""Help: what do the words mean? Explained on the run at hand, and without one as well."""

import pandas as pd
import streamlit as st

from gprune.app.pages.help import ideas
from gprune.app.pages.help.glossary import TERMS
from gprune.app.ui import frame, url_state
from gprune.app.ui.card import Card, card
from gprune.pipeline.runs.opened import Run

_PAGES = (
    (
        "pages/overview.py",
        "Overview",
        "The finding in one sentence, three figures behind it, and whether the run can be trusted.",
    ),
    (
        "pages/rank_drift.py",
        "Rank drift",
        "Look at the shaded part between the coloured curve and the grey ones: it is what noise does not "
        "explain.",
    ),
    (
        "pages/module_agreement.py",
        "Module agreement",
        "Higher lines are more stable. Compare the coloured ones with the grey controls, not with 1.",
    ),
    (
        "pages/reliability.py",
        "RASA thresholds",
        "Each mark is a module. Those in the shaded corner are adapted; move the two lines to see what "
        "changes.",
    ),
    (
        "pages/pruning_decisions.py",
        "Pruning decisions",
        "From left to right modules drift more. Read each pair of bars against what both methods keep in "
        "all.",
    ),
    (
        "pages/calibration_data.py",
        "Calibration data",
        "How alike the texts are, and whether the sample was large enough: the curves should have flattened.",
    ),
    (
        "pages/jobs.py",
        "Launch & jobs",
        "Start a run of your own model and texts, follow it, stop it and go on with it.",
    ),
    (
        "pages/comparison.py",
        "Compare",
        "Lower is better. The change in brackets is paired; within two of its errors nothing is decided.",
    ),
    (
        "pages/speed_export.py",
        "Speed & export",
        "Ratios against the dense model, measured beside it on the same machine; and ways to take a model "
        "away.",
    ),
)
_KEYS = (
    ("Escape", "gives the window back where a card fills it"),
    ("Tab, Enter", "goes through buttons and fields, and presses them"),
    ("Arrow keys", "move a slider by one step, once it has been reached with Tab"),
)
_LONGEST = 60
"""characters of what is searched for"""


def show() -> None:
    """Draws the page."""
    frame.page_title("Help", "What do the words mean, and how are the pages to be read?")
    run = frame.current_run()
    if run is None:
        st.caption("With a run, every idea below is told on its own neurons and numbers.")
    with card("help_neuron", "One neuron, two texts", run) as drawn:
        ideas.neuron(run, drawn)
    with st.grid(2, min_column_width=380):
        for key, title, tell in ideas.IDEAS:
            with card(f"help_{key}", title, run) as drawn:
                tell(run, drawn)
    with card("help_pages", "How to read each page", run):
        _pages()
    with card("help_glossary", "Glossary", run) as drawn:
        _glossary(run, drawn)
    with card("help_keys", "Keyboard", run):
        for keys, what in _KEYS:
            st.markdown(f"**{keys}** {what}.")


def _pages() -> None:
    for path, name, how in _PAGES:
        left, right = st.columns([1, 4], vertical_alignment="center")
        left.page_link(path, label=name)
        right.markdown(how)


def _glossary(run: Run | None, drawn: Card) -> None:
    table = pd.DataFrame({"word": list(TERMS), "meaning": list(TERMS.values())})
    wanted = url_state.text_field("Search", "help_search", _LONGEST, placeholder="a word, as in ARI")
    wanted = wanted.strip().lower()
    hits = [
        (word, meaning)
        for word, meaning in TERMS.items()
        if wanted in word.lower() or wanted in meaning.lower()
    ]
    # what is called by the word comes before what only speaks of it
    hits.sort(key=lambda hit: wanted not in hit[0].lower())
    with st.grid(2, min_column_width=340):
        for word, meaning in hits:
            st.markdown(f"**{word}**  \n{meaning}")
    if not hits:
        st.caption("No word of the glossary matches.")
    drawn.tools(lambda: table, switch=False)
