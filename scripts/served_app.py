"""Start the app as a process of its own and open its pages in headless Chromium, for scripts and tests.

Needs Playwright (requirements-dev.txt) and an installed Chromium or Chrome.
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
"""the address with the token that the server prints"""
WATCHER = Path(__file__).with_suffix(".js")
"""script that observes a page from its start; the page has its functions as `watcher`"""
ALL_DRAWN = """() => {
    const waits = document.querySelector("[class*=st-key-rest_of_page]")
    if (waits) window.dispatchEvent(new Event("scroll"))
    return !waits && !document.querySelector("[data-test-script-state=running], .stSkeleton")
}"""
PATIENCE = 120_000
"""timeout of a page in milliseconds"""


class NotHereError(Exception):
    """A program that the script needs is missing or does not start; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running app."""

    address: str
    """as http://127.0.0.1:PORT"""
    token: str
    """the access token"""
    pid: int

    @property
    def entry(self) -> str:
        """The address with the token, as the server prints it."""
        return f"{self.address}/?token={self.token}"

    def let_in(self, context: Any) -> None:
        """Give a Playwright browser context the cookie of this server."""
        context.request.get(self.entry, max_redirects=0)


@contextmanager
def served(cache: Path, *options: str, autostart: bool = False) -> Iterator[Server]:
    """Start the app at a free local port, and stop it afterwards.

    Args:
        cache: the cache folder.
        options: further options of `python -m gprune app`.
        autostart: whether the app starts the demo if the cache is empty.

    Raises:
        NotHereError: the app does not start; the message has the end of its log.
    """
    command = [sys.executable, "-m", "gprune", "app", "--no-browser"]
    if "--port" not in options:
        command += ["--port", "0"]
    environment = os.environ | {"GPRUNE_CACHE": str(cache), "GPRUNE_AUTOSTART": str(int(autostart))}
    with listening([*command, *options], ROOT, environment) as server:
        yield server


@contextmanager
def listening(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Iterator[Server]:
    """Start the app with any command, and stop it afterwards.

    Args:
        command: starts the app without opening a browser.
        folder: working directory of the process.
        environment: its environment variables.

    Raises:
        NotHereError: the app does not start; the message has the end of its log.
    """
    with tempfile.TemporaryDirectory() as temporary:
        log = Path(temporary) / "log"
        with open(log, "wb") as output:
            server = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=output)
        try:
            entry = _wait_for_entry(server, log)
            if entry is None:
                log_end = log.read_bytes()[-500:].decode(errors="replace").strip()
                raise NotHereError(f"The app does not start. The end of its log: {log_end}")
            yield Server(entry["origin"], entry["token"], server.pid)
        finally:
            _stop(server)


def _wait_for_entry(server: subprocess.Popen[bytes], log: Path) -> re.Match[str] | None:
    # None if the process ended or took longer than START_SECONDS
    deadline = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        if entry := ENTRY.search(log.read_text(errors="replace")):
            return entry
        time.sleep(0.05)
    return None


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(timeout=20)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


@contextmanager
def browser() -> Iterator[Any]:
    """Start headless Chromium, and close it afterwards.

    Raises:
        NotHereError: Playwright or the browser is not installed, or the browser does not start.
    """
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError as error:
        raise NotHereError(
            "Playwright is not installed. Run make check once, or pip install -r requirements-dev.txt"
        ) from error
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        raise NotHereError(
            f"No browser is installed. Install Chromium or Chrome; known commands: {', '.join(BROWSERS)}."
        )
    with sync_playwright() as driver:
        try:
            chromium = driver.chromium.launch(executable_path=path, headless=True, args=list(ARGUMENTS))
        except Error as error:
            raise NotHereError(f"{path} does not start: {str(error).splitlines()[0]}") from error
        try:
            yield chromium
        finally:
            chromium.close()


def opened(chromium: Any, server: Server, **options: Any) -> Any:
    """Return an empty page in a new profile that has the server's cookie and the watcher script.

    Args:
        chromium: the browser.
        server: the app.
        options: of Playwright's `new_context`, such as `viewport`.
    """
    context = chromium.new_context(**options)
    server.let_in(context)
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.add_init_script(path=WATCHER)
    return page


def draw_whole(page: Any) -> None:
    """Make a stable page draw the cards that wait for the first scroll, and wait for them."""
    page.wait_for_function(ALL_DRAWN, polling=100)


def at_rest(page: Any) -> dict[str, float]:
    """Wait until a page no longer changes.

    Returns:
        Milliseconds: `rested` from the start of the measurement to the last change, `firstChart` from opening the
        page to its first chart.
    """
    page.wait_for_function("watcher.rests()", polling=50)
    times: dict[str, float] = page.evaluate("watcher.result()")
    return times
