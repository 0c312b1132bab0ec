"""The card: the frame around every chart and table, with its table, CSV and export for a paper.

The card shows a GpruneError in its block as one sentence, and the rest of the page is unaffected. The export for a
paper is built when it is opened: the browser draws the figure at print size, and Plotly's camera button saves it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from gprune.app.ui import address, chart_style, components, documents, run_status, selection, tables
from gprune.app.ui.commands import python_code
from gprune.app.ui.panel import Call, Panel, PanelFunction
from gprune.app.ui.text import escape, escape_error, join_numbers, name_texts, strip_markdown
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import MissingResultError, Run
from gprune.study import Study
from gprune.system.errors import CorpusError, GpruneError, ModelError

if TYPE_CHECKING:
    from gprune.analysis.published import Published

_MOST_TERMS = 5
"""maximum number of glossary terms in the popover *How to read*"""
_REMOVED_TOOLS = ["lasso2d", "select2d", "autoScale2d", "zoomIn2d", "zoomOut2d"]
"""buttons that are removed from Plotly's toolbar; a figure with selectable regions keeps the first two"""


class Card:
    """A card that a page fills with figures or a table."""

    def __init__(self, key: str, title: str, run: Run | None, figure: str) -> None:
        """Draw the frame; `set_title` replaces `title`, and `key` is the prefix of the widgets' keys."""
        self.key, self.run = key, run
        self._calls: list[Call] = []
        self._figure = figure
        """name of the card's figure, even if it cannot be drawn"""
        self._figures: list[go.Figure] = []
        self._table: Callable[[], pd.DataFrame] | None = None
        self._printed_table: Callable[[], pd.DataFrame] | None = None
        with st.container(horizontal=True, vertical_alignment="top", gap="small"):
            self._heading = st.container(width="stretch").empty()
            self._copies = st.container(width="content", horizontal=True, gap="small")
        self.set_title(title)

    def set_title(self, text: str) -> None:
        """Replace the title, for example by a finding."""
        self._title = text
        self._heading.markdown(f"#### {join_numbers(text)}")

    def draw_copy_buttons(self) -> None:
        """Draw the buttons that export the card for a paper and as Python code."""
        content = CardContent(self._title, self._file_name(), self._figures, self._table, self._printed_table)
        with self._copies:
            draw_export_button(self.key, content)
        if self.run is None:
            return
        calls = self._calls or ([Call(self._figure, {})] if self._figure else [])
        python = python_code(self.run, self.key, calls)
        if not python:
            return
        icon = ":material/content_copy:"
        with self._copies, st.popover("", icon=icon, type="tertiary", key=f"{self.key}_copy", help="Copy as Python"):
            st.caption("This card as Python code")
            st.code(python, language="python", wrap_lines=True)

    def set_printed_table(self, table: Callable[[], pd.DataFrame]) -> None:
        """Set the function that builds the table for LaTeX, if its layout differs from that of the CSV."""
        self._printed_table = table

    def note_panel(self, panel: Panel) -> None:
        """Add the call that reproduces a panel to the card's Python code; `show` does this for its panels."""
        if panel.code is not None:
            self._calls.append(panel.code)

    def show(
        self,
        panel: Panel,
        *,
        on_point: Callable[[dict[str, Any]], None] | None = None,
        on_region: Callable[[list[dict[str, Any]]], None] | None = None,
        switch: bool = True,
        narrow: bool = False,
    ) -> None:
        """Draw a panel under its title; the table is built on request.

        `on_point` receives the clicked mark as a dictionary of Plotly, `on_region` the list of marks in a box or
        lasso, which may be empty. `switch` adds a switch that shows the table. `narrow` is for a card that
        is a third of the page wide: the tools are below the caption, without the switch.
        """
        if panel.title:
            self.set_title(panel.title)
        self.note_panel(panel)
        self._draw(panel, on_point, on_region)
        action = panel.action if on_point or on_region else ""
        caption = f"{panel.caption} {action}".strip()
        if narrow:
            self.tools(caption=caption)
            self.tools(panel.table, switch=False, how=panel.how)
        else:
            self.tools(panel.table, switch, panel.how, caption)

    def _draw(
        self,
        panel: Panel,
        on_point: Callable[[dict[str, Any]], None] | None,
        on_region: Callable[[list[dict[str, Any]]], None] | None,
    ) -> None:
        figure = panel.figure
        options = {
            "displaylogo": False,
            "modeBarButtonsToRemove": _REMOVED_TOOLS[2:] if on_region else _REMOVED_TOOLS,
            "toImageButtonOptions": {"format": "svg", "filename": self._file_name()},
        }
        self._figures.append(figure)
        chosen: dict[str, Any] = {}
        if on_point or on_region:
            modes = ["points", "box", "lasso"] if on_region else ["points"]
            chosen = {"on_select": self._selection_handler(on_point, on_region), "selection_mode": modes}
        with st.container(key=f"wide_{self.key}") if chart_style.is_wide(figure) else nullcontext():
            st.plotly_chart(figure, key=f"{self.key}_chart", config=options, alt=panel.alt or panel.caption, **chosen)

    def _selection_handler(
        self,
        on_point: Callable[[dict[str, Any]], None] | None,
        on_region: Callable[[list[dict[str, Any]]], None] | None,
    ) -> Callable[[], None]:
        """Return a callback that passes the clicked mark to `on_point`, or the marks of a region to `on_region`."""

        def handle() -> None:
            event = st.session_state.get(f"{self.key}_chart") or {}
            selected = event.get("selection") or {}
            points = selected.get("points") or []
            if on_region and (selected.get("box") or selected.get("lasso")):
                on_region(points)
            elif on_point and points:
                on_point(points[0])

        return handle

    def tools(
        self, table: Callable[[], pd.DataFrame] | None = None, switch: bool = True, how: str = "", caption: str = ""
    ) -> None:
        """Draw the tools below a chart: caption, How to read, a switch that shows the table, and a CSV download."""
        self._table, is_shown = self._table or table, False
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            if caption:
                st.caption(join_numbers(caption), width="stretch")
            # the tools wrap together: if the card is narrow, they are below the caption
            with st.container(horizontal=True, vertical_alignment="center", gap="small", width="content"):
                if how:
                    key = f"{self.key}_how"
                    with st.popover("How to read", type="tertiary", icon=":material/help:", key=key):
                        st.markdown(how)
                        for term in documents.terms_in(self._title, caption, how)[:_MOST_TERMS]:
                            st.caption(f"**{term}**: {documents.TERMS[term]}")
                if table is not None:
                    is_shown = switch and address.toggle("Table", f"{self.key}_table")
                    file, key = f"{self._file_name()}.csv", f"{self.key}_csv"
                    tables.download_button(
                        "CSV", lambda: tables.encode_csv(table()), file, "text/csv", key, type="tertiary"
                    )
        if is_shown and table is not None:
            tables.show(table(), alt="the numbers behind the chart")

    def table(self, frame: pd.DataFrame, *, how: str = "", caption: str = "", **options: Any) -> None:
        """Draw a table as the card's content, with the tools below it; `options` are those of `tables.show`."""
        tables.show(frame, **options)
        self.tools(lambda: frame, switch=False, how=how, caption=caption)

    def published(self, claim: "Published", study: Study) -> None:
        """Show a result of the paper, with a badge that says whether the study has the same setting."""
        from gprune.analysis.published import same_setting

        with st.container(horizontal=True, vertical_alignment="center"):
            if same_setting(claim, study):
                st.badge("published, same setting", color="green")
            else:
                st.badge("published, different setting", color="grey")
            st.caption(join_numbers(f"The paper reports {claim.claim}. Setting: {claim.setting}."), width="stretch")

    def _file_name(self) -> str:
        return f"{self.run.name}-{self.key}" if self.run else self.key


