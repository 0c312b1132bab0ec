"""What a card gives for a paper: figures as SVG as wide as one column or two, its table as LaTeX and CSV.

Nothing of it is made before somebody opens it: a card costs one button. The figure is drawn by the browser as
it will be printed, and Plotly's own camera writes it; no other program is needed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from gprune.analysis.table import Table
from gprune.app.ui import buttons, faults, paper_figure, tables
from gprune.app.ui.text import unmarked

MOST_ROWS = 60
"""rows of a table as LaTeX; a longer one fits on no page"""


@dataclass(frozen=True, slots=True)
class Goods:
    """What a card has to give."""

    title: str
    """what it shows, as Markdown"""
    name: str
    """stem of its files"""
    figures: Sequence[go.Figure]
    table: Callable[[], pd.DataFrame] | None
    """makes its numbers; those of its figure where left out"""
    as_read: Callable[[], pd.DataFrame] | None = None
    """makes the table as it is read, where its numbers are arranged otherwise"""


def button(key: str, goods: Goods) -> None:
    """Draws the button that opens them; nothing where there are none."""
    if not goods.figures and goods.table is None:
        return
    if buttons.pressed(
        "",
        key=f"{key}_take",
        icon=":material/file_export:",
        type="tertiary",
        help="For a paper: figure as SVG, table as LaTeX",
    ):
        _opened(key, goods)


@st.dialog("For a paper", width="large", icon=":material/file_export:")
def _opened(key: str, goods: Goods) -> None:
    st.markdown(f"**{goods.title}**")
    if goods.figures:
        _figures(key, goods)
    with faults.shown():
        _tables(key, goods)


def _figures(key: str, goods: Goods) -> None:
    """The figures as they will be printed, each with Plotly's camera."""
    chosen = st.segmented_control(
        "Width",
        list(paper_figure.CALLED),
        default="one",
        required=True,
        format_func=paper_figure.CALLED.__getitem__,
        key=f"{key}_take_width",
    )
    for place, figure in enumerate(goods.figures):
        made = paper_figure.fitted(figure, chosen)
        name = f"{goods.name}-{place + 1}" if place else goods.name
        size = {"width": made.layout.width, "height": made.layout.height}
        st.plotly_chart(
            made,
            key=f"{key}_take_chart_{place}_{chosen}",
            theme=None,
            width="content",
            config={
                "displaylogo": False,
                "displayModeBar": True,
                "modeBarButtons": [["toImage"]],
                "toImageButtonOptions": {"format": "svg", "filename": name, "scale": 1, **size},
            },
            alt=f"the figure as it is printed: {unmarked(goods.title)}",
        )
    st.caption("The camera at the upper right corner of the figure writes it as SVG, as it is seen here.")


def _tables(key: str, goods: Goods) -> None:
    """The table as LaTeX, and its numbers as CSV."""
    numbers = goods.table() if goods.table is not None else paper_figure.numbers_of(goods.figures[0])
    table = goods.as_read() if goods.as_read is not None else numbers
    if table is None:
        return
    source = Table(table).first(MOST_ROWS).latex(unmarked(goods.title))
    rest = f"; the first {MOST_ROWS} of {len(table):,} rows" if len(table) > MOST_ROWS else ""
    st.caption(f"LaTeX, for the booktabs package{rest}. The button in the corner copies it.")
    st.code(source, language="latex", height=260, wrap_lines=True)
    with st.container(horizontal=True):
        written = source.encode("utf-8", "replace")
        tables.download("LaTeX", written, f"{goods.name}.tex", "text/x-tex", f"{key}_take_tex")
        if numbers is not None:
            tables.download("CSV", tables.csv(numbers), f"{goods.name}.csv", "text/csv", f"{key}_take_csv")
