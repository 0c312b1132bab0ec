"""The slides: for each question of the app one sentence and one figure, which fill the window.

The address has the number of the open slide. Escape leads to the page behind the slide.
"""

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from gprune.app.ui import address, components, run_status, story, work
from gprune.app.ui.panel import Panel, PanelFunction
from gprune.app.ui.text import escape, join_numbers
from gprune.pipeline.runs.opened import MissingResultError, Run, root

SLIDE = "slide"
"""key in the address: the number of the open slide, from 1"""
_FONT_PIXELS = 21
_MOST_LEGEND_ENTRIES = 4
"""maximum number of entries of a legend above the figure"""
_LEGEND_RIGHT = {"orientation": "v", "x": 1.01, "xanchor": "left", "y": 1.0, "yanchor": "top"}
"""position of a longer legend: to the right of the figure, which is wide"""
_ENLARGEMENT = 1.7
"""factor by which lines and marks are enlarged"""
# This component sends the slide that was requested last as one value. With a Streamlit button for each number, two
# presses while a slide is drawn would reach the script as two clicks, whose order Streamlit does not keep.
_FOOT = st.components.v2.component(
    "gprune_slide_foot",
    html='<nav class="slide-foot" aria-label="slides"></nav>\n',
    css=components.read_asset("slide_foot.css"),
    js=components.read_asset("slide_foot.js"),
)


@dataclass(frozen=True, slots=True)
class Slide:
    """One slide."""

    place: str
    """the place that Escape opens, as in addresses"""
    title: str
    """its question"""
    finding: Callable[[Run], str]
    """returns the answer of a run, whose first sentence is shown; raises MissingResultError if a result is missing"""
    figure: str = ""
    """name of its figure; empty for a slide of `SlideFigures.live`"""

    def sentence(self, run: Run | None) -> str:
        """Return the sentence, or the reason why there is none. Raises GpruneError if a result is damaged."""
        if run is None:
            active = work.read_situation(root()).active
            return "The first run has just begun." if active else "There is no run yet."
        try:
            # a sentence ends with a full stop and a space, unlike the full stop in 6.3
            return re.split(r"(?<=\.)\s+", self.finding(run), maxsplit=1)[0]
        except MissingResultError as missing:
            reason = "is being computed" if run_status.is_live(run) else "is not part of this run"
            return f"This slide needs “{missing.title}”, which {reason}."


SLIDES = (
    Slide("home", "What does pruning cost?", lambda run: f"{story.headline(run).sentence}.", "cost"),
    Slide("drift", "Does importance depend on the text?", story.drift_finding, "drift"),
    Slide("agreement", "Are modules stable across texts?", story.agreement_finding, "agreement"),
    Slide("rasa", "Which scores cannot be trusted?", story.adapted_finding, "modules"),
    Slide("decisions", "Where did the budget go?", story.budget_finding, "retention"),
    Slide("compare", "Was it worth it?", story.unseen_finding, "perplexity"),
    Slide("lens", "How do the models continue?", story.continuation_finding),
    Slide("rasa", "What if less is kept?", story.retention_finding),
)
_EXPERT_SLIDES = (
    SLIDES[0],
    Slide("drift", SLIDES[1].title, story.drift_finding, "expert_drift"),
    Slide(
        "inspector",
        "Do the decisions depend on the text?",
        lambda run: f"{story.dependence_finding(run)}.",
        "expert_dependence",
    ),
    Slide("compare", "Was it worth it?", story.unseen_finding, "perplexity"),
)
"""the slides of a run that prunes experts"""
_NUMBERS = [*(str(number) for number in range(1, len(SLIDES) + 1)), ""]
"""allowed values of SLIDE; empty if no slide is open"""


FRAME = "slide_figure"
"""key of the container of a slide's figure"""
NO_TOOLBAR = {"displayModeBar": False}
"""Plotly's configuration of a figure without a toolbar"""


