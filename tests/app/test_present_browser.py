"""The app in front of people: the tour comes first, steps are links, and a page is shown alone."""

import os
import sys
from urllib.parse import urlsplit

import pytest
from browser import AT_REST, PLOT, expect, looking
from synthetic_run import write_run

from gprune.app.ui.page_names import path
from gprune.app.ui.tour import STEPS
from scripts import served_app

pytestmark = [pytest.mark.browser, pytest.mark.long]


def test_the_app_opens_on_the_tour_until_somebody_has_ended_it(chromium, tmp_path):
    write_run(tmp_path)
    # a server that begins by itself what `make app` begins
    environment = {name: value for name, value in os.environ.items() if name != "GPRUNE_AUTOSTART"}
    environment["GPRUNE_CACHE"] = str(tmp_path)
    command = [sys.executable, "-m", "gprune", "app", "--no-browser", "--port", "0"]
    with (
        served_app.listening(command, served_app.ROOT, environment) as server,
        looking(chromium, server, tmp_path) as visit,
    ):
        # who has asked for something gets that alone
        asking = visit.page("drift")
        asking.locator(PLOT).first.wait_for()
        assert asking.get_by_text("Step 1 of 7").count() == 0
        for _ in range(2):
            page = visit.page()
            expect(page.get_by_text("Step 1 of 7")).to_be_visible()
            page.wait_for_url(lambda url: "tour=1" in url)
        page.get_by_role("button", name="End the tour").click()
        expect(page.get_by_text("Step 1 of 7")).to_be_hidden()
        page.wait_for_url(lambda url: "tour" not in url)
        page.reload()
        expect(page.get_by_role("button", name="Take the tour")).to_be_visible()
        later = visit.page()
        expect(later.get_by_role("button", name="Take the tour")).to_be_visible()
        assert later.get_by_text("Step 1 of 7").count() == 0


def test_a_presenter_walks_the_slides_by_keyboard_without_a_click(visit):
    page = visit.page("?tour=1&present=1", viewport={"width": 1280, "height": 720})
    page.locator(f".st-key-slide {PLOT}").first.wait_for()
    steps = (("PageDown", 2), (" ", 3), ("ArrowRight", 4), ("PageUp", 3), ("End", len(STEPS)), ("Home", 1))
    for key, number in steps:
        page.keyboard.press(key)
        page.wait_for_url(lambda url, n=number: f"tour={n}" in url and "present=1" in url)
        said = f"{number} / {len(STEPS)} {STEPS[number - 1].title}"
        expect(page.locator(".st-key-slide p").first).to_have_text(said)
        expect(page.locator(".st-key-slide h1")).to_have_count(1)
        if STEPS[number - 1].figure:
            figure = page.locator(f".st-key-slide {PLOT}").first
            expect(figure).to_be_visible()
            # the one before can still be there for a moment
            page.wait_for_function(AT_REST)
            box = figure.bounding_box()
            assert box["width"] > 1100 and box["height"] > 380 and box["y"] + box["height"] <= 720, number
    page.keyboard.press("PageDown")
    page.wait_for_url(lambda url: "tour=2" in url)
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
    page.wait_for_url(lambda url: "present" not in url and "tour=2" in url and "drift" in url)
    expect(page.get_by_text("Step 2 of 7")).to_be_visible()


_AT_ONCE = """keys => keys.forEach(key => document.body.dispatchEvent(
    new KeyboardEvent("keydown", {key, bubbles: true, composed: true, cancelable: true})))"""


@pytest.mark.parametrize(
    ("keys", "number"),
    [
        (("End", "Home", "End"), len(STEPS)),
        (("PageDown", "PageDown"), 3),
        (("End", "PageUp", "PageUp"), len(STEPS) - 2),
    ],
)
def test_keys_that_are_pressed_before_a_slide_is_drawn_count_in_their_order(visit, keys, number):
    page = visit.page("?tour=1&present=1", viewport={"width": 1280, "height": 720})
    foot = page.get_by_role("navigation", name="slides")
    expect(foot.get_by_role("button")).to_have_count(len(STEPS))
    page.evaluate(_AT_ONCE, list(keys))
    said = f"{number} / {len(STEPS)} {STEPS[number - 1].title}"
    expect(page.locator(".st-key-slide p").first).to_have_text(said)
    page.wait_for_function(AT_REST)
    # no earlier key comes after it
    expect(page.locator(".st-key-slide p").first).to_have_text(said)
    assert f"tour={number}" in page.url
    expect(foot.locator("[aria-current]")).to_have_text(str(number))
    # a pointer does the same
    foot.get_by_title(STEPS[1].title).click()
    expect(page.locator(".st-key-slide p").first).to_contain_text(STEPS[1].title)


