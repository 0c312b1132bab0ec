"""Rows of tasks: read JSON lines and Parquet, and check their columns."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gprune.system import safe_parsing
from gprune.system.errors import CorpusError
from gprune.system.safe_parsing import is_whole, quoted

Row = dict[str, Any]
Check = Callable[[Any, Row], Any]
"""return the value of a column, given its row; raise ValueError with the rule that it breaks"""
Columns = Mapping[str, Check]

SUFFIXES = (".jsonl", ".parquet")
OWN_QUESTIONS = "1.0"
"""version of prompt and scoring of own questions; raise it whenever they change"""
_MOST_DIGITS = 9
_LISTED = 120


def read_rows(file: Path, task: str, columns: Columns | None = None) -> list[Row]:
    """Read every row of a .jsonl or .parquet file; `columns`, if given, are checked and the others dropped.

    Raises:
        CorpusError: The file cannot be read or is empty, or a column is missing or wrong.
    """
    unit = "row" if file.suffix == ".parquet" else "line"
    rows = []
    for number, row in _read_parquet(file) if unit == "row" else _read_lines(file):
        where = f"the task {task!r}: {unit} {number} of {str(file)!r}"
        if not isinstance(row, dict):
            raise CorpusError(f"{where} is no object: write one question a line")
        try:
            rows.append(row if columns is None else check_row(row, columns))
        except ValueError as error:
            raise CorpusError(f"{where} {error}") from error
    if not rows:
        raise CorpusError(f"the task {task!r}: {str(file)!r} is empty, it must hold one question a line")
    return rows


def check_row(row: Row, columns: Columns) -> Row:
    """Return the columns of a row that a task reads; ValueError names the first that is missing or wrong."""
    missing = [repr(name) for name in columns if name not in row]
    if missing:
        present = safe_parsing.sentence(", ".join(map(str, row)) or "none", _LISTED)
        raise ValueError(f"lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}; it has {present}")
    checked: Row = {}
    for name, check in columns.items():
        try:
            checked[name] = check(row[name], row)
        except ValueError as rule:
            raise ValueError(f"holds {quoted(row[name], 60)} in the column {name!r}, which must be {rule}") from None
    return checked


def text(value: Any, _: Row) -> str:
    """Check a text; it may be empty."""
    if not _is_text(value):
        raise ValueError("text")
    return str(value)


def gapped(value: Any, _: Row) -> str:
    """Check a text with a gap."""
    if not _is_text(value) or "_" not in value:
        raise ValueError("text with a gap, written _")
    return str(value)


def texts(value: Any, _: Row) -> list[str]:
    """Check a list of at least two texts."""
    if not isinstance(value, list) or len(value) < 2 or not all(map(_is_text, value)):
        raise ValueError("a list of at least 2 texts")
    return value


def options(value: Any, row: Row) -> list[str]:
    """Check a list of different texts, none of them empty."""
    choices = texts(value, row)
    if not all(choice.strip() for choice in choices) or len(set(choices)) < len(choices):
        raise ValueError("a list of at least 2 texts, none empty and none twice")
    return choices


def lettered(value: Any, row: Row) -> dict[str, list[str]]:
    """Check choices with their letters."""
    rule = 'an object like {"text": [...], "label": [...]} with as many entries in text as in label'
    try:
        choices = {name: texts(value[name], row) for name in ("text", "label")}
    except (ValueError, TypeError, KeyError, IndexError):
        raise ValueError(rule) from None
    if len(choices["text"]) != len(choices["label"]):
        raise ValueError(rule)
    return choices


def index(value: Any, count: int) -> int:
    """Check the index of a choice, a number or a text of digits."""
    if isinstance(value, str) and value.isdecimal() and len(value) <= _MOST_DIGITS:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < count:
        raise ValueError(f"a number from 0 to {count - 1}")
    return value


def member(value: Any, choices: list[str]) -> str:
    """Check one of several texts; a space before it does not count."""
    if not isinstance(value, str) or value.lstrip() not in choices:
        raise ValueError(f"one of {safe_parsing.sentence(', '.join(choices), _LISTED)}")
    return value.lstrip()


def _own_answer(value: Any, row: Row) -> int:
    choices = row["choices"]
    if not isinstance(value, str):
        return index(value, len(choices))
    return choices.index(value) if value in choices else choices.index(member(value, choices))


OWN_COLUMNS: Columns = {"question": text, "choices": options, "answer": _own_answer}
"""columns of own questions; the answer is the index of the right choice, or the choice itself"""


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and is_whole(value)


def _read_lines(file: Path) -> Iterator[tuple[int, Any]]:
    with safe_parsing.refused_as(CorpusError):
        data = safe_parsing.contents(file, repr(str(file)))
        for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
            if line.strip():
                yield number, safe_parsing.json_value(line, f"line {number} of {str(file)!r}")


def _read_parquet(file: Path) -> Iterator[tuple[int, Any]]:
    import pyarrow
    import pyarrow.parquet

    try:
        yield from enumerate(pyarrow.parquet.read_table(file).to_pylist(), 1)
    except (OSError, pyarrow.ArrowException) as error:
        raise CorpusError(f"{str(file)!r} cannot be read as Parquet: {safe_parsing.sentence(error, 100)}") from error
