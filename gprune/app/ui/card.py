"""The card: the one frame that every chart and table stands in.

A title that states the finding, the chart, one sentence on how to read it, its table and its CSV. An error
of ours becomes one sentence on the card; the rest of the page survives.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from urllib.parse import urlencode

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from gprune.analysis.published import Published, same_setting
from gprune.app.ui import (
    assets,
    buttons,
    chart_style,
    export_dialog,
    help_drawer,
    job_runs,
    packed,
    present,
    selection,
    tables,
    url_state,
)
from gprune.app.ui.commands import command, python_code
from gprune.app.ui.panel import Call, Panel, PanelFunction
from gprune.app.ui.run_choice import RUN
from gprune.app.ui.text import join_numbers, said
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import MissingResultError, Run
from gprune.study import Study
from gprune.system.errors import CorpusError, GpruneError, ModelError

MAXIMISED = "card"
MAXIMISED_HEIGHT = 640
"""pixels of a chart whose card fills the window"""
_UNUSED_TOOLS = ["lasso2d", "select2d", "autoScale2d", "zoomIn2d", "zoomOut2d"]


class Card:
    """What a page can do with the card that it has opened."""

    def __init__(self, key: str, title: str, run: Run | None) -> None:
        """Draws the frame; `title` stands until the finding is known, `key` begins those of its widgets."""
        self.key, self.run = key, run
        self._calls: list[Call] = []
        self._figure = ""
        """the figure that it is there for, also where that cannot be drawn"""
        self._options: dict[str, Any] = {}
        self._figures: list[go.Figure] = []
        self._table: Callable[[], pd.DataFrame] | None = None
        self._as_read: Callable[[], pd.DataFrame] | None = None
        self.maximised = url_state.names(MAXIMISED, key)
        with st.container(horizontal=True, vertical_alignment="top", gap="small"):
            self._heading = st.container(width="stretch").empty()
            self._copies = st.container(width="content", horizontal=True, gap="small")
            self._sizing()
        self.title(title)

    def title(self, text: str) -> None:
        """Replaces the heading by the finding."""
        self._title = text
        self._heading.markdown(f"#### {join_numbers(text)}")

    def _sizing(self) -> None:
        """The button that lets the card fill the window, and gives the window back."""
        large = self.maximised
        clicked = buttons.act(
            "", f"{self.key}_size", "close_fullscreen" if large else "open_in_full", url_state.put,
            MAXIMISED, "" if large else self.key, type="tertiary",
            help="Back to the page" if large else "Let this card fill the window",
            shortcut="Escape" if large else None,
        )  # fmt: skip
        if clicked and url_state.in_fragment():
            # styles stand outside of a fragment and outlive its drawing
            st.rerun()
        if large:
            assets.look("maximised", self.key)

    def copies(self) -> None:
        """Offers what the card shows for a paper, as Python, as a command and as a link, at its end.

        What has no result yet, or is no figure or table of a run, can be had by the command and the link.
        """
        goods = export_dialog.Goods(self._title, self._file_name(), self._figures, self._table, self._as_read)
        with self._copies:
            export_dialog.button(self.key, goods)
        if self.run is None:
            return
        calls = self._calls or ([Call(self._figure, {})] if self._figure else [])
        python = python_code(self.run, self.key, calls, self._options)
        with (
            self._copies,
            st.popover(
                "",
                icon=":material/content_copy:",
                type="tertiary",
                key=f"{self.key}_copy",
                help="Copy as Python, as a command or as a link" if python else "Copy as a command or a link",
            ),
        ):
            if python:
                st.caption("As Python: what this card shows")
                st.code(python, language="python", wrap_lines=True)
            st.caption("As a command: the whole run")
            st.code(command(self.run.study), language="bash", wrap_lines=True)
            st.caption("As a link: this card, for people whom this server lets in")
            st.code(_link(self.run, self.key), language=None, wrap_lines=True)

    def reads(self, table: Callable[[], pd.DataFrame]) -> None:
        """Says how the card's table is read, where its numbers are arranged otherwise: for LaTeX."""
        self._as_read = table

    def asked(self, **options: Any) -> None:
        """Notes what is set beside a card without a figure, for those who copy what it shows."""
        self._options = options

    def is_for(self, figure: str) -> None:
        """Notes the figure that the card is there for, by its name."""
        self._figure = figure

    def offers(self, panel: Panel) -> None:
        """Notes a figure of the card for those who copy what it shows, where it is not drawn by `show`."""
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
        """Draws a panel under its finding; the table is made only when someone asks for it.

        `on_point` is told of the mark that a person clicks, as Plotly describes it, `on_region` of the marks,
        or none, in a box or a lasso. `switch` offers the table besides its CSV; `narrow` puts the tools,
        which have to fit into a third of the page, below the caption, and the table where the card is large.
        """
        if panel.title:
            self.title(panel.title)
        self.offers(panel)
        self._draw(panel, on_point, on_region)
        caption = f"{panel.caption} {panel.action}".strip()
        if narrow:
            self.tools(caption=caption)
            self.tools(panel.table, self.maximised, panel.how)
        else:
            self.tools(panel.table, switch, panel.how, caption)

    def beside(self, panel: Panel, key: str) -> None:
        """Draws another figure of the card, with its caption."""
        self.offers(panel)
        st.plotly_chart(panel.figure, key=key, config={"displaylogo": False}, alt=panel.alt or panel.caption)
        st.caption(join_numbers(panel.caption))

    def _draw(
        self,
        panel: Panel,
        on_point: Callable[[dict[str, Any]], None] | None,
        on_region: Callable[[list[dict[str, Any]]], None] | None,
    ) -> None:
        figure = panel.figure
        options = {
            "displaylogo": False,
            "modeBarButtonsToRemove": _UNUSED_TOOLS[2:] if on_region else _UNUSED_TOOLS,
            "toImageButtonOptions": {"format": "svg", "filename": self._file_name()},
        }
        self._figures.append(figure)
        figure = present.enlarged(figure)
        if self.maximised:
            # the figure may be one that other sessions are shown
            figure = go.Figure(figure).update_layout(height=MAXIMISED_HEIGHT)
        chosen: dict[str, Any] = {}
        if on_point or on_region:
            modes = ["points", "box", "lasso"] if on_region else ["points"]
            chosen = {"on_select": self._selected(on_point, on_region), "selection_mode": modes}
        with st.container(key=f"wide_{self.key}") if chart_style.is_wide(figure) else nullcontext():
            st.plotly_chart(figure, key=f"{self.key}_chart", config=options, alt=panel.alt or panel.caption, **chosen)

    def _selected(
        self,
        on_point: Callable[[dict[str, Any]], None] | None,
        on_region: Callable[[list[dict[str, Any]]], None] | None,
    ) -> Callable[[], None]:
        """What Streamlit calls when marks are chosen: passes on the first, or all that a region holds."""

        def handle() -> None:
            event = st.session_state.get(f"{self.key}_chart") or {}
            found = event.get("selection") or {}
            points = found.get("points") or []
            if on_region and (found.get("box") or found.get("lasso")):
                on_region(points)
            elif on_point and points:
                on_point(points[0])

        return handle

    def tools(
        self,
        table: Callable[[], pd.DataFrame] | None = None,
        switch: bool = True,
        how: str = "",
        caption: str = "",
    ) -> None:
        """What stands below a chart: how to read it, a switch that shows the numbers, and their CSV."""
        self._table, shown = self._table or table, False
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            if caption:
                st.caption(join_numbers(caption), width="stretch")
            # in a narrow card they go below the caption together
            with st.container(horizontal=True, vertical_alignment="center", gap="small", width="content"):
                if how:
                    key = f"{self.key}_how"
                    with st.popover("How to read", type="tertiary", icon=":material/help:", key=key):
                        st.markdown(how)
                        if words := help_drawer.words_of(self._title, caption, how):
                            help_drawer.open_words("What these words mean", f"{self.key}_words", words)
                if table is not None:
                    shown = switch and url_state.toggle("Table", f"{self.key}_table")
                    file, key = f"{self._file_name()}.csv", f"{self.key}_csv"
                    tables.download("CSV", lambda: tables.csv(table()), file, "text/csv", key, type="tertiary")
        if shown and table is not None:
            tables.show(table(), alt="the numbers behind the chart")

    def table(self, frame: pd.DataFrame, *, how: str = "", caption: str = "", **options: Any) -> None:
        """Draws the table that the card is there for, with its CSV and how it is read; see `tables.show`."""
        tables.show(frame, **options)
        self.tools(lambda: frame, switch=False, how=how, caption=caption)

    def published(self, claim: Published, study: Study) -> None:
        """Shows what the paper reports, and whether its setting is this run's."""
        with st.container(horizontal=True, vertical_alignment="center"):
            if same_setting(claim, study):
                st.badge("published, same setting", color="green")
            else:
                st.badge("published, different setting", color="grey")
            st.caption(join_numbers(f"The paper reports {claim.claim}. Setting: {claim.setting}."), width="stretch")

    def _file_name(self) -> str:
        return f"{self.run.name}-{self.key}" if self.run else self.key


