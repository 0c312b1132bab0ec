"""Journeys through the app in a real browser, and what axe finds on its pages: people see and reach all."""

import pytest
from browser import AT_REST, PLOT, click_mark, complaints, expect, looking, served, visiting
from synthetic_run import write_run

from gprune.app.ui.page_names import PAGE_OF, path

pytestmark = pytest.mark.browser


@pytest.mark.long
def test_a_click_in_a_heat_map_selects_on_the_next_page(visit):
    page = visit.page("drift")
    page.locator(PLOT).nth(1).wait_for()
    marks = page.locator(".st-key-rd_layers_chart .js-plotly-plot")
    layers = marks.evaluate("plot => Array.from(plot._fullData[1].y)")
    click_mark(page, "rd_layers", 1, layers.index(3))
    chip = page.locator(".st-key-frame_selection")
    expect(chip).to_contain_text("layer 3")
    page.wait_for_url("**layer=3**")
    page.get_by_role("tab", name="Module agreement").click()
    page.get_by_role("heading", name="Module agreement", exact=True).wait_for()
    page.wait_for_url("**layer=3**")
    page.wait_for_function(AT_REST)
    # one step back is one page back
    page.go_back()
    page.get_by_role("heading", name="Rank drift", exact=True).wait_for()
    page.go_forward()
    page.get_by_role("heading", name="Module agreement", exact=True).wait_for()
    chip.get_by_role("button").first.click()
    expect(chip).to_have_count(0)
    page.wait_for_function(AT_REST)
    page.go_back()
    expect(chip).to_contain_text("layer 3")


@pytest.mark.long
def test_a_copied_address_shows_the_same_view_to_another_person(visit):
    page = visit.page(f"drift?run={visit.runs['Synthetic']}&layer=1")
    page.get_by_text("Log scale").click()
    page.wait_for_url("**rd_log=1**")
    other = visit.page(page.url.removeprefix(f"{visit.address}/"))
    other.locator(PLOT).first.wait_for()
    expect(other.get_by_label("Log scale")).to_be_checked()
    expect(other.locator(".st-key-frame_selection")).to_contain_text("layer 1")
    expect(other.get_by_role("combobox", name="Run")).to_have_value("Synthetic")
    page.go_back()
    page.wait_for_url(lambda url: "rd_log" not in url)
    expect(page.get_by_label("Log scale")).not_to_be_checked()


@pytest.mark.long
def test_a_click_on_a_tab_is_in_the_address_and_back_leads_to_the_tab_before(visit):
    page = visit.page("launch")
    page.get_by_role("tab", name="Runs").click()
    page.wait_for_url("**jobs_tab=runs**")
    page.get_by_role("heading", name="Runs of this cache").wait_for()
    other = visit.page(page.url.removeprefix(f"{visit.address}/"))
    expect(other.get_by_role("tab", name="Runs")).to_have_attribute("aria-selected", "true")
    page.go_back()
    expect(page.get_by_role("tab", name="Start")).to_have_attribute("aria-selected", "true")
    page.goto(f"{visit.address}/runs?tab=export&run={visit.first.name}&sx_way=lm-eval")
    expect(page.get_by_role("tab", name="lm-eval")).to_have_attribute("aria-selected", "true")


@pytest.mark.long
def test_wrong_fields_say_so_where_they_stand_and_the_keyboard_reaches_them(visit):
    page = visit.page("launch")
    field = page.locator(".st-key-launch_retention input")
    field.fill("1.5")
    field.press("Enter")
    page.get_by_text("Not ready to start").wait_for()
    said = page.locator(".st-key-launch_retention").evaluate("field => getComputedStyle(field, '::after').content")
    assert "Retention must be more than 0 and less than 1: 0.5 keeps" in said
    expect(page.get_by_role("button", name="Start the run")).to_have_count(0)
    field.focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Shift+Tab")
    assert "launch_retention" in page.evaluate(
        "() => document.activeElement.closest('[class*=st-key-launch_]').className"
    )
    field.fill("0.6")
    field.press("Enter")
    page.get_by_role("button", name="Start the run").wait_for()
    expect(page.get_by_text("Not ready to start")).to_have_count(0)


