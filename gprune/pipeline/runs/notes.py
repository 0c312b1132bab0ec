"""What a person says of a run: its name, a note, tags, and whether lists pass it over.

    <cache>/runs/<run>/about.json

Kept beside the record, in a file of its own, so that whoever computes the run never writes over it.
"""

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from gprune.pipeline.runs.reading import RECORD
from gprune.store import Store, explained
from gprune.study.settings import SOUND
from gprune.system import safe_parsing
from gprune.system.errors import SettingsError, StoreError, UnreadableError
from gprune.system.files import write_json
from gprune.system.forms import Listed, LooseForm, Rule, checked, shorter

FILE = "about.json"
MOST_NAME, MOST_NOTE, MOST_TAG = 80, 2000, 30
"""characters"""
MOST_TAGS = 12
_TAG = re.compile(r"\w[\w .+-]*")
_Tag = Annotated[
    str,
    SOUND,
    Rule(
        f"at most {MOST_TAG} letters, digits, blanks and . + - _, a letter or digit first",
        lambda tag: len(tag) <= MOST_TAG and bool(_TAG.fullmatch(tag)) and tag == tag.strip(),
    ),
]


@checked
@dataclass(frozen=True, slots=True)
class RunNotes(LooseForm):
    """What a person says of a run."""

    WHERE: ClassVar = "a run's "
    name: Annotated[str, shorter(MOST_NAME), SOUND, Rule("one line", lambda name: "\n" not in name)] = ""
    """what to call it; empty for the name of its study"""
    note: Annotated[str, shorter(MOST_NOTE), SOUND] = ""
    """plain text"""
    tags: Annotated[
        Listed[_Tag],
        shorter(MOST_TAGS, "a list", "tags"),
        Rule("tags that differ from each other", lambda tags: len(set(tags)) == len(tags)),
    ] = ()
    """words that it is found by"""
    hidden: bool = False
    """whether lists of runs pass it over"""


def read(folder: Path) -> RunNotes:
    """What is said of the run in a folder; nothing where there is no such file.

    Raises UnreadableError where it is damaged; the message says what saving anew does.
    """
    path = folder / FILE
    try:
        if not path.is_file():
            return RunNotes()
        values = safe_parsing.json_file(path, f"the file {path}")
        return RunNotes.parse(values)
    except FileNotFoundError:
        return RunNotes()
    except (SettingsError, UnreadableError) as error:
        reason = safe_parsing.sentence(error, 200)
        raise UnreadableError(f"name and note cannot be read, saving writes them anew ({reason})") from error


def save(store: Store, run: str, about: RunNotes) -> None:
    """Writes what a person says of a run; StoreError without such a run, or a cache that can be written."""
    folder = store.folder("runs", run)
    if not (folder / RECORD).exists():
        raise StoreError(f"there is no run {run!r} in {store.root} any more: choose another one")
    with explained(store.root):
        write_json(folder / FILE, asdict(about))