@contextmanager
def card(key: str, title: str, run: Run | None = None, figure: str = "") -> Iterator[Card]:
    """Open a card, which shows a GpruneError of the block instead of raising it.

    `key` is unique in the app, and `figure` is the name of the card's figure, if it has one.
    """
    # cards side by side have the same height
    with st.container(border=True, key=f"card_{key}", height="stretch", gap="small"):
        new_card = Card(key, title, run, figure)
        try:
            yield new_card
        except MissingResultError as missing:
            _explain_missing_result(run, missing)
        except GpruneError as error:
            if run is not None and run.packed and isinstance(error, ModelError | CorpusError):
                # data that a pack does not contain is not an error
                st.info(escape_error(run_status.pack_sentence(error)), icon=":material/inventory_2:")
            else:
                st.error(escape_error(error), icon=":material/error:")
        new_card.draw_copy_buttons()


def card_of(panel: PanelFunction[...], run: Run) -> AbstractContextManager[Card]:
    """Open the card of a figure, as `card` does."""
    return card(panel.card, panel.heading, run, panel.name)


def panel_card(
    panel: PanelFunction[...], run: Run, on_point: Callable[[dict[str, Any]], None] | None = None, **options: Any
) -> None:
    """Draw a card with one figure; the current selection is marked if the figure has the option `selected`.

    `on_point` receives the clicked mark as a dictionary of Plotly, `options` are those of the figure.
    """
    with card_of(panel, run) as open_card:
        if "selected" in panel.options:
            options["selected"] = selection.current_selection(run)
        open_card.show(panel(run, **options), on_point=on_point)


