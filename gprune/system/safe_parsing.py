"""Readers of JSON, paths and names from outside the program; each failure is one sentence with the value."""

import difflib
import json
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gprune.system.errors import GpruneError, UnreadableError

SENTENCE_LENGTH = 300
"""default maximum number of characters of a message"""
VALUE_LENGTH = 80
"""default maximum number of characters of a quoted value"""
NEEDS_ITS_CODE = (
    "this model needs its own Python code, which runs with your rights: choose another model, or set "
    "trust_remote_code in the study only if you trust whoever wrote it"
)
PICKLED = (
    "the file holds pickled objects, which can run code when they are read, so it is not read: convert it to "
    "safetensors, or copy the original again"
)
_ADVICE = (
    (re.compile(r"trust_remote_code\W{0,4}=\W{0,4}True|custom code", re.I), NEEDS_ITS_CODE),
    (re.compile(r"weights_only|allow_pickle|add_safe_globals|allow_dangerous", re.I), PICKLED),
)
_LONGEST_WORD = 200
"""maximum number of characters of a word to compare, because the time grows with the square of the length"""


def quote(value: object, length: int = VALUE_LENGTH) -> str:
    """Return the repr of a value, shortened in the middle to at most `length` characters."""
    return _cut_middle(repr(value), length, (length - 1) * 2 // 3, "…")


def sentence(text: object, length: int = SENTENCE_LENGTH) -> str:
    """Return a message on one line of at most `length` characters, shortened in the middle.

    The beginning and the remedy at the end are kept. A library's advice to run code or to unpickle a file is replaced.
    """
    words = " ".join(str(text).split())
    words = next((replacement for advice, replacement in _ADVICE if advice.search(words)), words)
    return _cut_middle(words, length, (length - 3) // 2, " … ")


def _cut_middle(text: str, length: int, head: int, gap: str) -> str:
    """Return the first `head` characters of a text, `gap`, and its end, in total `length` characters."""
    if len(text) <= length:
        return text
    return f"{text[:head]}{gap}{text[len(text) - (length - len(gap) - head) :]}"


def has_no_surrogate(text: str) -> bool:
    """Return True if a text has no lone surrogate, which JSON allows and UTF-8 does not."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def replace_surrogates(string: str) -> str:
    """Replace unpaired surrogates, which JSON may contain and tokenizers reject."""
    try:
        string.encode("utf-8")
    except UnicodeEncodeError:
        return string.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return string


@contextmanager
def reraise_as(kind: type[GpruneError], *caught: type[GpruneError]) -> Iterator[None]:
    """Turn an error of the classes `caught`, by default UnreadableError, into one of class `kind` in the context."""
    caught = caught or (UnreadableError,)
    try:
        yield
    except caught as error:
        raise kind(str(error)) from error


def json_value(data: bytes | str, subject: str, *, finite: bool = True) -> Any:
    """Return the value in JSON text, or in its UTF-8 bytes.

    `subject` names the source in an error ("the study file 'a.json'"). With `finite`, NaN and infinity are refused.
    Raises UnreadableError if the text is not JSON, or nests too deeply.
    """
    try:
        text = data if isinstance(data, str) else data.decode("utf-8-sig")
        return json.loads(text, parse_constant=_refuse_constant if finite else None)
    except UnreadableError as error:
        raise UnreadableError(f"{subject} {error}") from error
    except RecursionError as error:
        raise UnreadableError(f"{subject} nests too deeply: flatten it") from error
    except UnicodeDecodeError as error:
        raise UnreadableError(f"{subject} is not UTF-8 (at byte {error.start}): save it as UTF-8") from error
    except ValueError as error:
        raise UnreadableError(f"{subject} is not JSON: {sentence(error, 120)}") from error


def _refuse_constant(name: str) -> float:
    """Raise UnreadableError for NaN or infinity; the caller adds the subject of the sentence."""
    raise UnreadableError(f"holds {name}, which is not a finite number")


def json_object(data: bytes | str, subject: str, *, finite: bool = True) -> dict[str, Any]:
    """Return the object in JSON text (see `json_value`). Raises UnreadableError if the value is not an object."""
    value = json_value(data, subject, finite=finite)
    if not isinstance(value, dict):
        raise UnreadableError(f"{subject} holds no JSON object (got {quote(value)})")
    return value


def json_file(path: Path, subject: str, *, finite: bool = True, pipe: bool = False) -> Any:
    """Return the value in a JSON file; for `subject` and `finite` see `json_value`, for `pipe` see `contents`."""
    return json_value(contents(path, subject, pipe=pipe), subject, finite=finite)


def contents(path: Path, subject: str, *, pipe: bool = False) -> bytes:
    """Return the bytes of a file.

    `pipe` also allows a pipe that the user named; reading a pipe inside a folder could block forever. Raises
    FileNotFoundError if there is no such file, UnreadableError if it is not a regular file, or cannot be read.
    """
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode) and not (pipe and (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode))):
            raise UnreadableError(f"{subject} is not a regular file")
        return path.read_bytes()
    except (FileNotFoundError, UnreadableError):
        raise
    except (OSError, ValueError) as error:
        raise UnreadableError(f"{subject} cannot be read: {sentence(error, 100)}") from error


def path(text: str, subject: str) -> Path:
    """Return a path that the user entered, with `~` expanded; it need not exist.

    Raises UnreadableError if no file can have this name, or there is no such user.
    """
    try:
        location = Path(text).expanduser()
        location.exists()
        if "\0" in text:
            raise ValueError("a path has no NUL character")
    except (OSError, ValueError, RuntimeError) as error:
        no_user = "this machine has no such user; give the full path"
        reason = no_user if isinstance(error, RuntimeError) else sentence(error, 100)
        raise UnreadableError(f"{subject} cannot be {quote(text)}: {reason}") from error
    return location


def inside(folder: Path, name: Any, subject: str) -> Path:
    """Return the path of the file `name` inside a folder; the check follows links.

    The hub's cache stores the files of a snapshot as links to `blobs`, next to `snapshots`; these files count as
    inside. Raises UnreadableError if the name leads outside the folder.
    """
    if not isinstance(name, str) or not name or Path(name).is_absolute():
        raise UnreadableError(f"{subject} names {quote(name)}, which is not a file inside {quote(str(folder))}")
    target = folder / path(name, subject)
    try:
        resolved, root = target.resolve(), folder.resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise UnreadableError(f"{subject} names {quote(name)}, which leads nowhere: copy it again") from error
    if not resolved.is_relative_to(root) and not (resolved.parent == _find_blobs(root) and resolved.is_file()):
        raise UnreadableError(
            f"{subject} names {quote(name)}, which leads outside {quote(str(folder))}: copy the file into it"
        )
    return target


def _find_blobs(folder: Path) -> Path | None:
    """Return the `blobs` folder of the hub's cache if `folder` is a snapshot or inside one, else None."""
    snapshots = (parent.parent for parent in (folder, *folder.parents) if parent.parent.name == "snapshots")
    return next((parent.parent / "blobs" for parent in snapshots), None)


def closest(word: str, names: Iterable[str]) -> str:
    """Return the known name nearest to a word, or an empty string."""
    return next(iter(difflib.get_close_matches(word[:_LONGEST_WORD], list(names), n=1)), "")


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Return a suggestion to append to an error, ` (did you mean flap?)`, or an empty string."""
    near = closest(word, names)
    return f" (did you mean {near}?)" if near else ""


def not_one_of(name: str, value: str, names: Sequence[str], otherwise: str = "") -> str:
    """Return the error for an unknown value of `name`, with the nearest known word as a suggestion.

    `otherwise` is the remedy if no known word is near.
    """
    near = closest(value, names)
    remedy = f"did you mean {near!r}?" if near else otherwise
    return f"{name} must be one of {', '.join(names)} (got {quote(value)})" + (f"; {remedy}" if remedy else "")
