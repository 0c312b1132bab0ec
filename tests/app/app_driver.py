"""Drives the app without a browser: opens it, goes to a page, reads what a reader would see."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from streamlit.components.v2 import manifest_scanner
from streamlit.dataframe_util import convert_arrow_bytes_to_pandas_df
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash
from synthetic_run import write_run
from waiting import limit

from gprune.app.pages.jobs import filled
from gprune.app.ui.page_names import HELP, PAGE_OF, TAB, tab
from gprune.app.ui.page_names import PAGES as EVERY

PROJECT = Path(__file__).resolve().parents[2]
FIRST = EVERY[0]
PLACES = {
    "overview": "home",
    "rank_drift": "drift",
    "module_agreement": "agreement",
    "reliability": "rasa",
    "pruning_decisions": "decisions",
    "inspection": "inspector",
    "calibration_data": "calibration",
    "calibration_card": "card",
    "text_lens": "lens",
    "jobs": "launch",
    "comparison": "compare",
    "decision": "decide",
    "report_file": "report",
    "flipped_questions": "questions",
    "speed_export": "speed",
    "export": "export",
    "retention": "retention",
    "neuron_map": "map",
    "mask_atlas": "atlas",
    "glossary": "report",
}
"""where what the tests call by its subject stands; the help is beside one without charts"""
OPEN_HELP = {"glossary": "words"}
CHARTS = {
    "overview": 4,
    "rank_drift": 4,
    "module_agreement": 3,
    "reliability": 3,
    "pruning_decisions": 7,
    "inspection": 1,
    "calibration_data": 2,
    "calibration_card": 2,
    "text_lens": 0,
    "jobs": 0,
    "comparison": 4,
    "decision": 1,
    "report_file": 0,
    "flipped_questions": 0,
    "speed_export": 2,
    "export": 0,
    "retention": 1,
    "neuron_map": 1,
    "mask_atlas": 3,
    "glossary": 0,
}
"""charts of each"""
PAGES = tuple(CHARTS)
# Each AppTest reads the metadata of every installed package for components, which takes longer than a page.
manifest_scanner.scan_component_manifests = cache(manifest_scanner.scan_component_manifests)


def opened(**query: str) -> AppTest:
    """The first page, with a query."""
    return _asked(query).run()


def _asked(query: dict[str, str]) -> AppTest:
    app = AppTest.from_file(str(PROJECT / "app.py"), default_timeout=limit(60))
    # as for one who has opened the further settings of the launch form
    app.session_state[filled.MORE] = True
    for name, value in query.items():
        app.query_params[name] = value
    return app


def on(app: AppTest, page: str) -> AppTest:
    """The same app on another page."""
    wanted = _place(page)
    for key in (TAB, HELP):
        if key in wanted:
            app.query_params[key] = wanted[key]
        elif key in app.query_params:
            del app.query_params[key]
    return _sound(app.switch_page(PAGE_OF[PLACES[page]].file).run(), page)


def _place(page: str) -> dict[str, str]:
    """What an address has for the tab, and the part of the help, to be open."""
    return tab(PLACES[page]) | ({HELP: OPEN_HELP[page]} if page in OPEN_HELP else {})


def _sound(app: AppTest, page: str) -> AppTest:
    assert not app.exception, (page, [item.value for item in app.exception])
    return app


def open_page(page: str, **query: str) -> AppTest:
    """A page by its address, as a browser opens it: the first one, slow to draw, is not drawn before."""
    app, url = _asked(_place(page) | query), PAGE_OF[PLACES[page]].url
    # switch_page knows the pages of an app only once it has run
    app._page_hash = "" if url == FIRST.url else calc_hash(url)
    return _sound(app.run(), page)


def show(page: str, cache: Path, query: dict[str, str] | None = None, **made: Any) -> AppTest:
    """A page of an app over a run that is written first: see `write_run` for how."""
    write_run(cache, **made)
    return open_page(page, **query or {})


def words(app: AppTest) -> str:
    """Everything a reader sees as text; no-break spaces are spaces."""
    kinds = (app.title, app.markdown, app.caption, app.info, app.warning, app.error, app.metric)
    return "\n".join(str(item.value) for kind in kinds for item in kind).replace("\u00a0", " ")


def charts(app: AppTest) -> list[dict[str, Any]]:
    return [json.loads(item.proto.spec) for item in app.get("plotly_chart")]


def numbers(app: AppTest, index: int = 0) -> pd.DataFrame:
    """A table of grouped columns, under `group name`."""
    found: pd.DataFrame = app.dataframe[index].value.copy()
    found.columns = [" ".join(filter(None, column)) for column in found.columns]
    return found


def displayed(app: AppTest, index: int = 0) -> pd.DataFrame:
    """The same as its cells are drawn, with signs."""
    styler = app.dataframe[index].proto.arrow_data.styler
    drawn = convert_arrow_bytes_to_pandas_df(styler.display_values)
    return drawn.set_axis(numbers(app, index).columns, axis=1)