@pytest.mark.long
def test_the_very_first_visitor_may_come_by_any_address(chromium, tmp_path):
    """The address of a page is one from the first request on, and a page's file name is no address."""
    write_run(tmp_path)
    with served(tmp_path) as server, looking(chromium, server, tmp_path) as visit:
        page = visit.person().new_page()
        noted = complaints(page)
        for address, title in (("drift?tab=agreement", "Module agreement"), ("pruning_decisions", "Overview")):
            page.goto(f"{server.address}/{address}")
            page.get_by_role("heading", name=title, exact=True).wait_for()
            page.get_by_role("link", name="Tune").first.wait_for()
            # neither Streamlit's own list of the files, nor a page without its frame
            assert page.get_by_test_id("stSidebarNav").count() == 0
            assert page.get_by_test_id("stException").count() == 0
            if title == "Module agreement":
                assert noted == [] and page.get_by_role("dialog").count() == 0
        assert "Page not found" in page.get_by_role("dialog").inner_text()


SERIOUS = ("serious", "critical")
COLOURS = ["color-contrast", "link-in-text-block"]
"""the rules that depend on the colours of a scheme"""
EXCEPTIONS = {("color-contrast", "button kbd"): "st.button draws the key of its shortcut paler than its words"}
"""why a fault is not ours, by rule and by what it stands in"""


def addresses():
    """The addresses of all places but one."""
    return [item.removeprefix("/") for item in map(path, PAGE_OF) if item != "/drift"]


STATES = (
    "?slide=2",
    "?slide=7",
    "?slide=8",
    *(f"compare?tab=studies&cp_view={view}" for view in ("studies", "fair", "paper")),
    "rasa?rasa_qd=0.7&rasa_curves=gprune",
    *(f"runs?jobs_tab={tab}" for tab in ("jobs", "runs")),
    "drift?run=nowhere&layer=99",
)
"""slides, views, and what is said of an address that holds what is not there"""


def faults(page, rules):
    """What axe finds serious on a page, but for the exceptions, by all rules or by some."""
    from axe_playwright_python.sync_playwright import Axe

    results = []
    options = {"resultTypes": ["violations"]}
    if rules:
        options |= {"runOnly": {"type": "rule", "values": rules}}
    for rule in Axe().run(page, options=options).response["violations"]:
        if rule["impact"] not in SERIOUS:
            continue
        allowed = [location for (name, location) in EXCEPTIONS if name == rule["id"]]
        for node in rule["nodes"]:
            if not any(page.locator(node["target"][0]).and_(page.locator(item)).count() for item in allowed):
                results.append(f"{rule['id']} at {node['target']}: {node['html'][:200]}")
    return results


@pytest.fixture(scope="module")
def reader(chromium, shared_server):
    """One person who goes from page to page: the browser keeps what it has loaded."""
    with looking(chromium, *shared_server) as visit:
        yield visit, visit.page()


@pytest.mark.long
@pytest.mark.parametrize("where", ["drift", *addresses(), *STATES])
def test_no_page_has_a_serious_fault(reader, where):
    visit, page = reader
    visit.go(page, where)
    without_faults(page)
    assert not any(visit.noted), where


@pytest.mark.long
def test_an_empty_cache_and_a_form_with_errors_have_no_serious_fault(chromium, tmp_path):
    with visiting(chromium, tmp_path) as visit:
        for where in ("", "compare", "runs"):
            page = visit.page(where)
            without_faults(page)
        for field in ("launch_retention", "launch_samples"):
            page.locator(f".st-key-{field} input").fill("0")
            page.keyboard.press("Enter")
        page.get_by_text("Not ready to start").wait_for()
        without_faults(page)


def without_faults(page):
    """Fails where axe finds something serious on a page in the light, or about its colours in the dark."""
    schemes = (("light", "rgb(255, 255, 255)", []), ("dark", "rgb(17, 22, 29)", COLOURS))
    for scheme, ground, rules in schemes:
        page.emulate_media(color_scheme=scheme)
        page.wait_for_function(
            "ground => getComputedStyle(document.querySelector('.stApp')).backgroundColor === ground", arg=ground
        )
        # colours fade over, on a busy machine for longer: a fault is what stays
        for _ in range(4):
            page.wait_for_timeout(500)
            if not (wrong := faults(page, rules)):
                break
        assert not wrong, f"{scheme}: " + "\n".join(wrong)


