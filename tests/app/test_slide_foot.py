"""The keys of a presenter in a browser: which are the slides', and from which slide they count."""

import pytest
from browser import expect

from gprune.app.ui import components

pytestmark = [pytest.mark.browser, pytest.mark.long]
FOOT = "<nav class='slide-foot'></nav>"
SCRIPT = components.read_asset("slide_foot.js")
_MOUNT = """async ([source, data]) => {
    window.told = []
    const within = document.createElement("div")
    document.body.append(within)
    // a slider as a component of its own has it, seen from outside as that component
    within.attachShadow({ mode: "open" }).innerHTML = '<div role="slider" tabindex="0">kept</div>'
    const address = URL.createObjectURL(new Blob([source], { type: "text/javascript" }))
    const component = await import(address)
    window.give = (shown) => { window.end = component.default({
        parentElement: document.body, data: { ...data, shown },
        setStateValue: (name, value) => window.told.push(value.slide),
    })}
    window.give(2)
}"""


@pytest.fixture
def page(chromium):
    """The numbers of four slides, of which the second is shown, and a slider."""
    created = chromium.new_page()
    created.set_content(FOOT)
    data = {"titles": ["One", "Two", "Three", "Four"]}
    created.evaluate(_MOUNT, [SCRIPT, data])
    yield created
    created.close()


def slides_sent(page):
    result = page.evaluate("told")
    page.evaluate("told.length = 0")
    return result


def test_a_slider_has_its_arrows_and_the_slides_have_page_up_and_down(page):
    page.get_by_role("slider").focus()
    for key in ("ArrowRight", "ArrowLeft", "Home", "End"):
        page.keyboard.press(key)
    assert slides_sent(page) == []
    page.keyboard.press("PageDown")
    assert slides_sent(page) == [3]
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("ArrowRight")
    assert slides_sent(page) == [4]
    # a digit jumps, at most to the last
    for key in ("1", "9"):
        page.keyboard.press(key)
    assert slides_sent(page) == [1, 4]


def test_presses_count_from_the_slide_that_was_asked_for_and_an_older_one_changes_nothing(page):
    visible = page.locator("[aria-current]")
    for key in ("PageDown", "PageDown", "PageUp"):
        page.keyboard.press(key)
    assert slides_sent(page) == [3, 4, 3]
    # a slide that was asked for before is drawn first
    page.evaluate("give(4)")
    expect(visible).to_have_text("3")
    page.evaluate("give(3)")
    page.keyboard.press("Home")
    page.evaluate("give(1)")
    # already there: nothing to ask for
    page.keyboard.press("PageUp")
    assert slides_sent(page) == [1]
    # whoever goes back in the browser has another slide
    page.evaluate("give(4)")
    expect(visible).to_have_text("4")
    # the keys end with the slides
    page.evaluate("end()")
    page.keyboard.press("Home")
    assert slides_sent(page) == []
