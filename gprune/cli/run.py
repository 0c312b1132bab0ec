"""`run`: run the stages of a study and reuse existing results."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from typing import Any

from gprune.analysis.formatting import finite_values
from gprune.cli import EXIT_UNFILLED, add_cache, add_command, add_job, paths, say
from gprune.cli.jobs import add_slurm, format_job, job_reporter, submit_to_slurm
from gprune.cli.study import add_fields, changes
from gprune.pipeline.stages import UNTIL
from gprune.store import Store
from gprune.study import Study, short
from gprune.study.demo import DEMOS, read_study
from gprune.study.settings import require
from gprune.system import safe_parsing

_LISTED_CHARACTERS = 120
"""maximum number of characters of the list of tasks that were not measured"""


def add(commands: Any) -> None:
    """Register the command."""
    run = add_command(commands, "run", _run)
    run.add_argument("study", metavar="STUDY", help=f"a study file, or a bundled one: {', '.join(DEMOS)}")
    run.add_argument("--json", action="store_true", help="print the result as one line of JSON")
    run.add_argument(
        "--seeds",
        type=int,
        nargs="+",
        help="run the study once per seed, and print mean and standard deviation over the seeds",
    )
    run.add_argument("--until", choices=UNTIL, default="all", help="last result to compute (default: all)")
    run.add_argument(
        "--dry-run",
        action="store_true",
        help="print every stage with its key and state, and the required memory and time, and exit",
    )
    run.add_argument(
        "--anyway", action="store_true", help="start even if the study does not fit in memory by the estimate"
    )
    fields = run.add_argument_group("settings", "these options replace values of the study file")
    add_fields(fields)
    add_slurm(run)
    add_job(run, _submit)
    add_cache(run)


def _read_studies(options: argparse.Namespace) -> list[Study]:
    """Return the study with the changed settings, once per seed; for errors see `read_study`."""
    study, changed = read_study(options.study, pipe=True), changes(options)
    study = study.with_settings(changed) if changed else study
    seeds = options.seeds or [study.seed]
    require(len(set(seeds)) == len(seeds), "--seeds", seeds, "seeds that differ from each other")
    return [replace(study, seed=seed) for seed in seeds]


def _submit(options: argparse.Namespace) -> int:
    """Submit the study of each seed as a job."""
    from gprune import jobs

    arguments = [
        *(["--until", options.until] if options.until != "all" else []),
        *(["--anyway"] if options.anyway else []),
    ]
    for study in map(paths.study, _read_studies(options)):
        say(format_job(jobs.submit(Store(options.cache).root, study, arguments=arguments)))
    return 0


def _run(options: argparse.Namespace) -> int:
    from gprune.analysis.seeds import summarize_seeds
    from gprune.cli import progress

    with job_reporter(options.job) as reporter:
        studies = _read_studies(options)
        if options.slurm:
            return submit_to_slurm(options, list(map(paths.study, studies)), options.until)
        if options.dry_run:
            return _print_plan(options, studies)
        results = [_run_study(study, options, reporter) for study in studies]
        spread = summarize_seeds(results) if options.seeds else {}
        if options.json:
            value = {"seeds": options.seeds, "spread": spread, "runs": results} if options.seeds else results[0]
            # JSON has no infinity and no NaN
            say(json.dumps(finite_values(value), ensure_ascii=False))
        else:
            for result in results:
                progress.print_summary(result)
            progress.print_spread(spread, results)
        return _exit_code(results)


def _print_plan(options: argparse.Namespace, studies: list[Study]) -> int:
    """Print name, key and state of every stage of each study in order, and the forecast."""
    from gprune import pipeline
    from gprune.cli.study import print_forecast, require_readable
    from gprune.pipeline.estimate import estimate_missing
    from gprune.pipeline.stages.inputs import require_tasks

    store = Store(options.cache)
    require_readable(studies[0])
    require_tasks(studies[0])
    for study in studies:
        results = pipeline.opened(study, store)
        stages = results.plan(options.until)
        widest = max(len(stage.name) for stage in stages)
        for stage in stages:
            state = "there" if results.holds(stage) else "missing"
            say(f"{stage.name:<{widest}}  {stage.key}  {state}")
        missing = len({stage.key for stage in stages if not results.holds(stage)})
        if missing:
            print_forecast(estimate_missing(stages, results))
        say(f"seed {study.seed}: {len(stages)} stages, {missing} missing", file=sys.stderr)
    return 0


def _exit_code(results: list[dict[str, Any]]) -> int:
    """Return the exit code of finished runs; print the tasks that were not measured, and the first reason."""
    missing = {task: reason for result in results for task, reason in result.get("unavailable_tasks", {}).items()}
    if not missing:
        return 0
    listing = safe_parsing.sentence(", ".join(map(short, missing)), _LISTED_CHARACTERS)
    reason = safe_parsing.sentence(next(iter(missing.values())))
    sys.stdout.flush()
    say(f"not measured: {listing}: {reason}; everything else is kept", file=sys.stderr)
    return EXIT_UNFILLED


def _run_study(study: Study, options: argparse.Namespace, reporter: Any) -> dict[str, Any]:
    """Run one study, show its progress, and return the result as JSON values."""
    from gprune import pipeline
    from gprune.cli.progress import show_stages

    with show_stages(reporter) as listener:
        return pipeline.run(study, Store(options.cache), listener, options.until, options.anyway)
