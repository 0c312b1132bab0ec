"""What a person wants most is few actions away: a click, a key, a typed text or a drag counts as one."""

import re
import zipfile
from dataclasses import dataclass
from typing import Any

import pytest
import tiny_study
from browser import AT_REST, PLOT, expect, looking, served
from waiting import wait_for

from gprune import pipeline
from gprune.jobs import queue
from gprune.store import Store
from gprune.study import from_dict

pytestmark = [pytest.mark.browser, pytest.mark.long]
SCREEN = {"width": 1280, "height": 720}


@dataclass
class Person:
    """Someone at a page who has a limited number of actions."""

    page: Any
    actions: int

    def act(self) -> None:
        self.actions -= 1
        assert self.actions >= 0, "too many actions"

    def click(self, element: Any) -> None:
        self.act()
        element.click()

    def follow(self, name: str) -> None:
        """Open a page by its link in the sidebar."""
        self.click(self.page.get_by_test_id("stSidebar").get_by_role("link", name=name))
        self.page.get_by_role("heading", level=1).filter(has_not_text="Overview").first.wait_for()
        self.page.wait_for_function(AT_REST)

    def choose(self, field: Any, text: str) -> None:
        """Type a new option into a selection: three actions."""
        self.click(field)
        self.act()
        self.page.keyboard.type(text)
        self.act()
        self.page.keyboard.press("Enter")
        # the page may take a moment until it starts to draw
        self.page.wait_for_timeout(500)
        self.page.wait_for_function(AT_REST)

    def drag(self, element: Any, across: float) -> None:
        self.act()
        box = element.bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        self.page.mouse.move(x, y)
        self.page.mouse.down()
        for step in range(1, 11):
            self.page.mouse.move(x + across * step / 10, y)
        self.page.mouse.up()


@pytest.fixture(scope="module")
def tiny(chromium, tmp_path_factory):
    """A server over the finished run of a tiny model, and the texts beside that model."""
    folder = tmp_path_factory.mktemp("tiny")
    values = tiny_study.made(folder, device="cpu")
    pipeline.run(from_dict(values), Store(folder / "cache"), lambda *_: None)
    with served(folder / "cache") as server:
        yield server, folder


@pytest.fixture
def visit(chromium, tiny):
    server, folder = tiny
    with looking(chromium, server, folder / "cache") as visit:
        yield visit


def is_on_screen(element):
    box = element.bounding_box()
    return box["y"] >= 0 and box["y"] + box["height"] <= SCREEN["height"]


def test_the_first_histogram_is_one_click_away(visit):
    person = Person(visit.page(viewport=SCREEN), actions=1)
    person.follow("Drift")
    expect(person.page.locator(f".st-key-card_rd_histogram {PLOT}").first).to_be_visible()


def test_a_comparison_is_one_click_away(visit):
    person = Person(visit.page(viewport=SCREEN), actions=1)
    person.follow("Compare")
    expect(person.page.get_by_role("heading", name="Perplexity of every method")).to_be_visible()
    assert is_on_screen(person.page.get_by_role("heading", name="Perplexity of every method"))


def test_one_drag_changes_neurons_and_perplexity_in_view(visit):
    page = visit.page("rasa", viewport=SCREEN)
    page.locator(".threshold-lines[data-adapted]").wait_for()
    adapted = page.get_by_test_id("stMetricValue").first
    perplexity = page.locator(".st-key-tune_outcome").get_by_test_id("stMetricValue").last
    expect(perplexity).to_have_text(re.compile(r"^[\d.]+$"))
    before = adapted.inner_text(), perplexity.inner_text()
    person = Person(page, actions=1)
    person.drag(page.get_by_role("slider", name="drift line, quantile"), -300)
    expect(adapted).not_to_have_text(before[0])
    expect(perplexity).not_to_have_text(before[1])
    chart = page.locator(".st-key-tune_outcome .js-plotly-plot").first
    assert all(is_on_screen(element) for element in (adapted, chart, perplexity))
    assert page.locator("[data-testid=stMain]").evaluate("main => main.scrollTop") == 0


def test_a_run_with_two_texts_of_ones_own_takes_twelve_actions(visit, tiny):
    folder = tiny[1]
    person = Person(visit.page(viewport=SCREEN), actions=12)
    person.follow("Runs & export")
    page = person.page
    person.choose(page.locator(".st-key-launch_model input"), str(folder / "model"))
    person.choose(page.locator(".st-key-launch_primary input"), str(folder / "texts" / "inspect.txt"))
    person.choose(page.locator(".st-key-launch_auxiliary input"), str(folder / "texts" / "json.txt"))
    person.click(page.get_by_role("button", name="Start the run"))
    jobs = folder / "cache"
    wait_for(lambda: len(queue.jobs(jobs)) == 1, 60)
    job = queue.jobs(jobs)[0]
    queue.cancel(jobs, job.id)
    study = queue.study_of(jobs, job.id)
    texts = (str(folder / "texts" / name) for name in ("inspect.txt", "json.txt"))
    assert [study.model, study.primary, study.auxiliary] == [str(folder / "model"), *texts]


def test_the_model_is_downloaded_with_two_actions(visit, tmp_path):
    person = Person(visit.page(viewport=SCREEN), actions=2)
    person.click(person.page.get_by_role("link", name="Export model"))
    button = person.page.get_by_role("button", name="Download the model")
    button.wait_for()
    with person.page.expect_download() as download:
        person.click(button)
    download.value.save_as(tmp_path / "model.zip")
    assert "pruning.json" in zipfile.ZipFile(tmp_path / "model.zip").namelist()


