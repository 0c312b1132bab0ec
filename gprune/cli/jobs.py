"""`jobs list`, `jobs logs`, `jobs cancel`, `jobs resume`, and functions with which other commands submit jobs."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gprune import jobs
from gprune.cli import add_cache, add_command, say
from gprune.jobs import Job, JobReporter, slurm
from gprune.jobs.folder import printable
from gprune.store import Store, require_folder
from gprune.study import Study
from gprune.study.settings import require
from gprune.system.errors import JobError
from gprune.system.units import duration

FOLLOW_SECONDS = 0.5
"""polling interval of `jobs logs --follow`, in seconds"""
NO_STUDY = ("no model", "no text", "no text either")
"""placeholders for model and texts of a job that does not run a study"""
_JOB = "id of a job, or a unique beginning or end of it; `last` is the newest job"


def add(commands: Any) -> None:
    """Register the command and its subcommands."""
    parser = add_command(commands, "jobs", _list)
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="list the jobs, the newest last")
    listing.add_argument("--json", action="store_true", help="write every job as JSON to stdout")
    logs = actions.add_parser("logs", help="print the log of a job")
    logs.add_argument("job_id", metavar="JOB", help=_JOB)
    logs.add_argument("-f", "--follow", action="store_true", help="print new lines until the job has ended")
    logs.add_argument("-n", "--lines", type=int, default=200, help="number of its last lines to print (default: 200)")
    cancel = actions.add_parser("cancel", help="stop jobs; completed stages are kept")
    resume = actions.add_parser("resume", help="start ended jobs again; completed stages are reused")
    for action, command in ((listing, _list), (logs, _logs), (cancel, _cancel), (resume, _resume)):
        if action in (cancel, resume):
            action.add_argument("job_ids", metavar="JOB", nargs="+", help=_JOB)
        add_cache(action)
        action.set_defaults(command=command)


def add_slurm(parser: Any) -> None:
    """Add the options that submit studies to Slurm."""
    parser.add_argument("--slurm", action="store_true", help="print a batch script, submit it to Slurm, and exit")
    parser.add_argument(
        "--sbatch",
        default="",
        metavar="OPTIONS",
        help='options of sbatch, such as --sbatch="--partition=gpu --gpus=1 --time=8:00:00"',
    )


def submit_to_slurm(options: argparse.Namespace, studies: Sequence[Study], until: str) -> int:
    """Print the batch script of some studies and submit it; with `--dry-run` only print it. Return the exit code.

    Raises JobError if Slurm refuses it.
    """
    from gprune.experiments.sweep import shared_stages

    store = Store(options.cache)
    shared = shared_stages(studies, store, until)
    submission = slurm.submit_array(store.root, studies, until, shared, options.sbatch, dry_run=options.dry_run)
    say(submission.script, end="")
    if submission.job_ids:
        say(f"submitted as {' and '.join(submission.job_ids)}; logs: {submission.folder}", file=sys.stderr)
    return 0


def submit_command(options: argparse.Namespace) -> int:
    """Submit this command without `--detach` as a job in the same working directory; return the exit code."""
    arguments = [word for word in sys.argv[1:] if word != "--detach"]
    say(format_job(jobs.submit(_cache(options), Study(*NO_STUDY), " ".join(arguments), arguments, cwd=os.getcwd())))
    return 0


def job_reporter(job: Path | None) -> Any:
    """Return a context manager with the reporter of a job folder, or with None if the command is not a job."""
    if job is None:
        return contextlib.nullcontext()
    return JobReporter(job)


def _cache(options: argparse.Namespace) -> Path:
    root = Store(getattr(options, "cache", None)).root
    require_folder(root)
    return root


def _list(options: argparse.Namespace) -> int:
    cache = _cache(options)
    jobs.reconcile(cache)
    listed = jobs.jobs(cache)
    if options.json:
        say(json.dumps([_to_json(job) for job in listed], indent=2, default=str))
        return 0
    for job in reversed(listed):
        say(format_job(job))
    if not listed:
        say(f"no jobs in {cache}: start one with `run demo --detach`", file=sys.stderr)
    return 0


def _logs(options: argparse.Namespace) -> int:
    require(options.lines >= 0, "--lines", options.lines, "0 or more")
    cache = _cache(options)
    job = _find_job(cache, options.job_id)
    log = job.folder / jobs.LOG
    # lines that the job adds from here on are printed only by `_follow`
    start = log.stat().st_size if log.exists() else 0
    for line in jobs.log_tail(cache, job.id, options.lines):
        say(line)
    if options.follow:
        sys.stdout.flush()
        _follow(log, start, lambda: _is_active(cache, job.id))
    job = jobs.get(cache, job.id)
    if not job.active:
        say(format_job(job), file=sys.stderr)
    return 0


def _is_active(cache: Path, job_id: str) -> bool:
    # marks jobs without a process as ended
    jobs.reconcile(cache)
    return jobs.get(cache, job_id).active


def _cancel(options: argparse.Namespace) -> int:
    cache = _cache(options)
    for job in [_find_job(cache, job_id) for job_id in options.job_ids]:
        say(format_job(jobs.cancel(cache, job.id)))
    return 0


def _resume(options: argparse.Namespace) -> int:
    cache = _cache(options)
    for job in [_find_job(cache, job_id) for job_id in options.job_ids]:
        if job.state == "done":
            raise JobError(f"job {job.id} is done: there is nothing to resume")
        say(format_job(jobs.resume(cache, job.id)))
    return 0


def _find_job(cache: Path, name: str) -> Job:
    """Return the job whose id is `name`, or begins or ends with it; `last` is the newest job.

    Raises JobError if none or several match.
    """
    listed = jobs.jobs(cache)
    matches = [job for job in listed if job.id.startswith(name) or job.id.endswith(name)]
    if name == "last":
        matches = listed[:1]
    if len(matches) != 1:
        raise JobError(
            f"{len(matches)} jobs match {name[:80]!r}: give an id of `jobs list`, or a unique beginning or end of it"
        )
    return matches[0]


def format_job(job: Job) -> str:
    """Return a job as one line of text."""
    parts = [f"{job.id}  {job.state:<11}"]
    if job.position is not None:
        parts.append(f"place {job.position}")
    if job.elapsed is not None:
        parts.append(duration(job.elapsed, 1))
    if job.state in ("running", "cancelling"):
        progress = jobs.progress(job.folder.parents[1], job.id)
        parts.append(f"{progress.stage} {progress.done}/{progress.total}" if progress.total else progress.stage)
        parts.append(progress.waits)
    parts += [f"on {job.device}" if job.device else "", job.label]
    parts.append(job.run if job.state == "done" else job.error)
    return "  ".join(filter(None, parts))


def _to_json(job: Job) -> dict[str, Any]:
    names = "id label state position device created started ended error run"
    return {name: getattr(job, name) for name in names.split()} | {"folder": str(job.folder)}


def _follow(log: Path, position: int, is_active: Callable[[], bool]) -> None:
    """Print the lines that are added to a log after `position` until the job has ended."""
    # `unfinished` is the beginning of a line whose end the job has not written yet
    unfinished, active = "", True
    while active:
        # checked before reading, so that everything the job writes before its end is read
        active = is_active()
        # a queued job has no log yet
        if log.exists():
            with open(log, encoding="utf-8", errors="replace", newline="\n") as file:
                file.seek(position)
                unfinished += file.read()
                position = file.tell()
        *lines, unfinished = unfinished.split("\n")
        for line in lines if active or not unfinished else [*lines, unfinished]:
            # of a progress bar, only its last state is printed
            say(printable(line.rpartition("\r")[2]), flush=True)
        time.sleep(FOLLOW_SECONDS if active else 0)
