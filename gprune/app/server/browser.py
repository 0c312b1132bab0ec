"""Open the app in a browser of this machine without showing the token to its other users."""

import contextlib
import os
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path

FILE_SECONDS = 60.0
"""time after which the file that redirects to the app is deleted; a browser starts within seconds"""


def can_open_browser() -> bool:
    """Return True if a browser window can be opened for the person who started the server."""
    if any(name in os.environ for name in ("SSH_CONNECTION", "SSH_TTY")):
        return False
    if sys.platform in ("darwin", "win32"):
        return True
    # without a display, a text browser would take over this terminal
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


@contextlib.contextmanager
def open_in_browser(address: str, folder: Path, show: Callable[[str], object] = webbrowser.open) -> Iterator[None]:
    """Open an address in the browser without putting it into the browser's arguments.

    Every user of the machine can read the arguments of a running browser. The argument is therefore a file, which
    only this user can read and which redirects to the address. It is in `folder`, which a sandboxed browser can read.
    """
    try:
        handle, name = tempfile.mkstemp(prefix="open-", suffix=".html", dir=folder)
    except OSError:
        # the cache does not exist yet, or is read-only
        handle, name = tempfile.mkstemp(prefix="open-", suffix=".html")
    with open(handle, "w", encoding="utf-8") as file:
        file.write(
            '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
            f'<meta http-equiv="refresh" content="0; url={escape(address)}">'
            f'<title>GPrune Studio</title><a href="{escape(address)}">Open GPrune Studio</a>\n'
        )
    path = Path(name)
    remover = threading.Timer(FILE_SECONDS, path.unlink, kwargs={"missing_ok": True})
    remover.daemon = True
    remover.start()
    try:
        # some browsers block the caller until they are closed
        threading.Thread(target=show, args=(path.as_uri(),), daemon=True).start()
        yield
    finally:
        remover.cancel()
        path.unlink(missing_ok=True)
