"""Which two pruned models the page holds beside the dense one: methods of the run, or sets edited by hand."""

from dataclasses import dataclass

import streamlit as st

from gprune.analysis.mask_edits import mask_sets
from gprune.app.preview import DENSE, Question
from gprune.app.ui import url_state
from gprune.app.ui.chart_style import called
from gprune.app.ui.text import said
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.study.methods import METHODS
from gprune.system.errors import GpruneError

LEFT, RIGHT = "lens_left", "lens_right"
_BY_HAND = "by-hand:"


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """Two pruned models and what they are called."""

    questions: tuple[Question, ...]
    """the dense model first, then those chosen"""
    labels: tuple[str, ...]
    """of the pruned ones"""


def choose(run: Run) -> Chosen | None:
    """Draws the fields; None after the reason has been shown where there is no pruned model."""
    names = _offered(run)
    if not names:
        wanted = stages.masks(run.graph).title
        st.info(f"Needs “{wanted}”, which this run does not have.", icon=":material/hourglass_empty:")
        return None
    first = list(names)
    other = "flap" if "flap" in names else first[min(1, len(first) - 1)]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        left = url_state.selectbox("On the left", names, LEFT, first[0], width=280)
        right = url_state.selectbox("On the right", names, RIGHT, other, width=280)
    picked = list(dict.fromkeys((left, right)))
    try:
        questions = [_question(run, name) for name in picked]
    except GpruneError as error:
        st.error(said(error), icon=":material/error:")
        return None
    return Chosen((Question("", DENSE), *questions), tuple(names[name] for name in picked))


def _offered(run: Run) -> dict[str, str]:
    """Methods whose masks are there, GPrune first, and the mask sets made by hand."""
    names = [
        name
        for name in sorted(run.study.methods, key=lambda name: name != "gprune")
        if METHODS[name].decision != "none" and run.has(stages.masks, METHODS[name].masks)
    ]
    found = {name: called(name) for name in names}
    sets = mask_sets.kept(run.results)[0] if names else []
    return found | {f"{_BY_HAND}{one.name}": f"{one.name} (by hand)" for one in sets}


def _question(run: Run, name: str) -> Question:
    if not name.startswith(_BY_HAND):
        return Question("", name)
    chosen = mask_sets.named(run.results, name.removeprefix(_BY_HAND))
    return Question("", chosen.method, mask_sets.repeated(run.results, chosen).masks)
