"""The keys of a presenter in a browser: which are the slides', and from which slide they count."""

from pathlib import Path

import pytest
from browser import expect

from gprune.app.ui import assets, slide_foot

pytestmark = [pytest.mark.browser, pytest.mark.long]
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
    made, own = chromium.new_page(), Path(slide_foot.__file__).parent
    made.set_content((own / "slide_foot.html").read_text())
    data = {"titles": ["One", "Two", "Three", "Four"]}
    made.evaluate(_MOUNT, [(own / "slide_foot.js").read_text(), data])
    yield made
    made.close()


def told(page):
    found = page.evaluate("told")
    page.evaluate("told.length = 0")
    return found


def test_a_slider_has_its_arrows_and_the_slides_have_page_up_and_down(page):
    page.get_by_role("slider").focus()
    for key in ("ArrowRight", "ArrowLeft", "Home", "End"):
        page.keyboard.press(key)
    assert told(page) == []
    page.keyboard.press("PageDown")
    assert told(page) == [3]
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("ArrowRight")
    assert told(page) == [4]


def test_keys_that_come_before_the_numbers_are_there_wait_for_them(chromium):
    page, own = chromium.new_page(), Path(slide_foot.__file__).parent
    page.set_content(f"<div class='st-key-slide'>{(own / 'slide_foot.html').read_text()}</div>")
    page.evaluate(assets.read("slide_keys.js"))
    for key in ("End", "PageUp", "x"):
        page.keyboard.press(key)
    data = {"titles": ["One", "Two", "Three", "Four"]}
    page.evaluate(_MOUNT, [(own / "slide_foot.js").read_text(), data])
    page.keyboard.press("PageUp")
    page.wait_for_function("told.length == 3")
    assert told(page) == [4, 3, 2]
    page.keyboard.press("Home")
    page.wait_for_function("told.length == 1")
    # where no slide comes it is asked for once more
    page.wait_for_function("told.length == 2")
    assert told(page) == [1, 1]
    page.close()


def test_presses_count_from_the_slide_that_was_asked_for_and_an_older_one_changes_nothing(page):
    shown = page.locator("[aria-current]")
    for key in ("PageDown", "PageDown", "PageUp"):
        page.keyboard.press(key)
    assert told(page) == [3, 4, 3]
    # a slide that was asked for before is drawn first
    page.evaluate("give(4)")
    expect(shown).to_have_text("3")
    page.evaluate("give(3)")
    page.keyboard.press("Home")
    page.evaluate("give(1)")
    # already there: nothing to ask for
    page.keyboard.press("PageUp")
    assert told(page) == [1]
    # whoever goes back in the browser has another slide
    page.evaluate("give(4)")
    expect(shown).to_have_text("4")
    # the keys end with the slides
    page.evaluate("end()")
    page.keyboard.press("Home")
    assert told(page) == []
