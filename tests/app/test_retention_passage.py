"""The passage of a retention in a browser: it is coloured while the slider is held, and fits its frame."""

from pathlib import Path

import numpy as np
import pytest
from browser import expect

from gprune.app.pages.rasa import retention_line
from gprune.app.pages.rasa.retention_line import Point, Series
from gprune.app.ui import dragging, retention_passage, tokens
from gprune.app.ui.retention_passage import Level, Shown

pytestmark = [pytest.mark.browser, pytest.mark.long]
_MOUNT = """async ([source, data, place]) => {
    window.told ??= []
    const address = URL.createObjectURL(new Blob([source], { type: "text/javascript" }))
    const component = await import(address)
    const parentElement = document.querySelector(place)
    const setStateValue = (name, value) => window.told.push(value)
    window.give = (data) => component.default({ parentElement, data, setStateValue })
    window.give(data)
}"""
_HANDS = Path(dragging.__file__).parent
LEVELS = (0.2, 0.45, 0.5, 0.98)
PLAIN = "rgba(0, 0, 0, 0)"


def shown(count=3, line=None):
    """The n-th token is n nats worse where 20 % are kept, and less so where more are."""
    words = tuple("↵\n" if line and not place % line else f"·word{place}" for place in range(1, count + 1))
    dense = np.array([np.nan, *np.ones(count - 1)])
    worse = {0.2: 1.0, 0.45: 0.5, 0.5: 0.25, 0.98: 0.0}
    levels = tuple(
        Level(at, dense + worse[at] * np.arange(count), f"GPrune, {100 * at:.0f} % kept", f"+{worse[at]:.2f}")
        for at in LEVELS
    )
    return Shown(words, dense, levels, 0.5, (0.2, 0.98), 4.0, "Window 3 of c4.")


@pytest.fixture
def mounted(chromium):
    """Mounts the component alone, within a frame of a size."""
    pages = []

    def mount(what, width=1000, height=400, fills=True):
        page = chromium.new_page(viewport={"width": 1280, "height": 720})
        pages.append(page)
        own, colours = Path(retention_passage.__file__).parent, Path(tokens.__file__).parent
        sheets = (_HANDS / "dragging.css", colours / "tokens.css", own / "retention_passage.css")
        scripts = (_HANDS / "dragging.js", colours / "colours.js", own / "retention_passage.js")
        looks = "".join(path.read_text() for path in sheets)
        frame = f"<div style='width: {width}px; height: {height}px'><div>"
        markup = (own / "retention_passage.html").read_text()
        page.set_content(f"<style>{looks}</style><div id='line'></div><main>{frame}{markup}</div></div></main>")
        source = "\n".join(path.read_text() for path in scripts)
        page.evaluate(_MOUNT, [source, retention_passage.data(what) | {"fills": fills}, "main"])
        page.locator(".retention-passage[data-retention]").wait_for()
        return page

    yield mount
    for page in pages:
        page.close()


def slider(page):
    return page.get_by_role("slider", name="Decoder weights kept", exact=True)


def colours(page):
    return page.locator(".passage span").evaluate_all("all => all.map(one => getComputedStyle(one).backgroundColor)")


def test_tokens_are_coloured_while_the_slider_is_held_and_python_hears_when_it_is_let_go(mounted):
    page = mounted(shown())
    label, root = page.locator(".label"), page.locator(".retention-passage")
    expect(label).to_have_text("GPrune, 50 % kept: +0.25")
    before = colours(page)
    assert before[0] == PLAIN and before[1] != before[2]
    box, track = slider(page).bounding_box(), page.locator(".plot").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 16)
    page.mouse.down()
    # between two retentions that were read it stands at the nearer one
    for share, level in ((0.27, 0.45), (0.1, 0.2), (0.6, 0.5), (0.9, 0.98), (0.05, 0.2)):
        page.mouse.move(track["x"] + share * track["width"], box["y"] + 16)
        expect(root).to_have_attribute("data-retention", f"{level:g}")
        expect(label).to_contain_text(f"GPrune, {100 * level:.0f} % kept")
        expect(slider(page)).to_have_attribute("aria-valuenow", f"{level:g}")
    assert page.evaluate("told") == [] and colours(page) != before
    # one nat worse of four at which the colours end
    assert colours(page)[1] == "rgba(224, 130, 20, 0.145)"
    page.locator(".passage span").nth(2).dispatch_event("pointerover")
    title = page.locator(".passage span").nth(2).get_attribute("title")
    assert title.endswith("GPrune, 20 % kept 4.98 %\n2.00 nats worse")
    page.mouse.up()
    assert [one["retention"] for one in page.evaluate("told")] == [0.2]


