"""Compare: which method is better, by how much, is it beyond noise, and at the same budget?

Four views: the methods of runs side by side, the studies of the paper made here, the fair comparison that
comes with the project, and what the paper reports.
"""

from __future__ import annotations

import streamlit as st

from gprune.analysis import comparison as analysis
from gprune.analysis import run_settings
from gprune.views.comparison import charts as figures
from gprune.views.comparison import (
    chosen,
    given_card,
    hand_card,
    kept_units_card,
    methods_table,
    paper,
    pictures,
    recorded,
    study_cards,
)
from gprune.views.comparison.chosen import Shown
from gprune.views.frame import address, frame, picture, tables
from gprune.views.frame.card import Card, card
from gprune.views.frame.chart_style import METHOD_LABELS
from gprune.views.frame.loaders import Run
from gprune.views.frame.run_labels import labels
from gprune.views.frame.text import plain

METHODS_VIEW, STUDIES, RECORDED, PAPER = "methods", "studies", "fair", "paper"
_VIEWS = {METHODS_VIEW: "Methods", STUDIES: "Studies", RECORDED: "Fair study", PAPER: "Paper"}


def show() -> None:
    """Draws the page."""
    frame.page_title(
        "Compare", "Which method is better, by how much, is it beyond noise, and at the same budget?"
    )
    run = frame.require_run()
    view = address.segmented(
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
    with card("cp_changes", "Difference to the pinned method", run) as drawn:
        _changes(run, drawn, shown)
    if there := hand_card.sets(shown):
        with card("cp_hand", "Mask sets made by hand", run) as drawn:
            hand_card.show(drawn, shown, there)
    with card("cp_charts", "Perplexity on a log axis", run) as drawn:
        _perplexities(drawn, run, shown)
    with card("cp_units", "Units that two methods keep", run) as drawn:
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
    names = pictures.names_of(shown)
    pinned = plain(shown.names[shown.pinned.name])
    figure = figures.changes(shown.lines, shown.pinned, shown.texts, names)
    if figure is None:
        st.info(
            f"No other method was measured on the windows of {pinned}.", icon=":material/hourglass_empty:"
        )
        return
    drawn.title(f"Difference to {pinned}")
    drawn.chart(
        picture.shown("differences", figure, **pictures.asked_of(run, shown)),
        f"Left of the line is better than {pinned}; whiskers are ± one standard error of the difference.",
        table=lambda: analysis.long_table(shown.rows, shown.pinned.name, METHOD_LABELS),
        how="Both methods read the same windows of a text, so the difference is taken window by window and "
        "its error is that of these differences: far smaller than the error of either perplexity. Pale marks "
        "lie within two standard errors of zero, or are of another retention. With several seeds the error "
        "over seeds is added in quadrature. Methods that read other windows are left out.",
    )


def _perplexities(drawn: Card, run: Run, shown: Shown) -> None:
    names, asked = pictures.names_of(shown), pictures.asked_of(run, shown)
    for text in shown.texts:
        drawn.offers(picture.call("perplexity", text=text, **asked))
        st.plotly_chart(
            figures.dots(shown.lines, text, names),
            key=f"cp_chart_{text}",
            config={
                "displaylogo": False,
                "toImageButtonOptions": {"format": "svg", "filename": f"{run.name}-ppl"},
            },
            alt=f"perplexity of every method on {text}",
        )
    st.caption("Whiskers are each method's own error; the dotted line is the dense model.")
    drawn.tools(
        lambda: analysis.long_table(shown.rows, None, METHOD_LABELS),
        how="Whiskers are each method's own standard error over windows, or the deviation over seeds. All "
        "methods of a run read the same windows, so overlapping whiskers decide nothing: the table's "
        "differences are paired.",
    )
