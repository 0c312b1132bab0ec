"""What every card offers: copies where it has no result, how to read, and what the keyboard reaches."""

import ast
from pathlib import Path

import pytest
from app_driver import show, words

from gprune.app import pages
from gprune.app.ui.panel import KNOWN

pytestmark = pytest.mark.slow


def codes(app):
    return [code.value for code in app.code]


def test_a_card_without_its_result_can_be_copied_as_python_as_a_command_and_as_a_link(cache):
    app = show("pruning_decisions", cache, stages="drift")
    needed = [info.value for info in app.info if "which this run does not have" in info.value]
    assert needed and not app.exception
    drawn = [one for one in KNOWN.values() if any(f'run.figure("{one.name}")' in code for code in codes(app))]
    assert drawn and all("pruning_decisions" in one.make.__module__ for one in drawn)
    assert any(code.startswith("python -m gprune") for code in codes(app))
    assert all(any(f"card={one.card}" in code for code in codes(app)) for one in drawn)


def test_a_card_that_is_no_figure_can_be_copied_as_a_command_and_as_a_link(cache):
    app = show("text_lens", cache)
    told = codes(app)
    assert any("card=lens_reading" in code for code in told)
    assert not any("run.figure" in code for code in told)


def test_every_table_and_figure_of_a_page_says_how_it_is_read():
    lacking = []
    for path in sorted(Path(pages.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "tools":
                named = {keyword.arg for keyword in node.keywords}
                if "how" not in named and len(node.args) < 3:
                    lacking.append(f"{path.name}:{node.lineno}")
    assert lacking == []


def test_the_tiles_of_the_overview_say_how_they_are_read(cache):
    told = words(show("overview", cache))
    assert "which is what noise alone does" in told
