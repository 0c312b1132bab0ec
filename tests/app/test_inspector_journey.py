"""From a heat map to a neuron's contexts and back, and the same without a mouse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browser import PLOT, click_mark, visiting
from synthetic_run import write_run

pytestmark = pytest.mark.browser

MARKS = ".passages mark"


def test_from_a_heat_map_to_a_module_a_neuron_its_contexts_and_back(chromium: Any, cache: Path) -> None:
    from playwright.sync_api import expect

    write_run(cache)
    with visiting(chromium, cache) as visit:
        page = visit.page("drift")
        page.locator(PLOT).nth(1).wait_for()
        layers = page.locator(".st-key-rd_layers_chart .js-plotly-plot").evaluate(
            "plot => Array.from(plot._fullData[1].y)"
        )
        click_mark(page, "rd_layers", 1, layers.index(3))
        page.get_by_role("link", name="Open in Inspector").click()
        page.get_by_role("heading", name="Layer 3: 60 neurons, 6 modules").wait_for()
        field = page.get_by_role("textbox", name="Find")
        field.fill("module 2 of layer 3")
        field.press("Enter")
        page.get_by_role("heading", name="Module 2 of layer 3").wait_for()
        page.wait_for_url("**layer=3&module=2**")
        field.fill("3/7")
        field.press("Enter")
        page.get_by_role("heading", name="Neuron 7 of layer 3: rank").wait_for()
        expect(page.locator(MARKS)).to_have_count(24)
        # the words of a text are text: none of them has become an element
        inner = page.locator(".passages .text").first
        assert (
            inner.evaluate("one => Array.from(one.children, child => child.tagName).join()")
            == "SPAN,MARK,SPAN"
        )
        expect(page.get_by_role("link", name="Open in Inspector")).to_have_count(0)
        page.go_back()
        page.get_by_role("heading", name="Module 2 of layer 3").wait_for()
        expect(page.locator(MARKS)).to_have_count(0)


def test_search_and_next_need_no_mouse(chromium: Any, cache: Path) -> None:
    from playwright.sync_api import expect

    write_run(cache)
    with visiting(chromium, cache) as visit:
        page = visit.page("inspector")
        field = page.get_by_role("textbox", name="Find")
        field.wait_for()
        field.focus()
        page.keyboard.type("layer 1 neuron 5")
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="Neuron 5 of layer 1: rank").wait_for()
        for key in ("Tab", "Tab"):
            page.keyboard.press(key)
        expect(page.get_by_role("button", name="Next")).to_be_focused()
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="Neuron 6 of layer 1: rank").wait_for()
        page.keyboard.press("n")
        page.get_by_role("heading", name="Neuron 7 of layer 1: rank").wait_for()
        page.keyboard.press("p")
        page.get_by_role("heading", name="Neuron 6 of layer 1: rank").wait_for()
        assert "neuron=6" in page.url
