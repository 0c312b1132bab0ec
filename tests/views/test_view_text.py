"""Text from outside: no Markdown, no mark-up, no formulas."""

from __future__ import annotations

import pandas as pd
import pytest

from gprune.views.frame import text


def test_markdown_is_escaped() -> None:
    assert text.plain("[x](http://y) :red[z] *b*") == "\\[x\\]\\(http\\:\u2060//y\\) \\:red\\[z\\] \\*b\\*"
    assert text.plain("two\nlines") == "two lines"


def test_addresses_become_no_links_and_paths_stay_as_they_are() -> None:
    assert text.plain("HTTPS://a WWW.b") == "HTTPS\\:\u2060//a WWW\u2060\\.b"
    assert text.plain("/www/a@v1/http") == "/www/a@v1/http"


def test_mark_up_of_figures_is_escaped() -> None:
    assert text.in_figure("<a href='x'>&") == "&lt;a href='x'&gt;&amp;"


@pytest.mark.parametrize(
    ("name", "words"),
    [("/a/c4.jsonl#documents=0:9", "c4.jsonl"), ("x" * 23, "x" * 21 + "…"), ("x" * 22, "x" * 22), ("/", "/")],
)
def test_names_are_cut_for_narrow_labels(name: str, words: str) -> None:
    assert text.short(name) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "–"),
        (float("nan"), "–"),
        (0.4, "0 s"),
        (89.4, "89 s"),
        (90, "1 min 30 s"),
        (7265, "2 h 01 min"),
        (-3, "0 s"),
    ],
)
def test_durations(seconds: float | None, words: str) -> None:
    assert text.duration(seconds) == words


def test_formulas_in_text_cells_and_headings_get_an_apostrophe_and_numbers_do_not() -> None:
    frame = pd.DataFrame({"=name": ["=1+1", "@x", "plain", "-2", "+3"], "drift": [-0.5, 1.0, 2.0, 3.0, -4.0]})
    lines = text.csv(frame).decode().split("\n")
    assert lines[0] == "'=name,drift"
    assert lines[1:6] == ["'=1+1,-0.5", "'@x,1.0", "plain,2.0", "'-2,3.0", "'+3,-4.0"]
