"""Puts studies into Slurm, one array for all of them, and stops them there."""

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gprune.jobs import folder as files
from gprune.jobs.job import Job, create, fingerprint
from gprune.jobs.local import worker_command
from gprune.jobs.slurm import batch, client
from gprune.jobs.slurm.record import Record, read_record, write_record
from gprune.jobs.slurm.settings import SlurmSettings, from_dict
from gprune.study import Study
from gprune.system.errors import JobError, SettingsError
from gprune.system.files import discard, make_folder

MOST_AT_ONCE = 1000
"""studies in one array: the usual limit of a cluster is 1001"""


@dataclass(frozen=True, slots=True)
class StudyJob:
    """One study to be run."""

    study: Study
    """what to run"""
    label: str = ""
    """what to call the job; the study's name by default"""
    arguments: tuple[str, ...] = ()
    """further arguments of the command line"""


def submit(
    home: Path,
    studies: Sequence[StudyJob],
    settings: SlurmSettings,
    known: Sequence[Job],
    *,
    exclusive: bool = False,
) -> list[str]:
    """Puts studies into Slurm and gives their jobs' ids; callers hold the lock of the jobs folder.

    One that is `known`, does the same and has not ended is taken. If `exclusive`, no other job may share the
    node. Raises JobError where there is no Slurm client, or Slurm refuses the jobs; then none of them is
    there.
    """
    if len(studies) > MOST_AT_ONCE:
        raise JobError(f"{len(studies)} studies are too many for one array: submit {MOST_AT_ONCE} at a time")
    open_jobs = {job.fingerprint: job.id for job in known if job.active and job.state != "cancelling"}
    number, ids, made = max((job.number for job in known), default=0), list[str](), list[Path]()
    try:
        for entry in studies:
            digest = fingerprint(entry.study, entry.arguments)
            if digest not in open_jobs:
                number += 1
                made.append(_make(home, entry, settings, number))
                open_jobs[digest] = made[-1].name
            ids.append(open_jobs[digest])
        if made:
            _hand_over(made, settings, exclusive)
    except BaseException:
        for folder in made:
            # one that stays reads as a job that never got into Slurm
            with contextlib.suppress(OSError):
                discard(folder)
        raise
    return ids


def _make(home: Path, entry: StudyJob, settings: SlurmSettings, number: int) -> Path:
    def build(folder: Path, arguments: Sequence[str]) -> list[str]:
        return [batch.python(settings), *worker_command(folder, arguments)[1:]]

    record = Record(made=time.time(), settings=settings.to_dict())
    return create(home, entry.study, entry.label, entry.arguments, build, number, record).folder


def _hand_over(folders: list[Path], settings: SlurmSettings, exclusive: bool) -> None:
    """Gives an array of jobs to sbatch; its script and what that says lie in the folder of the first."""
    first, text = folders[0], batch.script(folders, settings)
    # in the name of a file sbatch reads % as the beginning of a number
    output = str(first).replace("%", "%%") + "/slurm-%a.txt"
    with files.writable(first):
        make_folder(first)
        with open(os.open(first / batch.SCRIPT, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(text)
    words = batch.arguments(settings, "gprune", len(folders), output, exclusive=exclusive)
    array = client.submit(words, text)
    try:
        for task, folder in enumerate(folders):
            with files.locked(folder):
                # its node may have written before
                write_record(folder, replace(read_record(folder), array=array, task=task))
    except BaseException:
        # the folders go, and nobody could stop what runs in Slurm without one
        with contextlib.suppress(JobError):
            client.cancel(array)
        raise


def settings_of(folder: Path) -> SlurmSettings:
    """The Slurm settings that a job was submitted with; JobError where they cannot be read any more."""
    try:
        return from_dict(read_record(folder).settings)
    except SettingsError as error:
        raise JobError(f"the Slurm settings of job {folder.name} are not valid any more: {error}") from error


def stop(folder: Path) -> None:
    """Has Slurm stop a job whose cancellation is recorded in its folder.

    Raises JobError where Slurm was not told; the run sees the record when it looks, or when it starts.
    """
    record = read_record(folder)
    if not record.known:
        return
    try:
        client.cancel(record.array, record.task)
    except JobError as error:
        raise JobError(
            f"the cancellation of {folder.name} is recorded, the run stops when it next looks; {error}"
        ) from error
