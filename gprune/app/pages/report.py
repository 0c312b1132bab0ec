"""Page *Report*: select figures and save them with their findings as one self-contained HTML file."""

from dataclasses import dataclass

import streamlit as st

from gprune.analysis.formatting import format_count
from gprune.app.report import FIGURES, Report, describe_figure, figure_names, make_report, page_of_figure
from gprune.app.ui import address, components, frame, tables
from gprune.app.ui.card import Card, card
from gprune.app.ui.text import escape, escape_error
from gprune.pipeline.runs.opened import Run
from gprune.system.safe_parsing import quote
from gprune.system.units import amount

CHOSEN = "rp_cards"
"""key in the address: the selected figures in their order"""
_LATEST = "report_made"
"""session key of the latest report"""


@dataclass(frozen=True, slots=True)
class _FinishedReport:
    """A report that is ready to download, with its run and figures."""

    run: str
    cards: tuple[str, ...]
    report: Report


@frame.declare_page("Report", "Which figures go into one file that opens anywhere?")
def show(run: Run) -> None:
    """Draw the page."""
    with card("rp_choice", "Self-contained HTML report", run) as content:
        _choose_figures(run, content)


def _choose_figures(run: Run, content: Card) -> None:
    names = figure_names(run)
    figure_labels = {name: f"{page_of_figure(name)}: {FIGURES[name].heading}" for name in names}
    first = [name for name in names if page_of_figure(name) == page_of_figure(names[0])]
    cards = tuple(
        address.multiselect(
            "Figures",
            figure_labels,
            CHOSEN,
            first,
            help="In the order in which they are chosen. Each figure has its finding and the current settings of its "
            "page.",
        )
    )
    content.set_title(f"{len(cards)} of {len(names)} figures in one file" if cards else "Choose a figure")
    with st.container(horizontal=True):
        components.action_button("Add all", "rp_all", "", address.set_value, CHOSEN, list(names))
        for page in dict.fromkeys(map(page_of_figure, names)):
            of_page = [name for name in names if page_of_figure(name) == page]
            extended = list(dict.fromkeys([*cards, *of_page]))
            components.action_button(
                f"Add {page}", f"rp_page_{page}", "", address.set_value, CHOSEN, extended, type="tertiary"
            )
    st.caption(
        "The file contains findings, figures, tables, the run's settings, versions and commit. It follows the "
        "reader's light or dark mode, works on a phone and loads nothing from the network."
    )
    _draw_buttons(run, cards)
    _show_code(run, cards)


def _draw_buttons(run: Run, cards: tuple[str, ...]) -> None:
    """Draw the buttons that create and download the report."""
    with st.container(horizontal=True, vertical_alignment="center"):
        if components.button(
            "Create report", key="rp_make", type="primary", icon=":material/description:", disabled=not cards
        ):
            with st.spinner("Drawing the figures …"):
                values = dict(address.current_state().values)
                st.session_state[_LATEST] = _FinishedReport(run.name, cards, make_report(run, cards, values))
        latest: _FinishedReport | None = st.session_state.get(_LATEST)
        if latest is None or (latest.run, latest.cards) != (run.name, cards):
            return
        report = latest.report
        tables.download_button("Download", report.content, f"{run.name}-report.html", "text/html", "rp_download")
        figures = format_count(report.figures, "figure")
        st.markdown(f"{amount(len(report.content))}, {figures}")
    for name, problem in report.missing.items():
        st.warning(f"{escape(describe_figure(name))}: {escape_error(problem)}", icon=":material/hourglass_empty:")


def _show_code(run: Run, cards: tuple[str, ...]) -> None:
    """Show the command and the Python code that create the report with default settings."""
    if not cards:
        return
    with st.expander("Command and Python code", icon=":material/terminal:"):
        file = f"{run.name}.html"
        st.code(
            f"python -m gprune report {run.name} --cards {' '.join(cards)} -o {file}", language="bash", wrap_lines=True
        )
        listed = ", ".join(map(quote, cards))
        st.code(
            f"import gprune\n\ngprune.open({quote(run.name)}).report({quote(file)}, cards=[{listed}])",
            language="python",
            wrap_lines=True,
        )
