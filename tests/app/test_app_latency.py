"""The benchmark of the pages measures what it says, on a small run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import limit

pytestmark = pytest.mark.browser
PAGES = ("home", "drift", "rasa")


def test_every_figure_of_the_chosen_pages_stands_beside_its_budget(project: Path, tmp_path: Path) -> None:
    pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"))):
        pytest.skip("no Chromium on this machine")
    script = str(project / "benchmarks" / "app_latency.py")
    options = ["--size", "small", "--cache", str(tmp_path), "--rounds", "1", "--json"]
    done = subprocess.run(
        [sys.executable, script, *options, "--pages", *PAGES],
        stdout=subprocess.PIPE,
        timeout=limit(120),
        check=True,
    )
    found = json.loads(done.stdout)
    rows = {(row["name"], row["page"]): row for row in found["rows"]}
    expected = {("first chart of a new server", "home")}
    for name in ("page switch to rest, p95", "bytes of a page", "bytes of its largest chart"):
        expected |= {(name, page) for page in PAGES}
    drags = ("handler and paint of a drag, p95", "release to counts, p95", "release to the last chart, p95")
    assert set(rows) == expected | {(name, "rasa") for name in drags}
    for name, page in expected:
        row = rows[name, page]
        assert 0 < row["value"] and row["verdict"] == ("PASS" if row["value"] <= row["budget"] else "OVER")
    for page in PAGES:
        chart, whole = (
            rows[name, page]["value"] for name in ("bytes of its largest chart", "bytes of a page")
        )
        # a chart of a few bytes would be one that the browser had kept
        assert 1000 < chart < whole < 1_000_000
    for name in drags:
        assert rows[name, "rasa"]["value"] is not None or rows[name, "rasa"]["detail"]
    assert found["size"] == "small" and min(found["load"]) >= 0
