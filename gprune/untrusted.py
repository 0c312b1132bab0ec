"""What people, files and other programs hand in: read so that nothing in it can do worse than be refused.

One reader for JSON and one for paths. Each failure is one sentence of bounded length, with the value.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gprune.errors import UnreadableError

SENTENCE_LENGTH = 300
VALUE_LENGTH = 80
DEEPEST = 64
# a task file or an export of a table is some megabytes; what is larger is no settings
MOST_BYTES = 256 * 2**20
# whole numbers beyond 64 bits are no count, size or seed of ours, and turn into endless texts
MOST_DIGITS = 19


def quoted(value: object, length: int = VALUE_LENGTH) -> str:
    """A value as it is shown in a sentence: its repr, cut in the middle, never longer than `length`."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        # an integer of thousands of digits has no repr
        text = f"<{type(value).__name__}>"
    if len(text) <= length:
        return text
    head = (length - 1) * 2 // 3
    return f"{text[:head]}…{text[len(text) - (length - 1 - head) :]}"


def sentence(text: object, length: int = SENTENCE_LENGTH) -> str:
    """A message in one line of bounded length; the remedy at its end survives the cut."""
    line = " ".join(str(text).split())
    if len(line) <= length:
        return line
    head = (length - 3) // 2
    return f"{line[:head]} … {line[len(line) - (length - 3 - head) :]}"


def json_value(data: bytes | str, what: str, *, finite: bool = True) -> Any:
    """The value in a JSON text that may be damaged or hostile.

    Args:
        data: the text, or its bytes in UTF-8 (a byte order mark is passed over).
        what: what to call it in an error ("the study file 'a.json'").
        finite: refuse NaN and infinities; off for what this project writes itself.

    Raises:
        UnreadableError: it is not JSON, nests deeper than DEEPEST, or holds a number that no computer
            counts with; the message starts with `what`.
    """
    if len(data) > MOST_BYTES:
        raise UnreadableError(f"{what} has {len(data)} bytes; at most {MOST_BYTES} are read as JSON")
    try:
        text = data if isinstance(data, str) else data.decode("utf-8-sig")
        value = json.loads(
            text,
            parse_int=_whole,
            parse_float=_number(finite),
            parse_constant=_constant if finite else float,
        )
    except UnreadableError as error:
        raise UnreadableError(f"{what} {error}") from error
    except RecursionError as error:
        raise UnreadableError(f"{what} nests deeper than {DEEPEST} levels: flatten it") from error
    except UnicodeDecodeError as error:
        raise UnreadableError(
            f"{what} is not UTF-8 (byte {data[error.start]!r} at {error.start}): save it as UTF-8"
        ) from error
    except ValueError as error:
        raise UnreadableError(f"{what} is not JSON: {sentence(error, 120)}") from error
    if _deeper_than(value, DEEPEST):
        raise UnreadableError(f"{what} nests deeper than {DEEPEST} levels: flatten it")
    return value


def json_file(path: Path, what: str, *, finite: bool = True) -> Any:
    """The value in a JSON file, read as by `json_value`.

    Raises:
        FileNotFoundError: there is no such file.
        UnreadableError: it cannot be read, or not as JSON.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UnreadableError(f"{what} has {path.stat().st_size} bytes; at most {MOST_BYTES} are read")
        data = path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnreadableError(f"{what} cannot be read: {error.strerror or error}") from error
    return json_value(data, what, finite=finite)


def json_object(data: bytes | str, what: str, *, finite: bool = True) -> dict[str, Any]:
    """Like `json_value`, for what must be an object.

    Raises:
        UnreadableError: it cannot be read, or is not an object.
    """
    value = json_value(data, what, finite=finite)
    if not isinstance(value, dict):
        raise UnreadableError(f"{what} holds no JSON object (got {quoted(value)})")
    return value


def path(text: str, what: str) -> Path:
    """A path that a person typed, with `~` resolved; it need not exist.

    Args:
        text: what was typed.
        what: what it is for, in an error ("the model").

    Raises:
        UnreadableError: no file of this system can have that name, or there is no such user.
    """
    if "\0" in text:
        raise UnreadableError(f"{what} cannot be {quoted(text)}: a path has no NUL character")
    if any(len(part.encode("utf-8", "surrogatepass")) > 255 for part in text.split("/")) or len(text) > 4096:
        raise UnreadableError(f"{what} cannot be {quoted(text)}: the name is too long for a file")
    try:
        place = Path(text).expanduser()
        place.exists()
    except RuntimeError as error:
        raise UnreadableError(
            f"{what} cannot be {quoted(text)}: this machine has no such user; give the whole path"
        ) from error
    except (OSError, ValueError) as error:
        raise UnreadableError(f"{what} cannot be {quoted(text)}: {sentence(error, 100)}") from error
    return place


def inside(folder: Path, name: str, what: str) -> Path:
    """A file that something names inside a folder; links count as where they lead.

    Raises:
        UnreadableError: the name is none, or leads outside the folder.
    """
    if not isinstance(name, str) or not name or Path(name).is_absolute():
        raise UnreadableError(f"{what} names {quoted(name)}, which is no file inside {folder}")
    place = folder / path(name, what)
    if not place.resolve().is_relative_to(folder.resolve()):
        raise UnreadableError(f"{what} names {quoted(name)}, which lies outside {folder}")
    return place


def _whole(digits: str) -> int:
    if len(digits.lstrip("-")) > MOST_DIGITS:
        raise UnreadableError(f"holds a whole number of {len(digits.lstrip('-'))} digits: make it smaller")
    return int(digits)


def _number(finite: bool) -> Callable[[str], float]:
    def read(digits: str) -> float:
        value = float(digits)
        if finite and not math.isfinite(value):
            raise UnreadableError(f"holds {quoted(digits)}, which is no finite number: make it smaller")
        return value

    return read


def _constant(name: str) -> float:
    raise UnreadableError(f"holds {name}, which is no finite number: give one")


def _deeper_than(value: Any, levels: int) -> bool:
    """Whether lists and objects nest deeper; without recursion, which is what deep nesting breaks."""
    layer = [value]
    for _ in range(levels + 1):
        layer = [
            inner
            for one in layer
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list)
        ]
        if not layer:
            return False
    return True
