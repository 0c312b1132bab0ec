"""The benchmarks of the app print every value with its target, on a small run."""

import json
import subprocess
import sys

import pytest
from browser import chromium
from waiting import limit

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.long]
PAGES = ("home", "drift", "rasa")
ROWS = ("interaction to its end, p50", "interaction to its end, p95", "failures", "peak memory of the server")


def measured(project, name, cache, *options):
    """Return the JSON of a benchmark on a small run, and its rows by name and page."""
    script = project / "benchmarks" / f"{name}.py"
    command = [sys.executable, str(script), "--size", "small", "--cache", str(cache), *options, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit(150))
    assert done.returncode == 0, done.stderr
    values = json.loads(done.stdout)
    return values, {(row["name"], row["page"]): row for row in values["rows"]}


@pytest.mark.longest
def test_latency_of_the_chosen_pages_has_every_row_with_its_target(project, tmp_path):
    with chromium():
        # without one it is skipped
        pass
    result, rows = measured(project, "app_latency", tmp_path, "--rounds", "1", "--pages", *PAGES)
    expected = {("first chart of a new server", "home"), ("first chart of a new visitor", "home")}
    expected |= {("first visit", page) for page in PAGES[1:]} | {("warm switch, p95", "all")}
    for name in ("warm switch, p95", "bytes of a page", "bytes of its largest chart"):
        expected |= {(name, page) for page in PAGES}
    drags = ("drag, one move, p95", "release to counts, p95", "release to the last chart, p95")
    assert set(rows) == expected | {(name, "rasa") for name in drags}
    for name, page in expected:
        row = rows[name, page]
        assert 0 < row["value"] and row["verdict"] == ("PASS" if row["value"] <= row["target"] else "OVER")
    for page in PAGES:
        chart, full = (rows[name, page]["value"] for name in ("bytes of its largest chart", "bytes of a page"))
        # a chart of a few bytes would be one that the browser had kept
        assert 1000 < chart < full < 1_000_000
    for name in drags:
        assert rows[name, "rasa"]["value"] is not None or rows[name, "rasa"]["detail"]
    assert result["size"] == "small" and min(result["load"]) >= 0


@pytest.mark.longest
def test_load_has_every_row_of_both_parts_with_its_target(project, tmp_path):
    _, rows = measured(project, "app_load", tmp_path, "--clients", "2", "--seconds", "8", "--no-browser")
    assert set(rows) == {(name, part) for name in ROWS for part in ("quiet", "a job computes")}
    for row in rows.values():
        assert row["verdict"] == ("PASS" if row["value"] <= row["target"] else "OVER")
    for part in ("quiet", "a job computes"):
        assert rows["failures", part]["value"] == 0, rows["failures", part]["detail"]
        assert 0 < rows["interaction to its end, p50", part]["value"]
        assert rows["peak memory of the server", part]["value"] > 2**26
    # it was asked for in this cache, and is stopped or done when the benchmark ends
    states = [json.loads(path.read_text())["state"] for path in tmp_path.glob("jobs/*/state.json")]
    assert len(states) == 2 and not {"queued", "running"} & set(states)
