"""The sub-commands of `python -m gprune`: one file each, with ``add`` to register it.

Only the file of the command on the command line is imported, so that `--help` answers at once. The help of every
command is therefore in this file.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TextIO

from gprune.system import installation, safe_parsing
from gprune.system.errors import UnreadableError
from gprune.system.safe_parsing import did_you_mean

if TYPE_CHECKING:
    from gprune.pipeline.stages import Results

EXIT_UNFILLED = 3
"""exit code if a part of the requested results is missing"""


class Command(NamedTuple):
    """Name and help of a sub-command."""

    module: str
    """file of this package that registers it"""
    about: str
    """its description in `--help`"""


COMMANDS = {
    "study": Command("study", "write a study as JSON to stdout"),
    "run": Command("run", "run a study; results in the cache are reused"),
    "jobs": Command("jobs", "list, follow, cancel and resume the jobs of the app and of --detach"),
    "app": Command("app", "serve the pages, and open them in a browser"),
    "reproduce": Command("reproduce", "reproduce tables and figures of the paper"),
    "sweep": Command("sweep", "run studies that differ in some fields; stages that they share are computed once"),
    "arrays": Command("packs", "write every result array of a study to one .npz file"),
    "export": Command("export", "write the pruned model of any method of a run as a folder, or pad such a folder"),
    "gguf": Command("export", "write a pruned model as a GGUF file for llama.cpp"),
    "speed": Command("speed", "measure tokens per second of dense and pruned models side by side"),
    "pack": Command("packs", "write a run as one file that another machine can open"),
    "unpack": Command("packs", "add a packed run to the cache; neither its model nor its texts are needed"),
    "card": Command("card", "print the calibration card of a text of a run"),
    "map": Command("map", "lay out the neurons of one layer in a plane with UMAP"),
    "report": Command("report", "write chosen figures of a run as one HTML file"),
    "models": Command(
        "listing", "list the families that can be pruned; with FOLDER, describe a model and how to load it"
    ),
    "texts": Command("listing", "list the named texts"),
    "tasks": Command("listing", "list the zero-shot tasks, and check the files of a folder"),
    "plugins": Command("listing", "list the metrics and methods of other packages, and those that cannot be used"),
    "runs": Command("listing", "list the runs in the cache"),
    "cache": Command("cache", "list, prune or verify the results in the cache"),
}
"""every sub-command, in the order of `--help`"""


def say(*words: object, end: str = "\n", file: TextIO | None = None, flush: bool = False) -> None:
    """Print words to standard output, or to `file`."""
    print(*words, end=end, file=file, flush=flush)


def to_path(text: str) -> Path:
    """Return a path from the command line, with `~` expanded.

    Raises argparse.ArgumentTypeError if no file can have that name.
    """
    try:
        return safe_parsing.path(text, "the path")
    except UnreadableError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line of bounded length and suggest the nearest option.

    Unknown options are reported by the parser of the sub-command, with the usage of the sub-command.
    """

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Return the parsed options and an empty list. An unknown argument ends the process with exit code 2."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            names = self._option_string_actions
            suggestion = did_you_mean(unknown[0].partition("=")[0], names)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{suggestion}")
        return options, unknown

    def error(self, message: str) -> NoReturn:
        """Print the usage and the error, and exit with 2."""
        super().error(safe_parsing.sentence(message))


def add_command(
    commands: Any, name: str, command: Callable[[argparse.Namespace], int], about: str | None = None
) -> argparse.ArgumentParser:
    """Add a sub-command to `commands` and return its parser, which stores the function `command` in the options."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=COMMANDS[name].about, description=about)
    # a job runs the same arguments without `--detach`, which must therefore not be abbreviated
    parser.allow_abbrev = False
    parser.set_defaults(command=command)
    return parser


def add_run(parser: argparse.ArgumentParser, **keywords: Any) -> None:
    """Add the argument RUN, the name of a run; `keywords` are passed to `add_argument`."""
    parser.add_argument("run", metavar="RUN", help="name of a run, as `runs` lists it", **keywords)


def add_job(parser: argparse.ArgumentParser, submit: Callable[[argparse.Namespace], int]) -> None:
    """Add `--detach`, which submits the command as a job, and the hidden `--job`, which names the folder of the job."""
    parser.add_argument("--job", type=to_path, help=argparse.SUPPRESS)
    parser.add_argument(
        "--detach",
        dest="command",
        action="store_const",
        const=submit,
        help="run as a job that outlives the terminal, once its device is free; see `jobs`",
    )


def command_line() -> str:
    """Return the command line of this process in shell syntax."""
    return shlex.join(["python", "-m", "gprune", *sys.argv[1:]])


def add_settings(parser: Any, help_text: str) -> None:
    """Add `--set`, which sets any field of a study by its dotted name."""
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help=help_text)


def add_cache(parser: argparse.ArgumentParser) -> None:
    """Add `--cache`, which names the cache folder."""
    default_folder = "~/.cache/gprune" if installation.INSTALLED else "cache/"
    parser.add_argument("--cache", type=to_path, help=f"cache folder (default: GPRUNE_CACHE, or {default_folder})")


def load_run(options: argparse.Namespace) -> tuple[Results, dict[str, Any]]:
    """Return the results and the record of the run that `options` names. Raises StoreError if there is no such run."""
    from gprune.pipeline import runs
    from gprune.pipeline.runs.opened import recorded_graph
    from gprune.pipeline.stages import Results
    from gprune.store import Store

    store = Store(options.cache)
    record = runs.require_record(store, options.run)
    graph = recorded_graph(record, f"the record of the run {safe_parsing.quote(options.run)}")
    return Results(store, graph), record
