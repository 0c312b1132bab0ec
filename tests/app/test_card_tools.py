"""What every card offers: copies where it has no result, how to read, and what the keyboard reaches."""

import ast
from pathlib import Path

import pytest
from app_driver import show

from gprune.app import pages
from gprune.app.ui.panel import KNOWN

pytestmark = pytest.mark.slow


def codes(app):
    return [code.value for code in app.code]


def test_a_card_without_its_result_can_be_copied_as_python(cache):
    app = show("decisions", cache, stages="drift")
    needed = [info.value for info in app.info if "which this run does not have" in info.value]
    assert needed and not app.exception
    figures = [
        figure for figure in KNOWN.values() if any(f'run.figure("{figure.name}")' in code for code in codes(app))
    ]
    assert figures and all("masks" in figure.make.__module__ for figure in figures)


def test_every_table_and_figure_of_a_page_says_how_it_is_read():
    missing = []
    for path in sorted(Path(pages.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "tools":
                keywords = {keyword.arg for keyword in node.keywords}
                if "how" not in keywords and len(node.args) < 3:
                    missing.append(f"{path.name}:{node.lineno}")
    assert missing == []
