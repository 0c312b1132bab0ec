"""The help: how pages are read, what words mean, and the ideas, told on the run at hand or without one."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from gprune.analysis.comparison import DENSE
from gprune.analysis.formatting import counted, percent
from gprune.analysis.neurons import Example, standing
from gprune.analysis.verdict import OURS
from gprune.app.pages.help import panels
from gprune.app.ui import frame, glossary, help_drawer, places, selection, story, tables, url_state
from gprune.app.ui.card import Card, card
from gprune.app.ui.glossary import TERMS
from gprune.app.ui.page_names import HELP, HELP_PARTS, PAGE_OF, PAGES
from gprune.app.ui.recorded import parts_of
from gprune.app.ui.text import plain, short
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import MissingResultError, Run
from gprune.study.methods import METHODS

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


def _neuron(run: Run | None, drawn: Card) -> None:
    """One neuron with everything that happened to it."""
    st.markdown(
        "A feed-forward layer of a language model has many neurons. Pruning orders them by importance, "
        "measured while the model reads some text, and removes the last. On another text the order is "
        "another."
    )
    if run is None:
        return
    found = story.example_of(run, selection.current(run))
    for sentence in biography(run, found):
        st.markdown(f"- {sentence}")
    if selection.current(run).neuron is None:
        st.caption("It is among the neurons that move furthest beyond their noise. Select another on any page.")
    shown = panels.neuron(run, selected=selection.current(run))
    drawn.title(shown.title)
    drawn.show(shown, on_point=_select, narrow=True)


def _select(point: dict[str, Any]) -> None:
    """Selects a mark's neuron, on the page beside the help as well."""
    selection.of_point(point)
    help_drawer.draw_page()


def biography(run: Run, found: Example) -> list[str]:
    """What became of a neuron, a sentence a step."""
    a, b = plain(short(run.study.primary)), plain(short(run.study.auxiliary))
    drift = abs(found.first - found.second)
    far = "more than" if drift > found.floor else "no more than"
    told = [
        f"**Neuron {found.neuron} of layer {found.layer}** ranks {standing(found.first)} on A ({a}) and "
        f"{standing(found.second)} on B ({b}).",
        f"Its **drift** is d = {drift:.2f}: it moves over {_share(drift)} of the ranking. Between halves of "
        f"one text it moves over {_share(found.floor)}, so the other text moves it {far} noise does.",
    ]
    return told + _module(found) + _fate(found)


def _share(value: float) -> str:
    return percent(value, 1) if value < 0.1 else percent(value)


def _module(found: Example) -> list[str]:
    if found.module is None:
        return ["Its **module** is not known: this run has not sorted its neurons into modules."]
    told = [
        f"It belongs to **module {found.module}**, {counted(found.size, 'neuron')} that "
        f"{'is' if found.size == 1 else 'are'} ranked together."
    ]
    if found.adapted is None:
        return told
    if not found.adapted:
        return [*told, "**RASA** leaves the module alone: its neurons keep their scores from A."]
    source = "B, on which its ranking repeats better" if found.from_auxiliary else "A, which repeats better"
    return [*told, f"**RASA** adapts the module: its neurons are scored from {source}."]


def _fate(found: Example) -> list[str]:
    names = {name: METHODS[name].label for name in found.kept}
    kept = [names[name] for name, keeps in found.kept.items() if keeps]
    lost = [names[name] for name, keeps in found.kept.items() if not keeps]
    if not found.kept:
        return ["Nothing has been pruned in this run yet."]
    if not lost:
        return [f"Every method **keeps** it: {', '.join(kept)}."]
    if not kept:
        return [f"Every method **removes** it: {', '.join(lost)}."]
    return [f"It is **kept** by {', '.join(kept)} and **removed** by {', '.join(lost)}."]


@dataclass(frozen=True, slots=True)
class Idea:
    """What a card of the help tells."""

    key: str
    title: str
    words: str
    """for every reader, as Markdown"""
    finding: Callable[[Run], str] | None
    """the same of a run, in words"""
    more: Callable[[Run, Card], None] | None = None
    """draws what else the run has of it"""


def _tell(run: Run | None, drawn: Card, idea: Idea) -> None:
    """An idea in words, and what this run has of it; says so where it has nothing yet."""
    st.markdown(idea.words)
    if run is None:
        return
    try:
        if idea.finding is not None:
            st.info(plain(idea.finding(run)), icon=":material/analytics:")
    except MissingResultError as missing:
        st.caption(f"On this run: “{plain(missing.title)}” is not there{'' if story.ended(run) else ' yet'}.")
    if idea.more is not None:
        idea.more(run, drawn)


