"""Journeys through the app in a real browser, and what axe finds on its pages: people see and reach all."""

import pytest
from browser import PATIENCE, PLOT, click_mark, complaints, expect, looking, served, visiting
from synthetic_run import write_run
from test_headline_agrees import LOSES, measured, study

from gprune.app.ui.page_names import HELP, HELP_PARTS, PAGE_OF, path

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
    assert "layer=3" in page.url
    page.get_by_role("tab", name="Module agreement").click()
    page.get_by_role("heading", name="Module agreement", exact=True).wait_for()
    expect(page.locator(".st-key-ma_layer input")).to_have_value("3")
    page.wait_for_url("**layer=3**")
    # one step back is one page back
    page.go_back()
    page.get_by_role("heading", name="Rank drift", exact=True).wait_for()
    page.go_forward()
    page.get_by_role("heading", name="Module agreement", exact=True).wait_for()
    chip.get_by_role("button").first.click()
    expect(chip).to_have_count(0)
    page.go_back()
    expect(chip).to_contain_text("layer 3")


@pytest.mark.long
def test_a_click_in_the_plane_of_quantiles_sets_both_lines_to_its_cell(visit):
    page = visit.page("rasa?rasa_view=modules")
    page.locator(f".st-key-rasa_grid_chart {PLOT}").first.wait_for()
    cells = page.locator(".st-key-rasa_grid_chart .js-plotly-plot")
    x, y = cells.evaluate("plot => ['x', 'y'].map(axis => plot._fullData[1][axis][18])")
    click_mark(page, "rasa_grid", 1, 18)
    page.wait_for_url(f"**rasa_qd={x:g}&rasa_qs={y:g}**")


@pytest.mark.long
def test_a_copied_address_shows_the_same_view_to_another_person(visit):
    page = visit.page(f"drift?run={visit.runs['Synthetic']}&layer=1")
    page.get_by_text("Histogram", exact=True).click()
    page.wait_for_url("**rd_form=histogram**")
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
def test_a_card_fills_the_window_and_gives_it_back(visit):
    page = visit.page("drift")
    page.locator(PLOT).first.wait_for()
    card = page.locator(".st-key-card_rd_histogram")
    before = card.bounding_box()
    page.locator(".st-key-rd_histogram_size").get_by_role("button").first.click()
    page.wait_for_url("**card=rd_histogram**")
    page.wait_for_function(
        "() => document.querySelector('.st-key-card_rd_histogram')?.getBoundingClientRect().width > 1200"
    )
    page.keyboard.press("Escape")
    page.wait_for_function(
        "() => document.querySelector('.st-key-card_rd_histogram')?.getBoundingClientRect().width < 1100"
    )
    assert before is not None and abs(card.bounding_box()["width"] - before["width"]) < 2


@pytest.mark.long
def test_two_tabs_of_one_person_on_two_runs_keep_to_their_own(visit):
    first, second = visit.runs.values()
    page = visit.page(f"drift?run={first}&layer=1")
    other = page.context.new_page()
    other.set_default_timeout(PATIENCE)
    other.goto(f"{visit.address}/compare?run={second}")
    for name, title in (("Masks", "Pruning decisions"), ("Tune", "RASA thresholds")):
        for tab in (page, other):
            tab.get_by_role("link", name=name, exact=True).click()
            tab.get_by_role("heading", name=title, exact=True).wait_for()
    for tab, run, called in ((page, first, "Synthetic"), (other, second, "Second · seed 1")):
        tab.locator(PLOT).first.wait_for()
        assert f"run={run}" in tab.url and ("layer=1" in tab.url) == (run == first)
        expect(tab.get_by_role("combobox", name="Run", exact=True)).to_have_value(called)