@dataclass(frozen=True, slots=True)
class SlideFigures:
    """The figures of the slides."""

    panels: Mapping[str, PanelFunction[...]]
    """the figures of all pages by name"""
    live: Mapping[str, Callable[[Run, Callable[[str], None]], None]]
    """by place, draws a slide that asks the live worker, its figure in the container FRAME; may call its second
    argument with another sentence"""


def draw_button(key: str, **look: Any) -> None:
    """Draw a button that opens the first slide."""
    about = "One sentence and one figure per question, for an audience. Escape ends the slides."
    components.action_button("Slides", key, "slideshow", address.set_value, SLIDE, "1", help=about, **look)


def slides_of(run: Run | None) -> tuple[Slide, ...]:
    """Return the slides of a run."""
    return _EXPERT_SLIDES if run is not None and run.study.prunes_experts else SLIDES


def open_slide_number() -> int:
    """Return the number of the open slide, from 1; 0 if none is open."""
    return int(address.read_option(SLIDE, _NUMBERS, "") or 0)


def draw_slide(run: Run | None, figures: SlideFigures) -> None:
    """Draw the open slide over the page."""
    slides = slides_of(run)
    # the address may be that of a run with more slides
    number = min(open_slide_number(), len(slides))
    slide = slides[number - 1]
    components.add_style("slides")
    with st.container(key="slide", gap="small"):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f":blue-badge[{number} / {len(slides)}] {slide.title}", width="stretch")
            if components.button("End", "slide_end", icon=":material/close_fullscreen:", shortcut="Escape"):
                address.set_value(SLIDE, "")
                address.open_page(slide.place)
        with components.show_errors():
            heading = st.empty()
            _draw_sentence(heading, slide.sentence(run))
            # the sentence already names a missing result
            with contextlib.suppress(MissingResultError):
                if run is not None and slide.figure:
                    with st.container(key=FRAME):
                        _draw_figure(slide.figure, figures.panels[slide.figure](run))
                elif run is not None:
                    figures.live[slide.place](run, partial(_draw_sentence, heading))
        _draw_foot(number, slides)


def _draw_sentence(heading: Any, sentence: str) -> None:
    heading.markdown(f"# {join_numbers(escape(sentence))}")


def _draw_figure(name: str, panel: Panel) -> None:
    options: dict[str, Any] = {"config": NO_TOOLBAR, "alt": panel.alt or panel.caption}
    st.plotly_chart(enlarge_figure(panel.figure), key=f"slide_{name}", height="stretch", **options)


def enlarge_figure(figure: go.Figure) -> go.Figure:
    """Return a figure that takes the height of its frame, with larger text, lines and marks.

    The original figure is not changed.
    """
    font = {"font": {"size": _FONT_PIXELS}}
    copy = go.Figure(figure).update_layout(font={"size": _FONT_PIXELS}, legend=font, height=None, title=None)
    copy.update_annotations(font_size=_FONT_PIXELS)
    copy.update_xaxes(tickfont={"size": _FONT_PIXELS}, title=font, automargin=True)
    copy.update_yaxes(tickfont={"size": _FONT_PIXELS}, title=font, automargin=True)
    if copy.layout.legend.orientation != "h" or len(copy.data) > _MOST_LEGEND_ENTRIES:
        copy.update_layout(legend=_LEGEND_RIGHT)
    for trace in copy.data:
        # bars and maps have no width or size of their own
        for part, size in (("line", "width"), ("marker", "size")):
            look: Any = getattr(trace, part, None)
            value = getattr(look, size, None)
            if isinstance(value, int | float):
                look[size] = value * _ENLARGEMENT
    return copy


def _draw_foot(number: int, slides: Sequence[Slide]) -> None:
    """Draw the numbers of the slides; their component also handles the keys of a presenter."""

    def open_requested() -> None:
        request = st.session_state["slide_foot"].get("asked")
        target = request.get("slide") if isinstance(request, dict) else None
        # a browser can send any value
        if type(target) is int and 1 <= target <= len(slides):
            address.set_value(SLIDE, str(target))

    data = {"titles": [slide.title for slide in slides], "shown": number}
    _FOOT(key="slide_foot", data=data, height="content", on_asked_change=open_requested)
