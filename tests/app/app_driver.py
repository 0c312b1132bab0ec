"""Drives the app without a browser: opens it, goes to a page, reads what a reader would see."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from streamlit.components.v2 import manifest_scanner
from streamlit.dataframe_util import convert_arrow_bytes_to_pandas_df
from streamlit.testing.v1 import AppTest
from synthetic_run import write_run
from waiting import limit

PROJECT = Path(__file__).resolve().parents[2]
CHARTS = {
    "overview": 4,
    "rank_drift": 4,
    "module_agreement": 3,
    "reliability": 3,
    "pruning_decisions": 7,
    "inspection": 1,
    "calibration_data": 2,
    "text_lens": 0,
    "by_hand": 0,
    "jobs": 0,
    "comparison": 4,
    "report_file": 0,
    "flipped_questions": 0,
    "speed_export": 2,
    "guide": 2,
    "neuron_map": 1,
    "mask_atlas": 3,
}
PAGES = tuple(CHARTS)
# Each AppTest reads the metadata of every installed package for components, which takes longer than a page.
manifest_scanner.scan_component_manifests = cache(manifest_scanner.scan_component_manifests)


def opened(**query: str) -> AppTest:
    app = AppTest.from_file(str(PROJECT / "app.py"), default_timeout=limit(60))
    for name, value in query.items():
        app.query_params[name] = value
    return app.run()


def on(app: AppTest, page: str) -> AppTest:
    app.switch_page(f"pages/{page}.py").run()
    assert not app.exception, (page, [item.value for item in app.exception])
    return app


def open_page(page: str, **query: str) -> AppTest:
    """A page of an app that was opened with a query."""
    return on(opened(**query), page)


def show(page: str, cache: Path, query: dict[str, str] | None = None, **made: Any) -> AppTest:
    """A page of an app over a run that is written first: see `write_run` for how."""
    write_run(cache, **made)
    return open_page(page, **query or {})


def linked(page: str, **query: str) -> AppTest:
    """A page as the link to one of its views opens it."""
    app = on(opened(), page)
    for name, value in query.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception, (page, [item.value for item in app.exception])
    return app


def words(app: AppTest) -> str:
    """Everything a reader sees as text."""
    kinds = (app.title, app.markdown, app.caption, app.info, app.warning, app.error, app.metric)
    return "\n".join(str(item.value) for kind in kinds for item in kind)


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
