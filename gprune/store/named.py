"""What people keep under names of their own: one JSON file a name, below the cache or taken elsewhere.

    <cache>/<folder>/<hash of the name>.json

A name is what people read and never a part of a path.
"""

import hashlib
import json
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from gprune.store import explained
from gprune.system import forms, safe_parsing
from gprune.system.errors import SettingsError, UnreadableError
from gprune.system.files import make_folder, write_json

T = TypeVar("T")
VERSION = 1
LONGEST_NAME, MOST = 60, 200
"""letters of a name, and files of a kind"""


def cleaned(name: Any, what: str, *, hyphen: bool = True) -> str:
    """A name as it is kept: without spaces around and between its words more than one.

    `what` has the name, in words; it begins with a `hyphen` only if allowed: a command takes what does so for
    an option. Raises SettingsError where it is none.
    """
    found = " ".join(name.split()) if isinstance(name, str) else ""
    odd = not found or len(found) > LONGEST_NAME or not found.isprintable()
    if odd or (found[0] == "-" and not hyphen):
        rule = "" if hyphen else " without a hyphen before it"
        raise SettingsError(
            f"{what} needs a name of 1 to {LONGEST_NAME} letters{rule} (got {safe_parsing.quoted(name)})"
        )
    return found


def name_of(what: str, *, hyphen: bool = True) -> forms.Before:
    """For the field of a form that holds a name: see `cleaned`."""
    return forms.Before(lambda name: cleaned(name, what, hyphen=hyphen))


@dataclass(frozen=True, slots=True)
class Collection(Generic[T]):
    """What is kept of one kind: saved, read back, removed, and taken elsewhere as a file."""

    folder: str
    """part of the cache"""
    form: str
    """`format` of its files"""
    what: str
    """what is kept, in the plural"""
    one: Any
    """form of one of them, or the type with its rules"""
    plain: Callable[[T], dict[str, Any]]
    """one of them as JSON holds it"""
    entries: str = ""
    """field of a file that lists several; empty where a file holds one"""
    identity: Callable[[T], str] = attrgetter("name")
    """the name, with whatever else tells one from others of that name"""
    indent: int | None = 1
    """of an exported file"""
    finite: bool = True
    """whether every number has to be one; else the form names the field of one that is not"""

    def path(self, root: str | Path, chosen: T) -> Path:
        """Where one is kept, below the cache."""
        name = self.identity(chosen).encode("utf-8", "surrogatepass")
        return Path(root) / self.folder / f"{hashlib.sha256(name).hexdigest()[:24]}.json"

    def save(self, root: str | Path, chosen: T) -> None:
        """Keeps one; another of the same name is replaced.

        Raises SettingsError where there are too many of its kind, StoreError where the cache cannot be
        written.
        """
        path = self.path(root, chosen)
        if not path.exists() and len(list(path.parent.glob("*.json"))) >= MOST:
            raise SettingsError(f"{MOST} {self.what} are kept already: delete one first")
        with explained(path.parent):
            make_folder(path.parent)
            write_json(path, self._values([chosen]))

    def delete(self, root: str | Path, chosen: T) -> None:
        """Removes one, if it is there; StoreError where the cache cannot be written."""
        path = self.path(root, chosen)
        with explained(path.parent):
            path.unlink(missing_ok=True)

    def kept(self, root: str | Path) -> tuple[list[T], list[str]]:
        """Every one that is kept, by name, and a sentence on each file that cannot be read."""
        files, faults = self.files(root)
        found: list[Any] = [one for _, several in files for one in several]
        return sorted(found, key=lambda one: one.name.casefold()), faults

    def files(self, root: str | Path) -> tuple[list[tuple[str, list[T]]], list[str]]:
        """What every file holds, with the file's name, and a sentence on each that cannot be read."""
        found, faults = list[tuple[str, list[T]]](), list[str]()
        for path in sorted((Path(root) / self.folder).glob("*.json")):
            try:
                found.append((path.name, self.read(safe_parsing.contents(path, "the file"))))
            except (OSError, SettingsError, UnreadableError) as error:
                faults.append(f"{path.name}: {error}")
        return found, faults

    def export(self, chosen: Sequence[T]) -> bytes:
        """Some of them as a file to take elsewhere."""
        return (json.dumps(self._values(chosen), indent=self.indent, ensure_ascii=False) + "\n").encode()

    def read(self, raw: bytes) -> list[T]:
        """What a file holds; SettingsError where it is of another kind, or something in it is not valid."""
        values = self._opened(raw)
        if not self.entries:
            return [self.one.parse(values)]
        few = forms.Rule(f"1 to {MOST} {self.what}", lambda listed: 1 <= len(listed) <= MOST)
        listed = Annotated[types.GenericAlias(list, self.one), few]  # type: ignore[valid-type]
        return forms.validate(listed, values.get(self.entries), where=self.entries)

    def _values(self, chosen: Sequence[T]) -> dict[str, Any]:
        listed = [self.plain(one) for one in chosen]
        return {"format": self.form, "version": VERSION} | ({self.entries: listed} if self.entries else listed[0])

    def _opened(self, raw: bytes) -> dict[str, Any]:
        """The value of a file that was exported, in this form and version."""
        try:
            values = safe_parsing.json_value(raw, "it", finite=self.finite)
        except UnreadableError as error:
            raise SettingsError(f"the file is not JSON ({error}): choose a file that was exported here") from error
        if not isinstance(values, dict) or values.get("format") != self.form:
            shown = safe_parsing.quoted(values.get("format") if isinstance(values, dict) else values)
            raise SettingsError(f"the file is not one of {self.what}: its `format` is not {self.form!r} (got {shown})")
        if values.get("version") != VERSION:
            shown = safe_parsing.quoted(values.get("version"))
            raise SettingsError(f"the file has version {shown} and {VERSION} is read here: export it again")
        return values
