"""A page draws its first cards, and the rest when someone goes there."""

from typing import Any

import pytest
from browser import AT_REST, Visit, expect

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.long]
LAST = ".st-key-card_pd_layers, .st-key-card_pd_acting"
OTHERS = "", "masks?tab=atlas"
REST = "[class*=st-key-rest_of_page]"


def _decisions(visit: Visit, height: int, more: str = "") -> Any:
    page = visit.person(viewport={"width": 1280, "height": height}).new_page()
    page.goto(f"{visit.address}/masks?tab=decisions{more}")
    page.locator(".st-key-card_pd_budget").wait_for()
    page.wait_for_function(AT_REST)
    return page


def _go_on(page: Any, goes: str) -> None:
    # a mark that has just been drawn does not listen yet
    page.locator(".rest-of-page").wait_for(state="attached")
    page.wait_for_timeout(500)
    page.mouse.move(700, 400)
    page.mouse.wheel(0, 300) if goes == "wheel" else page.keyboard.press("PageDown")


@pytest.mark.parametrize("goes", ["wheel", "key"])
def test_the_first_scroll_or_key_brings_the_rest(visit: Visit, goes: str) -> None:
    page = _decisions(visit, 720)
    expect(page.locator(REST)).to_have_count(1)
    expect(page.locator(LAST)).to_have_count(0)
    page.emulate_media(media="print")
    mark = page.locator(".rest-of-page")
    assert "print again" in mark.evaluate("mark => getComputedStyle(mark, '::after').content")
    page.emulate_media(media="screen")
    _go_on(page, goes)
    expect(page.locator(LAST)).to_have_count(2)
    expect(page.locator(REST)).to_have_count(0)


@pytest.mark.parametrize(("height", "query"), [(2600, ""), (720, "&pd_bins=4")], ids=["tall", "chosen"])
def test_a_window_that_reaches_the_rest_or_an_address_with_choices_has_it_at_once(visit, height, query) -> None:
    expect(_decisions(visit, height, query).locator(LAST)).to_have_count(2)


def test_a_page_that_was_left_begins_at_its_top_again(visit: Visit) -> None:
    page = _decisions(visit, 720)
    _go_on(page, "wheel")
    expect(page.locator(LAST)).to_have_count(2)
    page.get_by_role("tab", name="Mask atlas").click()
    # two clicks at once leave nothing
    page.locator(".st-key-card_atlas_methods").wait_for()
    page.get_by_role("tab", name="Pruning decisions").click()
    page.locator(".st-key-card_pd_budget").wait_for()
    expect(page.locator(LAST)).to_have_count(0)


@pytest.mark.parametrize("where", ["compare", *OTHERS])
def test_nothing_is_drawn_below_the_mark_of_the_rest(visit: Visit, where: str) -> None:
    page = visit.person(viewport={"width": 1280, "height": 720}).new_page()
    page.goto(f"{visit.address}/{where}")
    page.locator(REST).wait_for(state="attached")
    page.wait_for_function(AT_REST)
    below = f"""[...document.querySelectorAll("[class*=st-key-card_]")].filter(
        card => document.querySelector("{REST}").compareDocumentPosition(card) & 4
    ).map(card => card.className)  // 4: what follows"""
    assert page.evaluate(below) == []
