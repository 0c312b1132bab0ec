"""A job's part in Slurm: its number, and what Slurm last said; a file in the job's folder."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from gprune.jobs import folder as files
from gprune.jobs.state import Seconds, Shown
from gprune.system.errors import SettingsError
from gprune.system.forms import NOT_NEGATIVE, LooseForm, Rule

WAITS = ("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD")
ENDS = (
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "LAUNCH_FAILED", "NODE_FAIL",
    "OUT_OF_MEMORY", "PREEMPTED", "RECONFIG_FAIL", "REVOKED", "TIMEOUT",
)  # fmt: skip
UNKNOWN = "UNKNOWN"
"""our word for a job that Slurm does not know any more"""

_REASONS = {
    "AssocGrpCpuLimit": "a limit of the account is reached",
    "BadConstraints": "no node is as the job wants it: cancel it and correct the Slurm settings",
    "BeginTime": "Slurm lets some time pass before it starts it again",
    "Dependency": "it waits for another job",
    "JobArrayTaskLimit": "as many of its array run as may run at once",
    "JobHeldAdmin": "an administrator holds it",
    "JobHeldUser": "it is held: `scontrol release` lets it go on",
    "launch_failed_requeued_held": "its start failed, Slurm holds it: see the node, then `scontrol release`",
    "NodeDown": "its node is down",
    "PartitionDown": "the partition takes no jobs now",
    "PartitionConfig": "it asks for more than the partition allows: cancel it and correct the Slurm settings",
    "PartitionInactive": "the partition takes no jobs now",
    "PartitionNodeLimit": "it asks for more than the partition has: cancel it and correct the Slurm settings",
    "PartitionTimeLimit": "it asks for more time than the partition allows: cancel it, make `time` less",
    "Priority": "other jobs come first",
    "QOSMaxJobsPerUserLimit": "as many of your jobs run as may",
    "Reservation": "it waits for its reservation",
    "Resources": "it waits for free nodes",
}


@dataclass(frozen=True, slots=True)
class Record(LooseForm):
    """A job's part in Slurm; times are seconds since 1970."""

    made: Seconds = 0.0
    """when it was handed to sbatch"""
    array: Annotated[Shown, Rule("a number", lambda value: not value or value.isdecimal())] = ""
    """Slurm's number of the array; empty until sbatch has answered"""
    task: Annotated[int, NOT_NEGATIVE] = 0
    """place in the array"""
    state: Shown = ""
    """what Slurm last said, as PENDING; UNKNOWN where it knows nothing"""
    reason: Shown = ""
    """Slurm's reason for that"""
    gone: Seconds | None = None
    """since when Slurm calls it ended, or does not know it"""
    problem: Shown = ""
    """why Slurm could not be asked; empty if it could"""
    settings: dict[str, Any] = field(default_factory=dict)
    """the Slurm settings that it was submitted with"""

    @property
    def name(self) -> str:
        """What Slurm calls the job."""
        return f"{self.array}_{self.task}" if self.array else ""

    @property
    def known(self) -> bool:
        """Whether Slurm, as far as is known, still has something to do for it."""
        return bool(self.array) and self.gone is None

    def note(self) -> str:
        """What Slurm does with the job, in words."""
        if self.problem:
            return self.problem
        if self.state == UNKNOWN:
            return "Slurm does not know it any more"
        if self.state in WAITS:
            return f"Slurm has it waiting: {in_words(self.reason)}" if self.reason else "Slurm has it waiting"
        return f"Slurm calls it {self.state.lower().replace('_', ' ')}" if self.state else ""


def in_words(reason: str) -> str:
    """A reason of Slurm's, in words where it is one of the usual ones."""
    key = reason.split(",")[0].strip().replace(" ", "_")
    if key in _REASONS:
        return _REASONS[key]
    limits = ("QOS", "Assoc", "MaxJobs")
    return f"a limit of the account or its quality of service ({reason})" if key.startswith(limits) else reason


def is_slurm(folder: Path) -> bool:
    """Whether a job is Slurm's, and nothing of this machine's queue may touch it."""
    return (folder / files.SLURM).exists()


def read_record(folder: Path) -> Record:
    """A job's part in Slurm; a damaged one reads as nothing known."""
    try:
        return Record.parse(files.read_json(folder / files.SLURM) or {})
    except SettingsError:
        return Record()


def write_record(folder: Path, record: Record) -> None:
    """Replaces a job's part in Slurm; callers hold the job's lock. JobError where it cannot be written."""
    with files.writable(folder):
        files.write_json(folder / files.SLURM, asdict(record))