def await_drift(run: Run, key: str, sentence: str) -> None:
    """Draw empty axes with a sentence while the drift is computed."""
    if not run.has(stages.main_drift) and run_status.is_live(run):
        figure = chart_style.placeholder_figure(sentence)
        st.plotly_chart(figure, key=key, config={"displayModeBar": False}, alt=sentence)


def published_badge() -> None:
    """Draw a badge that marks the results below it as published."""
    st.badge(
        "published, not run here",
        icon=":material/menu_book:",
        color="grey",
        help="Numbers of the paper’s authors, on their models, texts and windows. They are shown next to measured "
        "numbers and are never ranked or averaged with them.",
    )


def _explain_missing_result(run: Run | None, reason: MissingResultError) -> None:
    """Show which result is missing, and the reason."""
    title = escape(name_texts(reason.title, run.study)) if run is not None else reason.title
    needed, icon = f"Needs “{title}”", ":material/hourglass_empty:"
    message = f"{needed}, which this run does not have."
    if run is not None and run_status.is_live(run):
        icon = ":material/hourglass_top:"
        message = f"Waiting for “{title}”. This card appears when it is ready."
    elif run is not None and (why := run_status.pack_reason(run, reason.title)):
        message, icon = escape_error(name_texts(why, run.study)), ":material/inventory_2:"
    elif run is not None and "gprune" not in run.study.methods and not run.study.prunes_experts:
        message = f"{needed}. " + escape_error(f"This run compares {', '.join(run.study.methods)}, without GPrune.")
    st.info(message, icon=icon)


MOST_ROWS = 60
"""maximum number of rows of a LaTeX table, to fit on a page"""


@dataclass(frozen=True, slots=True)
class CardContent:
    """The figures and the table of a card, for the export."""

    title: str
    """title of the card, as Markdown"""
    name: str
    """stem of the names of the exported files"""
    figures: Sequence[go.Figure]
    table: Callable[[], pd.DataFrame] | None
    """builds the table of the CSV, if there is one"""
    printed_table: Callable[[], pd.DataFrame] | None = None
    """builds the table for LaTeX, if its layout differs"""


def draw_export_button(key: str, content: CardContent) -> None:
    """Draw the button that opens the export for a paper; nothing without figures or table."""
    if not content.figures and content.table is None:
        return
    if components.button(
        "",
        key=f"{key}_take",
        icon=":material/file_export:",
        type="tertiary",
        help="For a paper: figure as SVG, table as LaTeX",
    ):
        _open_export(key, content)


@st.dialog("For a paper", width="large", icon=":material/file_export:")
def _open_export(key: str, content: CardContent) -> None:
    st.markdown(f"**{content.title}**")
    if content.figures:
        _draw_print_preview(key, content)
    with components.show_errors():
        _draw_latex(key, content)


def _draw_print_preview(key: str, content: CardContent) -> None:
    """Draw the figures as they will be printed, each with Plotly's camera button."""
    chosen = st.segmented_control(
        "Width",
        list(chart_style.WIDTH_LABELS),
        default="one",
        required=True,
        format_func=chart_style.WIDTH_LABELS.__getitem__,
        key=f"{key}_take_width",
    )
    for i, figure in enumerate(content.figures):
        fitted = chart_style.fit_to_paper(figure, chosen)
        name = f"{content.name}-{i + 1}" if i else content.name
        size = {"width": fitted.layout.width, "height": fitted.layout.height}
        st.plotly_chart(
            fitted,
            key=f"{key}_take_chart_{i}_{chosen}",
            theme=None,
            width="content",
            config={
                "displaylogo": False,
                "displayModeBar": True,
                "modeBarButtons": [["toImage"]],
                "toImageButtonOptions": {"format": "svg", "filename": name, "scale": 1, **size},
            },
            alt=f"the figure as it is printed: {strip_markdown(content.title)}",
        )
    st.caption("The camera button at the top right of the figure saves it as SVG.")


def _draw_latex(key: str, content: CardContent) -> None:
    """Draw the code of the table for LaTeX, and its downloads as LaTeX and CSV."""
    if content.table is None:
        return
    numbers = content.table()
    table = content.printed_table() if content.printed_table is not None else numbers
    from gprune.analysis.table import Table

    source = Table(table).first(MOST_ROWS).latex(strip_markdown(content.title))
    limit = f"; the first {MOST_ROWS} of {len(table):,} rows" if len(table) > MOST_ROWS else ""
    st.caption(f"LaTeX, for the booktabs package{limit}. The button in the corner copies the code.")
    st.code(source, language="latex", height=260, wrap_lines=True)
    with st.container(horizontal=True):
        latex = source.encode("utf-8", "replace")
        tables.download_button("LaTeX", latex, f"{content.name}.tex", "text/x-tex", f"{key}_take_tex")
        tables.download_button("CSV", tables.encode_csv(numbers), f"{content.name}.csv", "text/csv", f"{key}_take_csv")
