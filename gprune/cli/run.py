"""`run`: every stage of a study, reusing what is there."""

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
from gprune.study.demo import named
from gprune.study.settings import require
from gprune.system import safe_parsing

_MOST_NAMED = 120


def add(commands: Any) -> None:
    """Register the command."""
    run = add_command(commands, "run", _run)
    run.add_argument("study", metavar="STUDY", help="a study file, or a bundled one: `demo`, `demo-strong-drift`")
    run.add_argument("--json", action="store_true", help="print the result as one line of JSON")
    run.add_argument(
        "--seeds",
        type=int,
        nargs="+",
        help="run the study once for each seed, and write mean and deviation over them",
    )
    run.add_argument("--until", choices=UNTIL, default="all", help="stop after this stage")
    run.add_argument(
        "--dry-run",
        action="store_true",
        help="print every stage with its key and state, and the memory and time that are needed, and stop",
    )
    run.add_argument(
        "--anyway", action="store_true", help="start even if the estimate says that it cannot fit in memory"
    )
    fields = run.add_argument_group("settings", "fields of the study, instead of the values in its file")
    add_fields(fields)
    add_slurm(run)
    add_job(run, _submit)
    add_cache(run)


def _read_studies(options: argparse.Namespace) -> list[Study]:
    """Return the study with the settings that the options change, once for each seed; for errors see `named`."""
    study, changed = named(options.study, pipe=True), changes(options)
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
    if options.slurm:
        return submit_to_slurm(options, list(map(paths.study, _read_studies(options))), options.until)
    if options.dry_run:
        return _show_course(options)
    if options.seeds:
        return _run_seeds(options)
    from gprune.cli import progress

    with job_reporter(options.job) as reporter:
        (study,) = _read_studies(options)
        result = _result(study, options, reporter)
        if options.json:
            say(_json(result))
        else:
            progress.print_summary(result)
        code = _ended([result])
    return code


def _show_course(options: argparse.Namespace) -> int:
    """Print the stages of a run in order: name, key, there or missing, seconds it took last time."""
    from gprune import pipeline
    from gprune.cli.study import print_forecast, require_readable
    from gprune.pipeline.estimate import estimate_missing
    from gprune.pipeline.eta import last_time
    from gprune.pipeline.stages.inputs import require_tasks

    store, (study, *others) = Store(options.cache), _read_studies(options)
    require_readable(study)
    require_tasks(study)
    if others:
        return _show_seeds(options, [study, *others], store)
    results = pipeline.opened(study, store)
    stages = results.plan(options.until)
    seconds = last_time(stages, results)
    widest = max(len(stage.name) for stage in stages)
    for stage in stages:
        state, expected = "there" if results.holds(stage) else "missing", seconds[stage.name]
        words = "" if expected is None else f"{expected:10.1f} s"
        say(f"{stage.name:<{widest}}  {stage.key}  {state:<7}{words}".rstrip())
    missing = len({stage.key for stage in stages if not results.holds(stage)})
    if missing:
        print_forecast(estimate_missing(stages, results))
    say(f"{len(stages)} stages, {missing} missing", file=sys.stderr)
    return 0


def _show_seeds(options: argparse.Namespace, studies: list[Study], store: Store) -> int:
    """Print how many stages the runs of several seeds have, and how many of them they share."""
    from gprune import pipeline
    from gprune.pipeline.eta import extent

    extents = [extent(pipeline.opened(study, store), options.until) for study in studies]
    for study, extent_of_study in zip(studies, extents, strict=True):
        say(f"seed {study.seed}: {len(extent_of_study.keys)} stages, {len(extent_of_study.missing)} missing")
    shared = frozenset.intersection(*(extent_of_study.keys for extent_of_study in extents))
    missing = frozenset[str]().union(*(extent_of_study.missing for extent_of_study in extents))
    say(f"{len(shared)} shared by all seeds, {len(missing)} to make", file=sys.stderr)
    return 0


def _run_seeds(options: argparse.Namespace) -> int:
    """Run a study under every seed; what does not depend on the seed is computed once."""
    from gprune.analysis.seeds import summarize_seeds
    from gprune.cli import progress

    results = [_result(study, options) for study in _read_studies(options)]
    deviation = summarize_seeds(results)
    if options.json:
        say(_json({"seeds": options.seeds, "spread": deviation, "runs": results}))
    else:
        progress.print_seeds_summary(deviation, results)
    return _ended(results)


def _ended(results: list[dict[str, Any]]) -> int:
    """The exit code of finished runs; where a task was not measured, the last line says which and why."""
    missing: dict[str, str] = {}
    for result in results:
        missing |= result.get("unavailable_tasks", {})
    if not missing:
        return 0
    listing = safe_parsing.sentence(", ".join(map(short, missing)), _MOST_NAMED)
    reason = safe_parsing.sentence(next(iter(missing.values())))
    sys.stdout.flush()
    say(f"not measured: {listing}: {reason}; everything else is kept", file=sys.stderr)
    return EXIT_UNFILLED


def _result(study: Study, options: argparse.Namespace, reporter: Any = None) -> dict[str, Any]:
    """Run one study with its progress shown; where GPrune has pruned, with the effects of its parts."""
    from gprune import pipeline
    from gprune.analysis import ablation_effect
    from gprune.cli.progress import show_stages

    store = Store(options.cache)
    with show_stages(reporter) as listener:
        result = pipeline.run(study, store, listener, options.until, options.anyway)
    if "gprune" in result.get("retention", {}):
        opened = pipeline.opened(study, store)
        if ablation_effect.ready(opened):
            result = result | {"diagnostics": ablation_effect.diagnose(opened).to_dict()}
    return result


def _json(value: dict[str, Any]) -> str:
    """Return a result as one line of JSON, in which infinity and NaN are null."""
    return json.dumps(finite_values(value), ensure_ascii=False)
