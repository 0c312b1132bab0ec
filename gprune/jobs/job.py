"""One job: what it runs, its name and its state, read from and written to its folder."""

import hashlib
import json
import secrets
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

from gprune.jobs import folder as files
from gprune.jobs.device_slots import CPU, NO_DEVICE
from gprune.jobs.local import SERIES, CommandBuilder, is_other_command, is_speed_command
from gprune.jobs.state import JobState, read_state, write_state
from gprune.study import Study, run_name
from gprune.system.errors import JobError, SettingsError
from gprune.system.files import make_folder, write_json, write_text
from gprune.system.forms import Listed, LooseForm
from gprune.system.safe_parsing import sentence


@dataclass(frozen=True, kw_only=True)
class JobRecord(LooseForm):
    """The fixed facts of a job in ``job.json``; times are seconds since 1970."""

    WHAT: ClassVar = "it"
    label: str
    created: float
    command: Listed[str]
    """Argument list of the process."""
    arguments: Listed[str]
    """What was added to the usual command."""
    fingerprint: str
    """Hash of the study and the arguments: equal for jobs that do the same."""
    asks: str = "auto"
    """Device that it asks for, as in a study."""
    timed: bool = False
    """True if it measures speed."""
    run: str = ""
    """Name of the run that it computes or reads."""
    cwd: str = ""
    """Folder in which its command was typed; empty for the usual one."""


@dataclass(frozen=True, kw_only=True)
class Job(JobRecord, JobState):
    """One job: its record and its state."""

    id: str
    folder: Path
    position: int | None = None
    """Place in the queue from 1; None unless queued."""

    @property
    def exports(self) -> bool:
        """Return True if it makes no run."""
        return is_other_command(self.arguments)

    @property
    def active(self) -> bool:
        """Return True if it waits or runs."""
        return not self.finished

    @property
    def elapsed(self) -> float | None:
        """Return the seconds since it left the queue; None while it waits."""
        return self.elapsed_at(time.time())


def fingerprint(study: Study, arguments: Sequence[str], cwd: str = "") -> str:
    """Return the SHA-256 of what decides the outcome of a job; the study's display name does not."""
    return hashlib.sha256(json.dumps([study.digest, list(arguments), cwd]).encode()).hexdigest()


def measures_speed(study: Study, until: str = "all") -> bool:
    """Return True if a run of a study, as far as `until`, measures speed."""
    return study.evaluation.speed != "none" and until in ("perplexity", "all")


def _requested_device(study: Study, arguments: Sequence[str]) -> str:
    if arguments and arguments[0] in SERIES:
        return NO_DEVICE
    if not is_speed_command(arguments):
        return CPU if is_other_command(arguments) else study.device
    # `--device=cpu` is `--device cpu`
    options = dict(pairwise(part for word in arguments for part in word.split("=", 1)))
    return options.get("--device") or (CPU if options.get("--preset") == "cpu" else study.device)


def create(home: Path, study: Study, label: str, arguments: Sequence[str], build: CommandBuilder, cwd: str = "") -> Job:
    """Write the folder of a new job under another name and rename it. Raises JobError if it cannot be written.

    `label` is by default the study's name; `build` makes the argument list from the job's folder and the arguments.
    """
    created, nonce, digest = time.time(), secrets.token_hex(8), fingerprint(study, arguments, cwd)
    folder = home / (time.strftime("%Y%m%d-%H%M%S", time.gmtime(created)) + f"-{nonce[:8]}")
    until = next((value for option, value in pairwise(arguments) if option == "--until"), "all")
    record = {
        "id": folder.name,
        "created": created,
        "label": sentence(label or study.name or f"{Path(study.model).name} {study.metric} {study.retention:g}"),
        "command": build(folder, arguments),
        "arguments": list(arguments),
        "fingerprint": digest,
        "asks": _requested_device(study, arguments),
        # so that readers need not open the study of every job
        "run": run_name(study),
        "timed": is_speed_command(arguments) or (not is_other_command(arguments) and measures_speed(study, until)),
        "cwd": cwd,
    }
    draft = home / f".new-{nonce}"
    try:
        with files.writable(home):
            make_folder(draft)
            write_text(draft / files.STUDY, study.to_json())
            write_json(draft / files.JOB, record)
            write_state(draft, JobState())
            draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return read_job(folder)


def read_job(folder: Path) -> Job:
    """Return one job, without its place in the queue. Raises JobError if its record is missing or damaged."""
    try:
        record = JobRecord.parse(files.read_json(folder / files.JOB) or {})
    except SettingsError as error:
        reason = f"its {files.JOB} is missing or damaged ({error})"
        raise JobError(f"job {folder.name} cannot be read, {reason}: submit its study anew") from error
    return Job(id=folder.name, folder=folder, **vars(record), **vars(read_state(folder)))
