"""The pictures of the documentation: of pages that exist, small enough, or a sentence why there are none."""

import ast
import io
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def screenshots(project: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(project / "scripts"))
    import screenshots

    return screenshots


def _addresses(project: Path) -> list[str]:
    """The addresses of all pages, as app.py gives them."""
    calls = ast.walk(ast.parse((project / "app.py").read_text(encoding="utf-8")))
    pages = [call for call in calls if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "_page"]
    return [ast.literal_eval(call.args[3]) for call in pages]


def test_eight_pages_that_exist_are_shown(screenshots, project):
    known = _addresses(project)
    assert len(known) >= 9 and {one.partition("?")[0] for one in screenshots.PAGES} <= set(known)
    assert len(set(screenshots.PAGES.values())) == len(screenshots.PAGES) == 8


def _picture(values: np.ndarray) -> bytes:
    written = io.BytesIO()
    Image.fromarray(values.astype(np.uint8)).save(written, "PNG")
    return written.getvalue()


@pytest.mark.long
def test_a_picture_is_made_small_and_keeps_its_size_or_is_refused(screenshots):
    size = screenshots.SIZE["height"], screenshots.SIZE["width"], 3
    smooth = np.broadcast_to(np.linspace(0, 255, size[1])[None, :, None], size)
    made = screenshots.small(_picture(smooth))
    picture = Image.open(io.BytesIO(made))
    assert len(made) <= 250_000 and picture.size == (1280, 900)
    assert np.abs(np.asarray(picture.convert("RGB")) - smooth).max() < 8
    noise = np.random.default_rng(0).integers(0, 256, size)
    with pytest.raises(screenshots.NotHereError, match="more than 250 kB even in 32 colours"):
        screenshots.small(_picture(noise))


def test_without_a_browser_a_sentence_says_what_to_install(screenshots, monkeypatch):
    pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    import served_app

    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(served_app.NotHereError, match="no browser is on this machine: install Chromium"):
        with served_app.browser():
            pass