def test_keys_go_from_one_retention_that_was_read_to_the_next(mounted):
    page = mounted(shown())
    slider(page).focus()
    for key, level in (
        ("ArrowLeft", 0.45),
        ("ArrowDown", 0.2),
        ("End", 0.98),
        ("Home", 0.2),
        ("ArrowUp", 0.45),
    ):
        page.keyboard.press(key)
        expect(slider(page)).to_have_attribute("aria-valuenow", f"{level:g}")
        expect(page.locator(".retention-passage")).to_have_attribute("data-retention", f"{level:g}")
    assert slider(page).get_attribute("aria-valuetext") == "45 % kept, +0.50"
    page.wait_for_function("told.length")
    assert page.evaluate("told.at(-1).retention") == 0.45
    # a press on the scale takes the grip there
    track = page.locator(".plot").bounding_box()
    page.mouse.click(track["x"] + 0.95 * track["width"], track["y"] + 16)
    expect(slider(page)).to_have_attribute("aria-valuenow", "0.98")


@pytest.mark.parametrize(
    ("count", "line", "height"), [(30, None, 400), (128, 7, 400), (128, None, 420), (2048, None, 300)]
)
def test_a_passage_fits_its_frame_or_says_how_much_of_it_does(mounted, count, line, height):
    page = mounted(shown(count, line), height=height)
    box = page.locator(".passage").bounding_box()
    assert page.locator(".retention-passage").bounding_box()["height"] <= height + 1
    told = page.locator(".told")
    assert told.bounding_box()["y"] + told.bounding_box()["height"] <= height + 10
    ends = page.locator(".passage span:not([hidden])").evaluate_all(
        "all => all.map(one => one.getBoundingClientRect()).map(one => [one.right, one.bottom])"
    )
    assert max(right for right, _ in ends) <= box["x"] + box["width"] + 1
    assert max(bottom for _, bottom in ends) <= box["y"] + box["height"] + 1
    if len(ends) < count:
        assert told.inner_text() == f"The first {len(ends)} of {count} tokens are shown. Window 3 of c4."
    else:
        assert told.inner_text() == "Window 3 of c4."
    assert (len(ends) < count) == (count == 2048) and len(ends) > 25


def test_on_a_page_every_token_is_there_and_the_passage_scrolls(mounted):
    page = mounted(shown(2048), width=300, fills=False)
    box = page.locator(".passage")
    assert box.locator("span:not([hidden])").count() == 2048
    height, all_of_it = box.evaluate("box => [box.clientHeight, box.scrollHeight]")
    assert 300 < height <= 400 and all_of_it > 4 * height
    assert page.locator(".told").inner_text() == "Window 3 of c4."
    # on a phone the scale has the width below its words
    assert page.locator(".plot").bounding_box()["width"] > 200


def test_a_line_of_the_retention_that_is_dragged_elsewhere_colours_it_and_the_other_way_round(mounted):
    page = mounted(shown())
    own = Path(retention_line.__file__).parent
    markup, looks = ((own / f"retention_line.{kind}").read_text() for kind in ("html", "css"))
    page.evaluate(
        "([markup, looks]) => document.querySelector('#line').innerHTML = `<style>${looks}</style>${markup}`",
        [markup, looks],
    )
    scripts = (_HANDS / "dragging.js", own / "retention_line.js")
    curve = [Series("gprune", (Point(0.5, 20.0, 19.0, 21.0, True, "8 of 8 windows"),))]
    data = retention_line.data(curve, 15.0, 0.5, (0.05, 0.98)) | {"alt": "a chart"}
    page.evaluate(_MOUNT, ["\n".join(path.read_text() for path in scripts), data, "#line"])
    line, passage = page.locator(".retention-line .retention"), page.locator(".retention-passage")
    page.locator(".retention-line[data-retention]").wait_for()
    before, box = colours(page), line.bounding_box()
    track = page.locator(".retention-line .plot").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 8)
    page.mouse.down()
    page.mouse.move(track["x"] + 0.3 * track["width"], box["y"] + 8)
    # nothing was read between 20 and 45 %
    expect(passage).to_have_attribute("data-retention", "0.2")
    expect(page.locator(".label")).to_have_text("GPrune, 20 % kept: +1.00")
    assert page.evaluate("told") == [] and colours(page) != before
    page.mouse.up()
    assert len(page.evaluate("told")) == 1
    slider(page).focus()
    page.keyboard.press("End")
    expect(line).to_have_attribute("aria-valuenow", "0.98")