def _link(run: Run, key: str) -> str:
    """The address of the page as it is shown, with a card that fills it."""
    held = {name: st.query_params.get_all(name) for name in st.query_params}
    return f"{st.context.url or ''}?{urlencode(held | {RUN: run.name, MAXIMISED: key}, doseq=True)}"


@contextmanager
def card(key: str, title: str, run: Run | None = None, figure: str = "") -> Iterator[Card]:
    """Opens a card, its key unique in the app; an error of ours inside is shown on it and goes no further.

    `figure` is the name of the one that it is there for, if it is there for one.
    """
    # cards that stand side by side are equally high
    with st.container(border=True, key=f"card_{key}", height="stretch", gap="small"):
        drawn = Card(key, title, run)
        drawn.is_for(figure)
        try:
            yield drawn
        except MissingResultError as missing:
            _missing(run, missing)
        except GpruneError as error:
            if run is not None and run.packed and isinstance(error, ModelError | CorpusError):
                # what a pack did not bring is no fault
                st.info(said(packed.sentence(error)), icon=":material/inventory_2:")
            else:
                st.error(said(error), icon=":material/error:")
        drawn.copies()


def card_of(panel: PanelFunction[...], run: Run) -> AbstractContextManager[Card]:
    """Opens the card of a figure, as `card` does."""
    return card(panel.card, panel.heading, run, panel.name)


