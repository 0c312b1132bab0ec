"""What people, files and other programs hand in: read so that nothing in it can do worse than be refused.

One reader for JSON, one for YAML and one for paths. Each failure is one sentence of bounded length, with the
value. What libraries say is passed on only where it gives no advice to load unsafely.
"""

import json
import math
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from gprune.system.errors import GpruneError, UnreadableError

SENTENCE_LENGTH = 300
VALUE_LENGTH = 80
DEEPEST = 64
# a task file or an export of a table is some megabytes; what is larger is no settings
MOST_BYTES = 256 * 2**20
# whole numbers beyond 64 bits are no count, size or seed of ours, and turn into endless texts
MOST_DIGITS = 19
MOST_YAML_CHARACTERS = 4 * 2**20
NEEDS_ITS_CODE = (
    "this model needs its own Python code, which runs with your rights: choose another model, or set "
    "trust_remote_code in the study only if you trust whoever wrote it"
)
PICKLED = (
    "the file holds pickled objects, which can run code when they are read, so it is not read: convert it to "
    "safetensors, or copy the original again"
)
_OBEYED = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_CODE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_KEPT = "\t\n"
_ADVICE = ((re.compile(r"trust_remote_code\W{0,4}=\W{0,4}True|custom code", re.I), NEEDS_ITS_CODE),
    (re.compile(r"weights_only|allow_pickle|add_safe_globals|allow_dangerous", re.I), PICKLED))  # fmt: skip


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
    """A message in one line of bounded length; the remedy at its end survives the cut.

    A library's advice to load unsafely is replaced by what a person should know before doing so, and what a
    terminal would obey, or show in another order than it stands, by its number.
    """
    line = _OBEYED.sub(lambda found: ascii(found[0])[1:-1], harmless(" ".join(str(text).split())))
    if len(line) <= length:
        return line
    head = (length - 3) // 2
    return f"{line[:head]} … {line[len(line) - (length - 3 - head) :]}"


def printable(text: str) -> str:
    """A text as a terminal may get it, whoever wrote it; its lines and tabs stay.

    Codes that move the cursor or change colours are left out; whatever else a terminal would obey, or show in
    another order than it stands, is replaced by its number.
    """
    return _OBEYED.sub(_numbered, _CODE.sub("", text))


def _numbered(found: re.Match[str]) -> str:
    return found[0] if found[0] in _KEPT else ascii(found[0])[1:-1]


def printable_values(value: Any) -> Any:
    """The same of every text in a JSON value, names of fields included."""
    if isinstance(value, dict):
        return {printable_values(name): printable_values(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [printable_values(one) for one in value]
    return printable(value) if isinstance(value, str) else value


def is_whole(text: str) -> bool:
    """Whether no letter is half of one, which JSON can write and UTF-8 cannot."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def printable_json(text: str) -> str:
    """A JSON text of the same value, in which what a terminal would obey is written by its number."""
    return _OBEYED.sub(lambda found: found[0] if found[0] in "\t\n\r" else f"\\u{ord(found[0]):04x}", text)


def harmless(line: str) -> str:
    """A library's message, unless it advises to run or unpickle what came with a file: then our own."""
    return next((ours for advice, ours in _ADVICE if advice.search(line)), line)


@contextmanager
def refused_as(kind: type[GpruneError], remedy: str = "") -> Iterator[None]:
    """Gives a refusal the class that a reader promises, and its own remedy at the end."""
    try:
        yield
    except UnreadableError as error:
        raise kind(f"{error}; {remedy}" if remedy else str(error)) from error


def json_value(data: bytes | str, what: str, *, finite: bool = True, digits: int = MOST_DIGITS) -> Any:
    """The value in a JSON text, or its bytes in UTF-8, that may be damaged or hostile.

    `what` is what to call it in an error ("the study file 'a.json'"). If `finite`, NaN and infinities are
    refused; off for what this project writes itself. A whole number has so many `digits` at most; more for
    rows of texts, whose other columns may hold hashes. Raises UnreadableError, which starts with `what`,
    where it is not JSON, nests deeper than DEEPEST, or holds a number that no computer counts with.
    """
    if len(data) > MOST_BYTES:
        raise UnreadableError(f"{what} has {len(data)} bytes; at most {MOST_BYTES} are read as JSON: split it")
    try:
        value = _decoder(finite, digits).decode(data if isinstance(data, str) else data.decode("utf-8-sig"))
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


def json_file(path: Path, what: str, *, finite: bool = True, digits: int = MOST_DIGITS, pipe: bool = False) -> Any:
    """The value in a JSON file, read as by `json_value`.

    `pipe` allows one that a person gave; within a folder a pipe would be waited for forever. Raises
    FileNotFoundError where there is no such file, UnreadableError where it cannot be read, or not as JSON.
    """
    return json_value(contents(path, what, pipe=pipe), what, finite=finite, digits=digits)


def contents(path: Path, what: str, *, most: int = MOST_BYTES, pipe: bool = False) -> bytes:
    """The bytes of a file, of which there may not be more than `most`.

    Raises FileNotFoundError where there is no such file, UnreadableError where it is larger, no ordinary
    file, or cannot be read.
    """

    def read() -> bytes:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode) and not (pipe and (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode))):
            raise UnreadableError(f"{what} is no ordinary file: give a file")
        with path.open("rb") as stream:
            return stream.read(most + 1)

    try:
        data = read()
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        if isinstance(error, UnreadableError):
            raise
        reason = getattr(error, "strerror", None) or sentence(error, 100)
        raise UnreadableError(f"{what} cannot be read: {reason}") from error
    if len(data) > most:
        raise UnreadableError(f"{what} has more than {most} bytes, too many to be read at once: split it")
    return data