def _kept_by_both(run: Run, drawn: Card) -> None:
    other = story.rival(run)
    if other is not None and run.has(stages.masks, OURS) and run.has(stages.masks, other):
        drawn.show(panels.kept_by_both(run))


def _perplexity(run: Run) -> str:
    text, cells = story.on_unseen(run)
    # the dense model first, then the pruned ones, the best first
    cells = sorted(cells, key=lambda cell: (cell.method != DENSE, cell.perplexity))
    told = [f"{METHODS[cell.method].label} {cell.perplexity:.1f}" for cell in cells]
    return f"Perplexity on {text} ({story.standings(run)[text].brief}): {', '.join(told)}."


def _size(run: Run, drawn: Card) -> None:
    many = f"{run.size.parameters:,} parameters" if run.size else "a model of unknown size"
    st.caption(f"This run: {many}, {run.study.calibration.samples} calibration sequences a text.")


IDEAS = (
    Idea(
        "drift",
        "Drift, and the noise below it",
        "The **drift** of a neuron is how far its rank moves within the layer when the text changes, from 0 "
        "(not at all) to 1 (from the first place to the last). Measuring is noisy: even two halves of one "
        "text give different ranks. That is the **re-sampling floor**, and only drift above it is due to the "
        "text.",
        story.drift_finding,
    ),
    Idea(
        "modules",
        "Modules (BCM) and their stability",
        "**Behavior-consistent modularization (BCM)** sorts the neurons of a layer into modules: alike in "
        "their weights and alike in their drift. Neurons then compete with their own kind only, so one that "
        "shouts on one text cannot crowd out those that work on all. **ARI** says how far two such groupings "
        "agree: 1 is identical, 0 is chance.",
        story.agreement_finding,
    ),
    Idea(
        "rasa",
        "RASA: which text scores a module",
        "**Reliability-aware score adaptation (RASA)** looks for modules that drift much and score low on A: "
        "there the ranking rests on too weak a signal. Each takes its scores from the text, A or B, on which "
        "its own ranking changes less between halves (the smaller **u**).",
        story.adapted_finding,
    ),
    Idea(
        "budget",
        panels.kept_by_both.heading,
        "**Modular sparsity learning (MSL)** gives every module a threshold of its own and learns all of "
        "them on both texts at once, so that the whole model meets one budget. **Retention** is the share "
        "that is kept; **Jaccard** is the share of jointly kept neurons among those that either of two "
        "methods keeps.",
        story.budget_finding,
        _kept_by_both,
    ),
    Idea(
        "measures",
        "What it costs: perplexity",
        "**Perplexity** says how much a model is surprised by a text: at 40 it is as unsure of the next "
        "token as if it had to choose among 40 equally likely ones. Lower is better. All methods read the "
        "same windows, so the **difference** of two is known better than either; within two of its standard "
        "errors it is too close to call.",
        _perplexity,
    ),
    Idea(
        "care",
        "What one run cannot say",
        "**What to be careful with.** One run has one seed, so it says nothing of the spread between seeds. "
        "The bundled model is small: it shows how things work, not how large models behave. Figures of the "
        "paper stand on other models, texts and windows, and are never ranked beside measured ones.",
        None,
        _size,
    ),
)


def show() -> None:
    """Draws the open part of the help."""
    run, parts = frame.current_run(), {"read": _reading, "words": _words, "ideas": _ideas, "keys": _keys}
    part = url_state.segmented("Part of the help", HELP_PARTS, HELP, "", label_visibility="collapsed")
    parts.get(part, _reading)(run)


def _reading(_: Run | None) -> None:
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


def _keys(_: Run | None) -> None:
    for keys, what in KEYS:
        st.markdown(f"**{keys}** {what}.")


def _ideas(run: Run | None) -> None:
    """Every idea of the method, on the neurons and numbers of the run."""
    if run is None:
        st.caption("With a run, every idea below is told on its own neurons and numbers.")
    with card("help_neuron", "One neuron, two texts", run) as drawn:
        _neuron(run, drawn)
    for idea in IDEAS:
        with card(f"help_{idea.key}", idea.title, run) as drawn:
            _tell(run, drawn, idea)


def _words(_: Run | None) -> None:
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
