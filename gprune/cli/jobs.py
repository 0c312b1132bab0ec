"""`submit`, `jobs`, `logs`, `cancel` and `resume`: the queue of the page Runs & export, from a terminal.

They read and write the folders that the app does, so a job that one of them starts is followed by the other.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gprune.cli import add_cache, paths, registered, say
from gprune.study.settings import require
from gprune.system.errors import JobError

if TYPE_CHECKING:
    from gprune.jobs import Job
    from gprune.study import Study

LOOK_SECONDS = 0.5
"""how often a log that is followed is looked at"""
LISTED = 20
"""jobs that have ended and are listed without being asked for"""
_JOB = "id of a job, or as much of its beginning or end as no other job has; `last` for the newest"
_PIECE = 1 << 16


def add(commands: Any) -> None:
    """Registers the five commands."""
    submit = registered(commands, "submit", _submit)
    submit.add_argument("studies", metavar="STUDY", nargs="+", help="a study's JSON file, or demo")
    submit.add_argument("--label", default="", help="what to call the job; the study's name by default")
    submit.add_argument("--model-gpus", type=int, metavar="N", help="as for `run`")
    listing = registered(commands, "jobs", _jobs)
    listing.add_argument("--all", action="store_true", help=f"also those that ended before the last {LISTED}")
    listing.add_argument("--json", action="store_true", help="write every job as JSON to stdout")
    logs = registered(commands, "logs", _logs)
    logs.add_argument("job", metavar="JOB", help=_JOB)
    logs.add_argument("-f", "--follow", action="store_true", help="go on until the job has ended")
    logs.add_argument("-n", "--lines", type=int, default=200, help="lines from its end (default: 200)")
    for name, command in (("cancel", _cancel), ("resume", _resume)):
        parser = registered(commands, name, command)
        parser.add_argument("jobs", metavar="JOB", nargs="+", help=_JOB)
        add_cache(parser)
    for parser in (submit, listing, logs):
        add_cache(parser)


def add_devices(parser: Any) -> None:
    """Adds the option that names the GPUs of the jobs that a command starts."""
    parser.add_argument(
        "--devices",
        nargs="+",
        default=[],
        metavar="GPU",
        help="as cuda:0 cuda:1: one study on each (default: GPRUNE_JOB_DEVICES)",
    )


def add_slurm(parser: Any) -> None:
    """Adds the options that submit studies to Slurm."""
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
    from gprune.experiments.sweep.running import shared_stages
    from gprune.jobs import slurm
    from gprune.store import Store

    store = Store(options.cache)
    shared = shared_stages(studies, store, until)
    submission = slurm.submit(store.root, studies, until, shared, options.sbatch, dry_run=options.dry_run)
    say(submission.script, end="")
    if submission.job_ids:
        say(f"submitted as {' and '.join(submission.job_ids)}; logs: {submission.folder}", file=sys.stderr)
    return 0


def _cache(options: argparse.Namespace) -> Path:
    from gprune.store import Store, require_folder

    root = Store(options.cache).root
    require_folder(root)
    return root


def _submit(options: argparse.Namespace) -> int:
    from gprune import jobs
    from gprune.study.demo import named

    cache, studies = _cache(options), [paths.study(named(name, pipe=True)) for name in options.studies]
    # all are read before the first one starts
    arguments = _for_run(options, studies)
    for study in studies:
        say(job_line(jobs.submit(cache, study, options.label, arguments)))
    return 0


def _for_run(options: argparse.Namespace, studies: list[Study]) -> tuple[str, ...]:
    """The options of `run` that a submission was given; SettingsError where they cannot be followed."""
    if options.model_gpus is None:
        return ()
    from gprune.study.model_gpus import require_possible

    for study in studies:
        require_possible(options.model_gpus, study, None)
    return "--model-gpus", str(options.model_gpus)


def _jobs(options: argparse.Namespace) -> int:
    from gprune import jobs

    cache = _cache(options)
    # whoever looks keeps the queue going, as the app does
    jobs.reconcile(cache)
    found = jobs.jobs(cache)
    ended = [job for job in found if not job.active]
    left_out = [] if options.all or options.json else ended[LISTED:]
    if options.json:
        say(json.dumps([_plain(job) for job in found], indent=2, default=str))
        return 0
    for job in reversed([job for job in found if job not in left_out]):
        say(job_line(job))
    if left_out:
        say(f"{len(left_out)} jobs that ended earlier are not listed: --all lists them", file=sys.stderr)
    if not found:
        say(f"no jobs in {cache}: start one with `submit demo`", file=sys.stderr)
    return 0


def _logs(options: argparse.Namespace) -> int:
    from gprune import jobs

    require(options.lines >= 0, "--lines", options.lines, "0 or more")
    cache, job = _cache(options), _found(_cache(options), options.job)
    log = job.folder / jobs.LOG
    # what is printed meanwhile comes once: the lines end where the following begins
    start = _size(log)
    for line in jobs.log_tail(cache, job.id, options.lines):
        say(line)
    if options.follow:
        sys.stdout.flush()
        for text in _followed(log, start, lambda: jobs.get(cache, job.id).active):
            say(text, end="", flush=True)
    job = jobs.get(cache, job.id)
    if not job.active:
        say(job_line(job), file=sys.stderr)
    return 0


def _cancel(options: argparse.Namespace) -> int:
    from gprune import jobs

    cache = _cache(options)
    for job in [_found(cache, name) for name in options.jobs]:
        say(job_line(jobs.cancel(cache, job.id)))
    return 0


def _resume(options: argparse.Namespace) -> int:
    from gprune import jobs

    cache = _cache(options)
    for job in [_found(cache, name) for name in options.jobs]:
        if job.state == "done":
            raise JobError(f"job {job.id} is done: there is nothing to go on with")
        say(job_line(jobs.resume(cache, job.id)))
    return 0


def _found(cache: Path, name: str) -> Job:
    """The job that is meant; JobError where none has that id, or several begin or end so."""
    from gprune import jobs

    known = jobs.jobs(cache)
    if name == "last":
        if not known:
            raise JobError(f"no jobs in {cache}, so that none is the last: start one with `submit demo`")
        return known[0]
    fitting = [job for job in known if job.id.startswith(name) or job.id.endswith(name)]
    exact = [job for job in fitting if job.id == name]
    if len(exact or fitting) == 1:
        return (exact or fitting)[0]
    if fitting:
        raise JobError(f"{len(fitting)} jobs begin or end with {name[:80]!r}: type more of the id")
    # says what is wrong with it
    return jobs.get(cache, name)


def job_line(job: Job) -> str:
    """One job in one line."""
    from gprune import jobs
    from gprune.system.units import duration

    words = [f"{job.id}  {job.state:<11}"]
    if job.position is not None:
        words.append(f"place {job.position}")
    if job.elapsed is not None:
        words.append(duration(job.elapsed, 1))
    if job.state in ("running", "cancelling"):
        now = jobs.progress(job.folder.parents[1], job.id)
        words.append(f"{now.stage} {now.done}/{now.total}" if now.total else now.stage)
        words.append(now.waits)
    words += [f"on {job.device}" if job.device else "", job.label, job.error or job.run_id]
    return "  ".join(word for word in words if word)


def _plain(job: Job) -> dict[str, Any]:
    """A job for programs; times are seconds since 1970."""
    names = "id label state position device created started ended error run_id summary"
    return {name: getattr(job, name) for name in names.split()} | {"folder": str(job.folder)}


def _size(log: Path) -> int:
    try:
        return log.stat().st_size
    except OSError:
        return 0


def _followed(log: Path, start: int, active: Callable[[], bool]) -> Iterator[str]:
    """What is added to a log, until the job has ended and all of it was given."""
    from gprune.jobs.folder import printable

    held = b""
    while True:
        # asked first: what a job writes before it ends is read afterwards
        goes_on = active()
        while piece := _read(log, start):
            start += len(piece)
            *lines, held = (held + piece).split(b"\n")
            for line in lines:
                yield printable(line.decode("utf-8", errors="replace").rpartition("\r")[2]) + "\n"
        if not goes_on:
            break
        time.sleep(LOOK_SECONDS)
    if held:
        yield printable(held.decode("utf-8", errors="replace").rpartition("\r")[2]) + "\n"


def _read(log: Path, start: int) -> bytes:
    try:
        with open(log, "rb") as file:
            file.seek(start)
            return file.read(_PIECE)
    except OSError:
        return b""
