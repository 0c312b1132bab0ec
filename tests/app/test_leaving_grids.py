"""Tab leaves a grid that would keep it, in both directions; everything else keeps its keys."""

import pytest

from gprune.app.ui import assets

pytestmark = [pytest.mark.browser, pytest.mark.process]

PAGE = """
<a id="before" href="#">before</a>
<div data-testid="stDataFrame">
  <button id="toolbar">download</button>
  <canvas id="grid" tabindex="0"><table><tr><td id="cell" tabindex="-1">1</td></tr></table></canvas>
  <input id="search" tabindex="-1">
</div>
<div id="host"></div>
<button id="hidden" style="display: none">hidden</button>
<button id="disabled" disabled>disabled</button>
<button id="after">after</button>
<script type="module">
  const grid = document.getElementById("grid")
  window.arrows = 0
  // as a data grid does it: the key moves its cell, and goes no further
  grid.addEventListener("keydown", (event) => {
    if (event.key === "Tab") event.preventDefault()
    if (event.key === "ArrowRight") window.arrows += 1
  })
  const within = document.getElementById("host").attachShadow({ mode: "open" })
  if (WITHIN) within.innerHTML = "<button id='inner'>inner</button>"
  window.ready = true
</script>
"""


def opened(chromium, within=False):
    page = chromium.new_page()
    # as often as a page is drawn
    script = f"<script>{assets.read('leaving_grids.js')}</script>"
    page.set_content(f"{PAGE}{script}{script}".replace("WITHIN", str(within).lower()))
    page.wait_for_function("window.ready")
    return page


def focused(page):
    return page.evaluate(
        "() => { let one = document.activeElement; while (one.shadowRoot?.activeElement)"
        " one = one.shadowRoot.activeElement; return one.id }"
    )


def test_tab_goes_on_behind_the_grid_and_back_before_it(chromium):
    page = opened(chromium)
    page.focus("#grid")
    page.keyboard.press("ArrowRight")
    assert focused(page) == "grid" and page.evaluate("window.arrows") == 1
    page.keyboard.press("Tab")
    assert focused(page) == "after"
    page.keyboard.press("Shift+Tab")
    page.focus("#grid")
    page.keyboard.press("Shift+Tab")
    assert focused(page) == "toolbar"
    page.keyboard.press("Tab")
    assert focused(page) == "grid"
    page.close()


def test_what_stands_in_a_component_behind_it_is_reached_too(chromium):
    page = opened(chromium, within=True)
    page.focus("#grid")
    page.keyboard.press("Tab")
    assert focused(page) == "inner"
    page.close()
