"""What a person says of a run: its name, a note, and whether lists pass it over.

    <cache>/runs/<run>/about.json

Kept beside the record, in a file of its own, so that whoever computes the run never writes over it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gprune.pipeline.runs.reading import RECORD
from gprune.store import Store, explain
from gprune.system import safe_parsing
from gprune.system.errors import SettingsError, StoreError, UnreadableError
from gprune.system.files import write_json

FILE = "about.json"
MOST_NAME, MOST_NOTE = 80, 2000
"""characters"""


@dataclass(frozen=True, slots=True)
class RunNotes:
    """What a person says of a run."""

    name: str = ""
    """what to call it; empty for the name of its study"""
    note: str = ""
    """plain text"""
    hidden: bool = False
    """whether lists of runs pass it over"""

    def __post_init__(self) -> None:
        """Checks every field.

        Raises:
            SettingsError: one is of another type or too long.
        """
        for what, text, most in (("name", self.name, MOST_NAME), ("note", self.note, MOST_NOTE)):
            if not isinstance(text, str) or len(text) > most:
                raise SettingsError(
                    f"the {what} of a run must be text of at most {most} characters "
                    f"(got {safe_parsing.quoted(text, 40)}): make it shorter"
                )
            if any("\ud800" <= letter <= "\udfff" or letter == "\0" for letter in text):
                raise SettingsError(f"the {what} of a run must be text of whole letters: type it anew")
        if "\n" in self.name or not isinstance(self.hidden, bool):
            raise SettingsError("the name of a run must be one line, and hidden must be true or false")


def read(folder: Path) -> RunNotes:
    """What is said of the run in a folder; nothing where there is no such file.

    Raises:
        UnreadableError: the file is damaged; the message says what saving anew does.
    """
    path = folder / FILE
    try:
        if not path.is_file():
            return RunNotes()
        values = safe_parsing.json_file(path, f"the file {path}")
        if not isinstance(values, dict):
            raise UnreadableError(f"the file {path} holds no object")
        return RunNotes(**_known(values))
    except FileNotFoundError:
        return RunNotes()
    except (SettingsError, UnreadableError) as error:
        reason = safe_parsing.sentence(error, 200)
        raise UnreadableError(f"name and note cannot be read, saving writes them anew ({reason})") from error


def _known(values: dict[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in ("name", "note", "hidden") if name in values}


def save(store: Store, run: str, about: RunNotes) -> None:
    """Writes what a person says of a run.

    Raises:
        StoreError: there is no such run any more, or the cache cannot be written.
    """
    folder = store.folder("runs", run)
    if not (folder / RECORD).exists():
        raise StoreError(f"there is no run {run!r} in {store.root} any more: choose another one")
    try:
        write_json(folder / FILE, asdict(about))
    except OSError as error:
        raise explain(error, store.root) from error
