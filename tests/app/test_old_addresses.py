"""Old addresses open what they showed, with all that they held; the help opens; Back leaves by one press."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest
from app_driver import FIRST, PLACES, on, open_page, opened, words
from browser import AT_REST, expect, looking, served
from synthetic_run import a_study, write_run

from gprune.app.ui import glossary, help_drawer, page_names
from gprune.app.ui.page_names import HELP, OLD, PAGE_OF, PAGES, TAB
from gprune.jobs import local, queue

FORMERLY = {
    "home": "/",
    "agreement": "/drift?tab=agreement",
    "rasa": "/tune",
    "decisions": "/masks",
    "inspector": "/neurons",
    "map": "/neurons?tab=map",
    "atlas": "/masks?tab=atlas",
    "lens": "/neurons?tab=lens",
    "calibration": "/texts?tab=calibration",
    "launch": "/runs",
    "questions": "/compare?tab=questions",
    "report": "/runs?tab=report",
    "speed": "/compare?tab=speed",
    "help": "/?help=words",
}
"""where the pages of earlier versions stand that have another address now"""
STAYED = ("drift", "compare")
ADDRESS = re.compile(r"(?:http://(?:127\.0\.0\.1|localhost):\d+|`)/(?P<page>[a-z]+)\?(?P<query>[^`\s]*)")
"""of the app, in a document: whole, or as code below that of the app"""


def leads(old, query):
    """The page and the tab that an address of any version opens; fails where there is none."""
    there = urlsplit(page_names.moved(old, query) if old in OLD else f"/{old}?{query}")
    page = next(page for page in PAGES if page.url == (there.path.strip("/") or FIRST.url))
    place = parse_qs(there.query).get(TAB, [page_names.first(page.url)])[0]
    return page.name, page.places[place]


def test_every_address_of_the_documents_and_of_before_leads_to_a_page_and_tab_that_exist(project):
    texts = {path: path.read_text() for path in [*project.glob("*.md"), *project.glob("docs/*.md")]}
    found = [match for text in texts.values() for match in ADDRESS.finditer(text)]
    assert ("rasa", "rasa_qd=0.8") in {match.group("page", "query") for match in found}
    for page, query in [match.group("page", "query") for match in found] + [(old, "") for old in FORMERLY]:
        assert all(leads(page, query)), (page, query)
    assert [leads(old, "") for old in ("rasa", *STAYED)] == [
        ("Tune", "RASA thresholds"),
        ("Drift", "Rank drift"),
        ("Compare", "Methods and studies"),
    ]
    assert all((project / page.file).is_file() for page in PAGES) and len({*FORMERLY, *STAYED}) == 17
    # the table of docs/pages.md has every tab of every page, and the paper's table in README.md none beside
    told, page = set(), ""
    for line in texts[project / "docs" / "pages.md"].partition("| --- |")[2].partition("\n\n")[0].splitlines()[1:]:
        name, tab = (cell.strip() for cell in line.split("|")[1:3])
        page = name or page
        told.add((page, tab or page))
    assert told == {(page.name, tab) for page in PAGES for tab in page.places.values()}
    shown = re.findall(r"^\|[^|]*\| `gprune/[^|]*\| ([^|]*) \| `tests/", texts[project / "README.md"], re.M)
    known = {name for place in told for name in place} | {", tab ".join(place) for place in told}
    assert len(shown) > 8 and set(shown) <= known


@pytest.mark.parametrize("old", FORMERLY)
def test_an_old_address_leads_to_its_place_with_all_that_it_held(old):
    held = "run=a%20b&layer=1&rd_log=1&marks=a&marks=c&empty="
    there, wanted = urlsplit(page_names.moved(old, held)), urlsplit(FORMERLY[old])
    assert there.path == wanted.path
    assert parse_qs(there.query, keep_blank_values=True) == parse_qs(wanted.query) | {
        "run": ["a b"], "layer": ["1"], "rd_log": ["1"], "marks": ["a", "c"], "empty": [""],
    }  # fmt: skip
    assert page_names.moved(old, "") == FORMERLY[old]


def test_the_table_names_every_place_once_and_what_left_the_page_of_speed():
    assert set(FORMERLY) <= set(OLD) and set(STAYED) <= {page.url for page in PAGES}
    assert len(PAGE_OF) == sum(len(page.places) for page in PAGES) == 20 and len(PAGES) == 8
    assert not set(OLD) & {page.url for page in PAGES} - {"home"}
    assert page_names.moved("speed", "sx_way=gguf") == "/runs?tab=export&sx_way=gguf"
    assert page_names.moved("speed", "card=sx_pack") == "/runs?tab=export&card=sx_pack"
    assert page_names.moved("calibration", "cd_view=B&cd_share=0.5") == "/texts?cd_view=B&cd_share=0.5"
    assert page_names.moved("speed", "card=sx_widths") == "/compare?tab=speed&card=sx_widths"


@pytest.mark.long
def test_every_place_keeps_what_the_address_of_its_page_held(name):
    app = opened()
    for place in ("agreement", "map", "atlas", "retention", "questions", "export"):
        for key, value in (page_names.tab(place) | {"layer": "2"}).items():
            app.query_params[key] = value
        app = on(app, next(stem for stem, one in PLACES.items() if one == place))
        assert app.query_params["layer"] in ("2", ["2"]) and app.query_params["tab"] in (place, [place])
        assert "The address has" not in words(app), place


@pytest.mark.slow
def test_the_help_opens_beside_any_page_and_at_the_words_of_a_card(name):
    app = on(opened(), "rank_drift")
    assert "#### Help" not in words(app)
    app.button(key="frame_help_open").click().run()
    assert app.query_params[HELP] in ("read", ["read"]) and "Look at the shaded part" in words(app)
    app.button(key="rd_histogram_words").click().run()
    found = [term for term in glossary.TERMS if f"**{term}**  \n" in words(app)]
    assert "Drift d" in found and len(found) < 9 and app.title[0].value == "Rank drift"
    app.button(key="frame_help_close").click().run()
    assert "#### Help" not in words(app) and HELP not in app.query_params
    assert "Module agreement" in words(open_page("module_agreement", help="read"))


def test_the_glossary_has_the_words_that_were_asked_for_and_finds_them_in_sentences():
    for word in ("Nats/token", "Seed", "Threshold", "AUC", "UMAP", "Epoch"):
        assert word in glossary.TERMS
    text = "Ranks by MSL: an AUC of 0.6 on two seeds, in nats per token"
    assert glossary.search(help_drawer.words_of(text)) == [
        "Rank",
        "MSL",
        "AUC",
        "Seed",
        "Nats/token",
        "Token",
    ]
    assert help_drawer.words_of("ranking msl tokenizer") == ""
    assert glossary.search("jacc") == ["Jaccard"] and glossary.search("zzz") == []


@pytest.mark.browser
@pytest.mark.long
def test_a_browser_is_led_to_the_new_place_and_back_by_one_press(visit):
    run = visit.first.name
    page = visit.page(f"drift?run={run}")
    for old, title in (
        ("map?layer=2", "Neuron map"),
        ("speed?sx_way=lm-eval", "Export"),
        ("rasa?rasa_qd=0.8", "RASA thresholds"),
        ("calibration?cd_view=B", "Calibration card"),
        ("questions?layer=2", "Changed answers"),
    ):
        page.goto(f"{visit.address}/{old}&run={run}")
        page.get_by_role("heading", name=title, exact=True, level=1).wait_for()
        page.wait_for_function(AT_REST)
        held = parse_qs(urlsplit(page.url).query)
        assert parse_qs(old.partition("?")[2]).items() <= held.items() and held["run"] == [run]
        page.go_back()
        page.get_by_role("heading", name="Rank drift", exact=True).wait_for()
    # a link to another tab of the page that is shown
    page.goto(f"{visit.address}/neurons?tab=lens&layer=2&run={run}")
    page.get_by_role("link", name="Open in Inspector").click()
    page.get_by_role("heading", name="Inspector", exact=True).wait_for()
    page.wait_for_url(lambda url: "tab=" not in url)
    page.go_back()
    page.get_by_role("heading", name="Text lens", exact=True).wait_for()
    page.keyboard.press("Alt+h")
    expect(page.get_by_text("It does not say how a model does")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_text("It does not say how a model does")).to_be_hidden()
    # the words of a card
    page.goto(f"{visit.address}/agreement?run={run}")
    page.get_by_role("heading", name="Module agreement", exact=True).wait_for()
    page.wait_for_function(AT_REST)
    page.get_by_role("button", name="How to read").first.click()
    page.get_by_role("button", name="What these words mean").click()
    drawer = page.locator(".st-key-frame_help")
    expect(drawer.get_by_text("Adjusted Rand index of two groupings")).to_be_visible()
    page.wait_for_url("**help=words**")


@pytest.mark.browser
@pytest.mark.long
def test_a_page_that_opens_another_tab_by_itself_is_left_by_one_press(chromium, tmp_path, monkeypatch):
    monkeypatch.setattr(local, "start_supervisor", lambda _: None)
    write_run(tmp_path)
    queue.cancel(tmp_path, queue.submit(tmp_path, a_study(model="/nowhere")).id)
    with served(tmp_path) as server, looking(chromium, server, tmp_path) as visit:
        page = visit.page("drift")
        page.get_by_role("link", name="Runs & export").click()
        page.get_by_role("heading", name="Launch & jobs", exact=True).wait_for()
        # a job is under way, so that its tab is the open one
        expect(page.get_by_text("Last 200 lines of its log")).to_be_visible()
        page.wait_for_function(AT_REST)
        assert "jobs_" not in page.url
        page.go_back()
        page.get_by_role("heading", name="Rank drift", exact=True).wait_for()
