"""Slurm's own commands: run without a shell, with a time limit, and read so that odd output does no harm."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gprune.system import safe_parsing
from gprune.system.errors import JobError

ANSWER_SECONDS = 15.0
SUBMIT_SECONDS = 60.0
MOST_BYTES = 8 * 2**20
MOST_NAMED = 200
"""numbers of jobs in one command line"""
_NUMBER = re.compile(r"(\d{1,12})(;[\w.-]{1,100})?", re.ASCII)
_UNKNOWN = re.compile(r"invalid job id", re.I)
_FORMAT = "%F|%K|%T|%r"
_ENTRY = re.compile(r"(?:^|\s)([A-Za-z][\w:/-]*)=")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command said."""

    code: int
    """exit code"""
    out: str
    """standard output, at most MOST_BYTES"""
    said: str
    """standard error as one line"""


@dataclass(frozen=True, slots=True)
class QueueState:
    """Where one job of an array stands."""

    state: str
    """Slurm's word, as PENDING"""
    reason: str
    """Slurm's reason, as Resources; empty if none"""


def available() -> bool:
    """Whether jobs can be put into Slurm from this machine."""
    return shutil.which("sbatch") is not None


def ask(command: Sequence[str], *, seconds: float = ANSWER_SECONDS, text: str = "") -> Answer:
    """Runs one of Slurm's commands; JobError where there is no such command, or no answer in time."""
    name = command[0]
    # a file holds whatever is said without a pipe that fills; only its beginning is read
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as complaints:
        try:
            done = subprocess.run(
                list(command),
                input=text.encode(),
                stdout=out,
                stderr=complaints,
                timeout=seconds,
                check=False,
            )
        except FileNotFoundError:
            raise JobError(
                f"this machine has no Slurm client (no {name} on PATH): submit from a cluster's login node"
            ) from None
        except subprocess.TimeoutExpired:
            raise JobError(f"Slurm did not answer {name} within {seconds:g} seconds: try again later") from None
        except OSError as error:
            raise JobError(f"{name} cannot be started: {error.strerror or error}") from error
        found = []
        for file in (out, complaints):
            file.seek(0)
            found.append(file.read(MOST_BYTES).decode("utf-8", errors="replace"))
    return Answer(done.returncode, found[0], safe_parsing.sentence(found[1]))


def submit(arguments: Sequence[str], script: str) -> str:
    """Puts a batch script into Slurm, and returns its number.

    Raises JobError, which says why, where there is no Slurm client, or Slurm refuses the job.
    """
    answer = ask(arguments, seconds=SUBMIT_SECONDS, text=script)
    found = _NUMBER.fullmatch(answer.out.strip())
    if answer.code != 0:
        raise JobError(refusal(answer.said))
    if found is None:
        raise JobError(
            f"sbatch answered {safe_parsing.quoted(answer.out.strip())} in place of a job's number: see `squeue`"
        )
    return found[1]


_REFUSALS = (
    (re.compile(r"invalid partition", re.I),
     "there is no such partition: `sinfo` lists them, and `partition` names one"),
    (re.compile(r"invalid account", re.I),
     "this account may not be used here: correct `account`"),
    (re.compile(r"invalid qos", re.I),
     "this quality of service may not be used: correct --qos in `options`"),
    (re.compile(r"time limit", re.I),
     "it asks for more time than the partition allows: make `time` shorter"),
    (re.compile(r"submit limit|job violates|limit for user|quota", re.I),
     "a limit on your jobs is reached: wait until some have ended, or submit fewer"),
    (re.compile(r"node configuration is not available|more processors|memory specification|gres", re.I),
     "no node of the partition has what is asked for: lower `gpus`, `cpus` or `memory`"),
    (re.compile(r"invalid job array", re.I),
     "the array is too long for this cluster: submit fewer studies at a time"),
    (re.compile(r"unable to contact|connect failure|configuration source|socket", re.I),
     "Slurm's controller cannot be reached from this machine: submit from a login node, or try again later"),
    (re.compile(r"unrecognized option|invalid option", re.I),
     "sbatch does not know an option: correct `options`"),
)  # fmt: skip


def refusal(said: str) -> str:
    """One sentence for a job that sbatch did not take."""
    words = safe_parsing.sentence(said.replace("sbatch: error: ", "").replace("sbatch: ", ""), 140)
    for pattern, meaning in _REFUSALS:
        if pattern.search(said):
            return f"Slurm refused the job, {meaning} (it said: {words})"
    return f"Slurm refused the job (it said: {words or 'nothing'}): see the Slurm settings"


def standings(arrays: Iterable[str]) -> dict[tuple[str, int], QueueState]:
    """Where the jobs of some arrays stand, those that have just ended included, by array and place.

    Raises JobError where Slurm cannot be asked.
    """
    found: dict[tuple[str, int], QueueState] = {}
    names = sorted({name for name in arrays if _NUMBER.fullmatch(name)})
    for first in range(0, len(names), MOST_NAMED):
        some = ",".join(names[first : first + MOST_NAMED])
        answer = ask(["squeue", "-h", "-r", "--states=all", f"--jobs={some}", "-o", _FORMAT])
        if answer.code != 0 and not _UNKNOWN.search(answer.said):
            words = safe_parsing.sentence(answer.said or "squeue failed", 100)
            raise JobError(f"Slurm does not say where its jobs stand ({words})")
        found |= read_standings(answer.out)
    return found


def read_standings(text: str) -> dict[tuple[str, int], QueueState]:
    """What squeue listed; lines of another form are passed over."""
    found = {}
    for line in text.splitlines():
        words = line.strip().split("|", 3)
        if len(words) == 4 and words[0].isdecimal() and words[1].isdecimal() and len(words[1]) < 9:
            reason = safe_parsing.sentence(words[3].strip("()"), 120)
            state = re.sub(r"[^A-Z_]", "", words[2])[:40]
            found[words[0], int(words[1])] = QueueState(state, "" if reason == "None" else reason)
    return found


def details(array: str, task: int) -> dict[str, str]:
    """What `scontrol show job` says of one job; empty where Slurm does not know it, or does not answer."""
    try:
        answer = ask(["scontrol", "show", "job", "--oneliner", f"{array}_{task}"])
    except JobError:
        return {}
    return read_details(answer.out) if answer.code == 0 else {}


def read_details(text: str) -> dict[str, str]:
    """The entries of the first line of `scontrol show job --oneliner`; values may hold spaces."""
    line = next((line for line in text.splitlines() if line.startswith("JobId=")), "")
    places = list(_ENTRY.finditer(line))
    ends = [*[place.start() for place in places], len(line)][1:]
    return {
        place[1]: safe_parsing.sentence(line[place.end() : end], 200) for place, end in zip(places, ends, strict=True)
    }


def cancel(array: str, task: int | None = None) -> None:
    """Has Slurm stop one job of an array, or the whole array; what has ended is left alone.

    Raises JobError where Slurm was not told.
    """
    name = array if task is None else f"{array}_{task}"
    answer = ask(["scancel", name])
    if answer.code != 0 and not _UNKNOWN.search(answer.said) and "already" not in answer.said:
        raise JobError(f"Slurm was not told to stop {name}: {answer.said or 'scancel failed'}")
