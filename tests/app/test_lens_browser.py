"""Journeys with a real model and its worker: a typed text under the lens, a module removed and kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny_study
from browser import PATIENCE, visiting

from gprune import pipeline
from gprune.analysis.mask_edits import mask_sets
from gprune.pipeline.runs.opened import all_runs
from gprune.store import Store
from gprune.study import from_dict

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.process]

TYPED = "<img src=x onerror=alert(1)> שלום 🙂 \u202eabc the river\n\n" + "was named after the old town " * 30


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with a run of a model of two layers."""
    folder = tmp_path_factory.mktemp("lens")
    texts = tiny_study.write_texts(folder / "texts")
    model = tiny_study.write_model(folder / "model", texts)
    evaluation = {"texts": [texts[2], texts[0]], "preset": "16", "windows": 40}
    values = tiny_study.settings(model, texts, device="cpu", evaluation=evaluation)
    pipeline.run(from_dict(values), Store(folder / "cache"), lambda *_: None, "perplexity")
    return folder / "cache"


@pytest.fixture
def real(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPRUNE_CACHE", str(made))
    monkeypatch.setenv("GPRUNE_AUTOSTART", "0")
    return made


def test_a_typed_text_is_read_and_shown_as_text(chromium: Any, real: Path) -> None:
    from playwright.sync_api import expect

    with visiting(chromium, real) as visit:
        page = visit.page("lens?lens_what=typed")
        dialogs: list[str] = []
        page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
        page.get_by_label("Text", exact=True).fill(TYPED)
        page.get_by_role("button", name="Read", exact=True).click()
        panels = page.locator(".lens-tokens")
        expect(panels).to_have_count(2, timeout=PATIENCE)
        expect(page.get_by_role("heading", name="Beside the dense model")).to_be_visible(timeout=PATIENCE)
        expect(page.get_by_text("tokens are read: the model has places for no more")).to_be_visible()
        shown = panels.first.locator(".passage")
        expect(shown).to_contain_text("<img·src=x·onerror=alert(1)>")
        expect(shown).to_contain_text("‹U+202E›")
        assert shown.locator("img").count() == 0 and not dialogs
        spans = shown.locator("span")
        assert spans.count() == 64 and "probability: dense" in str(spans.nth(5).get_attribute("title"))
        colours = spans.evaluate_all("all => all.map(one => one.style.backgroundColor)")
        assert any("224, 130, 20" in one for one in colours) and any(
            "128, 115, 172" in one for one in colours
        )
        # the passage is reached and scrolled by the keyboard
        shown.focus()
        expect(shown).to_be_focused()
        expect(page.get_by_text("First tokens in common with the dense model")).to_be_visible(
            timeout=PATIENCE
        )
        # the address holds no text and brings another person to the same view
        assert "river" not in page.url and "lens_what=typed" in page.url and "lens_live=1" in page.url


def test_a_module_is_removed_the_change_is_shown_and_the_list_is_kept(chromium: Any, real: Path) -> None:
    from playwright.sync_api import expect

    with visiting(chromium, real) as visit:
        page = visit.page("byhand?layer=1&module=0")
        page.get_by_role("button", name="Remove module 0 of layer 1").click()
        expect(page.get_by_role("heading", name="changed by hand")).to_be_visible(timeout=PATIENCE)
        page.get_by_text("Measure while I look").click()
        value = page.locator(".st-key-hand_value")
        expect(value).to_contain_text("perplexity on", timeout=PATIENCE)
        expect(page.get_by_text("40 of 40 windows")).to_be_visible(timeout=PATIENCE)
        name = page.get_by_label("Keep as a mask set called")
        name.fill("without module 0")
        name.press("Enter")
        page.get_by_role("button", name="Keep", exact=True).click()
        expect(page.get_by_role("heading", name="1 mask set made by hand")).to_be_visible(timeout=PATIENCE)
        run = all_runs(str(real))[0][0]
        chosen = mask_sets.named(run.results, "without module 0")
        assert [(one.keep, one.kind, one.layer, one.number) for one in chosen.edits] == [
            (False, "module", 1, 0)
        ]
        mask_sets.repeated(run.results, chosen)
        page.get_by_role("link", name="Speed & export").click()
        expect(page.get_by_text("The model of a mask set")).to_be_visible(timeout=PATIENCE)