@pytest.mark.long
def test_a_card_of_the_lab_gives_the_window_back_as_well(visit):
    """The lab is drawn by itself, and the style that lets a card fill the window stands outside of it."""
    page = visit.page("rasa")
    card = page.locator(".st-key-card_rasa_scatter")
    card.locator(".threshold-lines").wait_for()
    width = "() => document.querySelector('.st-key-card_rasa_scatter')?.getBoundingClientRect().width"
    for _ in range(2):
        page.locator(".st-key-rasa_scatter_size").get_by_role("button").first.click()
        page.wait_for_url("**card=rasa_scatter**")
        page.wait_for_function(f"() => ({width})() > 1200")
        page.keyboard.press("Escape")
        page.wait_for_function(f"() => ({width})() < 1100")
        page.wait_for_url(lambda url: "card=" not in url)


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
@pytest.mark.parametrize("name", ["pruning_decisions", "drift?tab=agreement"])
def test_the_very_first_visitor_may_come_by_any_address(chromium, tmp_path, name):
    """A page's file name is no address, and the address of a page is one from the first request on."""
    write_run(tmp_path)
    with served(tmp_path) as server, looking(chromium, server, tmp_path) as visit:
        page = visit.person().new_page()
        noted = complaints(page)
        page.goto(f"{server.address}/{name}")
        title = "Overview" if name == "pruning_decisions" else "Module agreement"
        page.get_by_role("heading", name=title, exact=True).wait_for()
        page.get_by_role("link", name="Tune").first.wait_for()
        # neither Streamlit's own list of the files, nor a page without its frame
        assert page.get_by_test_id("stSidebarNav").count() == 0
        assert page.get_by_test_id("stException").count() == 0
        if name != "pruning_decisions":
            assert noted == [] and page.get_by_role("dialog").count() == 0
        else:
            assert "Page not found" in page.get_by_role("dialog").inner_text()


SERIOUS = ("serious", "critical")
EXCEPTIONS = {
    ("color-contrast", "button kbd"): "st.button draws the key of its shortcut paler than its words",
}
"""why a fault is not ours, by rule and by what it stands in"""


def addresses():
    """The addresses of all places but one, and of the help beside one."""
    helped = [path("drift", [(HELP, part)]) for part in HELP_PARTS]
    return [one.removeprefix("/") for one in [*map(path, PAGE_OF), *helped] if one != "/drift"]


STATES = (
    *(f"?tour={step}&present=1" for step in (2, 7)),
    *(f"compare?cp_view={view}" for view in ("studies", "fair", "paper")),
    *(f"rasa?rasa_view={view}" for view in ("cost", "modules")),
    *(f"runs?jobs_tab={tab}" for tab in ("jobs", "runs")),
    "drift?run=nowhere&layer=99",
)
"""slides, views, and what is said of an address that holds what is not there"""


def faults(page):
    """What axe finds serious on a page, but for the exceptions."""
    from axe_playwright_python.sync_playwright import Axe

    found = []
    for rule in Axe().run(page).response["violations"]:
        if rule["impact"] not in SERIOUS:
            continue
        allowed = [place for (name, place) in EXCEPTIONS if name == rule["id"]]
        for node in rule["nodes"]:
            if not any(page.locator(node["target"][0]).and_(page.locator(one)).count() for one in allowed):
                found.append(f"{rule['id']} at {node['target']}: {node['html'][:200]}")
    return found


@pytest.mark.parametrize(
    "where",
    [
        "drift",
        *(pytest.param(one, marks=pytest.mark.long) for one in [*addresses(), *STATES]),
    ],
)
def test_no_page_has_a_serious_fault(visit, where):
    without_faults(visit.page(where))


@pytest.mark.long
def test_an_empty_cache_and_a_form_with_errors_have_no_serious_fault(chromium, tmp_path):
    with visiting(chromium, tmp_path) as visit:
        for where in ("", "compare?tab=decide", "runs"):
            page = visit.page(where)
            without_faults(page)
        for field in ("launch_retention", "launch_samples"):
            page.locator(f".st-key-{field} input").fill("0")
            page.keyboard.press("Enter")
        page.get_by_text("Not ready to start").wait_for()
        without_faults(page)


def without_faults(page):
    """Fails where axe finds something serious on a page, in the light or in the dark."""
    for scheme, ground in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(17, 22, 29)")):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_function(
            "ground => getComputedStyle(document.querySelector('.stApp')).backgroundColor === ground",
            arg=ground,
        )
        # colours fade over, on a busy machine for longer: a fault is what stays
        for _ in range(4):
            page.wait_for_timeout(500)
            if not (wrong := faults(page)):
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
def test_a_run_that_gprune_loses_says_so_on_every_page_and_asks_what_to_take(chromium, tmp_path):
    write_run(tmp_path, study=study(), makers=measured(LOSES))
    with visiting(chromium, tmp_path) as visit:
        page = visit.page()
        expect(page.get_by_text("GPrune’s perplexity is 6")).to_be_visible()
        expect(page.get_by_role("heading", name="FANG costs least")).to_be_visible()
        page.get_by_role("link", name="Compare", exact=True).click()
        lowest = "FANG has the lowest perplexity of the pruned models on every text"
        expect(page.get_by_role("heading", name=lowest)).to_be_visible()
        page.get_by_role("tab", name="Decide").click()
        expect(page.get_by_role("heading", name="worth taking on c4")).to_be_visible()
        expect(page.get_by_text("None stays within 1.5 times the dense perplexity; FANG is")).to_be_visible()
        # what was not timed has no time
        page.get_by_text("time a token", exact=True).click()
        page.wait_for_url("**dc_cost=time**")
        expect(page.locator(".st-key-card_dc_front")).to_contain_text("cost is known")


