"""The card of equal widths: what they cost here, and the button that measures it where nobody has."""

import streamlit as st

from gprune.analysis.decision import Price, price_table, prices
from gprune.analysis.formatting import counted
from gprune.app.pages.comparison.lines import Shown
from gprune.app.ui import tables, work
from gprune.app.ui.card import Card
from gprune.app.ui.chart_style import label
from gprune.app.ui.text import plain
from gprune.pipeline.runs.opened import Run
from gprune.study import Study, short
from gprune.study.methods import METHODS

_WHY = (
    "With equal widths every layer keeps the same number of neurons and of key/value groups, and the saved "
    "folder is a stock model, which runtimes take without code of this project. What weighs layers against "
    "each other with free widths decides inside each."
)
_HOW = (
    "Perplexity with equal widths against the same method, texts and seeds with free ones, on the same "
    "windows. Equal widths keep at most the share that was asked for, in whole blocks of the alignment, so "
    "that a part of the change can be a lower retention: both are shown."
)


def draw(drawn: Card, run: Run, compared: tuple[Shown, str] | None) -> None:
    """Draws the price, and what would measure it; `compared` are the runs and the text that it is of."""
    st.caption(_WHY)
    found: list[Price] = []
    if compared is not None:
        shown, text = compared
        found = prices(shown.lines, {one.name: one.study for one in shown.runs}, text)
    if found:
        drawn.title(_title(found, text))
        table = price_table(found, label, text)
        tables.show(table, alt="perplexity with free and equal widths, by method")
        drawn.tools(lambda: table, switch=False, how=_HOW)
    study = equalled(run.study)
    if study is not None and all(run.name != price.free.rows[0].run for price in found):
        work.start_button("Measure equal widths on this model", "dc_widths_start", run.root, study)
        st.caption("What this run has computed and does not depend on widths is not computed again.")


def _title(found: list[Price], text: str) -> str:
    changes = [100 * price.difference.change for price in found]
    span = " to ".join(dict.fromkeys(f"{one(changes):+.0f}" for one in (min, max)))
    return plain(
        f"Equal widths change the perplexity of {counted(len(found), 'method')} on {short(text)} by {span} %"
    )


def equalled(study: Study) -> Study | None:
    """The study with equal widths, without the methods that cannot have them; None where it has them."""
    methods = [name for name in study.methods if METHODS[name].levels]
    if study.sparsity.equal or not any(METHODS[name].decision != "none" for name in methods):
        return None
    return study.with_settings({"methods": methods, "sparsity.widths": "equal"})
