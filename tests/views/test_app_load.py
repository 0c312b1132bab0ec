"""The benchmark of many people measures what it says, on a small run and with two of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import limit

pytestmark = [pytest.mark.process, pytest.mark.slow]
FIGURES = (
    *("interaction to its end, p50", "interaction to its end, p95"),
    *("failures", "memory of the server, most"),
)


def test_every_figure_stands_beside_its_budget(project: Path, tmp_path: Path) -> None:
    script = str(project / "benchmarks" / "app_load.py")
    options = ["--size", "small", "--cache", str(tmp_path), "--clients", "2", "--seconds", "12"]
    done = subprocess.run(
        [sys.executable, script, *options, "--no-browser", "--json"],
        stdout=subprocess.PIPE,
        timeout=limit(150),
        check=True,
    )
    found = json.loads(done.stdout)
    rows = {(row["name"], row["page"]): row for row in found["rows"]}
    assert set(rows) == {(name, part) for name in FIGURES for part in ("quiet", "a job computes")}
    for row in rows.values():
        assert row["verdict"] == ("PASS" if row["value"] <= row["budget"] else "OVER")
    for part in ("quiet", "a job computes"):
        assert rows["failures", part]["value"] == 0, rows["failures", part]["detail"]
        assert 0 < rows["interaction to its end, p50", part]["value"]
        assert rows["memory of the server, most", part]["value"] > 2**26
    # it was asked for in this cache, and is stopped or done when the benchmark ends
    states = [json.loads(path.read_text())["state"] for path in tmp_path.glob("jobs/*/state.json")]
    assert len(states) == 2 and not {"queued", "running"} & set(states)
