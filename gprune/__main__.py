"""The command-line interface.

python -m gprune study --model MODEL --primary TEXT --auxiliary TEXT ... > STUDY.json
python -m gprune run STUDY.json            (or: run demo)
python -m gprune jobs list                 (background jobs; also logs, cancel, resume)
python -m gprune app                       (the web app; `make app` starts it too)
python -m gprune reproduce TABLE --model MODEL   (a table of the paper, or all)
python -m gprune sweep FILE                (studies that differ in some fields; shared results are computed once)
python -m gprune arrays STUDY.json OUT.npz
python -m gprune export RUN METHOD OUT     (the pruned model of a method, with model card)
python -m gprune export FOLDER OUT --padded (a pruned model padded to a standard architecture)
python -m gprune gguf FOLDER OUT.gguf      (a pruned model for llama.cpp)
python -m gprune speed FOLDER...           (speed of prefill and decode, dense and pruned)
python -m gprune pack RUN                  (a run as one file for another machine)
python -m gprune unpack FILE               (read a packed run; needs neither model nor texts)
python -m gprune card RUN A                (calibration card of a text; also as a file)
python -m gprune map RUN --layer 3         (layout of neurons by behaviour or weights)
python -m gprune report RUN -o FILE.html   (figures of a run in one file; --cards selects, --list lists them)
python -m gprune models                    (model families that can be pruned)
python -m gprune models FOLDER             (description of a model, and how it loads)
python -m gprune texts
python -m gprune tasks --task-folder FOLDER    (location and state of the zero-shot tasks' data)
python -m gprune plugins                   (metrics and methods of other packages)
python -m gprune runs
python -m gprune cache list                (disk use by kind of result and by run; also prune, verify)
"""

import argparse
import importlib
import os
import sys
import traceback

from gprune.cli import COMMANDS, Parser, say
from gprune.cli.signals import listen
from gprune.system import machine, safe_parsing
from gprune.system.errors import Cancelled, GpruneError, Interrupted
from gprune.system.installation import __version__

EXIT_ERROR, EXIT_UNEXPECTED, EXIT_STOPPED = 2, 1, 130


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code; `arguments` are those of the process by default.

    Exit codes: 0 for success, 2 for an error with one sentence on stderr, 3 for success without some tasks or rows that
    could not be measured, 130 for a stop or an interrupt, 1 for an internal error.
    """
    command_line = sys.argv[1:] if arguments is None else arguments
    options = _parser(command_line).parse_args(command_line)
    # waiting threads spin only briefly before they sleep: long spinning, the default, is many times slower on a busy
    # machine, and no spinning is slower on an idle one; this must be set before torch is imported
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    os.environ.setdefault(machine.THREADS_VARIABLE, machine.threads())
    # only the commands of background jobs have the option `job`
    listen(getattr(options, "job", None))
    try:
        result: int = options.command(options)
        return result
    except Interrupted:
        print("interrupted: run the same command again to resume", file=sys.stderr)
        return EXIT_STOPPED
    except (Cancelled, KeyboardInterrupt):
        print("cancelled: finished stages are kept, run the same command again to resume", file=sys.stderr)
        return EXIT_STOPPED
    except GpruneError as error:
        print(f"error: {safe_parsing.sentence(error)}", file=sys.stderr)
        return EXIT_ERROR
    except BrokenPipeError:
        return EXIT_ERROR
    except MemoryError:
        print("error: out of memory: use fewer samples or a smaller calibration.batch", file=sys.stderr)
        return EXIT_ERROR
    except Exception:
        say(traceback.format_exc(), end="", file=sys.stderr)
        return EXIT_UNEXPECTED


def _parser(command_line: list[str]) -> argparse.ArgumentParser:
    """Return the parser of all commands; only the module of the requested command is imported and adds its options."""
    parser = Parser(prog="gprune", description="Structured pruning with GPrune-LLM.")
    parser.add_argument("--version", action="version", version=f"gprune {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    requested = COMMANDS.get(next((word for word in command_line if not word.startswith("-")), ""))
    is_added = False
    for name, command in COMMANDS.items():
        if requested is None or command.module != requested.module:
            commands.add_parser(name, help=command.about)
        elif not is_added:
            # one call adds all commands of the module
            importlib.import_module(f"gprune.cli.{command.module}").add(commands)
            is_added = True
    return parser


if __name__ == "__main__":
    sys.exit(main())
