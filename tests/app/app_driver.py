"""Drives the app without a browser: opens it, goes to a page, reads what a reader would see."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash
from synthetic_run import write_run
from waiting import limit

from gprune.app.pages import launch
from gprune.app.ui import page_names
from gprune.app.ui.page_names import PAGE_OF, TAB, tab

PROJECT = Path(__file__).resolve().parents[2]
CHARTS = dict.fromkeys(PAGE_OF, 0) | {"home": 3, "drift": 3, "agreement": 3, "rasa": 2, "decisions": 4, "atlas": 3}
CHARTS |= {"inspector": 1, "map": 1, "calibration": 1, "card": 2, "compare": 2}
"""charts of a finished run on each place"""
PAGES = tuple(CHARTS)
# Each AppTest reads the metadata of every installed package for components, which takes longer than a page.
manifest_scanner.scan_component_manifests = cache(manifest_scanner.scan_component_manifests)


def opened(**query: str) -> AppTest:
    """The first page, with a query."""
    return _app_at(query).run()


def _app_at(query: dict[str, str]) -> AppTest:
    app = AppTest.from_file(str(PROJECT / "app.py"), default_timeout=limit(60))
    # as if the advanced settings of the launch form had been opened
    app.session_state[launch.MORE] = True
    for name, value in query.items():
        app.query_params[name] = value
    return app


def on(app: AppTest, page: str) -> AppTest:
    """The same app on another place, by its name in the table of pages."""
    expected = tab(page)
    if TAB in expected:
        app.query_params[TAB] = expected[TAB]
    elif TAB in app.query_params:
        del app.query_params[TAB]
    return _sound(app.switch_page(PAGE_OF[page].file).run(), page)


def _sound(app: AppTest, page: str) -> AppTest:
    assert not app.exception, (page, [item.value for item in app.exception])
    return app


def open_page(page: str, **query: str) -> AppTest:
    """A page by its address, as a browser opens it: the first one, slow to draw, is not drawn before."""
    app, url = _app_at(tab(page) | query), PAGE_OF[page].url
    # switch_page knows the pages of an app only once it has run
    app._page_hash = "" if url == page_names.PAGES[0].url else calc_hash(url)
    return _sound(app.run(), page)


def show(page: str, cache: Path, query: dict[str, str] | None = None, **options: Any) -> AppTest:
    """A page of an app over a run that is written first: see `write_run` for how."""
    write_run(cache, **options)
    return open_page(page, **query or {})


def words(app: AppTest) -> str:
    """Everything a reader sees as text; no-break spaces are spaces."""
    kinds = (app.title, app.markdown, app.caption, app.info, app.warning, app.error, app.metric)
    return "\n".join(str(item.value) for kind in kinds for item in kind).replace("\u00a0", " ")


def plain_words(app: AppTest) -> str:
    """The same without the backslashes that keep names from being mark-up."""
    return words(app).replace("\\", "")


def charts(app: AppTest) -> list[dict[str, Any]]:
    return [json.loads(item.proto.spec) for item in app.get("plotly_chart")]


def numbers(app: AppTest, index: int = 0) -> pd.DataFrame:
    """The cells of a table."""
    frame: pd.DataFrame = app.dataframe[index].value
    return frame
