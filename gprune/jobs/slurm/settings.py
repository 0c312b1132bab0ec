"""What a cluster wants to be told: partition, account, time, memory, devices, and how Python starts there."""

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from gprune.system import safe_parsing
from gprune.system.errors import JobError, SettingsError
from gprune.system.forms import Form, Listed, Rule, between, checked, shorter

FILE = "slurm-settings.json"
MOST_OPTIONS = 50
_WORD = re.compile(r"[\w.,:=@%+/\[\]-]{1,200}", re.ASCII)
_TIME = re.compile(r"\d{1,6}|\d{1,4}:\d{2}(:\d{2})?|\d{1,3}-\d{1,2}(:\d{2}){0,2}", re.ASCII)
_MEMORY = re.compile(r"\d{1,9}[KMGT]?", re.ASCII)
_GPUS = re.compile(r"([\w.-]{1,60}:)?\d{1,3}", re.ASCII)
_OPTION = re.compile(r"--([a-z][a-z0-9-]*)(=[^\x00-\x1f\x7f]{0,400})?", re.ASCII)
_OURS = (
    "array", "chdir", "error", "export", "help", "input", "job-name", "no-requeue", "open-mode", "output",
    "parsable", "requeue", "signal", "test-only", "usage", "version", "wait", "wrap",
)  # fmt: skip


def _is_line(value: str) -> bool:
    return len(value) <= 1000 and (value.isprintable() or not value)


def _is_gpus(value: object) -> bool:
    named = isinstance(value, int | str) and not isinstance(value, bool)
    return named and _GPUS.fullmatch(str(value)) is not None


def _word(pattern: re.Pattern[str], rule: str) -> Rule:
    return Rule(rule, lambda value: not value or pattern.fullmatch(value) is not None)


_Name = Annotated[str, _word(_WORD, "a name of letters, digits and . , : = @ % + / -")]
_Line = Annotated[str, Rule("text in one line", lambda value: bool(value) and _is_line(value))]
_SHORT = shorter(MOST_OPTIONS, "a list", "texts")
_MODULE = Rule("names of modules", lambda value: bool(_WORD.fullmatch(value)) and value[0] != "-")
_SBATCH = Rule("options of sbatch as --name or --name=value", lambda value: bool(_OPTION.fullmatch(value)))
_FREE = Rule(
    f"none that is set here ({', '.join(_OURS)})",
    lambda value: value.removeprefix("--").partition("=")[0] not in _OURS,
)


@checked
@dataclass(frozen=True, slots=True)
class SlurmSettings(Form):
    """How jobs are put into Slurm; what is empty or 0 is left to the cluster."""

    WHAT: ClassVar = "a file of Slurm settings"
    partition: _Name = ""
    """partition, as `sinfo` lists them"""
    account: _Name = ""
    """account that is charged"""
    time: Annotated[str, _word(_TIME, "minutes, H:MM:SS or D-HH:MM")] = ""
    """limit of one go, as minutes, H:MM:SS or D-HH:MM; a job that reaches it is put back into the queue"""
    gpus: Annotated[Any, Rule("a number, or kind:number", _is_gpus)] = 0
    """GPUs of a job: a number, or kind and number as a100:1"""
    cpus: Annotated[int, between(1, 4096)] = 1
    """cores of a job"""
    memory: Annotated[str, _word(_MEMORY, "a whole number with K, M, G or T, as 64G")] = ""
    """memory of a job, as 64G"""
    at_once: Annotated[int, between(0, 10_000)] = 0
    """jobs of one submission that may run at a time"""
    modules: Annotated[Listed[Annotated[_Line, _MODULE]], _SHORT] = ()
    """what `module load` loads before the job"""
    container: Annotated[Listed[_Line], _SHORT] = ()
    """what stands before Python, as ["apptainer", "exec", "--nv", "/images/gprune.sif"]"""
    python: Annotated[str, Rule("a path in one line", _is_line)] = ""
    """Python of the nodes or the container, the one that submits by default"""
    options: Annotated[Listed[Annotated[_Line, _SBATCH, _FREE]], _SHORT] = ()
    """further options of sbatch, as "--qos=long" """

    def to_dict(self) -> dict[str, Any]:
        """The settings as JSON holds them."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}


def from_dict(values: dict[str, Any]) -> SlurmSettings:
    """Settings of JSON; SettingsError where a name is unknown or a value cannot be used."""
    return SlurmSettings.parse(values)


def read(cache: Path, file: Path | None = None) -> SlurmSettings:
    """The settings of a cache, or of a file that was named; JobError without such a file, or a usable one."""
    place = file or cache / FILE
    what = f"the Slurm settings {safe_parsing.quoted(str(place))}"
    try:
        with safe_parsing.refused_as(JobError):
            return from_dict(safe_parsing.json_object(safe_parsing.contents(place, what, pipe=True), what))
    except FileNotFoundError:
        raise JobError(
            f"{what} do not exist: write them by `gprune submit --slurm-template > {FILE}`, fill in what "
            "your cluster wants, and name the file with --slurm or put it into the cache folder"
        ) from None
    except SettingsError as error:
        raise JobError(f"{what}: {error}") from error


def template() -> str:
    """A settings file with every field at its default."""
    return json.dumps(SlurmSettings().to_dict(), indent=2) + "\n"
