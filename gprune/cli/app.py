"""`app`: serve the pages to browsers with the token."""

import argparse
import contextlib
import os
from typing import Any

from gprune.cli import add_cache, add_command
from gprune.store import default_cache


def add(commands: Any) -> None:
    """Register the command."""
    app = add_command(commands, "app", _app)
    app.add_argument("--port", type=int, default=8501, help="port to listen on; 0 chooses a free port (default: 8501)")
    app.add_argument(
        "--address", default="127.0.0.1",
        help="IP address to listen on (default: 127.0.0.1, only this machine; 0.0.0.0 listens on every network)",
    )  # fmt: skip
    app.add_argument(
        "--public-address", action="append", default=[], metavar="NAME[:PORT]",
        help="another address at which browsers reach the app, such as localhost:9000 through a tunnel or "
        "https://NAME of a proxy (repeatable)",
    )  # fmt: skip
    app.add_argument(
        "--trust-remote-code", action="store_true",
        help="allow studies of the app to run the Python code in their model's folder",
    )  # fmt: skip
    app.add_argument("--no-browser", action="store_true", help="print the address and open no browser")
    add_cache(app)


def _app(options: argparse.Namespace) -> int:
    from gprune.app.server import ServerOptions, browser, endpoint, serving

    if options.cache is not None:
        # the pages and their jobs read the cache folder from this variable
        os.environ["GPRUNE_CACHE"] = str(options.cache.resolve())
    address = endpoint.find_endpoint(options.address, options.port, options.public_address)
    page: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if not options.no_browser and browser.can_open_browser():
        page = browser.open_in_browser(address.entry, default_cache())
    serving.serve(address, ServerOptions(options.trust_remote_code), page)
    return 0
