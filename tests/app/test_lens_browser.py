"""Journeys with a real model and its worker: a typed text under the lens, a module removed and kept."""

import pytest
import tiny_study
from browser import expect, visiting

from gprune import pipeline
from gprune.analysis.mask_edits import mask_sets
from gprune.store import Store
from gprune.study import from_dict

pytestmark = [pytest.mark.browser, pytest.mark.long]

TYPED = "<img src=x onerror=alert(1)> שלום 🙂 \u202eabc the river\n\n" + "was named after the old town " * 30


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A cache with a run of a model of two layers."""
    folder = tmp_path_factory.mktemp("lens")
    texts = tiny_study.write_texts(folder / "texts")
    model = tiny_study.write_model(folder / "model", texts)
    evaluation = {"texts": [texts[2], texts[0]], "preset": "16", "windows": 40}
    values = tiny_study.settings(model, texts, device="cpu", evaluation=evaluation)
    pipeline.run(from_dict(values), Store(folder / "cache"), lambda *_: None, "perplexity")
    return folder / "cache"


def test_a_typed_text_is_read_and_shown_as_text(chromium, made):
    with visiting(chromium, made) as visit:
        page = visit.page("lens?lens_what=typed")
        dialogs = []
        page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
        page.get_by_label("Text", exact=True).fill(TYPED)
        page.get_by_role("button", name="Read", exact=True).click()
        # the continuations come last: from here on nothing is drawn anew under what is looked at
        expect(page.get_by_text("First tokens in common with the dense model")).to_be_visible()
        panels = page.locator(".lens-tokens")
        expect(panels).to_have_count(2)
        expect(page.get_by_role("heading", name="Beside the dense model")).to_be_visible()
        expect(page.get_by_text("tokens are read: the model has places for no more")).to_be_visible()
        shown = panels.first.locator(".passage")
        expect(shown).to_contain_text("<img·src=x·onerror=alert(1)>")
        expect(shown).to_contain_text("‹U+202E›")
        assert shown.locator("img").count() == 0 and not dialogs
        spans = shown.locator("span")
        expect(spans).to_have_count(64)
        assert "probability: dense" in str(spans.nth(5).get_attribute("title"))
        colours = spans.evaluate_all("all => all.map(one => one.style.backgroundColor)")
        assert any("224, 130, 20" in one for one in colours) and any(
            "128, 115, 172" in one for one in colours
        )
        # the passage is reached and scrolled by the keyboard
        shown.focus()
        expect(shown).to_be_focused()
        # the address holds no text and brings another person to the same view
        page.wait_for_url(
            lambda url: "lens_what=typed" in url and "lens_live=1" in url and "river" not in url
        )


def test_a_module_is_removed_the_change_is_shown_and_the_list_is_kept(chromium, made):
    with visiting(chromium, made) as visit:
        page = visit.page("byhand?layer=1&module=0")
        page.get_by_role("button", name="Remove module 0 of layer 1").click()
        expect(page.get_by_role("heading", name="changed by hand")).to_be_visible()
        page.get_by_text("Measure while I look").click()
        value = page.locator(".st-key-hand_value")
        expect(value).to_contain_text("perplexity on")
        expect(page.get_by_text("40 of 40 windows")).to_be_visible()
        name = page.get_by_label("Keep as a mask set called")
        name.fill("without module 0")
        name.press("Enter")
        page.get_by_role("button", name="Keep", exact=True).click()
        expect(page.get_by_role("heading", name="1 mask set made by hand")).to_be_visible()
        run = visit.first
        chosen = mask_sets.named(run.results, "without module 0")
        assert [(one.keep, one.kind, one.layer, one.number) for one in chosen.edits] == [
            (False, "module", 1, 0)
        ]
        mask_sets.repeated(run.results, chosen)
        page.get_by_role("link", name="Speed & export").click()
        expect(page.get_by_text("The model of a mask set")).to_be_visible()
