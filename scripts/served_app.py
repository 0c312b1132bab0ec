"""The app as a process of its own, and a browser that looks at it: for what works with its pages.

Needs Playwright (requirements-dev.txt) and a Chromium or Chrome of this machine.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
START_SECONDS = 120.0
ENTRY = re.compile(r"(?P<origin>http://[^/\s]+)/\?token=(?P<token>\S+)\s")
"""the address that the server prints"""
WATCHER = Path(__file__).with_suffix(".js")
"""watches a page from its beginning; its functions are called `watcher` there"""
ALL_DRAWN = """() => {
    const waits = document.querySelector("[class*=st-key-rest_of_page]")
    if (waits) window.dispatchEvent(new Event("scroll"))
    return !waits && !document.querySelector("[data-test-script-state=running], .stSkeleton")
}"""
PATIENCE = 120_000
"""milliseconds after which a page is given up"""


class NotHereError(Exception):
    """Something that such a script needs is not on this machine; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running app."""

    address: str
    """as http://127.0.0.1:PORT"""
    token: str
    """opens its door"""
    pid: int
    """its process"""

    @property
    def entry(self) -> str:
        """The address with the token, as the server has printed it."""
        return f"{self.address}/?token={self.token}"

    def let_in(self, context: Any) -> None:
        """Gets a browser's context the cookie of this server.

        Args:
            context: of Playwright, before its pages go anywhere.
        """
        context.request.get(self.entry, max_redirects=0)


@contextmanager
def served(cache: Path, *options: str) -> Iterator[Server]:
    """Starts the app on a cache, at a free port of this machine alone, and ends it afterwards.

    Args:
        cache: the cache folder; the app starts nothing in it by itself.
        options: further ones of `python -m gprune app`.

    Raises:
        NotHereError: the app does not answer; the end of its log is in the message.
    """
    command = [sys.executable, "-m", "gprune", "app", "--no-browser"]
    if "--port" not in options:
        command += ["--port", "0"]
    environment = os.environ | {"GPRUNE_CACHE": str(cache), "GPRUNE_AUTOSTART": "0"}
    with listening([*command, *options], ROOT, environment) as server:
        yield server


@contextmanager
def listening(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Iterator[Server]:
    """Starts an app by any command, and ends it afterwards.

    Args:
        command: of an app that opens no browser.
        folder: where it starts.
        environment: its variables.

    Raises:
        NotHereError: the app does not answer; the end of its log is in the message.
    """
    with tempfile.TemporaryDirectory() as kept:
        log = Path(kept) / "log"
        with open(log, "wb") as written:
            server = subprocess.Popen(command, cwd=folder, env=environment, stdout=written, stderr=written)
        try:
            found = _printed(server, log)
            if found is None:
                last = log.read_bytes()[-500:].decode(errors="replace").strip()
                raise NotHereError(f"the app does not start. The end of its log: {last}")
            yield Server(found["origin"], found["token"], server.pid)
        finally:
            _end(server)


def _printed(server: subprocess.Popen[bytes], log: Path) -> re.Match[str] | None:
    """Waits until the app has printed its address; None where it has ended or takes too long."""
    deadline = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        if found := ENTRY.search(log.read_text(errors="replace")):
            return found
        time.sleep(0.05)
    return None


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
        raise NotHereError(f"no browser is on this machine: install Chromium ({', '.join(BROWSERS)} are known)")
    with sync_playwright() as driver:
        try:
            started = driver.chromium.launch(executable_path=path, headless=True, args=list(ARGUMENTS))
        except Error as error:
            raise NotHereError(f"{path} does not start: {str(error).splitlines()[0]}") from error
        try:
            yield started
        finally:
            started.close()


def opened(chromium: Any, server: Server, **options: Any) -> Any:
    """An empty page that is watched from its beginning, of a person whom the server knows.

    Args:
        chromium: the browser.
        server: the app.
        options: of the page, as `viewport`.
    """
    context = chromium.new_context(**options)
    server.let_in(context)
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.add_init_script(path=WATCHER)
    return page


def draw_whole(page: Any) -> None:
    """Has a page draw what stands below its first cards, as the first scroll does, and waits for it.

    Args:
        page: of the app, at rest.
    """
    page.wait_for_function(ALL_DRAWN, polling=100)


def at_rest(page: Any) -> dict[str, float]:
    """Waits until nothing changes on a page any more; when that was, and when its first chart was there.

    Returns:
        Milliseconds: `rested` since the measurement began, `firstChart` since the page was opened.
    """
    page.wait_for_function("watcher.rests()", polling=50)
    found: dict[str, float] = page.evaluate("watcher.result()")
    return found
