"""What people keep under names of their own: one JSON file a name, below the cache or taken elsewhere.

    <cache>/<folder>/<hash of the name>.json

A name is what people read and never a part of a path.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from gprune.store import explain
from gprune.system import safe_parsing
from gprune.system.errors import SettingsError, UnreadableError
from gprune.system.files import make_folder, write_json

T = TypeVar("T")
LONGEST_NAME, MOST = 60, 200
"""letters of a name, and files of a kind"""


def cleaned(name: Any, what: str, *, hyphen: bool = True) -> str:
    """A name as it is kept: without spaces around and between its words more than one.

    Args:
        name: what was typed, or stands in a file.
        what: what has the name, in words.
        hyphen: whether it may begin with one; a command takes what does so for an option.

    Raises:
        SettingsError: it is none.
    """
    found = " ".join(name.split()) if isinstance(name, str) else ""
    odd = not found or len(found) > LONGEST_NAME or not found.isprintable()
    if odd or (found[0] == "-" and not hyphen):
        rule = "" if hyphen else " without a hyphen before it"
        raise SettingsError(
            f"{what} needs a name of 1 to {LONGEST_NAME} letters{rule} (got {safe_parsing.quoted(name)})"
        )
    return found


def place(root: str, folder: str, identity: str) -> Path:
    """Where something is kept.

    Args:
        root: the cache.
        folder: the part of the cache.
        identity: its name, with whatever else tells it from others of that name.
    """
    digest = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:24]
    return Path(root) / folder / f"{digest}.json"


def save(path: Path, values: dict[str, Any], what: str) -> None:
    """Writes a file; one that is there is replaced.

    Args:
        path: see `place`.
        values: its content.
        what: what is kept, in the plural.

    Raises:
        SettingsError: there are too many of its kind.
        StoreError: the cache cannot be written.
    """
    if not path.exists() and len(list(path.parent.glob("*.json"))) >= MOST:
        raise SettingsError(f"{MOST} {what} are kept already: delete one first")
    try:
        make_folder(path.parent)
        write_json(path, values)
    except OSError as error:
        raise explain(error, path.parent) from error


def delete(path: Path) -> None:
    """Removes a file, if it is there.

    Raises:
        StoreError: the cache cannot be written.
    """
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise explain(error, path.parent) from error


def kept(root: str | Path, folder: str, read: Callable[[bytes], T]) -> tuple[list[tuple[str, T]], list[str]]:
    """What every file of a kind holds, with the file's name, and a sentence on each that cannot be read.

    Args:
        root: the cache.
        folder: the part of the cache.
        read: makes sense of a file's content; raises SettingsError where there is none.
    """
    found, faults = list[tuple[str, T]](), list[str]()
    for path in sorted((Path(root) / folder).glob("*.json")):
        try:
            found.append((path.name, read(safe_parsing.contents(path, "the file"))))
        except (OSError, SettingsError, UnreadableError) as error:
            faults.append(f"{path.name}: {error}")
    return found, faults


def values_of(raw: bytes, *, finite: bool = True) -> Any:
    """The JSON value of a file that was exported.

    Args:
        raw: its content.
        finite: whether every number has to be one; else its reader names the field of one that is not.

    Raises:
        SettingsError: it is no JSON.
    """
    try:
        return safe_parsing.json_value(raw, "it", finite=finite)
    except UnreadableError as error:
        raise SettingsError(
            f"the file is not JSON ({error}): choose a file that was exported here"
        ) from error


def require_form(values: Any, form: str, version: int, what: str) -> None:
    """Checks that a file of several things is of a form, and of its version.

    Args:
        values: its value.
        form: what its `format` is to be.
        version: what its `version` is to be.
        what: what it holds, in the plural.

    Raises:
        SettingsError: it is not.
    """
    if not isinstance(values, dict) or values.get("format") != form:
        raise SettingsError(f"the file is not one of {what}: its `format` is not {form!r}")
    if values.get("version") != version:
        shown = safe_parsing.quoted(values.get("version"))
        raise SettingsError(f"the file has version {shown} and {version} is read here: export it again")
