"""Drives the app without a browser: opens it, goes to a page, reads what a reader would see."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest
from waiting import limit

PROJECT = Path(__file__).resolve().parents[2]
PAGES = (
    "overview",
    "rank_drift",
    "module_agreement",
    "reliability",
    "pruning_decisions",
    "calibration_data",
    "jobs",
    "comparison",
    "speed_export",
    "guide",
)
CHARTS = {
    "overview": 4,
    "rank_drift": 4,
    "module_agreement": 3,
    "reliability": 5,
    "pruning_decisions": 5,
    "calibration_data": 2,
    "jobs": 0,
    "comparison": 2,
    "speed_export": 2,
    "guide": 2,
}
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


def words(app: AppTest) -> str:
    """Everything a reader sees as text."""
    kinds = (app.title, app.markdown, app.caption, app.info, app.warning, app.error, app.metric)
    return "\n".join(str(item.value) for kind in kinds for item in kind)


def charts(app: AppTest) -> list[dict[str, Any]]:
    return [json.loads(item.proto.spec) for item in app.get("plotly_chart")]
