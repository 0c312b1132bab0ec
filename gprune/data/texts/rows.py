"""Answers: what does one file hold, record by record, and which of its fields are the text?

Text files are UTF-8 and read as they are. JSON lines, parquet and Arrow files hold records; the text of a
record is the fields asked for, else its field ``text``, else all its fields when all of them are text.
The readers of the datasets library would give other texts: line ends changed, and texts like dates as dates.
"""

import gzip
import shlex
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from gprune.data.texts.naming import TextName
from gprune.system import safe_parsing
from gprune.system.errors import CorpusError

Record = dict[str, Any]

_KINDS = {
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".parquet": "parquet",
    ".arrow": "arrow",
}
_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_BINARY_PROBE = 8192
_BATCH = 1024
_SHOWN_FIELDS = 20
# what a compressed file of some kilobytes may grow to at most; no text of ours is as large
_MOST_TEXT = 4 * 2**30
# a column that is not read may hold hashes, as whole numbers of 128 or 256 bits
_MOST_DIGITS = 300


def kind_of(file: Path) -> str:
    """What a file holds by its suffix: json, parquet, arrow or text; a final .gz does not count."""
    suffixes = [suffix.lower() for suffix in file.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    return _KINDS.get(suffixes[-1] if suffixes else "", "text")


def read_text(file: Path) -> str:
    """The whole text of a file, unchanged but for a leading byte order mark.

    Raises CorpusError where the file cannot be read, is binary, or is not UTF-8.
    """
    try:
        with gzip.open(file) if _compressed(file) else file.open("rb") as stream:
            data = stream.read(_MOST_TEXT + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise CorpusError(_unreadable(file, error)) from error
    if len(data) > _MOST_TEXT:
        raise CorpusError(f"{str(file)!r} holds more than {_MOST_TEXT >> 30} GiB: cut it, or give .jsonl")
    return _decode(data, file, 0)


def read_documents(file: Path, name: TextName) -> Iterator[str]:
    """The documents of one file, one after the other: one of a text file, one a record of others.

    `name` has the fields. Raises CorpusError where the file cannot be read or a record has no such text.
    """
    if kind_of(file) == "text":
        if name.fields:
            typed = "+".join(name.fields)
            raise CorpusError(f"the text file {str(file)!r} has no fields: leave out fields={typed}")
        yield read_text(file)
        return
    unit = "line" if kind_of(file) == "json" else "row"
    fields: tuple[str, ...] = ()
    for number, record in records(file):
        fields = fields or choose_fields(record, name, file)
        yield _join(record, fields, name, f"{unit} {number} of {str(file)!r}")


def first_fields(file: Path, name: TextName) -> tuple[str, ...]:
    """The fields that make up a document of a file; none for a text file or a file without records."""
    if kind_of(file) == "text":
        return ()
    for _, record in records(file):
        return choose_fields(record, name, file)
    return ()


def choose_fields(record: Record, name: TextName, file: Path) -> tuple[str, ...]:
    """The fields of a record that are its text, in the order they are joined.

    Raises CorpusError where a field asked for is missing, or none was asked for and the choice is not plain.
    """
    listing = ", ".join(list(record)[:_SHOWN_FIELDS]) or "none"
    text_fields = [key for key, value in record.items() if isinstance(value, str)]
    remedy = _field_remedy(record, text_fields, name)
    if name.fields:
        missing = [field for field in name.fields if field not in record]
        if missing:
            raise CorpusError(f"{str(file)!r} has no field {missing[0]!r}, only {listing}{remedy}")
        return name.fields
    if isinstance(record.get("text", 0), str | None):
        return ("text",)
    if record and len(text_fields) == len(record):
        return tuple(record)
    raise CorpusError(f"{str(file)!r} does not say which of its fields is the text: {listing}{remedy}")


def _field_remedy(record: Record, text_fields: list[str], name: TextName) -> str:
    if not text_fields:
        return ". None of them is text"
    longest = max(text_fields, key=lambda key: len(record[key]))
    return f". Type for example {name.typed(fields=longest)}"


def _join(record: Record, fields: tuple[str, ...], name: TextName, where: str) -> str:
    everything = not name.fields and fields != ("text",)
    if everything and set(record) != set(fields):
        raise CorpusError(
            f"{where} has the fields {', '.join(record) or 'none'} and the first one {', '.join(fields)}: "
            f"say which to read, for example {name.typed(fields=fields[0])}"
        )
    parts = []
    for field in fields:
        if field not in record:
            raise CorpusError(f"{where} lacks the field {field!r}: it has {', '.join(record) or 'none'}")
        value = record[field]
        if value is not None and not isinstance(value, str):
            kind = type(value).__name__
            raise CorpusError(f"the field {field!r} of {where} holds a {kind}, not text: choose other fields")
        parts.append(value or "")
    return "".join(parts)


def records(file: Path) -> Iterator[tuple[int, Record]]:
    """The records of a file with the number of their line or row, from 1."""
    kind = kind_of(file)
    if kind == "json":
        yield from _json_records(file)
        return
    import pyarrow as arrow

    try:
        batches = _parquet_batches(file) if kind == "parquet" else _arrow_batches(file)
        number = 0
        for batch in batches:
            for record in batch.to_pylist():
                number += 1
                yield number, record
    except (OSError, arrow.ArrowException, ValueError, TypeError, KeyError, OverflowError) as error:
        # beside its own classes: texts that are not UTF-8, dates beyond every calendar
        raise CorpusError(f"{str(file)!r} is not a readable {kind} file: {_first_line(error)}") from error


def _parquet_batches(file: Path) -> Iterator[Any]:
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(file) as opened:
        yield from opened.iter_batches(batch_size=_BATCH)


def _arrow_batches(file: Path) -> Iterator[Any]:
    import pyarrow as arrow

    with arrow.memory_map(str(file)) as mapped:
        yield from arrow.ipc.open_stream(mapped)


def _json_records(file: Path) -> Iterator[tuple[int, Record]]:
    for number, line in _lines(file):
        if number == 1 and ".json" in file.suffixes and line.lstrip().startswith("["):
            yield from _json_array(file)
            return
        if not line.strip():
            continue
        with safe_parsing.refused_as(CorpusError, 'each line must hold one object, like {"text": "..."}'):
            record = _json(line, f"line {number} of {str(file)!r}")
        yield number, _object(record, f"line {number} of {str(file)!r}")


def _json_array(file: Path) -> Iterator[tuple[int, Record]]:
    text = read_text(file)
    with safe_parsing.refused_as(CorpusError, "or give one object a line, as .jsonl"):
        records = _json(text, repr(str(file)))
    for number, record in enumerate(records, 1):
        yield number, _object(record, f"entry {number} of {str(file)!r}")


def _json(text: str, what: str) -> Any:
    return safe_parsing.json_value(text, what, finite=False, digits=_MOST_DIGITS)


def _object(record: Any, where: str) -> Record:
    if not isinstance(record, dict):
        kind = type(record).__name__
        raise CorpusError(f'{where} holds a {kind}, not an object like {{"text": "..."}}')
    return record


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    offset = 0
    try:
        with gzip.open(file) if _compressed(file) else file.open("rb") as stream:
            # one more than is taken: a line without an end would fill the memory
            for number, line in enumerate(iter(partial(stream.readline, safe_parsing.MOST_BYTES + 1), b""), 1):
                if len(line) > safe_parsing.MOST_BYTES:
                    raise CorpusError(f"line {number} of {str(file)!r} is too long: cut it into several")
                yield number, _decode(line, file, offset)
                offset += len(line)
    except (OSError, EOFError, zlib.error) as error:
        raise CorpusError(_unreadable(file, error)) from error


def _compressed(file: Path) -> bool:
    return file.suffix.lower() == ".gz"


def _decode(data: bytes, file: Path, offset: int) -> str:
    """Decodes UTF-8; `offset` is where in the file the data begins."""
    shown = shlex.quote(str(file))
    if not offset and data.startswith(_UTF16_MARKS):
        remedy = f"Convert it, as with: iconv -f UTF-16 -t UTF-8 {shown} > converted.txt"
        raise CorpusError(f"the file {str(file)!r} is UTF-16, not UTF-8. {remedy}")
    if b"\0" in data[:_BINARY_PROBE]:
        raise CorpusError(f"{str(file)!r} is a binary file, not text: give a text, .jsonl or .parquet file")
    body = data if offset else data.removeprefix(_UTF8_MARK)
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        place = offset + len(data) - len(body) + error.start
        remedy = f"Convert it, as with: iconv -f ISO-8859-1 -t UTF-8 {shown} > converted.txt"
        raise CorpusError(
            f"the file {str(file)!r} is not UTF-8: byte 0x{body[error.start]:02x} at offset {place}. {remedy}"
        ) from error


def _unreadable(file: Path, error: BaseException) -> str:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else _first_line(error)
    return f"the file {str(file)!r} cannot be read: {reason}"


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
