"""Addresses of the documents lead to places; the help opens; Back leaves by one press."""

import os
import re
from urllib.parse import parse_qs

import pytest
from app_driver import PLACES, on, open_page, opened, words
from browser import AT_REST, expect, looking, served
from synthetic_run import a_study, write_run

from gprune.app.ui import glossary, help_drawer, page_names
from gprune.app.ui.page_names import HELP, PAGES, TAB
from gprune.jobs import local, queue
from gprune.jobs.state import JobState, write_state

ADDRESS = re.compile(r"(?:http://(?:127\.0\.0\.1|localhost):\d+|`)/(?P<page>[a-z]+)\?(?P<query>[^`\s]*)")
"""of the app, in a document: whole, or as code below that of the app"""


def test_every_address_of_the_documents_leads_to_a_page_and_tab_that_exist(project):
    texts = {path: path.read_text() for path in [*project.glob("*.md"), *project.glob("docs/*.md")]}
    for match in (match for text in texts.values() for match in ADDRESS.finditer(text)):
        url, query = match.group("page", "query")
        page = next(page for page in PAGES if page.url == url)
        assert parse_qs(query).get(TAB, [page_names.first(url)])[0] in page.places, match[0]
    assert all((project / page.file).is_file() for page in PAGES)
    assert len(page_names.PAGE_OF) == sum(len(page.places) for page in PAGES) == 19 and len(PAGES) == 8
    # the first table of README.md has every tab of every page, and its table of the paper none beside
    table = texts[project / "README.md"].partition("| page | question | tabs |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().splitlines()[1:]]
    told = {(page, tab) for page, _, tabs in rows for tab in tabs.split(", ")}
    assert told == {(page.name, tab) for page in PAGES for tab in page.places.values()}
    shown = re.findall(r"^\|[^|]*\| `gprune/[^|]*\| ([^|]*) \| `tests/", texts[project / "README.md"], re.M)
    known = {name for place in told for name in place} | {", tab ".join(place) for place in told}
    assert len(shown) > 8 and set(shown) <= known


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
def test_a_browser_is_led_to_another_tab_and_back_by_one_press_and_reads_the_words_of_a_card(visit):
    run = visit.first.name
    page = visit.page(f"lens?layer=2&run={run}")
    page.get_by_role("link", name="Open in Inspector").click()
    page.get_by_role("heading", name="Inspector", exact=True).wait_for()
    page.wait_for_url(lambda url: "tab=" not in url)
    page.go_back()
    page.get_by_role("heading", name="Text lens", exact=True).wait_for()
    page.keyboard.press("Alt+h")
    expect(page.get_by_text("It does not say how a model does")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_text("It does not say how a model does")).to_be_hidden()
    page = visit.page(f"agreement?run={run}")
    page.get_by_role("button", name="How to read").first.click()
    page.get_by_role("button", name="What these words mean").click()
    drawer = page.locator(".st-key-frame_help")
    expect(drawer.get_by_text("Adjusted Rand index of two groupings")).to_be_visible()
    page.wait_for_url("**help=words**")


@pytest.mark.browser
@pytest.mark.long
def test_a_page_that_opens_another_tab_by_itself_is_left_by_one_press(chromium, tmp_path, monkeypatch):
    monkeypatch.setattr(local, "start_worker", lambda *_: None)
    write_run(tmp_path)
    job = queue.submit(tmp_path, a_study(model="/nowhere"))
    write_state(job.folder, JobState("running", started=1.0).with_process(os.getpid()))
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
