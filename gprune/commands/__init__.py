"""The sub-commands of `python -m gprune`: one file each, with ``add`` to register it.

Nothing heavy is imported before a command runs, so that `--help` answers at once.
"""

import argparse
from pathlib import Path


def add_cache(parser: argparse.ArgumentParser) -> None:
    """Adds the option that every command on stored results has."""
    parser.add_argument("--cache", type=Path, help="cache folder (default: GPRUNE_CACHE, or cache/)")
