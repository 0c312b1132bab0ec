"""`export` and `gguf`: a method's model as a folder, and as a file for llama.cpp."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gprune.cli import add_cache, add_job, place, registered, say
from gprune.cli.progress import show_progress

if TYPE_CHECKING:
    from gprune.system.progress import Progress

_ABOUT = (
    "Writes the pruned model of any method of a run as a folder that loads anywhere, with the repair of the "
    "run, a model card with its perplexities, and pruning.json, which lists the kept units. `export FOLDER OUT "
    "--padded` pads such a folder with zeros to an ordinary model that needs no code of this project."
)


def add(commands: Any) -> None:
    """Register the commands."""
    export = registered(commands, "export", _export, _ABOUT)
    export.add_argument("run", metavar="RUN", help="name of a run, as `runs` lists it")
    export.add_argument("method", metavar="METHOD", help="a method of its study")
    export.add_argument("out", metavar="OUT", type=place, help="folder to write")
    export.add_argument("--repair", help="another repair than the run's, as least_squares or none")
    export.add_argument("--recovered", action="store_true", help="the model after the run's recovery")
    export.add_argument(
        "--padded", action="store_true", help="pad every layer with zeros to the widest, which needs no code of ours"
    )
    export.add_argument("--trust-remote-code", action="store_true", help="run code that comes with the dense model")
    add_job(export)
    add_cache(export)
    gguf = registered(commands, "gguf", _gguf)
    gguf.add_argument("folder", metavar="FOLDER", type=place, help="the pruned model's folder")
    gguf.add_argument("out", metavar="OUT.gguf", type=place, help="file to write")
    gguf.add_argument(
        "--type", choices=("float32", "float16"), default="float32", help="number type (default: float32)"
    )
    add_job(gguf)


def _export(options: argparse.Namespace) -> int:
    from gprune.api import opening

    run = opening.open(options.run, cache=options.cache, trust_remote_code=options.trust_remote_code)
    with show_progress("export", options.job) as progress:
        settings = {"repair": options.repair, "recovered": options.recovered, "on_progress": progress}
        if options.padded:
            _export_padded(lambda folder: run.export(folder, options.method, **settings), options.out, progress)
        else:
            run.export(options.out, options.method, **settings)
    say(
        f"{options.out}: {run.study.model} pruned by {options.method}{' and padded' if options.padded else ''}, with "
        "model card and pruning.json, read back and compared"
    )
    return 0


def _export_padded(export: Callable[[Path], Path], out: Path, progress: Progress) -> None:
    from gprune.models.export.padded import save_padded
    from gprune.models.export.writing import as_checkpoint_error, require_free_space

    require_free_space(out.absolute(), 0)
    with as_checkpoint_error(f"the model cannot be saved in {str(out)!r}"):
        out.parent.mkdir(parents=True, exist_ok=True)
        workspace = tempfile.TemporaryDirectory(prefix=".unpadded-", dir=out.parent)
    with workspace as folder:
        save_padded(export(Path(folder, "model")), out, progress)


def _gguf(options: argparse.Namespace) -> int:
    from gprune.models.export import gguf

    with show_progress("gguf", options.job) as progress:
        size = gguf.save_gguf(options.folder, options.out, options.type, progress)
    say(f"{options.out}: {gguf.ARCHITECTURE}, {options.type}, {size / 2**20:,.1f} MiB, read back")
    return 0
