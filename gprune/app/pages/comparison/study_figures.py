"""The figures below a study's table: gains by retention, rows side by side, and Figures 1 and 3."""

import pandas as pd
import streamlit as st

from gprune.analysis import studies as analysis
from gprune.analysis import tables as gains
from gprune.analysis.studies import Setting
from gprune.app.pages.comparison import studies
from gprune.app.pages.comparison import study_charts as figures
from gprune.app.pages.comparison.studies import StudyTable
from gprune.app.ui import tables, url_state
from gprune.app.ui.card import Card, card
from gprune.app.ui.panel import Panel
from gprune.experiments.reproduction import catalogue
from gprune.experiments.reproduction.assembly import gaps, heading

MAIN_LIKE = ("main", "metric-gap", "gain-by-retention")
BINS = {
    "figure-3a": {"retained, GPrune": "gprune", "retained, FLAP": "flap"},
    "figure-3b": {"Jaccard": "gprune", "Jaccard by chance": ""},
}
_BIN_WORDS = {
    "figure-3a": "Modules in bins of equally many, by the mean rank drift of their neurons: where the two "
    "lines part, GPrune spends its budget differently.",
    "figure-3b": "Modules in bins of equally many, by the mean rank drift of their neurons; the grey line is "
    "what independent choices of the same sizes would share.",
}


def show(table: StudyTable, made: catalogue.Reproduction | None) -> None:
    """Draws the figures of a table that has numbers."""
    if table.name in MAIN_LIKE:
        _gains(table)
        return
    settings = analysis.settings(table.rows)
    histogram = studies.curves(made) if table.name == studies.HISTOGRAM and made else None
    with card("cp_study_figure", f"The table “{table.name}” as a figure") as drawn:
        if histogram is not None:
            drawn.title("Rank drift when the text changes, and when it is drawn again")
            shown = Panel(
                figures.drift_curves(histogram),
                "Blue: the text changes; grey: the same text re-sampled, which is the noise. The farther "
                "blue lies to the right of grey, the more the text decides.",
                table=lambda: histogram,
            )
            drawn.show(shown)
        elif table.name in BINS:
            filled = [setting for setting in settings if setting.filled]
            shown = Panel(
                figures.bins(filled, BINS[table.name]),
                _BIN_WORDS[table.name],
                table=lambda: analysis.long_table(filled, filled[0]),
            )
            drawn.show(shown)
        else:
            _rows(drawn, settings)


def _rows(drawn: Card, settings: list[Setting]) -> None:
    columns = analysis.columns(settings)
    titles = {column: heading(column) for column in columns}
    column = url_state.selectbox("Measure", titles, "cp_study_measure", columns[0], width=280)
    drawn.title(f"{heading(column)} of every row")
    shown = Panel(
        figures.rows(settings, column),
        "One dot a row with its spread; rows of one colour share a method, and open dots are controls that "
        "the paper does not have.",
        table=lambda: analysis.long_table(settings, next(s for s in settings if s.filled)),
    )
    drawn.show(shown)


def _gains(table: StudyTable) -> None:
    """What GPrune changes, computed from the rows of the main table."""
    rows = analysis.frame(table.rows)
    chosen: pd.DataFrame | None = None
    with card("cp_study_slope", "From the base metric to GPrune") as drawn:
        gain = gains.gain_by_retention(rows)
        columns = list(dict.fromkeys(gain["metric"]))
        if not columns:
            sentence = "No retention has both a base metric and GPrune on it yet."
            st.info(sentence, icon=":material/hourglass_empty:")
            return
        titles = {column: heading(column) for column in columns}
        column = url_state.selectbox("Measure", titles, "cp_gain_measure", columns[0], width=280)
        chosen = gain[gain["metric"] == column]
        _slopes(drawn, chosen, column)
    if chosen is None:
        return
    left, right = st.columns(2)
    with left, card("cp_study_gain", "Gain by retention") as drawn:
        shown = Panel(
            figures.gain_lines(chosen, column),
            "Against the base metric; the dotted line is no change. Below it is better for perplexity, above "
            "it for accuracy.",
            table=lambda: chosen,
        )
        drawn.show(shown)
    with right, card("cp_study_gap", "Gap between base metrics") as drawn:
        _gap(drawn, gaps(rows))


def _slopes(drawn: Card, chosen: pd.DataFrame, column: str) -> None:
    better = int(chosen["better"].sum())
    drawn.title(f"GPrune improves {heading(column)} in {better} of {len(chosen)} comparisons")
    direction = "falling" if analysis.is_perplexity(column) else "rising"
    shown = Panel(
        figures.slopes(chosen, column),
        f"Left the base metric, right GPrune on it at the same retention: a {direction} line is a gain.",
        table=lambda: chosen,
    )
    drawn.show(shown)


def _gap(drawn: Card, gap: pd.DataFrame) -> None:
    if gap.empty:
        st.info(
            "Needs Wanda-sp, FLAP and GPrune on both at one retention.", icon=":material/hourglass_empty:"
        )
        return
    smaller = int((gap["after"] < gap["before"]).sum())
    drawn.title(f"GPrune narrows the gap between Wanda-sp and FLAP in {smaller} of {len(gap)} cases")
    shown = gap.drop(columns="seed", errors="ignore")
    shown["metric"] = shown["metric"].map(heading)
    two = st.column_config.NumberColumn(format="%.2f")
    tables.show(
        shown,
        column_config={"before": two, "after": two},
        shares={"retention": 0, "reduction": 0},
        alt="gap between the base metrics before and after GPrune",
    )
    st.caption(
        "Absolute difference of the two base metrics, before and after GPrune is applied to both; a negative "
        "reduction means that the gap has grown."
    )
    drawn.tools(lambda: shown, switch=False)
