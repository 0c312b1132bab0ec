"""From maps and charts to a module, a neuron and its contexts, in a browser: by mouse and by keyboard."""

import re

import pytest
from browser import PLOT, click_mark, expect

from gprune.app.figures import neurons as figures
from gprune.pipeline import stages

pytestmark = [pytest.mark.browser, pytest.mark.long]

MAP = ".st-key-nm_map_chart"


def draw(page, corners):
    """Drags the mouse through places of the plot, given in shares of its width and height."""
    box = page.locator(f"{MAP} .nsewdrag").first.bounding_box()
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in corners]
    page.mouse.move(*places[0])
    page.mouse.down()
    for location in places[1:]:
        page.mouse.move(*location, steps=8)
    page.mouse.up()


def tool(page, name):
    """Chooses what dragging does; the toolbar is drawn anew with the chart."""
    page.locator(f"{MAP} .modebar-btn[data-title='{name}']").first.click(force=True)


def circled(page, neuron):
    """Waits until a neuron is marked in the map."""
    page.wait_for_function(
        """([map, name]) => document.querySelector(`${map} .js-plotly-plot`)._fullData
            .some(trace => trace.name === name)""",
        arg=[MAP, f"neuron {neuron}"],
    )


def inside(page, corners):
    """The neurons whose points lie in a rectangle of the plot, as the chart has them."""
    xs, ys = ([corner[axis] for corner in corners] for axis in (0, 1))
    result = page.locator(f"{MAP} .js-plotly-plot").evaluate(
        """(plot, [left, right, top, bottom]) => {
            const {xaxis, yaxis} = plot._fullLayout, found = [];
            for (const trace of plot._fullData) for (let i = 0; i < trace.x.length; i++) {
                const x = xaxis.d2p(trace.x[i]) / xaxis._length, y = yaxis.d2p(trace.y[i]) / yaxis._length;
                if (x > left && x < right && y > top && y < bottom && trace.customdata)
                    found.push(trace.customdata[i]);
            }
            return found;
        }""",
        [min(xs), max(xs), min(ys), max(ys)],
    )
    return set(result)


def test_a_lasso_lists_its_neurons_and_a_row_selects_one_of_them(visit):
    run = visit.first
    page = visit.page("map?layer=2")
    page.locator(f"{MAP} {PLOT}").first.wait_for()
    tool(page, "Lasso Select")
    half = [(0.02, 0.02), (0.5, 0.02), (0.5, 0.98), (0.02, 0.98), (0.02, 0.03)]
    members = inside(page, half)
    draw(page, half)
    card = page.locator(".st-key-card_nm_region")
    expect(card).to_contain_text(f"{len(members)} neurons of layer 2 selected")
    # the box of the first row, which the table draws on a canvas below what takes the clicks
    rows = page.locator(".st-key-nm_region_rows canvas").first
    rows.scroll_into_view_if_needed()
    location = rows.bounding_box()
    page.mouse.click(location["x"] + 16, location["y"] + 54)
    chip = page.locator(".st-key-frame_selection")
    expect(chip).to_contain_text(f"neuron {min(members)}")
    module = int(run.load(stages.partition).labels[2][min(members)])
    page.wait_for_url(f"**layer=2&module={module}&neuron={min(members)}**")
    # what was drawn stays, and the neuron is circled in the map
    expect(card).to_contain_text(f"{len(members)} neurons of layer 2")
    circled(page, min(members))


