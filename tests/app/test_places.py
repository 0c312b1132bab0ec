"""Addresses of the documents lead to places; the help names them all; Back leaves by one press."""

import re
from urllib.parse import parse_qs

import pytest
from app_driver import on, open_page, opened, words
from browser import AT_REST, expect, visiting
from synthetic_run import a_study

from gprune.app.pages import help as help_page
from gprune.app.ui import documents, page_names
from gprune.app.ui.page_names import PAGES, TAB

ADDRESS = re.compile(r"(?:http://(?:127\.0\.0\.1|localhost):\d+|`)/(?P<page>[a-z]+)\?(?P<query>[^`\s]*)")
"""of the app, in a document: whole, or as code below that of the app"""


def test_every_address_of_the_documents_leads_to_a_page_and_tab_that_exist(project):
    texts = {path: path.read_text() for path in [*project.glob("*.md"), *project.glob("docs/*.md")]}
    for match in (match for text in texts.values() for match in ADDRESS.finditer(text)):
        url, query = match.group("page", "query")
        page = next(page for page in PAGES if page.url == url)
        assert parse_qs(query).get(TAB, [page_names.first_place(url)])[0] in page.places, match[0]
    assert all((project / page.file).is_file() for page in PAGES)
    assert len(page_names.PAGE_OF) == sum(len(page.places) for page in PAGES) == 22 and len(PAGES) == 9
    # the table of pages in README.md has every tab of every page
    table = texts[project / "README.md"].partition("| page | question | tabs |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().splitlines()[1:]]
    message = {(page, tab) for page, _, tabs in rows for tab in tabs.split(", ")}
    assert message == {(page.name, tab) for page in PAGES for tab in page.places.values()}


@pytest.mark.long
def test_every_place_keeps_what_the_address_of_its_page_held(name):
    app = opened()
    for location in ("agreement", "map", "atlas", "questions", "export"):
        for key, value in (page_names.tab(location) | {"layer": "2"}).items():
            app.query_params[key] = value
        app = on(app, location)
        assert app.query_params["layer"] in ("2", ["2"]) and app.query_params["tab"] in (location, [location])
        assert "Unknown" not in words(app), location


@pytest.mark.slow
def test_the_help_leads_to_every_place_and_says_how_it_is_read(name):
    app = open_page("features")
    help_tabs = {"reading", "words", "keys", "features"}
    assert set(help_page.FEATURES) == set(help_page.READ) == set(page_names.PAGE_OF) - help_tabs
    assert all(features in words(app) for features in help_page.FEATURES.values())
    links = [item.proto.page for item in app.get("page_link")]
    assert len(links) >= len(help_page.FEATURES) + len(PAGES)
    app.query_params[TAB] = "reading"
    assert "Compare the coloured bars with the grey lines" in words(app.run()) and "**Help**" not in words(app)


def test_the_glossary_has_the_words_that_were_asked_for_and_finds_them_in_sentences():
    assert {"Nats/token", "Seed", "Threshold", "UMAP", "Epoch"} <= documents.TERMS.keys()
    assert list(documents.TERMS) == sorted(documents.TERMS, key=str.lower)
    text = "Ranks by MSL: a loss of 0.6 on two seeds, in nats per token"
    assert documents.terms_in(text) == ["Rank", "MSL", "Seed", "Nats/token", "Token"]
    assert documents.terms_in("ranking msl tokenizer") == []
    assert documents.search_terms("seed, ARI") == ["Seed", "ARI"]
    assert documents.search_terms("jacc") == ["Jaccard"] and documents.search_terms("zzz") == []


@pytest.mark.browser
@pytest.mark.long
def test_a_page_that_opens_another_tab_by_itself_is_left_by_one_press(chromium, cache, name, running_job):
    running_job(a_study(model="/nowhere"))
    with visiting(chromium, cache) as visit:
        page = visit.page("drift")
        page.get_by_role("link", name="Runs & export").click()
        page.get_by_role("heading", name="Launch & jobs", exact=True).wait_for()
        # a job is under way, so that its tab is the open one
        expect(page.get_by_text("Last 200 log lines")).to_be_visible()
        page.wait_for_function(AT_REST)
        assert "jobs_" not in page.url
        page.go_back()
        page.get_by_role("heading", name="Rank drift", exact=True).wait_for()
