"""`arrays`: every result array of a study in one file."""

import argparse
import contextlib
import sys
from typing import Any

from gprune.cli import add_cache, place, registered, say
from gprune.cli.run import read
from gprune.store import Store


def add(commands: Any) -> None:
    """Registers the command."""
    arrays = registered(commands, "arrays", _arrays)
    arrays.add_argument("study", metavar="STUDY", help="a study file, or `demo`")
    arrays.add_argument("out", metavar="OUT.npz", type=place, help="file to write")
    add_cache(arrays)


def _arrays(options: argparse.Namespace) -> int:
    from gprune import pipeline
    from gprune.cli import progress
    from gprune.pipeline import arrays

    study, store = read(options.study), Store(options.cache)
    arrays.check_target(options.out)
    with progress.Reporter() as shown, contextlib.redirect_stdout(sys.stderr):
        pipeline.run(study, store, shown, "masks")
        names = arrays.write(pipeline.opened(study, store), options.out)
    say(f"{options.out}: {len(names)} arrays", file=sys.stderr)
    return 0