def test_the_link_of_a_step_leads_there_through_the_door(visit):
    page = visit.page("rasa?tour=4&rasa_qd=0.5")
    page.locator(".st-key-tour [data-testid=stPopoverButton]").first.click()
    offered = page.get_by_test_id("stPopoverBody").locator("code")
    expect(offered).to_have_count(2)
    links = [code.inner_text().strip() for code in offered.all()]
    assert links[0].startswith(f"{visit.address}/tune?tour=4&run=") and links[1] == f"{links[0]}&present=1"
    for link, audience in zip(links, (False, True), strict=True):
        stranger = visit.person(inside=False).new_page()
        stranger.goto(link)
        stranger.get_by_label("Token").fill(visit.server.token)
        stranger.get_by_role("button", name="Open").click()
        step = f"4 / {len(STEPS)}" if audience else f"Step 4 of {len(STEPS)}"
        shown = stranger.locator(f".st-key-{'slide' if audience else 'tour'} p").first
        expect(shown).to_have_text(f"{step} {STEPS[3].title}")
        title = stranger.get_by_role("heading", level=1)
        expect(title).to_contain_text("adapts" if audience else "RASA thresholds")
        expect(stranger.get_by_role("button", name="End presenting")).to_be_visible(visible=audience)
        assert "token" not in stranger.url


def test_the_tour_is_walked_left_and_taken_up_again(visit):
    page = visit.page(viewport={"width": 1280, "height": 900})
    # headline and all three figures stand on the first screen, equally high
    page.locator(PLOT).nth(5).wait_for()
    expect(page.locator(".st-key-card_ov_cost .js-plotly-plot").first).to_be_visible()
    boxes = [page.locator(f".st-key-card_ov_{name}").bounding_box() for name in ("slope", "survival", "cost")]
    assert len({round(box["height"]) for box in boxes}) == len({round(box["y"]) for box in boxes}) == 1
    assert boxes[0]["y"] + boxes[0]["height"] <= 900

    page.get_by_role("button", name="Take the tour").click()
    for number, step in enumerate(STEPS, start=1):
        expect(page.get_by_text(f"Step {number} of 7", exact=True)).to_be_visible()
        expect(page.get_by_text(step.title, exact=True)).to_be_visible()
        page.wait_for_url(lambda url, n=number: f"tour={n}" in url)
        place = urlsplit(path(step.place))
        assert page.url.split("?")[0] == f"{visit.address}{place.path}" and place.query in page.url
        page.locator(PLOT).first.wait_for()
        if number == 3:
            page.get_by_role("button", name="Back", exact=True).click()
            expect(page.get_by_text("Step 2 of 7", exact=True)).to_be_visible()
            page.get_by_role("button", name="Next").click()
            expect(page.get_by_text("Step 3 of 7", exact=True)).to_be_visible()
        if number == 4:
            # a step is an address: whoever opens it stands there
            page.reload()
            expect(page.get_by_text("Step 4 of 7", exact=True)).to_be_visible()
            # and who looks elsewhere meanwhile comes back to it
            page.get_by_role("link", name="Texts", exact=True).click()
            page.get_by_role("button", name="Back to step 4").click()
            expect(page.get_by_text("Step 4 of 7", exact=True)).to_be_visible()
        if number < len(STEPS):
            page.get_by_role("button", name="Next").click()
    page.get_by_role("button", name="End the tour").click()
    expect(page.get_by_text("Step 6 of 7", exact=True)).to_be_hidden()
    page.wait_for_url(lambda url: "tour" not in url)
