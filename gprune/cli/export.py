"""Commands `export` and `gguf`: write a pruned model as a folder, optionally padded, or as a GGUF file."""

from __future__ import annotations

import argparse
from typing import Any

from gprune.cli import add_cache, add_command, add_job, say, to_path
from gprune.cli.jobs import submit_command
from gprune.cli.progress import show_progress
from gprune.study.settings import require
from gprune.system import safe_parsing

_ABOUT = (
    "Writes a method's pruned model, with the run's repair, as a transformers folder. The folder includes "
    "a model card with the perplexities, and pruning.json, which lists the kept units. `export FOLDER OUT "
    "--padded` pads such a folder with zeros to an ordinary model that needs no code of this project."
)


def add(commands: Any) -> None:
    """Register the commands."""
    export = add_command(commands, "export", _export, _ABOUT)
    export.add_argument("run", metavar="RUN", help="name of a run, as `runs` lists it; with --padded the folder to pad")
    export.add_argument("method", metavar="METHOD", nargs="?", default="", help="a method of the run")
    export.add_argument("out", metavar="OUT", type=to_path, help="folder to write")
    export.add_argument("--repair", help="repair to use instead of the run's, such as least_squares or none")
    export.add_argument("--recovered", action="store_true", help="export the model after the run's recovery")
    export.add_argument("--padded", action="store_true", help="pad a folder that was exported earlier")
    export.add_argument("--trust-remote-code", action="store_true", help="run code from the dense model's folder")
    add_job(export, submit_command)
    add_cache(export)
    gguf = add_command(commands, "gguf", _gguf)
    gguf.add_argument("folder", metavar="FOLDER", type=to_path, help="the pruned model's folder")
    gguf.add_argument("out", metavar="OUT.gguf", type=to_path, help="file to write")
    gguf.add_argument(
        "--type", choices=("float32", "float16"), default="float32", help="number type (default: float32)"
    )
    add_job(gguf, submit_command)


def _export(options: argparse.Namespace) -> int:
    if options.padded:
        return _export_padded(options)
    from gprune.api import opening

    run = opening.open(options.run, cache=options.cache, trust_remote_code=options.trust_remote_code)
    with show_progress("export", options.job) as progress:
        folder = run.export(
            options.out, options.method, repair=options.repair, recovered=options.recovered, on_progress=progress
        )
    say(
        f"{folder}: {run.study.model} pruned by {options.method}, with model card and kept units, "
        "read back and compared"
    )
    return 0


def _export_padded(options: argparse.Namespace) -> int:
    from gprune.models.export import padded

    unused = options.method or options.repair or options.recovered
    require(not unused, "--padded", unused, "given with FOLDER and OUT alone")
    with show_progress("export", options.job) as progress:
        folder = padded.save_padded(safe_parsing.path(options.run, "the folder"), options.out, progress)
    say(f"{folder}: an ordinary model, every layer padded with zeros to the widest, read back and compared")
    return 0


def _gguf(options: argparse.Namespace) -> int:
    from gprune.models.export import gguf

    with show_progress("gguf", options.job) as progress:
        size = gguf.save_gguf(options.folder, options.out, options.type, progress)
    say(f"{options.out}: {gguf.ARCHITECTURE}, {options.type}, {size / 2**20:,.1f} MiB, read back")
    return 0