def test_a_click_selects_a_neuron_and_a_box_around_nothing_is_a_sentence(visit):
    run = visit.first
    # the neuron that is furthest to the right lies under no other
    traces = figures.neuron_map(run, layer=1, colour="module").figure.data
    trace = max(range(len(traces)), key=lambda number: float(traces[number].x.max()))
    point = int(traces[trace].x.argmax())
    page = visit.page("map?layer=1&nm_colour=module", viewport={"width": 1920, "height": 1200})
    page.locator(f"{MAP} {PLOT}").first.wait_for()
    assert page.locator(MAP).first.bounding_box()["width"] == 900, "a curve is no wider"
    click_mark(page, "nm_map", trace, point)
    neuron = int(traces[trace].customdata[point])
    chip = page.locator(".st-key-frame_selection")
    expect(chip).to_contain_text(f"module {trace} · neuron {neuron}")
    circled(page, neuron)
    tool(page, "Box Select")
    corner = next(
        result
        for result in ([(x, y), (x + 0.04, y + 0.04)] for x in (0.01, 0.95) for y in (0.01, 0.95))
        if not inside(page, result)
    )
    draw(page, corner)
    expect(page.locator(".st-key-card_nm_region")).to_contain_text("No neuron is inside the region")
    # the way on from what is selected
    page.get_by_role("link", name="Open in Inspector").click()
    page.get_by_role("heading", name="Inspector", exact=True).wait_for()
    page.wait_for_url(f"**neurons?*neuron={neuron}**")
    # one step back is the tab before
    page.go_back()
    page.get_by_role("heading", name="Neuron map", exact=True).wait_for()


def test_a_click_in_the_atlas_selects_its_module_on_every_page(visit):
    page = visit.page("atlas?atlas_method=flap")
    for card in ("atlas_methods", "atlas_texts", "atlas_groups"):
        page.locator(f".st-key-{card}_chart {PLOT}").first.wait_for()
    marks = page.locator(".st-key-atlas_texts_chart .js-plotly-plot")
    layer, module = marks.evaluate("plot => Array.from(plot._fullData[1].customdata[9]).slice(0, 2)")
    click_mark(page, "atlas_texts", 1, 9)
    chip = page.locator(".st-key-frame_selection")
    expect(chip).to_contain_text(f"layer {layer} · module {module}")
    # framed in both maps of modules
    for card in ("atlas_methods", "atlas_texts"):
        page.wait_for_function(
            "card => document.querySelector(`.st-key-${card}_chart .js-plotly-plot`).layout.shapes", arg=card
        )
    page.get_by_role("link", name="Neurons", exact=True).click()
    page.get_by_role("tab", name="Neuron map").click()
    page.get_by_role("heading", name="Neuron map", exact=True).wait_for()
    expect(page.locator(".st-key-card_nm_region")).to_contain_text(
        re.compile(rf"\d+ neurons? of layer {layer} in the selected module {module}")
    )


def test_from_a_layer_to_a_module_a_neuron_its_contexts_and_back(visit):
    page = visit.page("inspector?layer=3")
    page.get_by_role("heading", name="Layer 3: 60 neurons, 6 modules").wait_for()
    field = page.get_by_role("textbox", name="Find")
    field.fill("module 2 of layer 3")
    field.press("Enter")
    page.get_by_role("heading", name="Module 2 of layer 3").wait_for()
    page.wait_for_url("**layer=3&module=2**")
    field.fill("3/7")
    field.press("Enter")
    page.get_by_role("heading", name="Neuron 7 of layer 3: rank").wait_for()
    expect(page.locator(".passages mark")).to_have_count(24)
    # the words of a text are text: none of them has become an element
    inner = page.locator(".passages .text").first
    tags = inner.evaluate("text => Array.from(text.children, child => child.tagName).join()")
    assert re.fullmatch("SPAN,(SPAN,)?MARK,SPAN", tags)
    expect(page.get_by_role("link", name="Open in Inspector")).to_have_count(0)
    page.go_back()
    page.get_by_role("heading", name="Module 2 of layer 3").wait_for()
    expect(page.locator(".passages mark")).to_have_count(0)


def test_search_and_next_need_no_mouse(visit):
    page = visit.page("inspector")
    field = page.get_by_role("textbox", name="Find")
    field.wait_for()
    field.focus()
    page.keyboard.type("layer 1 neuron 5")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Neuron 5 of layer 1: rank").wait_for()
    for key in ("Tab", "Tab"):
        page.keyboard.press(key)
    expect(page.get_by_role("button", name="Next")).to_be_focused()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Neuron 6 of layer 1: rank").wait_for()
    page.keyboard.press("n")
    page.get_by_role("heading", name="Neuron 7 of layer 1: rank").wait_for()
    page.keyboard.press("b")
    page.get_by_role("heading", name="Neuron 6 of layer 1: rank").wait_for()
    page.wait_for_url("**neuron=6**")
