"""What a cluster wants to be told: partition, account, time, memory, devices, and how Python starts there."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from gprune.study.settings import require
from gprune.system import safe_parsing
from gprune.system.errors import JobError, SettingsError

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


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """How jobs are put into Slurm; what is empty or 0 is left to the cluster."""

    partition: str = ""
    """partition, as `sinfo` lists them"""
    account: str = ""
    """account that is charged"""
    time: str = ""
    """limit of one go, as minutes, H:MM:SS or D-HH:MM; a job that reaches it is put back into the queue"""
    gpus: int | str = 0
    """GPUs of a job: a number, or kind and number as a100:1"""
    cpus: int = 1
    """cores of a job"""
    memory: str = ""
    """memory of a job, as 64G"""
    at_once: int = 0
    """jobs of one submission that may run at a time"""
    modules: tuple[str, ...] = ()
    """what `module load` loads before the job"""
    container: tuple[str, ...] = ()
    """what stands before Python, as ["apptainer", "exec", "--nv", "/images/gprune.sif"]"""
    python: str = ""
    """Python of the nodes or the container, the one that submits by default"""
    options: tuple[str, ...] = ()
    """further options of sbatch, as "--qos=long" """

    def __post_init__(self) -> None:
        """Checks every value.

        Raises:
            SettingsError: one cannot be used; the message names it.
        """
        for name in ("partition", "account"):
            self._require_text(name, _WORD, "a name of letters, digits and . , : = @ % + / -")
        self._require_text("time", _TIME, "minutes, H:MM:SS or D-HH:MM")
        self._require_text("memory", _MEMORY, "a whole number with K, M, G or T, as 64G")
        for name, least, most in (("cpus", 1, 4096), ("at_once", 0, 10_000)):
            value = getattr(self, name)
            whole = isinstance(value, int) and not isinstance(value, bool)
            require(whole and least <= value <= most, name, value, f"a whole number from {least} to {most}")
        gpus = isinstance(self.gpus, int | str) and not isinstance(self.gpus, bool)
        require(gpus and bool(_GPUS.fullmatch(str(self.gpus))), "gpus", self.gpus, "a number, or kind:number")
        for name in ("modules", "container", "options"):
            self._require_list(name)
        require(_is_line(self.python), "python", self.python, "a path in one line")
        for word in self.modules:
            require(bool(_WORD.fullmatch(word)) and word[0] != "-", "modules", word, "names of modules")
        for option in self.options:
            _require_option(option)

    def _require_text(self, name: str, pattern: re.Pattern[str], rule: str) -> None:
        value = getattr(self, name)
        good = isinstance(value, str) and (not value or pattern.fullmatch(value) is not None)
        require(good, name, value, rule)

    def _require_list(self, name: str) -> None:
        value = getattr(self, name)
        good = isinstance(value, tuple) and len(value) <= MOST_OPTIONS
        require(good and all(_is_line(word) and word for word in value), name, value, "a list of texts")

    def to_dict(self) -> dict[str, Any]:
        """The settings as JSON holds them."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}


def _is_line(value: object) -> bool:
    return isinstance(value, str) and len(value) <= 1000 and (value.isprintable() or not value)


def _require_option(option: str) -> None:
    found = _OPTION.fullmatch(option)
    require(found is not None, "options", option, "options of sbatch as --name or --name=value")
    if found is not None:
        require(found[1] not in _OURS, "options", option, f"none that is set here ({', '.join(_OURS)})")


def from_dict(values: dict[str, Any]) -> SlurmSettings:
    """Settings of JSON.

    Raises:
        SettingsError: a name is unknown or a value cannot be used.
    """
    known = [one.name for one in fields(SlurmSettings)]
    unknown = [name for name in values if name not in known]
    if unknown:
        raise SettingsError(
            f"the Slurm settings have no {safe_parsing.quoted(unknown[0])}: known are {', '.join(known)}"
        )
    plain: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
    return SlurmSettings(**plain)


def default_file(cache: Path) -> Path:
    """Where the settings of a cache are looked for."""
    return cache / FILE


def read(cache: Path, file: Path | None = None) -> SlurmSettings:
    """The settings of a cache, or of a file that was named.

    Raises:
        JobError: there is no such file, or it cannot be used.
    """
    place = file or default_file(cache)
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