@pytest.mark.long
def test_from_a_word_to_the_help_and_from_any_page_to_a_neuron(visit):
    page = visit.page("drift")
    page.locator(PLOT).first.wait_for()
    page.locator(".st-key-rd_histogram_how button").first.click()
    page.get_by_role("button", name="What these words mean").click()
    page.wait_for_url("**help=words**")
    expect(page.get_by_role("heading", name="Help", exact=True)).to_be_visible()
    field = page.get_by_role("textbox", name="Find", exact=True)
    field.fill("L3N7")
    field.press("Enter")
    page.get_by_role("heading", name="Neuron 7 of layer 3: rank").wait_for()
    page.wait_for_url("**/neurons?**neuron=7**")
    expect(page.get_by_role("button", name="Ablate now")).to_be_visible()
    expect(page.get_by_role("heading", name="How strong is layer 3")).to_be_visible()
    page.get_by_role("tab", name="Neuron map").click()
    page.get_by_role("heading", name="Neuron map", exact=True).wait_for()
    expect(page.get_by_role("radio", name="UMAP")).to_be_checked()


@pytest.mark.long
def test_on_a_phone_no_card_covers_another_and_no_word_of_a_chart_another(visit):
    page = visit.page("compare", viewport={"width": 390, "height": 844})
    page.locator(f".st-key-cp_changes_chart {PLOT}").first.wait_for()
    for card in ("cp_changes", "cp_home"):
        drawn = f"document.querySelector('.st-key-{card}_chart .main-svg')"
        page.wait_for_function(f"() => {drawn}.getBoundingClientRect().width > 600")
    main = "document.querySelector('[data-testid=stMain]')"
    assert page.evaluate(f"{main}.scrollWidth <= {main}.clientWidth")


_SHADOWS = """one => getComputedStyle(one).boxShadow.match(/rgba?\\([^)]*\\)/g)
    .map(colour => Number(colour.match(/[\\d.]+/g)[3] ?? 1) > 0.3)"""
"""whether there is a shadow at the left edge and at the right one"""

_CUT = """all => all.filter((tag) => {
    const words = tag.querySelector("span"), own = tag.getBoundingClientRect()
    const box = tag.closest("[data-testid=stMultiSelectTagsContainer]").getBoundingClientRect()
    return words.scrollWidth > words.clientWidth + 1 || own.right > box.right || own.bottom > box.bottom
}).map((tag) => tag.textContent)"""
"""which of some tags are not wholly seen"""


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_a_shadow_lies_where_a_chart_or_a_table_goes_on(visit, scheme):
    page = visit.page("compare", viewport={"width": 390, "height": 844}, color_scheme=scheme)
    page.locator(f".st-key-cp_changes_chart {PLOT}").first.wait_for()
    for place in (".st-key-wide_cp_changes .stElementContainer", ".st-key-card_cp_table .dvn-scroller"):
        one = page.locator(place).first
        one.wait_for()
        assert one.evaluate("one => one.scrollWidth > one.clientWidth + 100")
        assert one.evaluate(_SHADOWS) == [False, True]
        for share, edges in ((0.5, [True, True]), (1, [True, False])):
            one.evaluate("(one, share) => { one.scrollLeft = share * (one.scrollWidth - one.clientWidth) }", share)
            page.wait_for_timeout(200)
            assert one.evaluate(_SHADOWS) == edges
    page.set_viewport_size({"width": 1280, "height": 844})
    chart = page.locator(".st-key-wide_cp_changes .stElementContainer")
    expect(chart).to_have_css("box-shadow", "none")


@pytest.mark.long
@pytest.mark.parametrize(
    ("where", "fields"), [("launch", ["launch_evaluate", "measure_evaluate"]), ("report", ["rp_cards"])]
)
def test_on_a_phone_all_that_is_chosen_is_read(visit, where, fields):
    page = visit.page(where, viewport={"width": 390, "height": 844})
    for field in fields:
        tags = page.locator(f"[class*=st-key-{field}] .stMultiSelect [data-tag-index]")
        tags.first.wait_for()
        assert tags.count() > 1
        assert tags.evaluate_all(_CUT) == []
