"""The app as a process of its own, and a browser that looks at it: for what works with its pages.

Needs Playwright (requirements-dev.txt) and a Chromium or Chrome of this machine.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
START_SECONDS = 120.0
WATCHER = Path(__file__).with_suffix(".js")
"""watches a page from its beginning; its functions are called `watcher` there"""
PATIENCE = 120_000
"""milliseconds after which a page is given up"""


class NotHereError(Exception):
    """Something that such a script needs is not on this machine; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running app."""

    address: str
    """as http://127.0.0.1:PORT"""
    pid: int
    """its process"""


@contextmanager
def served(cache: Path) -> Iterator[Server]:
    """Starts the app on a cache, at a free port of this machine alone, and ends it afterwards.

    Args:
        cache: the cache folder; the app starts nothing in it by itself.

    Raises:
        NotHereError: the app does not answer; the end of its log is in the message.
    """
    port = _free_port()
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)]
    environment = os.environ | {"GPRUNE_CACHE": str(cache), "GPRUNE_AUTOSTART": "0"}
    address = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        try:
            if not _answers(server, address):
                log.seek(0)
                last = log.read()[-500:].decode(errors="replace").strip()
                raise NotHereError(f"the app does not start. The end of its log: {last}")
            yield Server(address, server.pid)
        finally:
            _end(server)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _answers(server: subprocess.Popen[bytes], address: str) -> bool:
    """Waits until the app says that it is well; False where it has ended or takes too long."""
    deadline = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{address}/_stcore/health", timeout=5) as answer:
                if answer.read() == b"ok":
                    return True
        except OSError:
            time.sleep(0.05)
    return False


def _end(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(timeout=20)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


@contextmanager
def browser() -> Iterator[Any]:
    """A Chromium without a window.

    Raises:
        NotHereError: Playwright or the browser is not on this machine.
    """
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError as error:
        raise NotHereError(
            "Playwright is not installed: run make check once, or pip install -r requirements-dev.txt"
        ) from error
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        raise NotHereError(
            f"no browser is on this machine: install Chromium ({', '.join(BROWSERS)} are known)"
        )
    with sync_playwright() as driver:
        try:
            started = driver.chromium.launch(executable_path=path, headless=True, args=list(ARGUMENTS))
        except Error as error:
            raise NotHereError(f"{path} does not start: {str(error).splitlines()[0]}") from error
        try:
            yield started
        finally:
            started.close()


def opened(chromium: Any, **options: Any) -> Any:
    """An empty page that is watched from its beginning.

    Args:
        chromium: the browser.
        options: of the page, as `viewport`.
    """
    page = chromium.new_context(**options).new_page()
    page.set_default_timeout(PATIENCE)
    page.add_init_script(path=WATCHER)
    return page


def at_rest(page: Any) -> dict[str, float]:
    """Waits until nothing changes on a page any more; when that was, and when its first chart was there.

    Returns:
        Milliseconds: `rested` since the measurement began, `firstChart` since the page was opened.
    """
    page.wait_for_function("watcher.rests()", polling=50)
    found: dict[str, float] = page.evaluate("watcher.result()")
    return found
