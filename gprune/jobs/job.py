"""One job: what it runs, what it is called and where it stands, read from and written to its folder."""

import hashlib
import json
import secrets
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

from gprune.jobs import folder as files
from gprune.jobs.device_slots import CPU, model_gpus
from gprune.jobs.local import CommandBuilder, exports, times
from gprune.jobs.state import JobState, Seconds, Shown, one_line, read_state, write_state
from gprune.study import Study, run_name
from gprune.system.errors import JobError, SettingsError
from gprune.system.files import make_folder, write_text
from gprune.system.forms import Listed, LooseForm
from gprune.system.network_files import move


@dataclass(frozen=True, slots=True)
class _Record(LooseForm):
    """What is kept of a job from its beginning, see Job; the last four are missing in earlier versions."""

    WHAT: ClassVar = "it"
    label: Shown
    created: Seconds
    command: Listed[Shown]
    arguments: Listed[Shown]
    fingerprint: Shown
    device: Shown = "auto"
    run: Shown = ""
    number: int = 0
    timed: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """One job as it stands at the moment of asking; times are seconds since 1970."""

    id: str
    """date, time and eight digits, unique in the cache"""
    folder: Path
    """where its files are"""
    label: str
    """what to call it on the pages"""
    created: float
    """when it was submitted"""
    command: tuple[str, ...]
    """argument list of the run"""
    arguments: tuple[str, ...]
    """what was added to the usual command"""
    fingerprint: str
    """hash of the study and the arguments: equal for jobs that do the same"""
    number: int
    """larger than those of all jobs before it, whatever the clock says; 0 in earlier versions"""
    state: str
    """queued, running, cancelling, cancelled, interrupted, failed or done"""
    pid: int | None
    """process of the run, once it has one"""
    started: float | None
    """when it left the queue"""
    ended: float | None
    """when it was done, failed, cancelled or interrupted"""
    error: str
    """one sentence if it failed"""
    run_id: str
    """name of the result in the cache, once done"""
    summary: dict[str, Any]
    """a few plain values of the result, once done"""
    position: int | None = None
    """place in the queue from 1; None unless queued on this machine"""
    asks: str = "auto"
    """device that it asks for, as a study does"""
    timed: bool = False
    """whether it measures speed, and shares its device with nothing"""
    device: str = ""
    """GPU that the queue has given it, or several with blanks between them; empty where the queue has none to
    give, and before it has left it"""
    killed: bool = False
    """whether it failed because its process was killed: what it was to do can be gone on with"""
    run: str = ""
    """name of the run that it computes or takes; empty in earlier versions, whose study says it"""

    @property
    def exports(self) -> bool:
        """Whether it makes something of a finished run, as another form of its model, and computes no run."""
        return exports(self.arguments)

    @property
    def gpus(self) -> int:
        """How many GPUs it computes on, where it computes on any."""
        return 1 if self.exports else model_gpus(self.arguments)

    @property
    def active(self) -> bool:
        """Whether something is still to happen."""
        return self.state in ("queued", "running", "cancelling")

    @property
    def elapsed(self) -> float | None:
        """Seconds since it left the queue; None while it waits."""
        if self.started is None:
            return None
        return max(0.0, (self.ended if self.ended is not None else time.time()) - self.started)


def fingerprint(study: Study, arguments: Sequence[str]) -> str:
    """SHA-256 of what decides the outcome of a job; the study's display name does not."""
    content = [study.digest, list(arguments)]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def measures_speed(study: Study, until: str = "all") -> bool:
    """Whether a run of a study, as far as `until`, measures speed, and nothing may run beside it."""
    return study.evaluation.speed != "none" and until in ("perplexity", "all")


def _asked(study: Study, arguments: Sequence[str]) -> str:
    """The device that a job computes on; one that measures models by name says it as its command does."""
    if not times(arguments):
        return CPU if exports(arguments) else study.device
    told = dict(pairwise(arguments))
    return told.get("--device") or (CPU if told.get("--preset") == "cpu" else study.device)


def create(
    home: Path,
    study: Study,
    label: str,
    arguments: Sequence[str],
    build: CommandBuilder,
    number: int = 0,
) -> Job:
    """Writes the folder of a new job under another name and renames it: no reader sees half a job.

    `label` is by default the study's name, or else what it prunes; `build` makes the argument list from the
    job's folder and the arguments; `number` is larger than those of all jobs before it. Raises JobError where
    the folder cannot be written.
    """
    now, nonce, digest = time.time(), secrets.token_hex(8), fingerprint(study, arguments)
    digits = hashlib.sha256(f"{digest} {nonce}".encode()).hexdigest()[:8]
    folder = home / (time.strftime("%Y%m%d-%H%M%S", time.gmtime(now)) + f"-{digits}")
    until = next((after for word, after in pairwise(arguments) if word == "--until"), "all")
    record = {
        "id": folder.name,
        "created": now,
        "label": one_line(label or study.name or f"{Path(study.model).name} {study.metric} {study.retention:g}"),
        "command": build(folder, arguments),
        "arguments": list(arguments),
        "fingerprint": digest,
        "nonce": nonce,
        "number": number,
        "device": _asked(study, arguments),
        # so that whoever looks for the jobs of a run need not read the study of every job
        "run": run_name(study),
        "timed": times(arguments) or (not exports(arguments) and measures_speed(study, until)),
    }
    draft = home / f".new-{nonce}"
    try:
        _write(draft, study, record)
        move(draft, folder)
    except OSError as error:
        raise files.unwritable(home, error) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return read_job(folder)


def _write(folder: Path, study: Study, record: dict[str, Any]) -> None:
    make_folder(folder)
    write_text(folder / files.STUDY, study.to_json())
    files.write_json(folder / files.JOB, record)
    write_state(folder, JobState())
    # made now, so that taking the lock on a full disk needs no new file
    (folder / files.LOCK).touch(mode=0o600)


def read_job(folder: Path) -> Job:
    """Reads one job; its place in the queue is left open. JobError where the record is missing or damaged."""
    state = read_state(folder)
    try:
        kept = _Record.parse(files.read_json(folder / files.JOB) or {})
    except SettingsError as error:
        reason = f"its {files.JOB} is missing or damaged ({error})"
        raise JobError(f"job {folder.name} cannot be read, {reason}: submit its study anew") from error
    return Job(
        id=folder.name,
        folder=folder,
        label=one_line(kept.label),
        created=float(kept.created),
        command=kept.command,
        arguments=kept.arguments,
        fingerprint=kept.fingerprint,
        number=kept.number,
        state=state.state,
        pid=state.pid,
        started=state.started,
        ended=state.ended,
        error=state.error,
        run_id=state.run_id,
        summary=state.summary,
        asks=kept.device,
        timed=kept.timed,
        device=state.device,
        killed=state.state == "failed" and state.killed,
        run=kept.run,
    )
