"""What only a browser can tell: addresses, live sliders, and that nothing leaves the machine."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from views.synthetic_run import a_study, write_run
from waiting import limit, wait_for

pytestmark = pytest.mark.browser
PROJECT = Path(__file__).resolve().parents[2]
PATIENCE = 1000 * limit(60)
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no Chromium on this machine")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=path, headless=True, args=ARGUMENTS, timeout=PATIENCE
        )
        yield browser
        browser.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, str, str]]:
    """A fresh server over two runs: its address and the names of the runs."""
    first, second = write_run(tmp_path), write_run(tmp_path, study=a_study(seed=1, name="Second"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)]
    environment = dict(os.environ) | {"GPRUNE_CACHE": str(tmp_path), "GPRUNE_AUTOSTART": "0"}
    with open(tmp_path / "server.log", "wb") as log:
        server = subprocess.Popen(command, cwd=PROJECT, env=environment, stdout=log, stderr=log)
    address = f"http://127.0.0.1:{port}"
    try:
        wait_for(lambda: _healthy(address), 60)
        yield address, first, second
    finally:
        server.terminate()
        server.wait(timeout=limit(30))


def _healthy(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/_stcore/health", timeout=limit(5)) as answer:
            return bool(answer.read() == b"ok")
    except OSError:
        return False


def test_an_address_opens_its_page_on_a_fresh_server_and_a_slider_writes_it(
    chromium: Any, served: tuple[str, str, str]
) -> None:
    from playwright.sync_api import expect

    address, first, second = served
    page = chromium.new_context(viewport={"width": 1280, "height": 1200}).new_page()
    page.set_default_timeout(PATIENCE)
    outside: list[str] = []
    local = ("http://127.0.0.1", "ws://127.0.0.1", "data:", "blob:")
    page.on("request", lambda request: None if request.url.startswith(local) else outside.append(request.url))

    # the very first visitor of this server comes by the address of a page, with a run in it
    older = min(first, second)
    page.goto(f"{address}/rasa?run={older}")
    page.locator(".js-plotly-plot .main-svg").first.wait_for(timeout=PATIENCE)
    page.get_by_role("heading", name="RASA thresholds").wait_for(timeout=PATIENCE)
    page.wait_for_timeout(500)
    assert page.get_by_role("dialog").count() == 0

    slider = page.get_by_role("slider").first
    slider.focus()
    slider.press("ArrowLeft")
    page.wait_for_url("**rasa_qd=0.895**", timeout=PATIENCE)
    page.reload()
    page.locator(".js-plotly-plot .main-svg").first.wait_for(timeout=PATIENCE)
    expect(page.get_by_role("spinbutton").first).to_have_value("0.895", timeout=PATIENCE)

    page.get_by_role("link", name="Compare", exact=True).click()
    page.get_by_role("heading", name="Compare").first.wait_for(timeout=PATIENCE)
    page.locator(".js-plotly-plot .main-svg").first.wait_for(timeout=PATIENCE)
    assert outside == []
