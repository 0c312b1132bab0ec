"""`pack`, `unpack` and `arrays`: write and read a run as one file, and write the arrays of a study."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from gprune.cli import add_cache, add_command, add_run, say, to_path
from gprune.cli.progress import show_progress, show_stages
from gprune.store import Store
from gprune.system.units import amount

_PACK = (
    "Writes the results of a run as one file that `unpack` reads anywhere. It contains no model and no text: "
    "results from which texts can be reconstructed are left out unless --with-contexts is given."
)
_UNPACK = (
    "Reads a file that `pack` has written; the app then shows the run. Everything is checked first, and results "
    "in the cache are never replaced. A later run of the same study reuses unpacked results: unpack only "
    "packs from people whose numbers you trust."
)


def add(commands: Any) -> None:
    """Register the three commands."""
    pack = add_command(commands, "pack", _pack, _PACK)
    add_run(pack)
    pack.add_argument("-o", "--out", metavar="FILE", type=to_path, help="file to write (default: RUN.gprune.zip)")
    pack.add_argument(
        "--with-contexts",
        action="store_true",
        help="include results from which texts can be reconstructed: token ids, excerpts, questions",
    )
    pack.add_argument(
        "--with-steps", action="store_true", help="include intermediate results that no page reads, often most bytes"
    )
    add_cache(pack)
    unpack = add_command(commands, "unpack", _unpack, _UNPACK)
    unpack.add_argument("file", metavar="FILE", type=to_path, help="a file that `pack` has written")
    unpack.add_argument("--as", dest="name", metavar="NAME", default="", help="name of the run in this cache")
    add_cache(unpack)
    arrays = add_command(commands, "arrays", _arrays)
    arrays.add_argument("study", metavar="STUDY", help="a study file, or `demo`")
    arrays.add_argument("out", metavar="OUT.npz", type=to_path, help="file to write")
    add_cache(arrays)


def _pack(options: argparse.Namespace) -> int:
    from gprune.pipeline import packs

    store = Store(options.cache)
    contents = packs.pack_contents(store, options.run, with_texts=options.with_contexts, with_steps=options.with_steps)
    if contents.texts:
        names = ", ".join(map(repr, contents.texts))
        say(f"these texts can be reconstructed from the pack: {names}", file=sys.stderr)
    out = options.out or Path(f"{options.run}{packs.SUFFIX}")
    with show_progress("pack") as progress:
        packs.write_pack(store, contents, out, progress)
    reasons = {
        packs.TEXTS: "from which texts can be reconstructed (--with-contexts includes them)",
        packs.MODEL: "of the pruned model",
        packs.STEP: "that no page reads (--with-steps includes them)",
    }
    for reason, count in Counter(contents.left_out.values()).items():
        say(f"left out: {count} results {reasons.get(reason, '')}", file=sys.stderr)
    say(f"the pack also discloses: {packs.DISCLOSED}", file=sys.stderr)
    say(f"{out}: {len(contents.results)} results of {options.run}, {amount(out.stat().st_size)}")
    return 0


def _unpack(options: argparse.Namespace) -> int:
    from gprune.pipeline import packs

    store = Store(options.cache)
    with show_progress("unpack") as progress:
        unpacked = packs.unpack(options.file, store, name=options.name, progress=progress)
    present = f", {unpacked.present} were in the cache already" if unpacked.present else ""
    say(f"{unpacked.run}: {unpacked.added} results unpacked{present}")
    say(f"Open it: python -m gprune app --cache {shlex.quote(str(store.root))}")
    return 0


def _arrays(options: argparse.Namespace) -> int:
    from gprune import pipeline
    from gprune.pipeline import arrays
    from gprune.study.demo import read_study

    study, store = read_study(options.study, pipe=True), Store(options.cache)
    arrays.check_target(options.out)
    with show_stages() as listener:
        pipeline.run(study, store, listener, "masks")
        names = arrays.write(pipeline.opened(study, store), options.out)
    say(f"{options.out}: {len(names)} arrays", file=sys.stderr)
    return 0
