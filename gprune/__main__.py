"""The command line: write a study, run it, take its arrays, look at what is there.

python -m gprune study --model MODEL --primary TEXT --auxiliary TEXT ... > STUDY.json
python -m gprune run STUDY.json            (or: run demo)
python -m gprune arrays STUDY.json OUT.npz
python -m gprune texts
python -m gprune runs
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import traceback
from dataclasses import fields
from pathlib import Path
from typing import Any

from gprune import __version__
from gprune.errors import Cancelled, GpruneError, SettingsError
from gprune.plan import UNTIL, run_name
from gprune.store import Store
from gprune.study import METRIC_NAMES, Study, from_dict, from_file

EXIT_ERROR, EXIT_UNEXPECTED, EXIT_STOPPED = 2, 1, 130


def main(arguments: list[str] | None = None) -> int:
    """Runs one command.

    Args:
        arguments: the words after the program's name; those of the process when left out.

    Returns:
        The exit code: 0 done, 2 an error with its one sentence on stderr, 130 stopped, 1 a defect of ours.
    """
    options = _parser().parse_args(arguments)
    # threads that wait spin only briefly: by default they slow each other down many times over as soon as
    # anything else runs, and without any spinning an idle machine is slower; said before torch loads
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        result: int = options.command(options)
        return result
    except (Cancelled, KeyboardInterrupt):
        print("stopped on request: finished stages are kept, run it again to go on", file=sys.stderr)
        return EXIT_STOPPED
    except GpruneError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_ERROR
    except BrokenPipeError:
        return EXIT_ERROR
    except MemoryError:
        print("error: out of memory: use fewer samples or a smaller calibration.batch", file=sys.stderr)
        return EXIT_ERROR
    except Exception:
        traceback.print_exc()
        return EXIT_UNEXPECTED


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gprune", description="Structured pruning with GPrune-LLM.")
    parser.add_argument("--version", action="version", version=f"gprune {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_study(commands.add_parser("study", help="write a study as JSON to stdout"))
    run = commands.add_parser("run", help="run a study: every stage, reusing what is there")
    run.add_argument("study", metavar="STUDY", help="a study file, or `demo` for the bundled one")
    run.add_argument("--json", action="store_true", help="write the result as one line of JSON to stdout")
    run.add_argument("--until", choices=UNTIL, default="perplexity", help="stop after this stage")
    run.add_argument("--job", type=Path, help=argparse.SUPPRESS)
    run.set_defaults(command=_run)
    arrays = commands.add_parser("arrays", help="write every result array of a study to one .npz file")
    arrays.add_argument("study", metavar="STUDY", help="a study file, or `demo`")
    arrays.add_argument("out", metavar="OUT.npz", type=Path, help="file to write")
    arrays.set_defaults(command=_arrays)
    texts = commands.add_parser("texts", help="list the texts that are known by name")
    texts.set_defaults(command=_texts)
    runs = commands.add_parser("runs", help="list the runs in the cache")
    runs.set_defaults(command=_runs)
    for command in (run, arrays, runs):
        command.add_argument("--cache", type=Path, help="cache folder (default: GPRUNE_CACHE, or cache/)")
    return parser


# ---- study -------------------------------------------------------------------------------------------------

_SHORTHANDS = {
    "metric": "metric",
    "retention": "retention",
    "samples": "calibration.samples",
    "length": "calibration.length",
    "epochs": "sparsity.epochs",
    "seed": "seed",
    "substitute": "substitute",
    "evaluate": "evaluation.texts",
    "preset": "evaluation.preset",
    "windows": "evaluation.windows",
    "device": "device",
    "dtype": "dtype",
    "name": "name",
}


def _add_study(parser: argparse.ArgumentParser) -> None:
    text = "by name (see `texts`), file or dataset folder; options follow a #, as in " + (
        "c4.jsonl#fields=prefix+gold_completion"
    )
    parser.add_argument("--model", required=True, help="folder or hub name of the dense model, or `demo`")
    parser.add_argument("--primary", default="wikitext2", help=f"primary calibration text A, {text}")
    parser.add_argument("--auxiliary", default="ptb", help="auxiliary calibration text B")
    parser.add_argument("--substitute", help="third calibration text C, for the agreement figure")
    parser.add_argument("--metric", help=f"base importance metric: {', '.join(METRIC_NAMES)}")
    parser.add_argument("--retention", type=float, help="fraction of the decoder's weights to keep")
    parser.add_argument("--samples", type=int, help="sequences of each calibration text")
    parser.add_argument("--length", type=int, help="tokens of each sequence")
    parser.add_argument("--epochs", type=int, help="epochs of modular sparsity learning")
    parser.add_argument("--seed", type=int, help="seed of every random choice")
    parser.add_argument("--evaluate", nargs="+", metavar="TEXT", help="texts to measure perplexity on")
    parser.add_argument("--preset", help="perplexity windows: 128 (the paper's), 2048 or a number of tokens")
    parser.add_argument("--windows", type=int, help="windows to measure at most (default: all)")
    parser.add_argument("--device", help="auto, cpu or cuda")
    parser.add_argument("--dtype", help="auto, float32, bfloat16 or float16")
    parser.add_argument("--name", help="what to call the study on the pages")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="any other field, as reliability.drift_quantile=0.85 (repeatable)",
    )
    parser.set_defaults(command=_study)


def _study(options: argparse.Namespace) -> int:
    top = {f.name for f in fields(Study)}
    values: dict[str, Any] = {
        "model": options.model,
        "primary": options.primary,
        "auxiliary": options.auxiliary,
    }
    for option, field in _SHORTHANDS.items():
        value = getattr(options, option)
        if value is None:
            continue
        section, _, name = field.rpartition(".")
        if field in top:
            values[field] = value
        else:
            values.setdefault(section, {})[name] = value
    study = from_dict(values)
    if options.set:
        study = study.with_settings(dict(_assignment(word) for word in options.set))
    sys.stdout.write(study.to_json())
    return 0


def _assignment(word: str) -> tuple[str, Any]:
    """Reads FIELD=VALUE; the value is JSON, or text where it is none."""
    field, sign, value = word.partition("=")
    if not sign:
        raise SettingsError(f"--set takes FIELD=VALUE (got {word!r}), as reliability.drift_quantile=0.85")
    try:
        return field, json.loads(value)
    except json.JSONDecodeError:
        return field, value


# ---- run ---------------------------------------------------------------------------------------------------


def _read(name: str) -> Study:
    if name == "demo" and not Path(name).exists():
        from gprune.study_demo import demo_study

        return demo_study()
    return from_file(name)


def _run(options: argparse.Namespace) -> int:
    from gprune.jobs.reporting import JobReporter

    if options.job is None:
        return _run_here(options, None)
    with JobReporter(options.job) as reporter:
        code = _run_here(options, reporter)
        reporter.finish(options.summary, options.run_name)
    return code


def _run_here(options: argparse.Namespace, reporter: Any) -> int:
    from gprune import pipeline, terminal

    study = _read(options.study)
    options.run_name = run_name(study)
    with terminal.Reporter() as shown, contextlib.redirect_stdout(sys.stderr):

        def listener(stage: str, done: int, total: int, message: str) -> None:
            shown(stage, done, total, message)
            if reporter is not None:
                reporter(stage, done, total, message)

        result = pipeline.run(study, Store(options.cache), listener, options.until)
    options.summary = {name: result[name] for name in ("retention", "perplexity") if name in result}
    if options.json:
        print(json.dumps(_finite(result), ensure_ascii=False, allow_nan=False))
    else:
        terminal.summary(result)
    return 0


def _finite(value: Any) -> Any:
    """JSON has no infinity: a perplexity beyond every float becomes null."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and value - value != 0 else value


def _arrays(options: argparse.Namespace) -> int:
    from gprune import arrays, pipeline, terminal

    study, store = _read(options.study), Store(options.cache)
    arrays.check_target(options.out)
    with terminal.Reporter() as shown, contextlib.redirect_stdout(sys.stderr):
        result = pipeline.run(study, store, shown, "masks")
        names = arrays.write(store, result["keys"], options.out)
    print(f"{options.out}: {len(names)} arrays", file=sys.stderr)
    return 0


# ---- what is there -----------------------------------------------------------------------------------------


def _texts(_: argparse.Namespace) -> int:
    from gprune import corpora

    for entry in corpora.known():
        print(f"{entry.name:<18} {entry.description}")
    return 0


def _runs(options: argparse.Namespace) -> int:
    store = Store(options.cache)
    for name in store.runs():
        record = store.run(name) or {}
        study = record.get("study", {})
        words = (record.get("state"), study.get("model"), study.get("metric"), study.get("retention"))
        print(f"{name:<52} " + "  ".join(str(word) for word in words))
    if not store.runs():
        print(f"no runs in {store.root}: start one with `run demo`", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