def test_a_tuned_run_reports_back_is_compared_and_back_leads_to_the_lines(visit, tiny):
    page = visit.page("rasa?rasa_qd=0.3", viewport=SCREEN)
    page.locator(".threshold-lines[data-adapted]").wait_for()
    page.get_by_role("button", name="Prune with these thresholds").click()
    banner = page.locator("[class*=st-key-ended_compare_] button")
    banner.wait_for()
    expect(page.get_by_text("Perplexity of GPrune against “").first).to_be_visible()
    banner.click()
    page.get_by_role("heading", name="Methods", exact=True).wait_for()
    chosen = page.locator(".st-key-cp_runs_multiselect [data-tag]")
    expect(chosen).to_have_count(2)
    # what differs between the runs stands in the first line
    expect(page.get_by_text(re.compile("Settings that differ: .*drift_quantile: 0.3 / 0.9")).first).to_be_visible()
    page.reload()
    page.get_by_role("heading", name="Methods", exact=True).wait_for()
    expect(chosen).to_have_count(2)
    page.go_back()
    page.get_by_role("heading", name="RASA thresholds", exact=True).wait_for()
    expect(page.get_by_role("slider", name="drift line, quantile")).to_have_attribute("aria-valuenow", "0.3")


@pytest.mark.parametrize("where", ["?run=deleted", "drift?run=deleted", "drift?layer=99", "neurons?text=none"])
def test_on_a_phone_a_dead_address_shows_one_sentence(visit, where):
    page = visit.page(where, viewport={"width": 390, "height": 844})
    alert = page.get_by_test_id("stAlert").first
    alert.wait_for()
    box = alert.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 390 and box["y"] + box["height"] <= 844
    assert alert.inner_text().strip()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    if "deleted" in where:
        assert page.locator(PLOT).count() == 0


TYPED = "<img src=x onerror=alert(1)> שלום 🙂 \u202eabc the river\n\n" + "was named after the old town " * 30


def test_a_typed_text_is_read_and_shown_as_text(visit):
    page = visit.page("lens?lens_what=typed")
    dialogs = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    page.get_by_label("Text", exact=True).fill(TYPED)
    page.get_by_role("button", name="Read", exact=True).click()
    # the continuations come last: from here on nothing is drawn anew under what is looked at
    expect(page.get_by_text("Sampled at temperature 0.8 with seed 0")).to_be_visible()
    panels = page.locator(".st-key-card_lens_reading .lens-tokens")
    expect(panels).to_have_count(2)
    expect(page.get_by_role("heading", name="Compared with the dense model")).to_be_visible()
    expect(page.get_by_text("Context length reached")).to_be_visible()
    visible = panels.first.locator(".passage")
    expect(visible).to_contain_text("<img·src=x·onerror=alert(1)>")
    expect(visible).to_contain_text("‹U+202E›")
    assert visible.locator("img").count() == 0 and not dialogs
    spans = visible.locator("span")
    expect(spans).to_have_count(64)
    spans.nth(5).dispatch_event("pointerover")
    assert "probability: dense" in str(spans.nth(5).get_attribute("title"))
    colours = spans.evaluate_all("all => all.map(one => one.style.backgroundColor)")
    assert any("224, 130, 20" in colour for colour in colours) and any("128, 115, 172" in colour for colour in colours)
    # the passage is reached and scrolled by the keyboard
    visible.focus()
    expect(visible).to_be_focused()
    # the address holds no text and brings another person to the same view
    page.wait_for_url(lambda url: "lens_what=typed" in url and "river" not in url)


def test_three_models_continue_a_prompt_and_their_tokens_are_coloured_on_a_phone_too(visit):
    page = visit.page("lens?lens_temperature=0&lens_tokens=12")
    page.get_by_label("Prompt", exact=True).fill("The river was")
    page.keyboard.press("Tab")
    # the page moves while it is drawn with the new prompt
    page.wait_for_function(AT_REST)
    page.get_by_role("button", name="Continue", exact=True).click()
    card = page.locator(".st-key-card_lens_writing")
    expect(card.get_by_text(re.compile("^12 tokens, mean KL [0-9.]+ nats$"))).to_have_count(2)
    panels = card.locator(".lens-tokens .passage")
    expect(panels).to_have_count(3)
    colours = [
        panel.locator("span").evaluate_all("all => all.map(x => x.style.backgroundColor)") for panel in panels.all()
    ]
    assert [len(values) for values in colours] == [12] * 3 and not any(colours[0])
    assert all(any("224, 130, 20" in colour for colour in values) for values in colours[1:])
    token = panels.nth(1).locator("span").first
    token.dispatch_event("pointerover")
    assert re.search("KL to the dense model: [0-9.]+ nats", str(token.get_attribute("title")))
    page.set_viewport_size({"width": 390, "height": 844})
    # the columns are below each other
    expect(panels).to_have_count(3)
    page.wait_for_function("document.documentElement.scrollWidth <= 390")
    boxes = [panel.bounding_box() for panel in panels.all()]
    assert len({box["x"] for box in boxes}) == 1 and boxes[0]["y"] < boxes[1]["y"] < boxes[2]["y"]
