"""The command line: write a study, run it, take its arrays, look at what is there.

python -m gprune study --model MODEL --primary TEXT --auxiliary TEXT ... > STUDY.json
python -m gprune run STUDY.json            (or: run demo)
python -m gprune jobs list                 (what runs beside the terminal; also logs, cancel, resume)
python -m gprune app                       (the pages; what `make app` starts)
python -m gprune reproduce TABLE --model MODEL   (a table of the paper, or all)
python -m gprune sweep FILE                (many studies that differ in some fields, what they share once)
python -m gprune arrays STUDY.json OUT.npz
python -m gprune export RUN METHOD OUT     (the pruned model of any method of a run, with model card)
python -m gprune export FOLDER OUT --padded (a pruned model as a stock folder)
python -m gprune gguf FOLDER OUT.gguf      (a pruned model for llama.cpp)
python -m gprune speed FOLDER...           (prefill and decode, dense beside pruned)
python -m gprune pack RUN                  (a run in one file, to be looked at elsewhere)
python -m gprune unpack FILE               (reads it: needs neither its model nor its texts)
python -m gprune card RUN A                (is a calibration text good enough? also as a file)
python -m gprune map RUN --layer 3         (its neurons in a plane, by what they do or by their weights)
python -m gprune report RUN -o FILE.html   (figures of a run in one file; --cards chooses, --list names them)
python -m gprune models                    (the families that can be pruned, and what is pruned of each)
python -m gprune models FOLDER             (what the folder of any model holds, and how it loads)
python -m gprune texts
python -m gprune tasks --task-folder FOLDER    (where the zero-shot tasks' data is, and what is wrong with it)
python -m gprune plugins                   (the metrics and methods of other packages)
python -m gprune runs
python -m gprune cache list                (what takes how much room, and for which runs; also prune, verify)
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
from gprune.system.version import __version__

EXIT_ERROR, EXIT_UNEXPECTED, EXIT_STOPPED = 2, 1, 130


def main(arguments: list[str] | None = None) -> int:
    """Runs one command, by the words after the program's name, those of the process when left out.

    Gives the exit code: 0 done, 2 an error with its one sentence on stderr, 3 done but for tasks or rows that
    could not be measured, 130 stopped or interrupted, 1 a defect of ours.
    """
    words = sys.argv[1:] if arguments is None else arguments
    options = _parser(words).parse_args(words)
    # threads that wait spin only briefly: by default they slow each other down many times over as soon as
    # anything else runs, and without any spinning an idle machine is slower; said before torch loads
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    os.environ.setdefault(machine.THREADS_VARIABLE, machine.threads())
    listen(getattr(options, "job", None))
    try:
        result: int = options.command(options)
        return result
    except Interrupted:
        print("interrupted: run it again to resume", file=sys.stderr)
        return EXIT_STOPPED
    except (Cancelled, KeyboardInterrupt):
        print("cancelled: finished stages are kept, run it again to resume", file=sys.stderr)
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


def _parser(words: list[str]) -> argparse.ArgumentParser:
    """The parser with the options of the command that is asked for; the others are names with a line each."""
    parser = Parser(prog="gprune", description="Structured pruning with GPrune-LLM.")
    parser.add_argument("--version", action="version", version=f"gprune {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    asked = COMMANDS.get(next((word for word in words if not word.startswith("-")), ""))
    added = False
    for name, command in COMMANDS.items():
        if asked is None or command.module != asked.module:
            commands.add_parser(name, help=command.about)
        elif not added:
            importlib.import_module(f"gprune.cli.{command.module}").add(commands)
            added = True
    return parser


if __name__ == "__main__":
    sys.exit(main())
