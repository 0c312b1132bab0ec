"""Text from outside: no Markdown, no mark-up, no formulas."""

from __future__ import annotations

import pytest

from gprune.app.ui import text


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
