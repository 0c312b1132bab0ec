"""The form of a pack: which files it has, what they are called, and what its index says of them."""

import json
import re
from dataclasses import dataclass, fields
from typing import Annotated

from gprune.pipeline.stages import KINDS
from gprune.system.errors import UnreadableError
from gprune.system.forms import NOT_NEGATIVE, LooseForm, Rule, validate
from gprune.system.safe_parsing import json_object, quoted

FORMAT, VERSION = "gprune-pack", 1
ENDING = ".gprune.zip"
INDEX, RECORD, MANIFEST = "index.json", "run.json", "manifest.json"
MOST_FILES = 20_000
MOST_INDEX_BYTES = MOST_RECORD_BYTES = 16 * 2**20
"""of the index, and of the run's record: both are read whole"""
NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,120}")
"""what a run or a result may be called, as in the store"""
_SUM = re.compile(r"[0-9a-f]{64}")
_PLACE = re.compile(r"results/([a-z_]+)/([a-z0-9][a-z0-9_.-]{0,120})/([a-z_]+\.npy|manifest\.json)")


@dataclass(frozen=True, slots=True)
class Entry(LooseForm):
    """What the index says of a file."""

    size: Annotated[int, NOT_NEGATIVE]
    """bytes"""
    sha256: Annotated[str, Rule("64 hexadecimal digits", lambda total: bool(_SUM.fullmatch(total)))]
    """of its content"""


@dataclass(frozen=True, slots=True)
class Index:
    """What a pack says of itself."""

    run: str
    """name of the run"""
    files: dict[str, Entry]
    """every file but the index, by its place in the archive"""

    def to_json(self) -> bytes:
        """The index as it is written; the same for the same content."""
        files = {name: {"size": one.size, "sha256": one.sha256} for name, one in sorted(self.files.items())}
        values = {"format": FORMAT, "version": VERSION, "run": self.run, "files": files}
        return json.dumps(values, indent=1, ensure_ascii=False).encode()

    @property
    def results(self) -> dict[tuple[str, str], dict[str, str]]:
        """Places of the files of every result by their own names, by stage and key."""
        found: dict[tuple[str, str], dict[str, str]] = {}
        for place in self.files:
            if place != RECORD:
                stage, key, name = _parts(place)
                found.setdefault((stage, key), {})[name] = place
        return found


def place(stage: str, key: str, name: str) -> str:
    """Where a file of a result is in a pack."""
    return f"results/{stage}/{key}/{name}"


def arrays_of(stage: str) -> set[str]:
    """Names of the array files that a result of a stage can have."""
    record = KINDS[stage].record
    return set() if record is None else {f"{field.name}.npy" for field in fields(record)}


def read_index(data: bytes) -> Index:
    """Reads an index that may be damaged or hostile.

    Raises UnreadableError where it is none, or names what no pack holds.
    """
    values = json_object(data, "the index of the pack")
    if values.get("format") != FORMAT:
        raise UnreadableError(
            f"this is no pack of a run (its format is {quoted(values.get('format'))}): give a file that "
            "`python -m gprune pack` has written"
        )
    if values.get("version") != VERSION or isinstance(values["version"], bool):
        raise UnreadableError(
            f"the pack has the version {quoted(values.get('version'))} of the format, and this program reads "
            f"version {VERSION}: use the program that it was made with"
        )
    run, listed = values.get("run"), values.get("files")
    if not isinstance(run, str) or not NAME.fullmatch(run):
        raise UnreadableError(f"the index of the pack names the run {quoted(run)}, which is no plain name")
    if not isinstance(listed, dict) or RECORD not in listed:
        raise UnreadableError(f"the index of the pack lists no {RECORD}: ask for the pack again")
    for name in listed:
        require_place(name)
    return Index(run, validate(dict[str, Entry], listed, UnreadableError, "files."))


def require_place(name: str) -> str:
    """The name of a file, after it was found to be one that a pack may hold; else UnreadableError."""
    if name != RECORD:
        stage, _, file = _parts(name)
        if file != MANIFEST and file not in arrays_of(stage):
            raise UnreadableError(f"the pack holds {quoted(name)}, which no result of that stage has")
    return name


def _parts(name: str) -> tuple[str, str, str]:
    """Stage, key and own name of a file of a result."""
    found = _PLACE.fullmatch(name)
    if found is None or found[1] not in KINDS or KINDS[found[1]].record is None:
        raise UnreadableError(
            f"the pack holds {quoted(name)}, and only results as .npy and .json files belong in it: do not use it"
        )
    return found[1], found[2], found[3]
