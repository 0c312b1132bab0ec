"""`pack` and `unpack`: a run in one file, for where neither its model nor its texts are. And `arrays`."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gprune.cli import add_cache, place, registered, say
from gprune.cli.export import shown
from gprune.store import Store, default_cache
from gprune.system.units import amount

if TYPE_CHECKING:
    from gprune.pipeline.archive import Contents

_ABOUT = (
    "Writes the results of a run as one file that `unpack` reads anywhere. No model is in it, and no text: "
    "results from which a text can be had back are left out, and the cards that need them say so. What it "
    "tells beside the results: {}."
)
_FROM = (
    "Reads a file that `pack` has written, on any machine; every page then draws the run. Everything is "
    "checked before anything is kept. Results are taken for what they are called, also by later runs of the "
    "same study here: take packs from people whose numbers you would take."
)


def add(commands: Any) -> None:
    """Registers the three commands."""
    # what is said of it is said by what writes it; both load nothing heavy
    from gprune.pipeline.archive.privacy import STAYS

    pack = registered(commands, "pack", _pack, _ABOUT.format(STAYS))
    pack.add_argument("run", metavar="RUN", help="name of a run, as `runs` lists it")
    pack.add_argument("-o", "--out", metavar="FILE", type=place, help="file to write (default: RUN.gprune.zip)")
    pack.add_argument(
        "--with-contexts",
        action="store_true",
        help="also what texts can be had back from: token ids of the calibration sets, excerpts, items",
    )
    pack.add_argument(
        "--with-steps", action="store_true", help="also results that no page reads, often most of the bytes"
    )
    add_cache(pack)
    unpack = registered(commands, "unpack", _unpack, _FROM)
    unpack.add_argument("file", metavar="FILE", type=place, help="a file that `pack` has written")
    unpack.add_argument("--as", dest="name", metavar="NAME", default="", help="call the run so in this cache")
    unpack.add_argument(
        "--largest", metavar="GIB", type=float, help="unpack up to so many GiB, however small the file is"
    )
    add_cache(unpack)
    arrays = registered(commands, "arrays", _arrays)
    arrays.add_argument("study", metavar="STUDY", help="a study file, or `demo`")
    arrays.add_argument("out", metavar="OUT.npz", type=place, help="file to write")
    add_cache(arrays)


def _pack(options: argparse.Namespace) -> int:
    from gprune.pipeline import archive
    from gprune.pipeline.archive.contents_form import ENDING

    store = Store(options.cache)
    wanted = {"with_texts": options.with_contexts, "with_steps": options.with_steps}
    chosen = archive.contents(store, options.run, **wanted)
    _say_texts(chosen, options.with_contexts)
    out = options.out or Path(f"{options.run}{ENDING}")
    with shown("pack") as progress:
        made = archive.write(store, options.run, out, **wanted, progress=progress)
    for line in _left_out(chosen):
        say(line, file=sys.stderr)
    say(f"{out}: {len(chosen.results)} results of {options.run}, {amount(made.size)}")
    say(f"SHA-256 {made.sha256}")
    return 0


def _say_texts(chosen: Contents, wanted: bool) -> None:
    """Names the texts that go in before anything is written."""
    if chosen.texts:
        names = ", ".join(repr(text) for text in chosen.texts)
        say(f"these texts can be had back from the pack: {names}", file=sys.stderr)
    elif wanted:
        say("this run keeps nothing from which a text can be had back", file=sys.stderr)


def _left_out(chosen: Contents) -> list[str]:
    """What stays here, one line a reason."""
    from gprune.pipeline.archive.contents import MODEL, STEP, TEXTS

    words = {
        TEXTS: "from which texts can be had back (--with-contexts takes them along)",
        MODEL: "that are the pruned model",
        STEP: "that no page reads (--with-steps takes them along)",
    }
    counts = {reason: list(chosen.left_out.values()).count(reason) for reason in words}
    return [f"left out: {count} results {words[reason]}" for reason, count in counts.items() if count]


def _unpack(options: argparse.Namespace) -> int:
    from gprune.pipeline import archive
    from gprune.system.errors import SettingsError

    if options.largest is not None and not 0 < options.largest < 2**20:
        raise SettingsError(f"--largest takes a number of GiB above 0 (got {options.largest})")
    largest = None if options.largest is None else int(options.largest * 2**30)
    store = Store(options.cache)
    with shown("unpack") as progress:
        found = archive.unpack(options.file, store, name=options.name, largest=largest, progress=progress)
    there = f", {found.kept} were there already" if found.kept else ""
    say(f"{found.run}: {found.added} results unpacked{there}")
    where = "" if store.root == default_cache() else f" --cache {shlex.quote(str(store.root))}"
    say(f"Look at it: python -m gprune app{where}")
    return 0


def _arrays(options: argparse.Namespace) -> int:
    from gprune import pipeline
    from gprune.cli import progress
    from gprune.pipeline import arrays
    from gprune.study.demo import named

    study, store = named(options.study, pipe=True), Store(options.cache)
    arrays.check_target(options.out)
    with progress.Reporter() as listener, contextlib.redirect_stdout(sys.stderr):
        pipeline.run(study, store, listener, "masks")
        names = arrays.write(pipeline.opened(study, store), options.out)
    say(f"{options.out}: {len(names)} arrays", file=sys.stderr)
    return 0
