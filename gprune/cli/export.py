"""`export`, `pad`, `gguf`: a method's model as a folder, and other forms of it."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gprune.cli import add_cache, add_job, place, registered, say
from gprune.cli.jobs import submit_command
from gprune.system.progress import Progress

if TYPE_CHECKING:
    from gprune.models.export.padded import PaddedModel, Size
    from gprune.pipeline.stages import Results

_ABOUT = (
    "Writes the pruned model of any method of a run as a folder that loads anywhere, with the repair of the "
    "run, a model card that tells the perplexities of the run, and pruning.json, which lists the kept units."
)


def add(commands: Any) -> None:
    """Registers the commands."""
    export = registered(commands, "export", _export, _ABOUT)
    export.add_argument("run", metavar="RUN", help="name of a run, as `runs` lists it")
    export.add_argument("method", metavar="METHOD", help="a method of its study")
    export.add_argument("out", metavar="OUT", type=place, help="folder to write")
    export.add_argument("--repair", help="another repair than the run's, as least_squares or none")
    export.add_argument("--recovered", action="store_true", help="the model after the run's recovery")
    export.add_argument("--trust-remote-code", action="store_true", help="run code that comes with the dense model")
    add_job(export, submit_command)
    add_cache(export)
    pad = registered(commands, "pad", _pad)
    pad.add_argument("folder", metavar="FOLDER", type=place, help="the pruned model's folder")
    pad.add_argument("out", metavar="OUT", type=place, help="folder to write")
    add_job(pad, submit_command)
    gguf = registered(commands, "gguf", _gguf)
    gguf.add_argument("folder", metavar="FOLDER", type=place, help="the pruned model's folder")
    gguf.add_argument("out", metavar="OUT.gguf", type=place, help="file to write")
    gguf.add_argument(
        "--type", choices=("float32", "float16"), default="float32", help="number type (default: float32)"
    )
    add_job(gguf, submit_command)


def _export(options: argparse.Namespace) -> int:
    from gprune.api import opening

    run = opening.open(options.run, cache=options.cache, trust_remote_code=options.trust_remote_code)
    with shown("export", options.job) as progress:
        folder = run.export(
            options.out,
            options.method,
            repair=options.repair,
            recovered=options.recovered,
            on_progress=progress,
        )
    say(
        f"{folder}: {run.study.model} pruned by {options.method}, with model card and pruning.json, "
        "read back and compared"
    )
    return 0


def _pad(options: argparse.Namespace) -> int:
    from gprune.models.export import padded

    with shown("pad", options.job) as progress:
        made = padded.save_padded(options.folder, options.out, progress)
    say(
        f"{made.folder}: an ordinary {made.model_type}, {made.neurons} neurons and {made.groups} key/value "
        f"groups in every layer, {made.zeros:,} zeros added; {_saved(made)}"
    )
    return 0


def _saved(made: PaddedModel) -> str:
    """What is left of what pruning saved."""
    if made.dense is None:
        return f"{_size(made.padded)}, as the folder itself, which was such a model already"
    saved, kept = (made.dense.bytes - one.bytes for one in (made.pruned, made.padded))
    return (
        f"dense {_size(made.dense)}, pruned {_size(made.pruned)}, padded {_size(made.padded)}: "
        f"{max(kept, 0) / max(saved, 1):.0%} of what pruning saved is left"
    )


def _size(size: Size) -> str:
    return f"{size.parameters:,} parameters ({size.bytes / 2**20:,.1f} MiB)"


def _gguf(options: argparse.Namespace) -> int:
    from gprune.models.export import gguf

    with shown("gguf", options.job) as progress:
        size = gguf.save_gguf(options.folder, options.out, options.type, progress)
    say(f"{options.out}: {gguf.ARCHITECTURE}, {options.type}, {size / 2**20:,.1f} MiB, read back")
    return 0


def recorded(options: argparse.Namespace) -> tuple[Results, dict[str, Any]]:
    """The results of the run that a command names, and its record; GpruneError where they cannot be used."""
    from gprune.pipeline import runs
    from gprune.pipeline.archive.contents import graph_of
    from gprune.pipeline.stages import Results
    from gprune.store import Store
    from gprune.system.safe_parsing import quoted

    store = Store(options.cache)
    record = runs.required(store, options.run)
    return Results(store, graph_of(record, f"the record of the run {quoted(options.run)}")), record


@contextlib.contextmanager
def shown(stage: str, job: Path | None = None) -> Iterator[Progress]:
    """Shows progress on stderr, and in a job's folder; whatever a library prints goes to stderr too."""
    from gprune.cli import progress as terminal
    from gprune.jobs.reporting import JobReporter

    with contextlib.ExitStack() as stack:
        listeners: list[Any] = [] if job is None else [stack.enter_context(JobReporter(job))]
        listeners.append(stack.enter_context(terminal.Reporter()))
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))

        def progress(done: int, total: int, message: str) -> None:
            for listener in listeners:
                listener(stage, done, total, message)

        yield progress