def panel_card(
    panel: PanelFunction[...],
    run: Run,
    on_point: Callable[[dict[str, Any]], None] | None = None,
    **options: Any,
) -> None:
    """Draws a card that is its figure alone; what is selected is marked where the figure can mark it.

    `on_point` is told of the mark that a person clicks, as Plotly describes it.
    """
    with card_of(panel, run) as drawn:
        if "selected" in panel.options:
            options["selected"] = selection.current(run)
        drawn.show(panel(run, **options), on_point=on_point)


def await_drift(run: Run, key: str, sentence: str) -> None:
    """Draws empty axes with a sentence while the drift is computed; the browser loads Plotly meanwhile."""
    if not run.has(stages.drift) and job_runs.is_live(run):
        figure = chart_style.waiting(sentence)
        st.plotly_chart(figure, key=key, config={"displayModeBar": False}, alt=sentence)


def published_badge() -> None:
    """Marks what stands below it as published."""
    st.badge(
        "published, not run here",
        icon=":material/menu_book:",
        color="grey",
        help="Numbers of the paper’s authors, on their models, texts and windows. They stand beside measured "
        "numbers and are never ranked or averaged with them.",
    )


def _missing(run: Run | None, reason: MissingResultError) -> None:
    """Says which result is missing and what makes it."""
    needed, icon = f"Needs “{reason.title}”", ":material/hourglass_empty:"
    words = f"{needed}, which this run does not have."
    if run is not None and job_runs.is_live(run):
        icon = ":material/hourglass_top:"
        words = f"{needed}, which is being computed: the card draws itself when it is there."
    elif run is not None and (why := packed.reason(run, reason.title)):
        words, icon = said(why), ":material/inventory_2:"
    elif run is not None and "gprune" not in run.study.methods:
        words = said(f"{needed}: this run compares {', '.join(run.study.methods)} and leaves GPrune out.")
    st.info(words, icon=icon)
