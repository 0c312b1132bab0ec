"""Servers and a browser, for the tests that only a browser can make."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from waiting import limit, wait_for

PROJECT = Path(__file__).resolve().parents[2]
PATIENCE = 1000 * limit(60)
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
_PROBES = ("/_stcore/health", "/_stcore/host-config")
"""what Streamlit's own page asks for below every address before it knows where its server is"""
_LOCAL = ("http://127.0.0.1", "ws://127.0.0.1", "data:", "blob:")


@contextmanager
def chromium() -> Iterator[Any]:
    """A Chromium without a window; skips where there is none."""
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


@contextmanager
def served(cache: Path) -> Iterator[str]:
    """A fresh server over a cache: its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)]
    environment = dict(os.environ) | {"GPRUNE_CACHE": str(cache), "GPRUNE_AUTOSTART": "0"}
    with open(cache / "server.log", "wb") as log:
        server = subprocess.Popen(command, cwd=PROJECT, env=environment, stdout=log, stderr=log)
    address = f"http://127.0.0.1:{port}"
    try:
        wait_for(lambda: _healthy(address), 60)
        yield address
    finally:
        server.terminate()
        server.wait(timeout=limit(30))


def _healthy(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/_stcore/health", timeout=limit(5)) as answer:
            return bool(answer.read() == b"ok")
    except OSError:
        return False


def outside(page: Any) -> list[str]:
    """Gathers what a page asks of other machines."""
    found: list[str] = []
    page.on("request", lambda request: None if request.url.startswith(_LOCAL) else found.append(request.url))
    return found


def complaints(page: Any) -> list[str]:
    """Gathers the errors of a page's console, but for Streamlit's own probes."""
    found: list[str] = []

    def note(message: Any) -> None:
        asked = str((message.location or {}).get("url", ""))
        if message.type == "error" and not asked.endswith(_PROBES):
            found.append(f"{message.text} ({asked})")

    page.on("console", note)
    page.on("pageerror", lambda error: found.append(str(error)))
    return found
