"""Journeys through the app in a real browser: a selection, an address, a card that fills the window."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from views.browser import PLOT, click_mark, visiting
from views.synthetic_run import a_study, write_run

pytestmark = pytest.mark.browser


def test_a_click_in_a_heat_map_selects_on_the_next_page(chromium: Any, cache: Path) -> None:
    from playwright.sync_api import expect

    write_run(cache)
    with visiting(chromium, cache) as visit:
        page = visit.page("drift")
        page.locator(PLOT).nth(1).wait_for()
        marks = page.locator(".st-key-rd_layers_chart .js-plotly-plot")
        layers = marks.evaluate("plot => Array.from(plot._fullData[1].y)")
        click_mark(page, "rd_layers", 1, layers.index(3))
        chip = page.locator(".st-key-frame_selection")
        expect(chip).to_contain_text("layer 3")
        assert "layer=3" in page.url
        page.get_by_role("link", name="Module agreement").click()
        page.get_by_role("heading", name="Module agreement", exact=True).wait_for()
        expect(page.locator(".st-key-ma_layer input")).to_have_value("3")
        page.wait_for_url("**layer=3**")
        # one step back is one page back
        page.go_back()
        page.get_by_role("heading", name="Rank drift", exact=True).wait_for()
        page.go_forward()
        page.get_by_role("heading", name="Module agreement", exact=True).wait_for()
        chip.get_by_role("button").first.click()
        expect(chip).to_have_count(0)
        page.go_back()
        expect(chip).to_contain_text("layer 3")


def test_a_click_in_the_plane_of_quantiles_sets_both_lines_to_its_cell(chromium: Any, cache: Path) -> None:
    write_run(cache)
    with visiting(chromium, cache) as visit:
        page = visit.page("rasa?rasa_view=sets")
        page.locator(f".st-key-rasa_grid_chart {PLOT}").first.wait_for()
        cells = page.locator(".st-key-rasa_grid_chart .js-plotly-plot")
        x, y = cells.evaluate("plot => ['x', 'y'].map(axis => plot._fullData[1][axis][18])")
        click_mark(page, "rasa_grid", 1, 18)
        page.wait_for_url(f"**rasa_qd={x:g}&rasa_qs={y:g}**")


def test_the_first_page_answers_under_its_name_too(chromium: Any, cache: Path) -> None:
    name = write_run(cache)
    with visiting(chromium, cache) as visit:
        page = visit.page("home?layer=2")
        page.get_by_role("heading", name="Overview", exact=True).wait_for()
        page.wait_for_url(f"{visit.address}/?run={name}&layer=2")
        assert page.get_by_role("dialog").count() == 0


def test_a_copied_address_shows_the_same_view_to_another_person(chromium: Any, cache: Path) -> None:
    from playwright.sync_api import expect

    older = write_run(cache)
    write_run(cache, study=a_study(seed=1, name="Second"))
    with visiting(chromium, cache) as visit:
        page = visit.page(f"drift?run={older}&layer=1")
        page.get_by_text("Histogram", exact=True).click()
        page.wait_for_url("**rd_form=histogram**")
        page.get_by_text("Log scale").click()
        page.wait_for_url("**rd_log=1**")
        other = visit.page(page.url.removeprefix(f"{visit.address}/"))
        other.locator(PLOT).first.wait_for()
        expect(other.get_by_label("Log scale")).to_be_checked()
        expect(other.locator(".st-key-frame_selection")).to_contain_text("layer 1")
        expect(other.get_by_role("combobox", name="Run")).to_have_value("Synthetic")
        page.go_back()
        page.wait_for_url(lambda url: "rd_log" not in url)
        expect(page.get_by_label("Log scale")).not_to_be_checked()


def test_a_card_fills_the_window_and_gives_it_back(chromium: Any, cache: Path) -> None:
    write_run(cache)
    with visiting(chromium, cache) as visit:
        page = visit.page("drift")
        page.locator(PLOT).first.wait_for()
        card = page.locator(".st-key-card_rd_histogram")
        before = card.bounding_box()
        page.locator(".st-key-rd_histogram_size").get_by_role("button").first.click()
        page.wait_for_url("**card=rd_histogram**")
        page.wait_for_function(
            "() => document.querySelector('.st-key-card_rd_histogram').getBoundingClientRect().width > 1200"
        )
        page.keyboard.press("Escape")
        page.wait_for_function(
            "() => document.querySelector('.st-key-card_rd_histogram').getBoundingClientRect().width < 1100"
        )
        assert before is not None and abs(card.bounding_box()["width"] - before["width"]) < 2
