"""The app in front of people: the tour comes first, steps are links, and a page is shown alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from browser import PATIENCE, complaints, known, outside, visiting
from synthetic_run import write_run

from scripts import served_app

pytestmark = pytest.mark.browser


@contextmanager
def _by_itself(cache: Path) -> Iterator[served_app.Server]:
    """A server that begins by itself what `make app` begins."""
    environment = {name: value for name, value in os.environ.items() if name != "GPRUNE_AUTOSTART"}
    command = [sys.executable, "-m", "gprune", "app", "--no-browser", "--port", "0"]
    with served_app.listening(command, served_app.ROOT, environment | {"GPRUNE_CACHE": str(cache)}) as server:
        yield server


def test_the_app_opens_on_the_tour_until_somebody_has_ended_it(chromium: Any, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    write_run(tmp_path)
    with _by_itself(tmp_path) as server:

        def visit(where: str = "") -> Any:
            page = known(chromium, server, viewport={"width": 1280, "height": 900}).new_page()
            page.set_default_timeout(PATIENCE)
            asked.append(outside(page))
            errors.append(complaints(page))
            page.goto(f"{server.address}/{where}")
            page.get_by_role("heading", level=1).first.wait_for()
            return page

        asked: list[list[str]] = []
        errors: list[list[str]] = []
        # who has asked for something gets that alone
        asking = visit("drift")
        asking.locator(".js-plotly-plot .main-svg").first.wait_for()
        assert asking.get_by_text("Step 1 of 6").count() == 0
        for _ in range(2):
            page = visit()
            expect(page.get_by_text("Step 1 of 6")).to_be_visible()
            page.wait_for_url(lambda url: "tour=1" in url)
        page.get_by_role("button", name="End the tour").click()
        expect(page.get_by_text("Step 1 of 6")).to_be_hidden()
        page.wait_for_url(lambda url: "tour" not in url)
        page.reload()
        expect(page.get_by_role("button", name="Take the tour")).to_be_visible()
        later = visit()
        expect(later.get_by_role("button", name="Take the tour")).to_be_visible()
        assert later.get_by_text("Step 1 of 6").count() == 0
    assert sum(asked, []) == [] and sum(errors, []) == []


def test_a_presenter_walks_the_tour_by_keyboard(chromium: Any, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    write_run(tmp_path)
    with visiting(chromium, tmp_path) as visit:
        page = visit.page("?tour=1")
        letters = "getComputedStyle(document.querySelector('.st-key-tour p')).fontSize"
        before = float(page.evaluate(letters).removesuffix("px"))
        page.get_by_role("button", name="Present", exact=True).click()
        expect(page.get_by_test_id("stSidebar")).to_be_hidden()
        expect(page.get_by_role("button", name="End presenting")).to_be_visible()
        assert float(page.evaluate(letters).removesuffix("px")) > 1.2 * before
        for number in (2, 3):
            page.keyboard.press("PageDown")
            expect(page.get_by_text(f"Step {number} of 6")).to_be_visible()
            page.wait_for_url(lambda url, n=number: f"tour={n}" in url and "present=1" in url)
            expect(page.get_by_test_id("stSidebar")).to_be_hidden()
        page.locator(".js-plotly-plot .main-svg").first.wait_for()
        page.keyboard.press("PageUp")
        expect(page.get_by_text("Step 2 of 6")).to_be_visible()
        page.locator(".js-plotly-plot .main-svg").first.wait_for()
        page.keyboard.press("Escape")
        expect(page.get_by_test_id("stSidebar")).to_be_visible()
        page.wait_for_url(lambda url: "present" not in url and "tour=2" in url)
        expect(page.get_by_role("button", name="End presenting")).to_be_hidden()


def test_the_link_of_a_step_leads_there_through_the_door(chromium: Any, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    write_run(tmp_path)
    with visiting(chromium, tmp_path) as visit:
        page = visit.page("rasa?tour=4&rasa_qd=0.5")
        page.locator(".st-key-tour [data-testid=stPopoverButton]").first.click()
        offered = page.get_by_test_id("stPopoverBody").locator("code")
        expect(offered).to_have_count(2)
        links = [code.inner_text().strip() for code in offered.all()]
        assert (
            links[0].startswith(f"{visit.address}/rasa?tour=4&run=") and links[1] == f"{links[0]}&present=1"
        )
        for link, audience in zip(links, (False, True), strict=True):
            stranger = chromium.new_context().new_page()
            stranger.set_default_timeout(PATIENCE)
            stranger.goto(link)
            stranger.get_by_label("Token").fill(visit.server.token)
            stranger.get_by_role("button", name="Open").click()
            expect(stranger.get_by_text("Step 4 of 6")).to_be_visible()
            expect(stranger.get_by_role("heading", level=1)).to_have_text("RASA thresholds")
            expect(stranger.get_by_role("button", name="End presenting")).to_be_visible(visible=audience)
            assert "token" not in stranger.url
            stranger.context.close()
