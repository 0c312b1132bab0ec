"""What only a browser can tell: addresses, live sliders, and that nothing leaves the machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from views.browsing import PLOT, visiting
from views.synthetic_run import a_study, write_run
from waiting import limit

pytestmark = pytest.mark.browser
PATIENCE = 1000 * limit(60)


def test_an_address_opens_its_page_on_a_fresh_server_and_a_slider_writes_it(cache: Path) -> None:
    expect = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed").expect
    first, second = write_run(cache), write_run(cache, study=a_study(seed=1, name="Second"))
    # requests that leave the machine end the visit as a failure
    with visiting(cache) as visit:
        # the very first visitor of this server comes by the address of a page, with a run in it
        page = visit.page(f"rasa?run={min(first, second)}")
        page.set_default_timeout(PATIENCE)
        page.locator(PLOT).first.wait_for()
        page.get_by_role("heading", name="RASA thresholds").wait_for()
        page.wait_for_timeout(500)
        assert page.get_by_role("dialog").count() == 0
        # that visitor's console is told once of a missing page, before the frame loads it again
        assert all("does not seem to exist" in complaint for complaint in visit.complaints)
        visit.complaints.clear()

        slider = page.get_by_role("slider").first
        slider.focus()
        slider.press("ArrowLeft")
        page.wait_for_url("**rasa_qd=0.895**")
        page.reload()
        page.locator(PLOT).first.wait_for()
        expect(page.get_by_role("spinbutton").first).to_have_value("0.895", timeout=PATIENCE)

        page.get_by_role("link", name="Compare", exact=True).click()
        page.get_by_role("heading", name="Compare").first.wait_for()
        page.locator(PLOT).first.wait_for()