def json_object(data: bytes | str, what: str, *, finite: bool = True) -> dict[str, Any]:
    """Like `json_value`, for what must be an object; UnreadableError where it is none."""
    value = json_value(data, what, finite=finite)
    if not isinstance(value, dict):
        raise UnreadableError(f"{what} holds no JSON object (got {quoted(value)})")
    return value


def yaml_object(text: str, what: str) -> dict[str, Any]:
    """The object in a YAML text that may be damaged or hostile; an empty text is an empty object.

    A value that is no list or object is a text as it stands there: no date, no number, nothing that is made.
    Raises UnreadableError where it is too large, is not valid YAML, nests deeper than DEEPEST, or holds no
    object.
    """
    import yaml

    loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    if len(text) > MOST_YAML_CHARACTERS:
        raise UnreadableError(f"{what} has {len(text)} characters; at most {MOST_YAML_CHARACTERS} are read")
    depth = 0
    try:
        for event in yaml.parse(text, Loader=loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                raise UnreadableError(f"{what} nests deeper than {DEEPEST} levels: flatten it")
        value = yaml.load(text, Loader=loader)
    except UnreadableError:
        raise
    except Exception as error:  # the library's own classes, and whatever else it meets on its way
        raise UnreadableError(f"{what} is not valid YAML: {sentence(error, 120)}") from error
    if value not in ("", None) and not isinstance(value, dict):
        raise UnreadableError(f"{what} holds no YAML object but {quoted(type(value).__name__)}: name its fields")
    return value or {}


def path(text: str, what: str) -> Path:
    """A path that a person typed, with `~` resolved; it need not exist.

    `what` it is for is told in an error. Raises UnreadableError where no file of this system can have that
    name, or there is no such user.
    """
    if "\0" in text:
        raise UnreadableError(f"{what} cannot be {quoted(text)}: a path has no NUL character")
    if len(text) > 4096 or any(len(part.encode("utf-8", "surrogatepass")) > 255 for part in text.split("/")):
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


def inside(folder: Path, name: Any, what: str) -> Path:
    """A file that something names inside a folder; links count as where they lead.

    The hub's cache keeps the files of a snapshot as links to `blobs`, beside `snapshots`: these are inside.
    Raises UnreadableError where the name is none, or leads outside the folder.
    """
    if not isinstance(name, str) or not name or Path(name).is_absolute():
        raise UnreadableError(f"{what} names {quoted(name)}, which is no file inside {quoted(str(folder))}")
    place = folder / path(name, what)
    try:
        real, home = place.resolve(), folder.resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise UnreadableError(f"{what} names {quoted(name)}, which leads nowhere: copy it again") from error
    if not real.is_relative_to(home) and not (real.parent == _blobs(home) and real.is_file()):
        raise UnreadableError(
            f"{what} names {quoted(name)}, which leads outside {quoted(str(folder))}: copy the file into it"
        )
    return place


def _blobs(home: Path) -> Path | None:
    """Where the hub's cache keeps the files of a snapshot, for a folder that is one or lies in one."""
    for place in (home, *home.parents):
        if place.parent.name == "snapshots":
            return place.parent.parent / "blobs"
    return None


@lru_cache
def _decoder(finite: bool, digits: int) -> json.JSONDecoder:
    return json.JSONDecoder(
        parse_int=_whole(digits),
        parse_float=_number(finite),
        parse_constant=_constant if finite else float,
    )


def _whole(most: int) -> Callable[[str], int]:
    def read(digits: str) -> int:
        if len(digits) > most and len(digits.lstrip("-")) > most:
            raise UnreadableError(f"holds a whole number of {len(digits.lstrip('-'))} digits: make it smaller")
        return int(digits)

    return read


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
