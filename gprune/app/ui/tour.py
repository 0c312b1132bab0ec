"""The tour: seven steps over the pages, each with what this run found there and why it matters.

A step is an address: the page, and `tour` with the number of the step. Findings come from the run at hand;
what is not there yet is said, and the tour goes on.
"""

import contextlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import streamlit as st

from gprune.app.ui import buttons, faults, job_runs, page_names, places, present, story, url_state, work
from gprune.app.ui.run_choice import RUN
from gprune.app.ui.text import plain
from gprune.app.ui.work import AUTOSTART_VARIABLE
from gprune.pipeline.runs.opened import MissingResultError, Run, root
from gprune.system.files import make_folder, write_text

_OVER, _SEEN = "tour_over", "first_visit_seen"
TOUR = "tour"


def _first_visit(place: str, root: str) -> bool:
    """Whether this is a first visit: of the first page, by an address that asks for nothing.

    Nothing begins by itself where GPRUNE_AUTOSTART is 0.
    """
    fresh = not st.session_state.get(_SEEN)
    st.session_state[_SEEN] = True
    wanted = os.environ.get(AUTOSTART_VARIABLE, "1") != "0"
    asked = place != "home" or len(st.query_params) > 0
    return fresh and wanted and not asked and not _over_path(root).exists()


