"""Help: how each page is read, the glossary, the keys, and where every feature is."""

from pathlib import Path

import pandas as pd
import streamlit as st

from gprune.app.ui import address, documents, frame, tables
from gprune.app.ui.documents import TERMS, split_document
from gprune.app.ui.page_names import PAGES

SEARCH = "help_search"
"""key in the address: the words to search for"""
LONGEST = 200
"""maximum number of characters of a search"""
READ = dict(split_document(Path(__file__).with_name("reading.md").read_text("utf-8")).parts)
"""for each tab: what to look at and, in a second paragraph, what it does not show"""
KEYS = (
    ("P", "opens the slides from any page"),
    ("Space, ← →, ↑ ↓", "on slides: next and previous; a digit jumps to a slide; Escape opens its page"),
    ("Tab, Shift+Tab", "move through buttons, fields, tabs and lines, and out of a table"),
    ("Enter, Space", "press the focused element"),
    ("Arrow keys", "move a slider, or the line of a chart, by one step; go from tab to tab and through a table"),
    ("Page Up, Page Down", "move the line of a chart by ten steps; on slides, go to the previous and next slide"),
    ("Home, End", "move the line of a chart to either end; on slides, go to the first and last slide"),
    ("B, N", "go to the previous or next neuron or module, on the Inspector tab"),
    ("Alt+0 … Alt+4", "apply a preset on the Tune page; Alt+0 restores the run’s thresholds"),
)
"""every key of the app, and what it does"""
FEATURES = {
    "home": "headline with its interval, checks of a run",
    "card": "calibration card of a text: size, effect on the masks, distinctness; as HTML",
    "calibration": "statistics of all calibration texts, and their distances",
    "drift": "rank drift with its resampling control, by layer; the neurons that shift most",
    "agreement": "ARI of the modules per layer, its controls, a third text",
    "inspector": "one neuron: ranks on each text, activating contexts, promoted tokens, ablation; or the experts",
    "map": "map of the neurons of a layer by UMAP or PCA, with lasso",
    "lens": "text lens: loss token by token; continuations and chat answers of dense and pruned models, with KL",
    "decisions": "retention by drift bin, budget by layer, effect of each part of GPrune",
    "atlas": "mask atlas of every method, overlap of masks",
    "rasa": "draggable thresholds with live counts and perplexity, repairs, presets, a new run, retention curve",
    "compare": "methods with paired intervals, Pareto chart, several runs and seeds side by side, LaTeX and CSV",
    "questions": "accuracy on tasks, changed answers",
    "speed": "measured speed and memory of the pruned models",
    "studies": "tables of the paper (own and published), fair study",
    "launch": "launch, progress, cancel, resume; run table; own texts, models and tasks; measurements of existing runs",
    "export": "Hugging Face folder with model card, padded on request, equal widths, GGUF, pack",
    "report": "HTML report of chosen figures, with the command, settings, texts and versions of the run",
}
"""the features of each tab"""
COMMANDS = (
    ("gprune run, study", "every method, gate, repair, recovery and the recommended recipe; four bundled demos"),
    ("gprune sweep, run --slurm", "sweeps, on one machine, several GPUs or a Slurm cluster"),
    ("gprune reproduce", "the tables of the paper, next to the published figures; a report on experts"),
    ("gprune card, map, report, arrays", "a calibration card, neuron map, report, or the arrays of a run as files"),
    ("gprune export, gguf, speed", "folders, GGUF with free widths, speed of any model"),
    ("gprune pack, unpack, cache, jobs", "move runs, free the cache, follow jobs"),
    (
        "gprune models, texts, tasks, plugins",
        "the 29 dense model families and 11 of mixtures, and the available texts, tasks and plug-ins",
    ),
    ("import gprune", "the Python API; see the notebook examples/quickstart.ipynb"),
)
"""the features of the command line and of the Python API"""


def show_reading() -> None:
    """Draw what to look at on each page, and what it does not show."""
    frame.page_title("How to read", "What is each page for, and what does it not show?")
    # the last page is this one
    for page in PAGES[:-1]:
        st.markdown(f"**{page.name}** · {page.question}")
        for place in page.places:
            if place in READ:
                look, limits = (" ".join(words.split()) for words in READ[place].split("\n\n"))
                address.link(place, page.places[place], page.icon)
                st.markdown(f"{look} :grey[It does not show {limits}]")


def show_glossary() -> None:
    """Draw the glossary entries that match the search."""
    frame.page_title("Glossary", "What do the words of the pages mean?")
    hint = "one word (ARI) or several (seed, ARI)"
    typed = address.text_field("Search", SEARCH, LONGEST, placeholder=hint)
    hits = documents.search_terms(typed)
    for word in hits:
        st.markdown(f"**{word}**  \n{TERMS[word]}")
    if not hits:
        st.caption("No glossary entry matches.")
    table = pd.DataFrame({"word": list(TERMS), "meaning": list(TERMS.values())})
    tables.download_button(
        "CSV", lambda: tables.encode_csv(table), "glossary.csv", "text/csv", "help_words_csv", type="tertiary"
    )


def show_keys() -> None:
    """Draw every key and what it does."""
    frame.page_title("Keys", "Which keys does the app have?")
    for keys, action in KEYS:
        st.markdown(f"**{keys}** {action}.")


def show_features() -> None:
    """Draw the features of each tab next to a link to it, then those of the command line."""
    frame.page_title("Where everything is", "Which page or command has a feature?")
    for page in PAGES:
        for place, title in page.places.items():
            if place in FEATURES:
                left, right = st.columns([1, 3], vertical_alignment="center")
                with left:
                    address.link(place, title, page.icon)
                right.markdown(FEATURES[place])
    for command, features in COMMANDS:
        left, right = st.columns([1, 3], vertical_alignment="center")
        left.markdown(f"`{command}`")
        right.markdown(features)