PALE_TEXT = """() => {
  const light = channels => channels
    .map(one => one / 255)
    .map(one => one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
    .reduce((sum, one, place) => sum + one * [0.2126, 0.7152, 0.0722][place], 0.05)
  const parts = color => color.match(/[\\d.]+/g).map(Number)
  const ground = parts(getComputedStyle(document.querySelector(".stApp")).backgroundColor).slice(0, 3)
  const found = []
  for (const text of document.querySelectorAll(".js-plotly-plot text")) {
    // what stands on a mark or in a cell has another ground
    if (!text.textContent.trim() || text.closest(".heatmap-label, .textpoint, .bartext-inside")) continue
    const style = getComputedStyle(text)
    const [alone, ground_] = [light(parts(style.fill).slice(0, 3)), light(ground)]
    const contrast = Math.max(alone, ground_) / Math.min(alone, ground_)
    if (contrast < 4.5) found.push(`${text.textContent}: ${contrast.toFixed(2)}`)
  }
  return found
}"""
"""texts of charts with too little contrast to the page: axe does not look at those"""


@pytest.mark.long
def test_the_text_of_charts_has_contrast_enough(visit):
    page = visit.page()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.locator(".js-plotly-plot .xtick").first.wait_for()
        for _ in range(6):
            page.wait_for_timeout(500)
            if not (pale := page.evaluate(PALE_TEXT)):
                break
        assert page.locator(".js-plotly-plot text").count() > 20
        assert not pale, f"{scheme}: {pale}"


@pytest.mark.long
def test_from_a_word_to_the_help_and_from_any_page_to_a_neuron(visit):
    page = visit.page("agreement")
    page.get_by_role("button", name="How to read").first.click()
    expect(page.get_by_text("Adjusted Rand index of two groupings")).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Help", exact=True).click()
    expect(page.get_by_role("heading", name="How to read", exact=True)).to_be_visible()
    field = page.get_by_role("textbox", name="Find", exact=True)
    field.fill("L3N7")
    field.press("Enter")
    page.get_by_role("heading", name="Neuron 7 of layer 3: rank").wait_for()
    page.wait_for_url("**/neurons?**neuron=7**")
    expect(page.get_by_role("button", name="Ablate now")).to_be_visible()
    expect(page.get_by_role("heading", name="Which tokens does layer 3")).to_be_visible()
    page.get_by_role("tab", name="Neuron map").click()
    page.get_by_role("heading", name="Neuron map", exact=True).wait_for()
    expect(page.get_by_role("radio", name="UMAP")).to_be_checked()


_SHADOWS = """one => getComputedStyle(one).boxShadow.match(/rgba?\\([^)]*\\)/g)
    .map(colour => Number(colour.match(/[\\d.]+/g)[3] ?? 1) > 0.3)"""
"""whether there is a shadow at the left edge and at the right one"""


@pytest.mark.long
def test_on_a_phone_a_shadow_lies_where_a_chart_or_a_table_goes_on(visit):
    places = {"compare": ".st-key-card_cp_table .dvn-scroller"}
    places["decisions"] = chart = ".st-key-wide_pd_budget .stElementContainer"
    for where, location in places.items():
        page = visit.page(where, viewport={"width": 390, "height": 844}, color_scheme="dark")
        item = page.locator(location).first
        item.wait_for()
        page.wait_for_function("() => !document.querySelector('.js-plotly-plot:not(:has(.main-svg))')")
        assert page.get_by_test_id("stMain").evaluate("main => main.scrollWidth <= main.clientWidth")
        assert item.evaluate("one => one.scrollWidth > one.clientWidth + 100")
        assert item.evaluate(_SHADOWS) == [False, True]
        for share, edges in ((0.5, [True, True]), (1, [True, False])):
            item.evaluate("(one, share) => { one.scrollLeft = share * (one.scrollWidth - one.clientWidth) }", share)
            page.wait_for_timeout(200)
            assert item.evaluate(_SHADOWS) == edges
    page.set_viewport_size({"width": 1280, "height": 844})
    expect(page.locator(chart)).to_have_css("box-shadow", "none")
