"""The slides in front of people: the keys of a presenter, and figures that fill the window."""

import pytest
from browser import AT_REST, PLOT, expect

from gprune.app.ui.slides import SLIDES

pytestmark = [pytest.mark.browser, pytest.mark.long]


def test_a_presenter_walks_the_slides_by_keyboard_without_a_click(visit):
    page = visit.page("?slide=1", viewport={"width": 1280, "height": 720})
    page.locator(f".st-key-slide {PLOT}").first.wait_for()
    steps = (("PageDown", 2), (" ", 3), ("ArrowRight", 4), ("PageUp", 3), ("End", len(SLIDES)), ("Home", 1))
    for key, number in steps:
        page.keyboard.press(key)
        page.wait_for_url(lambda url, n=number: f"slide={n}" in url)
        said = f"{number} / {len(SLIDES)} {SLIDES[number - 1].title}"
        expect(page.locator(".st-key-slide p").first).to_have_text(said)
        expect(page.locator(".st-key-slide h1")).to_have_count(1)
        if SLIDES[number - 1].figure:
            figure = page.locator(f".st-key-slide {PLOT}").first
            expect(figure).to_be_visible()
            # the one before can still be there for a moment
            page.wait_for_function(AT_REST)
            box = figure.bounding_box()
            assert box["width"] > 1100 and box["height"] > 380 and box["y"] + box["height"] <= 720, number
    page.keyboard.press("PageDown")
    page.wait_for_url(lambda url: "slide=2" in url)
    # letters of the figure grow with the window, and it still fills it
    page.locator(".st-key-slide .xtick text").first.wait_for()
    # the figure is not there for a moment when it is drawn anew
    letters = "document.querySelector('.st-key-slide .xtick text')?.getBoundingClientRect().height"
    before = page.evaluate(letters)
    page.set_viewport_size({"width": 1920, "height": 1080})
    page.wait_for_function(f"before => {letters} > 1.4 * before", arg=before)
    page.wait_for_function(f"document.querySelector('.st-key-slide {PLOT}')?.getBoundingClientRect().width < 1900")
    page.keyboard.press("Escape")
    expect(page.get_by_test_id("stSidebar")).to_be_visible()
    page.wait_for_url(lambda url: "slide" not in url and "drift" in url)
    page.get_by_role("heading", name="Rank drift", exact=True).wait_for()
    # the keys end with the slides
    page.keyboard.press("Home")
    page.wait_for_timeout(500)
    assert "slide" not in page.url


def test_a_slider_keeps_its_arrows_and_the_browsers_back_leads_to_the_slide_before(visit):
    page = visit.page("?slide=2", viewport={"width": 1280, "height": 720})
    shown = page.locator(".st-key-slide p").first
    foot = page.get_by_role("navigation", name="slides")
    expect(foot.get_by_role("button")).to_have_count(len(SLIDES))
    # a digit jumps, at most to the last
    page.keyboard.press("9")
    page.wait_for_url(f"**slide={len(SLIDES)}**")
    expect(shown).to_contain_text(f"{len(SLIDES)} / {len(SLIDES)}")
    page.get_by_role("slider").first.focus()
    for key in ("ArrowLeft", "ArrowRight", "Home", "End"):
        page.keyboard.press(key)
    page.wait_for_function(AT_REST)
    expect(shown).to_contain_text(f"{len(SLIDES)} / {len(SLIDES)}")
    page.keyboard.press("PageUp")
    expect(shown).to_contain_text(f"{len(SLIDES) - 1} / {len(SLIDES)}")
    # the address follows the title, and Back leaves the address
    page.wait_for_url(f"**slide={len(SLIDES) - 1}**")
    page.go_back()
    expect(shown).to_contain_text(f"{len(SLIDES)} / {len(SLIDES)}")


_AT_ONCE = """keys => keys.forEach(key => document.body.dispatchEvent(
    new KeyboardEvent("keydown", {key, bubbles: true, composed: true, cancelable: true})))"""


@pytest.mark.parametrize(
    ("keys", "number"), [(("End", "Home", "End"), len(SLIDES)), (("End", "PageUp", "PageUp"), len(SLIDES) - 2)]
)
def test_keys_that_are_pressed_before_a_slide_is_drawn_count_in_their_order(visit, keys, number):
    page = visit.page("?slide=1", viewport={"width": 1280, "height": 720})
    foot = page.get_by_role("navigation", name="slides")
    expect(foot.get_by_role("button")).to_have_count(len(SLIDES))
    page.evaluate(_AT_ONCE, list(keys))
    said = f"{number} / {len(SLIDES)} {SLIDES[number - 1].title}"
    expect(page.locator(".st-key-slide p").first).to_have_text(said)
    page.wait_for_function(AT_REST)
    # no earlier key comes after it
    expect(page.locator(".st-key-slide p").first).to_have_text(said)
    assert f"slide={number}" in page.url
    expect(foot.locator("[aria-current]")).to_have_text(str(number))
    # a pointer does the same
    foot.get_by_title(SLIDES[1].title).click()
    expect(page.locator(".st-key-slide p").first).to_contain_text(SLIDES[1].title)


def test_the_first_screen_holds_the_figures_and_p_opens_the_slides_from_any_page(visit):
    page = visit.page(viewport={"width": 1280, "height": 900})
    # headline and all three figures stand on the first screen, equally high
    page.locator(PLOT).nth(5).wait_for()
    expect(page.locator(".st-key-card_ov_cost .js-plotly-plot").first).to_be_visible()
    boxes = [page.locator(f".st-key-card_ov_{name}").bounding_box() for name in ("slope", "survival", "cost")]
    assert len({round(box["height"]) for box in boxes}) == len({round(box["y"]) for box in boxes}) == 1
    assert boxes[0]["y"] + boxes[0]["height"] <= 860
    for where in ("atlas", "inspector"):
        page = visit.page(where)
        expect(page.get_by_role("button", name="Slides").first).to_be_visible()
        page.keyboard.press("p")
        page.wait_for_url("**slide=1**")
        expect(page.locator(".st-key-slide p").first).to_contain_text(f"1 / {len(SLIDES)}")
        expect(page.get_by_role("navigation", name="slides").get_by_role("button")).to_have_count(len(SLIDES))
        page.keyboard.press("4")
        page.wait_for_url("**slide=4**")
