"""`sweep`: many studies that differ in the values of some fields, what they share computed once."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gprune.cli import EXIT_UNFILLED, add_cache, add_job, paths, place, registered, say
from gprune.cli.jobs import add_devices, add_slurm, job_reporter, submit_command, submit_to_slurm
from gprune.study.settings import require
from gprune.system import safe_parsing

if TYPE_CHECKING:
    from gprune.experiments.sweep.plan import Sweep, Variation
    from gprune.experiments.sweep.running import StudyStatus
    from gprune.jobs import JobReporter
    from gprune.store import Store


def add(commands: Any) -> None:
    """Registers the command."""
    parser = registered(
        commands,
        "sweep",
        _sweep,
        "Runs the studies that a sweep file makes of one study and lists of values, as jobs of "
        "the queue. Started again, also after a kill, it resumes.",
    )
    parser.add_argument("sweep", type=place, metavar="FILE", help="a sweep file: docs/scale.md")
    parser.add_argument("--dry-run", action="store_true", help="say what would run, and run nothing")
    parser.add_argument("--status", action="store_true", help="say where every study stands, and run nothing")
    parser.add_argument("--json", action="store_true", help="write where every study stands as JSON to stdout")
    parser.add_argument("--retry-failed", action="store_true", help="run those again that have failed")
    add_devices(parser)
    add_slurm(parser)
    add_job(parser, submit_command)
    add_cache(parser)


def _sweep(options: argparse.Namespace) -> int:
    from gprune.experiments.sweep.plan import from_file, require_distinct
    from gprune.store import Store

    require(not (options.dry_run and options.status), "--status", "--dry-run", "given without --dry-run")
    sweep, store = from_file(options.sweep), Store(options.cache)
    # jobs run in a folder of their own, so paths are made whole here
    made = [replace(one, study=paths.study(one.study)) for one in sweep.variations()]
    # one file by two names is one text
    require_distinct(made)
    if options.slurm:
        return _submit(options, sweep, made, store)
    if options.dry_run:
        return _dry_run(sweep, made, store)
    if options.status:
        return _status(options, sweep, made, store)
    with job_reporter(options.job) as reporter:
        return _run(options, sweep, made, store, reporter)


def _dry_run(sweep: Sweep, made: Sequence[Variation], store: Store) -> int:
    from gprune.pipeline import opened
    from gprune.pipeline.eta import extent

    found = [extent(opened(one.study, store), sweep.until) for one in made]
    for one, each in zip(made, found, strict=True):
        say(f"{len(each.keys):>4} stages, {len(each.missing):>4} missing  {one.words}")
    distinct = frozenset[str]().union(*(each.keys for each in found))
    missing = frozenset[str]().union(*(each.missing for each in found))
    asked = sum(len(each.keys) for each in found)
    say(
        f"{_studies(len(made))} with {asked:,} stages, {len(distinct):,} of them distinct, {len(missing):,} missing",
        file=sys.stderr,
    )
    return 0


def _status(options: argparse.Namespace, sweep: Sweep, made: Sequence[Variation], store: Store) -> int:
    from gprune import jobs
    from gprune.experiments.sweep.running import standings

    # ends jobs whose process is gone, as the app does
    jobs.reconcile(store.root)
    _tell(options, sweep, standings(made, store, sweep.until))
    return 0


def _submit(options: argparse.Namespace, sweep: Sweep, variations: Sequence[Variation], store: Store) -> int:
    """Submits the studies that are not done to Slurm."""
    from gprune.experiments.sweep import running

    running.prepare(variations, store)
    studies = running.unfinished(variations, store, sweep.until, again=options.retry_failed)
    if not studies:
        say(f"{_studies(len(variations))}: all done", file=sys.stderr)
        return 0
    return submit_to_slurm(options, studies, sweep.until)


def _run(
    options: argparse.Namespace,
    sweep: Sweep,
    made: Sequence[Variation],
    store: Store,
    reporter: JobReporter | None,
) -> int:
    from gprune.cli.progress import Shown
    from gprune.experiments.sweep import running
    from gprune.experiments.sweep.running import DONE, FAILED
    from gprune.jobs import device_slots

    device_slots.allow(options.devices)
    running.prepare(made, store)
    say(f"{sweep.title}: {_studies(len(made))}", file=sys.stderr)
    with Shown(reporter, "sweep") as shown:
        found = running.run(made, store, sweep.until, again=options.retry_failed, watch=shown.watch, told=shown.ended)
    _tell(options, sweep, found)
    if any(one.state == FAILED for one in found):
        say("what has failed is run again by --retry-failed", file=sys.stderr)
    return 0 if all(one.state == DONE for one in found) else EXIT_UNFILLED


def _studies(count: int) -> str:
    return f"{count:,} {'study' if count == 1 else 'studies'}"


def _tell(options: argparse.Namespace, sweep: Sweep, found: Sequence[StudyStatus]) -> None:
    """Prints where the studies stand."""
    from gprune.experiments.sweep.running import STATES

    counts = Counter(one.state for one in found)
    told = {state: counts[state] for state in STATES if counts[state]}
    if options.json:
        values = {"title": sweep.title, "counts": told, "studies": [_plain(one) for one in found]}
        say(json.dumps(values, indent=2, ensure_ascii=False, default=str))
        return
    widest = max(len(one.variation.words) for one in found)
    for one in found:
        words = safe_parsing.sentence(one.words) or (one.run if one.state == "done" else "")
        say(f"{one.state:<11}  {one.variation.words:<{widest}}  {words}".rstrip())
    say(f"{_studies(len(found))}: {', '.join(f'{n} {state}' for state, n in told.items())}", file=sys.stderr)


def _plain(one: StudyStatus) -> dict[str, Any]:
    """A study for programs."""
    about = {"name": one.variation.study.name, "settings": dict(one.variation.settings)}
    return about | {"run": one.run, "state": one.state, "words": one.words, "job": one.job}
