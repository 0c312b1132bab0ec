"""`run`: every stage of a study, reusing what is there."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from dataclasses import replace
from typing import Any

from gprune.cli import EXIT_UNFILLED, add_cache, add_job, paths, registered, say
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
    run = registered(commands, "run", _run)
    run.add_argument("study", metavar="STUDY", help="a study file, or a bundled one: `demo`, `demo-strong-drift`")
    run.add_argument("--json", action="store_true", help="write the result as one line of JSON to stdout")
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
        help="print every stage, its key and whether it is there, what the rest will take, and stop",
    )
    run.add_argument(
        "--anyway", action="store_true", help="start even if the estimate says that it cannot fit in memory"
    )
    fields = run.add_argument_group("settings", "fields of the study, in the place of what its file says")
    add_fields(fields)
    add_slurm(run)
    run.add_argument("--label", default="", help="name of the job of --detach; the study's name by default")
    add_job(run, _submit)
    add_cache(run)


def _asked(options: argparse.Namespace) -> Study:
    """The study of a run with the settings that its options change; for errors see `named`."""
    study, changed = named(options.study, pipe=True), changes(options)
    return study.with_settings(changed) if changed else study


def _submit(options: argparse.Namespace) -> int:
    """Submit the study of each seed as a job."""
    from gprune import jobs

    study = paths.study(_asked(options))
    arguments = [
        *(["--until", options.until] if options.until != "all" else []),
        *(["--anyway"] if options.anyway else []),
    ]
    for seeded in _of_seeds(study, options.seeds) if options.seeds else [study]:
        say(format_job(jobs.submit(Store(options.cache).root, seeded, options.label, arguments)))
    return 0


def _run(options: argparse.Namespace) -> int:
    if options.slurm:
        study = paths.study(_asked(options))
        studies = _of_seeds(study, options.seeds) if options.seeds else [study]
        return submit_to_slurm(options, studies, options.until)
    if options.dry_run:
        return _show_course(options, _asked(options))
    if options.seeds:
        return _run_seeds(options)
    return _run_reported(options)


def _run_reported(options: argparse.Namespace) -> int:
    """Run one study; as a job, report to the job's folder."""
    with job_reporter(options.job) as reporter:
        result = _run_here(options, _asked(options), reporter)
        code = _ended([result])
        if reporter is not None:
            names = ("retention", "perplexity", "accuracy", "unavailable", "unavailable_tasks")
            reporter.finish({name: result[name] for name in names if name in result}, result["run"])
    return code


def _show_course(options: argparse.Namespace, study: Study) -> int:
    """Prints the stages of a run in order: name, key, there or missing, seconds it took last time."""
    from gprune import pipeline
    from gprune.cli.study import print_forecast
    from gprune.pipeline.eta import last_time
    from gprune.pipeline.preflight import estimate_missing
    from gprune.pipeline.stages.task_data import require_tasks

    store = Store(options.cache)
    require_tasks(study)
    if options.seeds:
        return _show_seeds(options, _of_seeds(study, options.seeds), store)
    results = pipeline.opened(study, store)
    stages = results.course(options.until)
    seconds = last_time(stages, results)
    widest = max(len(stage.name) for stage in stages)
    for stage in stages:
        state, taken = "there" if results.holds(stage) else "missing", seconds[stage.name]
        words = "" if taken is None else f"{taken:10.1f} s"
        say(f"{stage.name:<{widest}}  {stage.key}  {state:<7}{words}".rstrip())
    missing = len({stage.key for stage in stages if not results.holds(stage)})
    if missing:
        print_forecast(estimate_missing(stages, results))
    say(f"{len(stages)} stages, {missing} missing", file=sys.stderr)
    return 0


def _of_seeds(study: Study, seeds: list[int]) -> list[Study]:
    """A study once for each seed; SettingsError where a seed is named twice, or is negative."""
    require(len(set(seeds)) == len(seeds), "--seeds", seeds, "seeds that differ from each other")
    return [replace(study, seed=seed) for seed in seeds]


def _show_seeds(options: argparse.Namespace, studies: list[Study], store: Store) -> int:
    """Prints how many stages the runs of several seeds have, and how many of them they share."""
    from gprune import pipeline
    from gprune.pipeline.eta import extent

    found = [extent(pipeline.opened(study, store), options.until) for study in studies]
    for study, one in zip(studies, found, strict=True):
        say(f"seed {study.seed}: {len(one.keys)} stages, {len(one.missing)} missing")
    shared = frozenset.intersection(*(one.keys for one in found))
    missing = frozenset[str]().union(*(one.missing for one in found))
    say(f"{len(shared)} shared by all seeds, {len(missing)} to make", file=sys.stderr)
    return 0


def _run_seeds(options: argparse.Namespace) -> int:
    """Runs a study under every seed; what does not depend on the seed is made once."""
    studies, store = _of_seeds(_asked(options), options.seeds), Store(options.cache)
    results = [_result(study, store, options) for study in studies]
    from gprune.analysis.seeds import spread
    from gprune.cli import progress

    found = spread(results)
    if options.json:
        whole = {"seeds": options.seeds, "spread": found, "runs": results}
        say(_json(whole))
    else:
        progress.seeds_summary(found, results)
    return _ended(results)


def _run_here(options: argparse.Namespace, study: Study, reporter: Any) -> dict[str, Any]:
    """Runs one study and prints what it ends with."""
    result = _result(study, Store(options.cache), options, reporter)
    if options.json:
        say(_json(result))
    else:
        from gprune.cli import progress

        progress.summary(result)
    return result


def _ended(results: list[dict[str, Any]]) -> int:
    """The exit code of finished runs; where a task was not measured, the last line says which and why."""
    missing: dict[str, str] = {}
    for result in results:
        missing |= result.get("unavailable_tasks", {})
    if not missing:
        return 0
    named = safe_parsing.sentence(", ".join(map(short, missing)), _MOST_NAMED)
    reason = safe_parsing.sentence(next(iter(missing.values())))
    sys.stdout.flush()
    say(f"not measured: {named}: {reason}; everything else is kept", file=sys.stderr)
    return EXIT_UNFILLED


def _result(study: Study, store: Store, options: argparse.Namespace, reporter: Any = None) -> dict[str, Any]:
    """Runs one study, and shows how it gets on."""
    from gprune import pipeline
    from gprune.cli import progress

    with progress.Reporter() as shown, contextlib.redirect_stdout(sys.stderr):

        def listener(stage: str, done: int, total: int, message: str) -> None:
            shown(stage, done, total, message)
            if reporter is not None:
                reporter(stage, done, total, message)

        result = pipeline.run(study, store, listener, options.until, options.anyway)
    return result | _diagnosed(study, store, result)


def _diagnosed(study: Study, store: Store, result: dict[str, Any]) -> dict[str, Any]:
    """What the parts of GPrune have done, where it has pruned."""
    from gprune import pipeline
    from gprune.analysis import ablation_effect

    if "gprune" not in result.get("retention", {}):
        return {}
    found = pipeline.opened(study, store)
    return {"diagnostics": ablation_effect.diagnose(found).to_dict()} if ablation_effect.ready(found) else {}


def _json(value: dict[str, Any]) -> str:
    """A result in one line."""
    return json.dumps(_finite(value), ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    """JSON has no infinity: a perplexity beyond every float becomes null."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and value - value != 0 else value
