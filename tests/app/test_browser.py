"""What only a browser can tell: addresses, live sliders, and that nothing leaves the machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import PATIENCE, complaints, known, outside, served
from synthetic_run import a_study, write_run

from scripts.served_app import Server

pytestmark = pytest.mark.browser


@pytest.fixture
def two_runs(tmp_path: Path) -> Iterator[tuple[Server, str, str]]:
    """A fresh server over two runs, and the names of the runs."""
    first, second = write_run(tmp_path), write_run(tmp_path, study=a_study(seed=1, name="Second"))
    with served(tmp_path) as server:
        yield server, first, second


def test_an_address_opens_its_page_on_a_fresh_server_and_a_slider_writes_it(
    chromium: Any, two_runs: tuple[Server, str, str]
) -> None:
    from playwright.sync_api import expect

    server, first, second = two_runs
    page = known(chromium, server, viewport={"width": 1280, "height": 1200}).new_page()
    page.set_default_timeout(PATIENCE)
    asked = outside(page)

    # the very first visitor of this server comes by the address of a page, with a run in it
    older = min(first, second)
    page.goto(f"{server.address}/rasa?run={older}")
    page.locator(".js-plotly-plot .main-svg").first.wait_for(timeout=PATIENCE)
    page.get_by_role("heading", name="RASA thresholds", level=1).wait_for(timeout=PATIENCE)
    page.wait_for_timeout(500)
    assert page.get_by_role("dialog").count() == 0

    slider = page.get_by_role("slider").first
    slider.focus()
    slider.press("ArrowLeft")
    page.wait_for_url("**rasa_qd=0.895**", timeout=PATIENCE)
    page.reload()
    page.locator(".js-plotly-plot .main-svg").first.wait_for(timeout=PATIENCE)
    expect(page.get_by_role("spinbutton").first).to_have_value("0.895", timeout=PATIENCE)

    page.get_by_role("link", name="Compare", exact=True).click()
    page.get_by_role("heading", name="Compare", level=1).wait_for(timeout=PATIENCE)
    page.locator(".js-plotly-plot .main-svg").first.wait_for(timeout=PATIENCE)
    assert asked == []


@pytest.mark.parametrize("name", ["pruning_decisions", "agreement"])
def test_the_very_first_visitor_may_come_by_any_address(chromium: Any, tmp_path: Path, name: str) -> None:
    """A page's file name is no address, and the address of a page is one from the first request on."""
    write_run(tmp_path)
    with served(tmp_path) as server:
        page = known(chromium, server).new_page()
        page.set_default_timeout(PATIENCE)
        noted = complaints(page)
        page.goto(f"{server.address}/{name}")
        title = "Module agreement" if name == "agreement" else "Overview"
        page.get_by_role("heading", name=title, exact=True).wait_for()
        page.get_by_role("link", name="RASA thresholds").first.wait_for()
        # neither Streamlit's own list of the files, nor a page without its frame
        assert page.get_by_test_id("stSidebarNav").count() == 0
        assert page.get_by_test_id("stException").count() == 0
        if name == "agreement":
            assert noted == [] and page.get_by_role("dialog").count() == 0
        else:
            assert "Page not found" in page.get_by_role("dialog").inner_text()
