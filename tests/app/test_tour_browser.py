"""The tour from its start to its end, as a person takes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browser import PATIENCE, complaints, known, outside, served
from synthetic_run import a_study, write_run

from gprune.app.ui.tour import STEPS
from gprune.study import EvaluationSettings

pytestmark = pytest.mark.browser


def test_the_tour_is_walked_left_and_taken_up_again(chromium: Any, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    evaluation = EvaluationSettings(texts=("python-reference", "c4"), windows=96)
    write_run(tmp_path, study=a_study(evaluation=evaluation))
    with served(tmp_path) as server:
        context = known(chromium, server, viewport={"width": 1280, "height": 900})
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        asked, errors = outside(page), complaints(page)
        page.goto(server.address)
        # headline and all three figures stand on the first screen, equally high
        page.locator(".js-plotly-plot .main-svg").nth(5).wait_for()
        expect(page.locator(".st-key-card_ov_cost .js-plotly-plot").first).to_be_visible()
        boxes = [
            page.locator(f".st-key-card_ov_{name}").bounding_box() for name in ("slope", "survival", "cost")
        ]
        assert len({round(box["height"]) for box in boxes}) == len({round(box["y"]) for box in boxes}) == 1
        assert boxes[0]["y"] + boxes[0]["height"] <= 900

        page.get_by_role("button", name="Take the tour").click()
        for number, step in enumerate(STEPS, start=1):
            expect(page.get_by_text(f"Step {number} of 6", exact=True)).to_be_visible()
            expect(page.get_by_text(step.title, exact=True)).to_be_visible()
            page.wait_for_url(lambda url, n=number: f"tour={n}" in url)
            assert page.url.split("?")[0].rstrip("/") == f"{server.address}/{step.url}".rstrip("/")
            page.locator(".js-plotly-plot .main-svg").first.wait_for()
            if number == 3:
                page.get_by_role("button", name="Back", exact=True).click()
                expect(page.get_by_text("Step 2 of 6", exact=True)).to_be_visible()
                page.get_by_role("button", name="Next").click()
                expect(page.get_by_text("Step 3 of 6", exact=True)).to_be_visible()
            if number == 4:
                # a step is an address: whoever opens it stands there
                page.reload()
                expect(page.get_by_text("Step 4 of 6", exact=True)).to_be_visible()
                # and who looks elsewhere meanwhile comes back to it
                page.get_by_role("link", name="Help", exact=True).click()
                page.get_by_role("button", name="Back to step 4").click()
                expect(page.get_by_text("Step 4 of 6", exact=True)).to_be_visible()
            if number < len(STEPS):
                page.get_by_role("button", name="Next").click()
        page.get_by_role("button", name="End the tour").click()
        expect(page.get_by_text("Step 6 of 6", exact=True)).to_be_hidden()
        page.wait_for_url(lambda url: "tour" not in url)
        context.close()
    assert asked == [] and errors == []
