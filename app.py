"""Entry point of GPrune Studio: declare the pages and draw the requested one. Start it with `make app`."""

import streamlit as st

from gprune.app.ui import frame
from gprune.app.ui.page_names import PAGES, SECTIONS, TOOL, Page
from gprune.app.ui.slides import SlideFigures

# an integer is the width of the sidebar in pixels
st.set_page_config(page_title=TOOL, page_icon="✂️", layout="wide", initial_sidebar_state=264)


def _streamlit_page(page: Page) -> st.Page:
    return st.Page(
        page.file, title=page.name, icon=page.icon, url_path=page.url, help=page.question,
        default=page is PAGES[0],
    )  # fmt: skip


def _load_slide_figures() -> SlideFigures:
    # imported here because only the slides need the figures of all pages
    from gprune.app.figures import load_figures
    from gprune.app.pages import rasa, text_lens

    return SlideFigures(load_figures(), {"rasa": rasa.show_slide, "lens": text_lens.draw_continuation_slide})


frame.run({heading: list(map(_streamlit_page, pages)) for heading, pages in SECTIONS.items()}, _load_slide_figures)
