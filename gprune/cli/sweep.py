"""`sweep`: run studies that differ in the values of some fields; shared results are computed once."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gprune import jobs
from gprune.cli import EXIT_UNFILLED, add_cache, add_command, add_job, paths, say, to_path
from gprune.cli.jobs import add_slurm, job_reporter, submit_command, submit_to_slurm
from gprune.cli.progress import StudiesProgress
from gprune.experiments import sweep as sweeps
from gprune.experiments.sweep import StudyStatus, Sweep, Variation
from gprune.jobs import JobReporter
from gprune.pipeline import opened
from gprune.store import Store
from gprune.system import safe_parsing


def add(commands: Any) -> None:
    """Register the command."""
    parser = add_command(
        commands,
        "sweep",
        _sweep,
        "Runs the studies of a sweep file, which combines a study with lists of values, as queued jobs. "
        "Run the command again to resume a stopped sweep; failed studies run again.",
    )
    parser.add_argument("sweep", type=to_path, metavar="FILE", help="a sweep file (see docs/scale.md)")
    parser.add_argument("--dry-run", action="store_true", help="print the state of every study, and exit")
    parser.add_argument("--json", action="store_true", help="print the state of every study as JSON")
    add_slurm(parser)
    add_job(parser, submit_command)
    add_cache(parser)


def _sweep(options: argparse.Namespace) -> int:
    sweep, store = sweeps.from_file(options.sweep), Store(options.cache)
    # jobs run in another working directory, so paths are made absolute here
    variations = [replace(variation, study=paths.study(variation.study)) for variation in sweep.variations()]
    # absolute paths show that two studies read the same file under different names
    sweeps.require_distinct(variations)
    if options.slurm:
        return _submit(options, sweep, variations, store)
    if options.dry_run:
        return _dry_run(options, sweep, variations, store)
    with job_reporter(options.job) as reporter:
        return _run(options, sweep, variations, store, reporter)


def _dry_run(options: argparse.Namespace, sweep: Sweep, variations: Sequence[Variation], store: Store) -> int:
    """Print the state of every study and the number of missing stages; return the exit code."""
    # marks jobs without a process as ended
    jobs.reconcile(store.root)
    _print_states(options, sweep, sweeps.study_statuses(variations, store, sweep.until))
    results = [opened(variation.study, store) for variation in variations]
    plans = [{stage.key for stage in result.plan(sweep.until)} for result in results]
    distinct, total = set[str]().union(*plans), sum(map(len, plans))
    missing = frozenset[str]().union(*(result.missing_keys(sweep.until) for result in results))
    say(f"{total:,} stages, {len(distinct):,} of them distinct, {len(missing):,} missing", file=sys.stderr)
    return 0


def _submit(options: argparse.Namespace, sweep: Sweep, variations: Sequence[Variation], store: Store) -> int:
    """Submit the studies that are not done to Slurm."""
    sweeps.prepare(variations, store)
    studies = sweeps.unfinished_studies(variations, store, sweep.until)
    if not studies:
        say(f"{_studies(len(variations))}: all done", file=sys.stderr)
        return 0
    return submit_to_slurm(options, studies, sweep.until)


def _run(
    options: argparse.Namespace,
    sweep: Sweep,
    variations: Sequence[Variation],
    store: Store,
    reporter: JobReporter | None,
) -> int:
    sweeps.prepare(variations, store)
    say(f"{sweep.title}: {_studies(len(variations))}", file=sys.stderr)
    with StudiesProgress(reporter, "sweep") as display:
        statuses = sweeps.run(variations, store, sweep.until, watch=display.update, on_end=display.print_end)
    _print_states(options, sweep, statuses)
    return 0 if all(status.state == sweeps.DONE for status in statuses) else EXIT_UNFILLED


def _studies(count: int) -> str:
    return f"{count:,} {'study' if count == 1 else 'studies'}"


def _print_states(options: argparse.Namespace, sweep: Sweep, statuses: Sequence[StudyStatus]) -> None:
    """Print the state of every study on stdout, and their counts; with --json both as one JSON object."""
    counts = Counter(status.state for status in statuses)
    state_counts = {state: counts[state] for state in sweeps.STATES if counts[state]}
    if options.json:
        values = {"title": sweep.title, "counts": state_counts, "studies": [_to_dict(status) for status in statuses]}
        say(json.dumps(values, indent=2, ensure_ascii=False, default=str))
        return
    widest = max(len(status.variation.label) for status in statuses)
    for status in statuses:
        detail = safe_parsing.sentence(status.detail) or (status.run if status.state == "done" else "")
        say(f"{status.state:<11}  {status.variation.label:<{widest}}  {detail}".rstrip())
    say(f"{_studies(len(statuses))}: {', '.join(f'{n} {state}' for state, n in state_counts.items())}", file=sys.stderr)


def _to_dict(status: StudyStatus) -> dict[str, Any]:
    """Return the status of a study as plain JSON values."""
    study_values = {"name": status.variation.study.name, "settings": dict(status.variation.settings)}
    return study_values | {"run": status.run, "state": status.state, "words": status.detail, "job": status.job}
