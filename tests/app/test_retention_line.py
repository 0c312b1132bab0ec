"""The retention line in a browser: one view of what is kept, like the slider and the address."""

import re
from pathlib import Path

import numpy as np
import pytest
from browser import expect

from gprune.app.pages.rasa import lab, retention_line
from gprune.app.pages.rasa.retention_line import Point, Series
from gprune.app.ui import derived_cache, dragging

pytestmark = [pytest.mark.browser, pytest.mark.long]
CHART = ".retention-line"
_MOUNT = """async ([source, data]) => {
    const address = URL.createObjectURL(new Blob([source], { type: "text/javascript" }))
    const module = await import(address)
    module.default({ parentElement: document.body, data, setStateValue: () => {} })
}"""


@pytest.fixture
def page(visit):
    """The view of the costs, with a curve to choose; no worker is asked."""
    found = visit.page("rasa?rasa_view=cost&rasa_curves=gprune&rasa_curves=flap")
    ready(found)
    return found


def ready(page):
    page.locator(f"{CHART}[data-retention]").wait_for()
    page.wait_for_timeout(500)


def line(page):
    return page.get_by_role("slider", name="retention line, decoder weights kept")


def held(page):
    return float(page.locator(CHART).get_attribute("data-retention"))


def drag(page, across):
    """Takes the line by its end and moves it in small steps, without letting it go."""
    line(page).scroll_into_view_if_needed()
    before, box = page.locator(CHART).get_attribute("data-retention"), None
    # charts above may still be drawn, which moves the line
    while box != (box := line(page).bounding_box()):
        page.wait_for_timeout(300)
    x, y = box["x"] + box["width"] / 2, box["y"] + 8
    page.mouse.move(x, y)
    page.mouse.down()
    for step in range(1, 21):
        page.mouse.move(x + across * step / 20, y)
    expect(page.locator(CHART)).not_to_have_attribute("data-retention", before)
    page.wait_for_timeout(100)


def agrees(page, level, run):
    """Line, slider, address and what the masks keep are of one retention."""
    # the run's own retention leaves no trace in the address
    own = r"^(?!.*rasa_keep)" if level == 0.5 else rf"[?&]rasa_keep={level:g}(&|$)"
    page.wait_for_url(re.compile(own))
    expect(line(page)).to_have_attribute("aria-valuenow", f"{level:g}")
    slider = page.locator(".st-key-rasa_keep_slider input")
    expect(slider).to_have_value(f"{level:g}")
    wanted = lab.choice(run, run.study.reliability)
    masks = derived_cache.masks_of(run, type(wanted)(wanted.method, level, wanted.scoring, wanted.settings))
    assert masks.retention == pytest.approx(level, abs=0.02)
    sentence = f"GPrune keeps {100 * masks.ffn.mean():.1f} % of the neurons and {100 * masks.heads.mean():.1f} %"
    expect(page.locator(".st-key-card_rasa_keep")).to_contain_text(sentence)
    expect(page.locator(".st-key-card_rasa_preview")).to_contain_text(f"Measured: GPrune, {100 * level:.0f} % kept")


def test_a_dragged_retention_moves_slider_address_and_masks_and_a_reload_keeps_it(page, visit):
    before = page.locator(".st-key-card_rasa_keep h4").inner_text()
    drag(page, -150)
    level = held(page)
    # while the line is held, only the browser has moved
    assert 0.05 < level < 0.45 and round(100 * level) == pytest.approx(100 * level)
    assert page.locator(".st-key-card_rasa_keep h4").inner_text() == before and "rasa_keep" not in page.url
    page.mouse.up()
    agrees(page, level, visit.first)
    assert "shifted together" in page.locator(".st-key-card_rasa_preview").inner_text()
    page.reload()
    ready(page)
    agrees(page, level, visit.first)