def _over_path(root: str) -> Path:
    return Path(root) / "app" / _OVER


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the tour."""

    place: str
    """where it stands, as addresses call it"""
    title: str
    """the question of the step"""
    why: str
    """why the answer matters"""
    finding: Callable[[Run], str]
    """the answer of a run; raises MissingResultError where the run lacks it"""
    figure: str = ""
    """name of the figure that a slide shows with it; the last one has the retention curve"""
    slide: Callable[[Run], str] | None = None
    """what a slide says, where that is not the first sentence of the finding; raises as that does"""

    def sentence(self, run: Run) -> str:
        """The one sentence of a slide; raises MissingResultError where the run lacks the result."""
        told = (self.slide or self.finding)(run)
        # a full stop and a space end one; "6.3 %" has no space
        return re.split(r"(?<=\.)\s+", told, maxsplit=1)[0]


STEPS = (
    Step(
        "home",
        "What does pruning cost?",
        "Pruning makes a language model smaller: it measures on some text which neurons matter and removes "
        "the others. Perplexity says how much a model is surprised by a text, so a small rise is good. What "
        "counts is text that took no part in the choice.",
        lambda run: f"{story.headline(run).sentence}.",
        "cost",
    ),
    Step(
        "drift",
        "Does importance depend on the text?",
        "Where a neuron ranks high on one text and low on another, a model that is pruned on the first loses "
        "what the second needs. The drift of a neuron is how far its rank moves.",
        story.drift_finding,
        "drift",
    ),
    Step(
        "agreement",
        "Are modules stable across texts?",
        "GPrune sorts neurons that are alike and drift alike into modules, and ranks each neuron only within "
        "its own. That is worth something only if the modules do not depend on the text, nor on chance.",
        story.agreement_finding,
        "agreement",
    ),
    Step(
        "rasa",
        "Which scores cannot be trusted?",
        "A module that drifts much and scores low on A is ranked by too weak a signal. It takes its scores "
        "from the text on which its own ranking repeats better.",
        story.adapted_finding,
        "modules",
    ),
    Step(
        "decisions",
        "Where did the budget go?",
        "The same number of weights can be kept in many ways. GPrune learns on both texts how much each "
        "module keeps, instead of cutting all of them by one yardstick.",
        story.budget_finding,
        "retention",
    ),
    Step(
        "compare",
        "Was it worth it?",
        "All methods keep the same share and read the same windows of text, so the difference is theirs. A "
        "result counts when its 95 % interval does not hold 0.",
        story.comparison_finding,
        "perplexity",
        story.unseen_finding,
    ),
    Step(
        "retention",
        "What if less were kept?",
        "The fewer weights are kept, the higher perplexity rises, and not alike for all methods. Dragging the "
        "line reads each method's perplexity off its curve.",
        story.retention_finding,
    ),
)
_ON_THE_WAY = "tour_on_the_way"
_NUMBERS = [*(str(number) for number in range(1, len(STEPS) + 1)), ""]


def begin(place: str) -> None:
    """Begins the tour where the app is opened for the first time; called before a page is drawn."""
    if _first_visit(place, root()):
        url_state.put(TOUR, "1")


def begin_button() -> None:
    """The button that starts the tour; nothing where somebody is taking it."""
    if url_state.choice(TOUR, _NUMBERS, ""):
        return
    buttons.act("Take the tour", "tour_start", "tour", go, 1, type="primary")


def under_way() -> int:
    """The number of the step that is under way, from 1; 0 where nobody takes the tour."""
    return int(url_state.choice(TOUR, _NUMBERS, "") or 0)


def banner(place: str, run: Run | None) -> None:
    """Draws the step that is under way above a page; nothing where nobody takes the tour."""
    number = under_way()
    if not number:
        return
    step = STEPS[number - 1]
    _arrive(step, place)
    # the bar at the top of the window would cover its frame
    st.space("xsmall")
    with st.container(border=True, key="tour"):
        if step.place != place:
            _elsewhere(number, step)
            return
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f":blue-badge[Step {number} of {len(STEPS)}] **{step.title}**", width="stretch")
            _buttons(number)
            _link(number, run)
        with faults.shown():
            st.markdown(told(step.finding, run))
        st.caption(step.why)


def told(find: Callable[[Run], str], run: Run | None) -> str:
    """What a step says of a run, or why it cannot, as Markdown; raises GpruneError where that is damage."""
    if run is None:
        if work.look(root()).active:
            return "The first run has just begun: what it finds is told here as soon as it has come that far."
        return "There is no run yet to tell it on."
    try:
        return plain(find(run))
    except MissingResultError as missing:
        coming = "is being computed" if job_runs.is_live(run) else "is not part of this run"
        return f"What this step tells needs “{plain(missing.title)}”, which {coming}. The tour goes on."


def _buttons(number: int) -> None:
    buttons.act("Back", "tour_back", "arrow_back", go, number - 1, disabled=number == 1)
    last = number == len(STEPS)
    if not last:
        buttons.act("Next", "tour_next", "arrow_forward", go, number + 1, type="primary", icon_position="right")
    _end(primary=last)


def _end(primary: bool = False) -> None:
    kind: Literal["primary", "tertiary"] = "primary" if primary else "tertiary"
    buttons.act("End the tour", "tour_end", "", _stop, type=kind)


def _stop() -> None:
    """Ends the tour and notes that it was; where the cache cannot be written, it begins again."""
    url_state.put(TOUR, "")
    path = _over_path(root())
    with contextlib.suppress(OSError):
        make_folder(path.parent)
        write_text(path, "The tour of the app was ended or skipped here.\n")


def _link(number: int, run: Run | None) -> None:
    """The address of a step, for a slide."""
    with st.popover("", icon=":material/link:", type="tertiary", help="Address of this step, for a slide"):
        where = urlsplit(st.context.url or "")._replace(fragment="")
        held = {TOUR: str(number)} | ({RUN: run.name} if run is not None else {})
        for words, more in (("This step", {}), ("The same for an audience", {present.PRESENT: "1"})):
            st.caption(words)
            there = urlsplit(page_names.path(STEPS[number - 1].place, (held | more).items()))
            whole = where._replace(path=there.path, query=there.query).geturl()
            st.code(whole, language=None, wrap_lines=True)


def _elsewhere(number: int, step: Step) -> None:
    """The reader has gone to another page meanwhile, or opened an address that says so."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"The tour waits at step {number} of {len(STEPS)}, {step.title[0].lower()}{step.title[1:]}")
        buttons.act(f"Back to step {number}", "tour_return", "tour", go, number)
        _end()


def go(number: int) -> None:
    """Asks for a step; a callback, since these are done whatever else the browser sends meanwhile."""
    url_state.put(TOUR, str(number))
    st.session_state[_ON_THE_WAY] = True


def stay(number: int) -> None:
    """Notes that the place of a step is wanted as soon as pages are drawn again."""
    if STEPS[number - 1].place != url_state.page():
        st.session_state[_ON_THE_WAY] = True


def _arrive(step: Step, place: str) -> None:
    """Turns to the place of a step that was asked for.

    What a page sends while it is still being built can overtake the change to another one, so the step stays
    asked for until its place is there.
    """
    if step.place == place:
        st.session_state.pop(_ON_THE_WAY, None)
    elif st.session_state.get(_ON_THE_WAY):
        places.turn(step.place, (*places.SHARED, TOUR, present.PRESENT))
