"""`jobs list`, `jobs logs`, `jobs cancel`, `jobs resume`, and the options that start jobs from other commands."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gprune.cli import add_cache, add_command, say
from gprune.study.settings import require
from gprune.system.errors import JobError

if TYPE_CHECKING:
    from gprune.jobs import Job
    from gprune.study import Study

FOLLOW_SECONDS = 0.5
"""Seconds between two looks at a log that is followed."""
MAX_LISTED = 20
"""Ended jobs that are listed without `--all`."""
NO_STUDY = ("no model", "no text", "no text either")
"""Model and texts of the study of a job that runs another command than `run`."""
_JOB = "id of a job, or as much of its beginning or end as no other job has; `last` for the newest"


def add(commands: Any) -> None:
    """Register the command and its subcommands."""
    parser = add_command(commands, "jobs", _list)
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="list the jobs, the newest last")
    listing.add_argument("--all", action="store_true", help=f"also those that ended before the last {MAX_LISTED}")
    listing.add_argument("--json", action="store_true", help="write every job as JSON to stdout")
    logs = actions.add_parser("logs", help="print the log of a job")
    logs.add_argument("job_id", metavar="JOB", help=_JOB)
    logs.add_argument("-f", "--follow", action="store_true", help="continue until the job has ended")
    logs.add_argument("-n", "--lines", type=int, default=200, help="lines from its end (default: 200)")
    cancel = actions.add_parser("cancel", help="stop jobs; completed stages are kept")
    resume = actions.add_parser("resume", help="start ended jobs again; completed stages are reused")
    for action, command in ((listing, _list), (logs, _logs), (cancel, _cancel), (resume, _resume)):
        if action in (cancel, resume):
            action.add_argument("job_ids", metavar="JOB", nargs="+", help=_JOB)
        add_cache(action)
        action.set_defaults(command=command)


def add_devices(parser: Any) -> None:
    """Add the option that names the GPUs of the jobs that a command starts."""
    parser.add_argument(
        "--devices",
        nargs="+",
        default=[],
        metavar="GPU",
        help="as cuda:0 cuda:1: one study on each (default: GPRUNE_JOB_DEVICES)",
    )


def add_slurm(parser: Any) -> None:
    """Add the options that submit studies to Slurm."""
    parser.add_argument("--slurm", action="store_true", help="submit to Slurm: print the batch script, submit it, stop")
    parser.add_argument(
        "--sbatch",
        default="",
        metavar="OPTIONS",
        help='options of sbatch, as --sbatch="--partition=gpu --gpus=1 --time=8:00:00"',
    )


def submit_to_slurm(options: argparse.Namespace, studies: Sequence[Study], until: str) -> int:
    """Print the batch script of some studies and submit it; with `--dry-run` only print it.

    Raises JobError where Slurm refuses it.
    """
    from gprune.experiments.sweep import shared_stages
    from gprune.jobs import slurm
    from gprune.store import Store

    store = Store(options.cache)
    shared = shared_stages(studies, store, until)
    submission = slurm.submit_array(store.root, studies, until, shared, options.sbatch, dry_run=options.dry_run)
    say(submission.script, end="")
    if submission.job_ids:
        say(f"submitted as {' and '.join(submission.job_ids)}; logs: {submission.folder}", file=sys.stderr)
    return 0


def submit_command(options: argparse.Namespace) -> int:
    """Submit a command as it was typed, without `--detach`, as a job in the same folder."""
    from gprune import jobs
    from gprune.study import Study

    arguments = [word for word in sys.argv[1:] if word != "--detach"]
    say(format_job(jobs.submit(_cache(options), Study(*NO_STUDY), " ".join(arguments), arguments, cwd=os.getcwd())))
    return 0


def job_reporter(job: Path | None) -> Any:
    """Return the reporter of the job that a command is, as a context manager; it gives None for no job."""
    if job is None:
        return contextlib.nullcontext()
    from gprune.jobs import JobReporter

    return JobReporter(job)


def _cache(options: argparse.Namespace) -> Path:
    from gprune.store import Store, require_folder

    root = Store(getattr(options, "cache", None)).root
    require_folder(root)
    return root


def _list(options: argparse.Namespace) -> int:
    from gprune import jobs

    cache = _cache(options)
    jobs.reconcile(cache)
    listed = jobs.jobs(cache)
    if options.json:
        say(json.dumps([_to_json(job) for job in listed], indent=2, default=str))
        return 0
    ended = [job for job in listed if not job.active]
    omitted = [] if options.all else ended[MAX_LISTED:]
    for job in reversed([job for job in listed if job not in omitted]):
        say(format_job(job))
    if omitted:
        say(f"{len(omitted)} jobs that ended earlier are not listed: --all lists them", file=sys.stderr)
    if not listed:
        say(f"no jobs in {cache}: start one with `run demo --detach`", file=sys.stderr)
    return 0


def _logs(options: argparse.Namespace) -> int:
    from gprune import jobs

    require(options.lines >= 0, "--lines", options.lines, "0 or more")
    cache = _cache(options)
    job = _find_job(cache, options.job_id)
    log = job.folder / jobs.LOG
    # what is printed from here on is printed once: by the follower
    start = log.stat().st_size if log.exists() else 0
    for line in jobs.log_tail(cache, job.id, options.lines):
        say(line)
    if options.follow:
        sys.stdout.flush()
        for text in _follow(log, start, lambda: _is_active(cache, job.id)):
            say(text, end="", flush=True)
    job = jobs.get(cache, job.id)
    if not job.active:
        say(format_job(job), file=sys.stderr)
    return 0


def _is_active(cache: Path, job_id: str) -> bool:
    from gprune import jobs

    # also ends a job whose process is gone
    jobs.reconcile(cache)
    return jobs.get(cache, job_id).active


def _cancel(options: argparse.Namespace) -> int:
    from gprune import jobs

    cache = _cache(options)
    for job in [_find_job(cache, job_id) for job_id in options.job_ids]:
        say(format_job(jobs.cancel(cache, job.id)))
    return 0


def _resume(options: argparse.Namespace) -> int:
    from gprune import jobs

    cache = _cache(options)
    for job in [_find_job(cache, job_id) for job_id in options.job_ids]:
        if job.state == "done":
            raise JobError(f"job {job.id} is done: there is nothing to resume")
        say(format_job(jobs.resume(cache, job.id)))
    return 0


def _find_job(cache: Path, name: str) -> Job:
    """Return the job with this id or part of an id; JobError where none or several match."""
    from gprune import jobs

    listed = jobs.jobs(cache)
    if name == "last":
        if not listed:
            raise JobError(f"no jobs in {cache}, so none is the last: start one with `run demo --detach`")
        return listed[0]
    matches = [job for job in listed if job.id.startswith(name) or job.id.endswith(name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise JobError(f"{len(matches)} jobs begin or end with {name[:80]!r}: type more of the id")
    # raises the error that says what is wrong with the id
    return jobs.get(cache, name)


def format_job(job: Job) -> str:
    """Return one job as one line."""
    from gprune import jobs
    from gprune.system.units import duration

    words = [f"{job.id}  {job.state:<11}"]
    if job.position is not None:
        words.append(f"place {job.position}")
    if job.elapsed is not None:
        words.append(duration(job.elapsed, 1))
    if job.state in ("running", "cancelling"):
        progress = jobs.progress(job.folder.parents[1], job.id)
        words.append(f"{progress.stage} {progress.done}/{progress.total}" if progress.total else progress.stage)
        words.append(progress.waits)
    words += [f"on {job.device}" if job.device else "", job.label]
    words.append(job.run if job.state == "done" else job.error)
    return "  ".join(word for word in words if word)


def _to_json(job: Job) -> dict[str, Any]:
    names = "id label state position device created started ended error run"
    return {name: getattr(job, name) for name in names.split()} | {"folder": str(job.folder)}


def _follow(log: Path, start: int, is_active: Callable[[], bool]) -> Iterator[str]:
    """Yield what is added to a log, until the job has ended and everything was read."""
    from gprune.jobs.folder import printable

    rest = b""
    while True:
        # asked before reading: what a job writes before it ends is read afterwards
        goes_on = is_active()
        with contextlib.suppress(OSError), open(log, "rb") as file:
            file.seek(start)
            rest += file.read()
            start = file.tell()
        *lines, rest = rest.split(b"\n")
        if not goes_on and rest:
            lines.append(rest)
        for line in lines:
            yield printable(line.decode("utf-8", errors="replace").rpartition("\r")[2]) + "\n"
        if not goes_on:
            return
        time.sleep(FOLLOW_SECONDS)
