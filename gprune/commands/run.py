"""`run`: every stage of a study, reusing what is there."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

from gprune.commands import add_cache, place
from gprune.stages import UNTIL
from gprune.store import Store
from gprune.study import Study, from_file, run_name


def add(commands: Any) -> None:
    """Registers the command."""
    run = commands.add_parser("run", help="run a study: every stage, reusing what is there")
    run.add_argument("study", metavar="STUDY", help="a study file, or `demo` for the bundled one")
    run.add_argument("--json", action="store_true", help="write the result as one line of JSON to stdout")
    run.add_argument("--until", choices=UNTIL, default=UNTIL[-1], help="stop after this stage")
    run.add_argument(
        "--dry-run", action="store_true", help="print every stage, its key and whether it is there, and stop"
    )
    run.add_argument("--job", type=place, help=argparse.SUPPRESS)
    run.set_defaults(command=_run)
    add_cache(run)


def read(name: str) -> Study:
    """Reads a study file; `demo` is the bundled study.

    Raises:
        SettingsError: the file is missing or does not hold a valid study.
    """
    if name == "demo" and not Path("demo").exists():
        from gprune.study_demo import demo_study

        return demo_study()
    return from_file(name)


def _run(options: argparse.Namespace) -> int:
    from gprune.jobs.reporting import JobReporter

    if options.dry_run:
        return _show_course(options)
    if options.job is None:
        return _run_here(options, None)
    with JobReporter(options.job) as reporter:
        code = _run_here(options, reporter)
        reporter.finish(options.summary, options.run_name)
    return code


def _show_course(options: argparse.Namespace) -> int:
    """Prints the stages of a run in order: name, key, there or missing, seconds it took last time."""
    from gprune import pipeline
    from gprune.pipeline.outlook import last_time
    from gprune.stages import course

    results = pipeline.opened(read(options.study), Store(options.cache))
    stages = course(results.graph, options.until, results.holds)
    seconds = last_time(stages, results)
    widest = max(len(stage.name) for stage in stages)
    for stage in stages:
        state, taken = "there" if results.holds(stage) else "missing", seconds[stage.name]
        words = "" if taken is None else f"{taken:10.1f} s"
        print(f"{stage.name:<{widest}}  {stage.key}  {state:<7}{words}".rstrip())
    missing = len({stage.key for stage in stages if not results.holds(stage)})
    print(f"{len(stages)} stages, {missing} missing", file=sys.stderr)
    return 0


def _run_here(options: argparse.Namespace, reporter: Any) -> int:
    from gprune import corpora

    study, store = read(options.study), Store(options.cache)
    named = (study.primary, study.auxiliary, study.substitute, *study.evaluation.texts)
    # before the imports that they are built beside
    corpora.build_ahead(filter(None, named), store.texts)

    from gprune import pipeline, terminal

    options.run_name = run_name(study)
    with terminal.Reporter() as shown, contextlib.redirect_stdout(sys.stderr):

        def listener(stage: str, done: int, total: int, message: str) -> None:
            shown(stage, done, total, message)
            if reporter is not None:
                reporter(stage, done, total, message)

        result = pipeline.run(study, store, listener, options.until)
    kept = ("retention", "perplexity", "accuracy", "unavailable", "unavailable_tasks")
    options.summary = {name: result[name] for name in kept if name in result}
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
