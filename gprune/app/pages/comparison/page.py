"""Compare: which method is better, by how much, is it beyond noise, and at the same budget?

Four views: the methods of runs side by side, the studies of the paper made here, the fair comparison that
comes with the project, and what the paper reports.
"""

import streamlit as st

from gprune.analysis import run_settings
from gprune.app.pages.comparison import (
    chosen,
    given_card,
    hand_card,
    kept_units_card,
    methods_table,
    panels,
    paper,
    recorded,
    study_cards,
)
from gprune.app.pages.comparison.lines import Shown
from gprune.app.ui import frame, tables, url_state
from gprune.app.ui.card import Card, card, card_of
from gprune.app.ui.run_labels import labels
from gprune.app.ui.text import said
from gprune.pipeline.runs.opened import Run
from gprune.system.errors import MethodError

METHODS_VIEW, STUDIES, RECORDED, PAPER = "methods", "studies", "fair", "paper"
_VIEWS = {METHODS_VIEW: "Methods", STUDIES: "Studies", RECORDED: "Fair study", PAPER: "Paper"}


def show() -> None:
    """Draws the page."""
    frame.page_title(
        "Compare", "Which method is better, by how much, is it beyond noise, and at the same budget?"
    )
    run = frame.require_run()
    view = url_state.segmented(
        "View",
        _VIEWS,
        "cp_view",
        METHODS_VIEW if run else PAPER,
        label_visibility="collapsed",
        help="Methods of the chosen runs; tables of the paper made here; the fair comparison on other models "
        "that comes with GPrune Studio; the paper’s own figures.",
    )
    if view == STUDIES:
        study_cards.show(run)
    elif view == RECORDED:
        recorded.show()
    elif view == PAPER:
        paper.show()
    elif run is not None:
        _methods(run)


def _methods(run: Run) -> None:
    runs = chosen.runs(run)
    shown: Shown | None = None
    with card("cp_table", "Perplexity of every method", run) as drawn:
        shown = chosen.shown(runs)
        methods_table.show(drawn, shown)
    if len(runs) > 1:
        with card("cp_settings", "Settings in which the runs differ", run) as drawn:
            _settings(drawn, runs)
    if shown is None:
        return
    with card("cp_given", "What each method was given", run) as drawn:
        given_card.show(drawn, shown)
    with card_of(panels.differences, run) as drawn:
        _changes(run, drawn, shown)
    if there := hand_card.sets(shown):
        with card("cp_hand", "Mask sets made by hand", run) as drawn:
            hand_card.show(drawn, shown, there)
    with card_of(panels.perplexity, run) as drawn:
        _perplexities(drawn, run, shown)
    with card_of(panels.kept_units_by_layer, run) as drawn:
        kept_units_card.show(run, drawn, shown)


def _settings(drawn: Card, runs: list[Run]) -> None:
    """A small table of what differs; where nothing does, a sentence."""
    known = labels(runs)
    table = run_settings.differences({known[run.name]: run.study for run in runs})
    if table.empty:
        st.caption("These runs have the same settings.")
        return
    count = len(table)
    drawn.title(f"The runs differ in {count} setting{'s' if count > 1 else ''}")
    tables.show(table, alt="settings in which the runs differ")
    drawn.tools(lambda: table, switch=False)


def _changes(run: Run, drawn: Card, shown: Shown) -> None:
    try:
        made = panels.differences(run, **panels.asked_of(run, shown), _shown=shown)
    except MethodError as reason:
        words = said(reason)
        st.info(f"{words[:1].upper()}{words[1:]}.", icon=":material/hourglass_empty:")
        return
    drawn.show(made)


def _perplexities(drawn: Card, run: Run, shown: Shown) -> None:
    asked = panels.asked_of(run, shown)
    made = [panels.perplexity(run, text=text, **asked, _shown=shown) for text in shown.texts]
    for text, one in zip(shown.texts, made, strict=True):
        drawn.offers(one)
        st.plotly_chart(
            one.figure,
            key=f"cp_chart_{text}",
            config={
                "displaylogo": False,
                "toImageButtonOptions": {"format": "svg", "filename": f"{run.name}-ppl"},
            },
            alt=one.alt,
        )
    st.caption(made[0].caption)
    drawn.tools(made[0].table, how=made[0].how)
