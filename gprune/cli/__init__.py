"""The sub-commands of `python -m gprune`: one file each, with ``add`` to register it.

Of all files only that of the command that was asked for is imported, and nothing heavy before it runs, so
that `--help` answers at once: what it says of every command stands here.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from gprune.system import installation, safe_parsing
from gprune.system.errors import UnreadableError
from gprune.system.nearest import did_you_mean

if TYPE_CHECKING:
    from gprune.pipeline.stages import Results

EXIT_UNFILLED = 3
"""the command did what it could, and something that was asked for could not be measured"""


@dataclass(frozen=True, slots=True)
class Command:
    """A sub-command as it is known without its file."""

    module: str
    """file of this package that registers it"""
    about: str
    """what `--help` says of it"""


COMMANDS = {
    "study": Command("study", "write a study as JSON to stdout"),
    "run": Command("run", "run a study: every stage, reusing what is there"),
    "jobs": Command("jobs", "list, follow, cancel and resume jobs: those of the app, and those of --detach"),
    "app": Command("app", "serve the pages, and open them in a browser"),
    "reproduce": Command("reproduce", "reproduce tables and figures of the paper"),
    "sweep": Command("sweep", "run many studies that differ in some fields, what they share once"),
    "arrays": Command("packs", "write every result array of a study to one .npz file"),
    "export": Command("export", "write the pruned model of any method of a run as a folder, or pad such a folder"),
    "gguf": Command("export", "write a pruned model as a file that llama.cpp loads"),
    "speed": Command("speed", "measure tokens a second of dense and pruned models side by side"),
    "pack": Command("packs", "write a run as one file, to open elsewhere"),
    "unpack": Command("packs", "read a packed run, with neither model nor texts"),
    "card": Command("card", "the card of a calibration text of a run"),
    "map": Command("map", "lay out the neurons of one layer by UMAP"),
    "report": Command("report", "write chosen figures of a run as one HTML file"),
    "models": Command(
        "listing", "list the families that can be pruned; with FOLDER, what a model holds and how it loads"
    ),
    "texts": Command("listing", "list the texts that are known by name"),
    "tasks": Command("listing", "list the zero-shot tasks, and check the files of a folder"),
    "plugins": Command("listing", "list the metrics and methods of other packages, and why one cannot be used"),
    "runs": Command("listing", "list the runs in the cache"),
    "cache": Command("cache", "what the cache holds: list it, prune it, verify it"),
}
"""every sub-command, in the order of `--help`"""


def say(*words: object, end: str = "\n", file: TextIO | None = None, flush: bool = False) -> None:
    """Print words to standard output, or to `file`."""
    print(*words, end=end, file=file, flush=flush)


def place(text: str) -> Path:
    """A path that was typed as an argument; `~` means a home folder as elsewhere.

    Raises argparse.ArgumentTypeError where no file of this system can have that name.
    """
    try:
        return safe_parsing.path(text, "the path")
    except UnreadableError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _near(word: str, known: Iterable[str]) -> str:
    return "" if word in ("-", "--") else did_you_mean(word, known)


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line of bounded length, whatever was typed, and name what is near it.

    The parser of a sub-command complains itself of options that it does not know, below its own usage.
    """

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """What was typed, and nothing that is left of it."""
        found, left = super().parse_known_args(args, namespace)
        if left:
            known = self._option_string_actions
            near = next((one for word in left if (one := _near(word.partition("=")[0], known))), "")
            self.error(f"unrecognized arguments: {' '.join(left)}{near}")
        return found, left

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        near = "" if action.choices is None else _near(str(value), [str(one) for one in action.choices])
        if near and value not in action.choices:  # type: ignore[operator]
            raise argparse.ArgumentError(action, f"invalid choice: {safe_parsing.quoted(value)}{near}")
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        """Says what is wrong, after the usage, and ends the process with 2."""
        super().error(safe_parsing.sentence(message))


def registered(
    commands: Any, name: str, command: Callable[[argparse.Namespace], int], about: str | None = None
) -> argparse.ArgumentParser:
    """The parser of a sub-command, which knows what carries it out."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=COMMANDS[name].about, description=about)
    # `--detach` is removed from what was typed, and is recognised only in full
    parser.allow_abbrev = False
    parser.set_defaults(command=command)
    return parser


def add_run(parser: argparse.ArgumentParser, **how: Any) -> None:
    """Add the name of a run; `how` goes to `add_argument`."""
    parser.add_argument("run", metavar="RUN", help="name of a run, as `runs` lists it", **how)


def add_job(parser: argparse.ArgumentParser, submit: Callable[[argparse.Namespace], int]) -> None:
    """Add `--detach`, by which a command is submitted as a job, and the option that names the folder of that job."""
    parser.add_argument("--job", type=place, help=argparse.SUPPRESS)
    parser.add_argument(
        "--detach",
        dest="command",
        action="store_const",
        const=submit,
        help="run as a job that outlives the terminal, once its device is free; see `jobs`",
    )


def command_line() -> str:
    """The command that this process was started by, as people type it."""
    return shlex.join(["python", "-m", "gprune", *sys.argv[1:]])


def add_settings(parser: Any, words: str) -> None:
    """Adds the option that sets any field of a study by its dotted name."""
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help=words)


def add_cache(parser: argparse.ArgumentParser) -> None:
    """Adds the option that every command on stored results has."""
    usual = "~/.cache/gprune" if installation.INSTALLED else "cache/"
    parser.add_argument("--cache", type=place, help=f"cache folder (default: GPRUNE_CACHE, or {usual})")


def recorded(options: argparse.Namespace) -> tuple[Results, dict[str, Any]]:
    """Return the results of the run that a command names, and its record."""
    from gprune.pipeline import runs
    from gprune.pipeline.runs.cached import recorded_graph
    from gprune.pipeline.stages import Results
    from gprune.store import Store

    store = Store(options.cache)
    record = runs.required(store, options.run)
    graph = recorded_graph(record, f"the record of the run {safe_parsing.quoted(options.run)}")
    return Results(store, graph), record