def test_the_keyboard_moves_the_retention_within_its_ends(page, visit):
    element = line(page)
    element.focus()
    assert element.evaluate("line => line.matches(':focus-visible')")
    assert element.bounding_box()["width"] >= 24
    steps = {"ArrowLeft": 0.49, "ArrowUp": 0.5, "PageUp": 0.55, "End": 0.98, "Home": 0.05}
    for key, level in steps.items():
        page.keyboard.press(key)
        expect(element).to_have_attribute("aria-valuenow", f"{level:g}")
    assert element.get_attribute("aria-valuetext") == "5 % kept"
    for key in ["PageUp"] * 8 + ["ArrowRight"]:
        page.keyboard.press(key)
    agrees(page, 0.46, visit.first)


def test_the_line_follows_the_slider_and_points_can_be_clicked(page, visit):
    slider = page.locator(".st-key-rasa_keep_slider input")
    slider.focus()
    slider.press("ArrowRight")
    agrees(page, 0.51, visit.first)
    readings = page.locator(f"{CHART} .readings")
    assert "not measured on both sides" in readings.inner_text()
    # the line itself lies over points that are this near to it
    line(page).focus()
    page.keyboard.press("PageUp")
    agrees(page, 0.56, visit.first)
    page.locator(f"{CHART} .point").first.click()
    agrees(page, 0.5, visit.first)
    assert "(measured)" in readings.inner_text()


def test_between_points_the_reading_lies_on_the_drawn_line_and_says_that_it_is_interpolated(chromium):
    """Half way between 20 and 80 the line on a log axis stands at 40, and not at 50."""
    points = (
        Point(0.4, 80.0, 76.0, 84.0, True, "8 of 8 windows"),
        Point(0.6, 20.0, 19.0, 21.0, False, "3 of 8 windows"),
    )
    alone = (Point(0.5, 90.0, 85.0, 95.0, True, "8 of 8 windows"),)
    own, shared = Path(retention_line.__file__).parent, Path(dragging.__file__).parent
    text = {name: (own / f"retention_line.{name}").read_text() for name in ("html", "css", "js")}
    looks = (shared / "dragging.css").read_text() + text["css"]
    page = chromium.new_page(viewport={"width": 900, "height": 600})
    page.set_content(f"<style>{looks}</style><div style='width: 800px'>{text['html']}</div>")
    curves = [Series("gprune", points), Series("flap", alone)]
    data = retention_line.data(curves, 15.0, 0.5, (0.05, 0.98)) | {"alt": "a chart"}
    page.evaluate(_MOUNT, [(shared / "dragging.js").read_text() + text["js"], data])
    page.locator(".retention-line[data-retention]").wait_for()
    reading = page.locator(".readings [data-method=GPrune]")
    assert reading.inner_text() == "GPrune ≈ 40.00 (interpolated)"
    assert page.locator(".readings [data-method=FLAP]").inner_text() == "FLAP 90.00 (measured)"
    places = page.locator(".curve polyline").get_attribute("points").replace(",", " ").split()
    middle, height = (float(places[1]) + float(places[3])) / 2, page.locator(".plot").bounding_box()["height"]
    share = np.log(40.0 / (15.0 / 1.15)) / np.log(95.0 * 1.15 / (15.0 / 1.15))
    assert middle == pytest.approx(26 + (1 - share) * (height - 26 - 44), abs=0.5)
    line(page).focus()
    for key, told in {
        "PageUp": f"GPrune ≈ {20 * 2**0.5:.2f} (interpolated)",
        "ArrowLeft": f"GPrune ≈ {20 * 4**0.3:.2f} (interpolated)",
        "End": "GPrune – (not measured on both sides)",
    }.items():
        page.keyboard.press(key)
        # what is read is drawn with the browser's next frame
        expect(reading).to_have_text(told)
    # what is so near to a point is the point itself, with the windows that it lacks
    page.locator(".point").nth(1).click()
    expect(reading).to_have_text("GPrune 20.00 (measured, 3 of 8 windows)")
    assert held(page) == 0.6
    page.close()
