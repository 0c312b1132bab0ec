"""The fair comparison that comes with the project, on the compare page, and the way to it."""

from __future__ import annotations

from pathlib import Path

import pytest
from app_driver import linked, words
from streamlit.testing.v1 import AppTest
from synthetic_run import write_run

from gprune.app.pages.comparison import page as recorded

# every test walks through pages
pytestmark = pytest.mark.slow


def on_recorded() -> AppTest:
    return linked("comparison", cp_view="fair")


def test_the_document_is_shown_whole_with_its_claims_first(cache: Path) -> None:
    write_run(cache)
    app, written = on_recorded(), recorded.DOCUMENT.read_text()
    shown = [part.value for part in app.markdown]
    rows = [line for line in written.splitlines() if line.startswith("| ")]
    assert rows and all(any(row in part for part in shown) for row in rows)
    headings = [line.removeprefix("## ") for line in written.splitlines() if line.startswith("## ")]
    assert app.subheader[0].value == headings[0]
    assert [one.label for one in app.expander if one.label in headings] == headings[1:]
    assert "recorded, not of this run" in words(app) and "sequences of A" in words(app)
    assert "reproduce study --model" in words(app)


def test_without_a_run_it_can_be_read_too(cache: Path) -> None:
    assert on_recorded().subheader[0].value == "Which claims hold here"


def test_an_installation_without_the_document_says_how_one_is_made(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded, "DOCUMENT", tmp_path / "study.md")
    write_run(cache)
    assert "python -m gprune reproduce study --report study.md" in words(on_recorded())
