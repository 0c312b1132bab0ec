"""The lines of the RASA page in a browser: they count as Python does, and are one view of one pair."""

import re

import pytest
from browser import expect

pytestmark = pytest.mark.browser
LINES = ".threshold-lines"
OWN = 0.9
"""both quantiles of the run, which leave no trace in the address"""


@pytest.fixture
def page(visit):
    """The page of a run, with its lines drawn."""
    result = visit.page(f"rasa?run={visit.first.name}")
    ready(result)
    return result


def ready(page):
    page.locator(f"{LINES}[data-adapted]").wait_for()
    page.get_by_text("Modules adapted").first.wait_for()
    page.wait_for_timeout(500)


def counts_shown(page):
    return dict(page.locator(LINES).evaluate("root => ({...root.dataset})"))


def line(page, name):
    return page.get_by_role("slider", name=f"{name} line, quantile")


def drag(page, name, across, up=0):
    """Takes a line by an end, away from modules, and moves it in small steps."""
    box = line(page, name).bounding_box()
    x = box["x"] + (box["width"] / 2 if name == "drift" else 6)
    y = box["y"] + (box["height"] / 2 if name == "score" else 6)
    page.mouse.move(x, y)
    page.mouse.down()
    for step in range(1, 21):
        page.mouse.move(x + across * step / 20, y - up * step / 20)
    page.wait_for_timeout(100)


def agrees(page, key, index, level):
    """Line, number, slider and address hold one value."""
    if level == OWN:
        page.wait_for_url(lambda url: key not in url)
    else:
        page.wait_for_url(re.compile(rf"[?&]{key}={level:g}(&|$)"))
    expect(page.get_by_role("spinbutton").nth(index)).to_have_value(f"{level:.3f}")
    name = ("drift", "score")[index]
    expect(line(page, name)).to_have_attribute("aria-valuenow", f"{level:g}")
    label = ("γ_drift: quantile of the drift line", "γ_score: quantile of the score line")[index]
    native = page.get_by_role("slider", name=label)
    expect(native).to_have_value(f"{level:g}")


def test_a_dragged_line_moves_number_slider_and_address_and_a_reload_keeps_them(page):
    tile = page.get_by_test_id("stMetricValue").first
    before = tile.inner_text()
    drag(page, "drift", -160)
    moved = counts_shown(page)
    level = float(moved["drift"])
    # while the line is held, only the browser has counted
    assert level < 0.9 and tile.inner_text() == before and "rasa_qd" not in page.url
    assert round(level * 200) == pytest.approx(level * 200)
    page.mouse.up()
    expect(tile).to_have_text(f"{moved['adapted']} / 24")
    agrees(page, "rasa_qd", 0, level)
    drag(page, "score", 0, up=-150)
    page.mouse.up()
    second = float(counts_shown(page)["score"])
    assert second < 0.9
    agrees(page, "rasa_qs", 1, second)
    agrees(page, "rasa_qd", 0, level)
    page.reload()
    ready(page)
    agrees(page, "rasa_qd", 0, level)
    agrees(page, "rasa_qs", 1, second)


@pytest.mark.long
def test_a_line_follows_the_fields_also_after_it_was_dragged_there_before(page):
    drag(page, "drift", -120)
    page.mouse.up()
    level = float(counts_shown(page)["drift"])
    agrees(page, "rasa_qd", 0, level)
    field = page.get_by_role("spinbutton").first
    field.fill("0.3")
    field.press("Enter")
    agrees(page, "rasa_qd", 0, 0.3)
    # back to the very place of the first release
    expected = round((level - 0.3) * 200)
    line(page, "drift").focus()
    for _ in range(abs(expected)):
        page.keyboard.press("ArrowRight" if expected > 0 else "ArrowLeft")
    agrees(page, "rasa_qd", 0, level)
    page.get_by_role("button", name="Drift only").click()
    expect(line(page, "score")).to_be_hidden()
    agrees(page, "rasa_qd", 0, 0.9)
    page.get_by_role("button", name=re.compile("^None")).click()
    expect(line(page, "drift")).to_be_hidden()
    assert counts_shown(page)["adapted"] == "0"


@pytest.mark.long
def test_the_keyboard_alone_moves_the_lines_and_sets_the_rule(page):
    element = line(page, "drift")
    element.focus()
    assert element.evaluate("line => line.matches(':focus-visible')")
    box = element.bounding_box()
    assert box["width"] >= 24 and line(page, "score").bounding_box()["height"] >= 24
    steps = {"ArrowLeft": 0.895, "ArrowUp": 0.9, "PageDown": 0.85, "Home": 0.0, "End": 1.0}
    for key, level in steps.items():
        page.keyboard.press(key)
        expect(element).to_have_attribute("aria-valuenow", f"{level:g}")
    assert element.get_attribute("aria-valuetext").startswith("quantile 1.000, drift ≥ ")
    agrees(page, "rasa_qd", 0, 1.0)
    page.keyboard.press("Alt+2")
    agrees(page, "rasa_qs", 1, 0.85)
    agrees(page, "rasa_qd", 0, 0.9)


@pytest.mark.long
def test_a_clicked_module_is_selected_and_marked_in_the_address(page):
    where = page.locator(LINES).evaluate(
        """root => { const box = root.querySelector('.points').getBoundingClientRect();
        return {left: box.left, top: box.top, width: box.width, height: box.height} }"""
    )
    tip = page.locator(f"{LINES} .tip")
    for x, y in ((x, y) for y in range(40, int(where["height"]) - 50, 12) for x in range(80, int(where["width"]), 12)):
        page.mouse.move(where["left"] + x, where["top"] + y)
        if tip.is_visible():
            break
    layer, module = re.match(r"layer (\d+), module (\d+), neurons: \d+", tip.text_content()).groups()
    page.mouse.down()
    page.mouse.up()
    page.wait_for_url(re.compile(rf"[?&]layer={layer}&module={module}(&|$)"))
