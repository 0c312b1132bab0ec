"""Notes of a user on a run: its name, and if lists hide it.

    <cache>/runs/<run>/about.json

They have a file of their own next to the record, so that the process that computes the run never overwrites them.
"""

from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, ClassVar

from gprune.pipeline.runs.reading import RECORD
from gprune.store import Store, explain_errors
from gprune.store.checksums import Stamp, stamp
from gprune.study.settings import SOUND
from gprune.system import safe_parsing
from gprune.system.errors import SettingsError, StoreError, UnreadableError
from gprune.system.files import write_json
from gprune.system.forms import LooseForm, Rule, shorter, validate_form

FILE = "about.json"
MOST_NAME = 80
"""characters"""


@validate_form
@dataclass(frozen=True, slots=True)
class RunNotes(LooseForm):
    """The user's notes on a run."""

    WHERE: ClassVar = "a run's "
    name: Annotated[str, shorter(MOST_NAME), SOUND, Rule("one line", lambda name: "\n" not in name)] = ""
    """what to call it; empty for the name of its study"""
    hidden: bool = False
    """True if lists of runs pass it over"""


def read_notes(folder: Path) -> tuple[RunNotes, str]:
    """Return the notes on the run in a folder, empty without a file, and why they cannot be read."""
    path = folder / FILE
    try:
        return _read(path, stamp(path))
    except OSError:
        return RunNotes(), ""


@lru_cache(maxsize=1024)
def _read(path: Path, _: Stamp) -> tuple[RunNotes, str]:
    try:
        return RunNotes.parse(safe_parsing.json_file(path, f"the file {path}")), ""
    except (SettingsError, UnreadableError) as error:
        reason = safe_parsing.sentence(error, 200)
        return RunNotes(), f"the name cannot be read, saving writes it anew ({reason})"


def save_notes(store: Store, run: str, run_notes: RunNotes) -> None:
    """Write the notes on a run; StoreError without such a run, or if the cache cannot be written."""
    folder = store.folder("runs", run)
    if not (folder / RECORD).exists():
        raise StoreError(f"there is no run {run!r} in {store.root} any more: choose another one")
    with explain_errors(store.root):
        write_json(folder / FILE, asdict(run_notes))
