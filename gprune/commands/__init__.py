"""The sub-commands of `python -m gprune`: one file each, with ``add`` to register it.

Nothing heavy is imported before a command runs, so that `--help` answers at once.
"""

import argparse
from pathlib import Path
from typing import NoReturn

from gprune import untrusted
from gprune.errors import UnreadableError

EXIT_UNFILLED = 3
"""the command did what it could, and something that was asked for could not be measured"""


def place(text: str) -> Path:
    """A path that was typed as an argument; `~` means a home folder as elsewhere.

    Raises:
        argparse.ArgumentTypeError: no file of this system can have that name.
    """
    try:
        return untrusted.path(text, "the path")
    except UnreadableError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line of bounded length, whatever was typed."""

    def error(self, message: str) -> NoReturn:
        """Says what is wrong, after the usage, and ends the process with 2."""
        super().error(untrusted.sentence(message))


def add_cache(parser: argparse.ArgumentParser) -> None:
    """Adds the option that every command on stored results has."""
    parser.add_argument("--cache", type=place, help="cache folder (default: GPRUNE_CACHE, or cache/)")
