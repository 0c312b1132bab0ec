"""The card of every method's model: where its folder is, or the button that has it written."""

import shlex
from pathlib import Path

import streamlit as st

from gprune.app.pages.speed_export.export_card import PLAN
from gprune.app.ui import offered_job, packed
from gprune.app.ui.card import Card
from gprune.app.ui.chart_style import label
from gprune.app.ui.text import plain
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.store import Store

_ROW = (3, 7, 2)
"""widths of a row's columns"""


def draw(drawn: Card, run: Run) -> None:
    """Draws the card: a row a method whose masks are there."""
    if run.packed:
        st.info(packed.no_model(run), icon=":material/inventory_2:")
        return
    if not run.cut:
        st.info("No method of this run has its masks yet.", icon=":material/hourglass_empty:")
        return
    drawn.title("Every method leaves a model that loads anywhere")
    st.caption(
        "Folders with the repair of the run, plan, model card and tokenizer, made on the CPU from the dense "
        "model and the masks, read back and compared."
    )
    for method in run.cut:
        _row(run, method)
    words = shlex.join(["python", "-m", "gprune", "export", run.name, "METHOD", "OUT"])
    st.code(words, language="bash", wrap_lines=True)


def _row(run: Run, method: str) -> None:
    name, state, action = st.columns(_ROW, vertical_alignment="center")
    name.markdown(plain(label(method)))
    place = folder(run, method)
    with state:
        if place is not None:
            st.code(str(place), language=None, wrap_lines=True)
            return
        active = offered_job.standing(run, arguments(run, method))
    if not active:
        with action:
            title = f"The model of {label(method)}"
            offered_job.start(run, arguments(run, method), title, words="Write it", key=f"sx_write_{method}")


def folder(run: Run, method: str) -> Path | None:
    """Where a method's model lies: what the run has written, or what was exported; None where neither is."""
    own, places = stages.checkpoint(run.graph, method), [destination(run, method)]
    if run.there(own):
        places.insert(0, run.results.model_folder(own))
    return next((place for place in places if (place / PLAN).is_file()), None)


def destination(run: Run, method: str) -> Path:
    """Where an export goes: below the cache, by run, method and content of its model."""
    key = stages.checkpoint(run.graph, method).key
    return Store(Path(run.root)).folder("exports", run.name) / f"{method}-{key[:8]}"


def arguments(run: Run, method: str) -> tuple[str, ...]:
    """The command that writes a method's model."""
    return ("export", run.name, method, str(destination(run, method)), "--cache", run.root)
