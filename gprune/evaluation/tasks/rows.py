"""Rows of tasks: the columns of the paper's seven tasks and of own questions, read from JSON lines and Parquet.

Prompts and scoring are lm-eval's own definitions (section 4). ARC and OpenBookQA are measured on the split test, the
others on validation, whose answers are public.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class StandardTask:
    """One of the paper's tasks."""

    split: str
    """the split that is measured"""
    folder: str
    """folder of lm-eval's definition, below its folder of tasks"""
    columns: Columns
    """checks of the columns that the definition reads"""


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


def _text(value: Any, _: Row) -> str:
    if not isinstance(value, str) or not is_whole(value):
        raise ValueError("text")
    return value


def _text_with_gap(value: Any, row: Row) -> str:
    if not isinstance(value, str) or "_" not in _text(value, row):
        raise ValueError("text with a gap, written _")
    return value


def _texts(value: Any, _: Row) -> list[str]:
    if not isinstance(value, list) or len(value) < 2 or not all(isinstance(x, str) and is_whole(x) for x in value):
        raise ValueError("a list of at least 2 texts")
    return value


def _options(value: Any, row: Row) -> list[str]:
    choices = _texts(value, row)
    if not all(choice.strip() for choice in choices) or len(set(choices)) < len(choices):
        raise ValueError("a list of at least 2 texts, none empty and none twice")
    return choices


def _lettered_options(value: Any, row: Row) -> dict[str, list[str]]:
    try:
        choices = {name: _texts(value[name], row) for name in ("text", "label")}
        if len(choices["text"]) == len(choices["label"]):
            return choices
    except (ValueError, TypeError, KeyError, IndexError):
        pass
    raise ValueError('an object like {"text": [...], "label": [...]} with as many entries in text as in label')


def _index(value: Any, count: int) -> int:
    """Return the index of a choice, given as a number or a text of digits."""
    if isinstance(value, str) and value.isdecimal() and len(value) <= _MOST_DIGITS:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < count:
        raise ValueError(f"a number from 0 to {count - 1}")
    return value


def _member(value: Any, choices: list[str]) -> str:
    """Return one of several texts; a space before it does not count."""
    if not isinstance(value, str) or value.lstrip() not in choices:
        raise ValueError(f"one of {safe_parsing.sentence(', '.join(choices), _LISTED)}")
    return value.lstrip()


def _own_answer(value: Any, row: Row) -> int:
    choices = row["choices"]
    if not isinstance(value, str):
        return _index(value, len(choices))
    return choices.index(value if value in choices else _member(value, choices))


OWN_COLUMNS: Columns = {"question": _text, "choices": _options, "answer": _own_answer}
"""columns of own questions; the answer is the index of the right choice, or the choice itself"""
_BOOLQ = {
    **dict.fromkeys(("passage", "question"), _text),
    "label": lambda value, _: _index(int(value) if isinstance(value, bool) else value, 2),
}
_PIQA = {"goal": _text, "sol1": _text, "sol2": _text, "label": lambda value, _: _index(value, 2)}
_HELLASWAG = {
    **dict.fromkeys(("activity_label", "ctx_a", "ctx_b"), _text),
    "endings": _texts,
    "label": lambda value, row: str(_index(value, len(row["endings"]))),
}
_WINOGRANDE = {
    "sentence": _text_with_gap,
    **dict.fromkeys(("option1", "option2"), _text),
    "answer": lambda value, _: _member(value, ["1", "2"]),
}
_LETTERED = {"choices": _lettered_options, "answerKey": lambda value, row: _member(value, row["choices"]["label"])}
_ARC = {"question": _text, **_LETTERED}
_OPENBOOKQA = {"question_stem": _text, **_LETTERED}
STANDARD_TASKS: Mapping[str, StandardTask] = {
    "boolq": StandardTask("validation", "super_glue/boolq", _BOOLQ),
    "piqa": StandardTask("validation", "piqa", _PIQA),
    "hellaswag": StandardTask("validation", "hellaswag", _HELLASWAG),
    "winogrande": StandardTask("validation", "winogrande", _WINOGRANDE),
    "arc_easy": StandardTask("test", "arc", _ARC),
    "arc_challenge": StandardTask("test", "arc", _ARC),
    "openbookqa": StandardTask("test", "openbookqa", _OPENBOOKQA),
}
"""the paper's seven tasks by lm-eval's name, in the order of its tables"""


def columns_of(task: str) -> Columns | None:
    """Return the checks of one of the seven tasks, None for any other."""
    return STANDARD_TASKS[task].columns if task in STANDARD_TASKS else None


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
