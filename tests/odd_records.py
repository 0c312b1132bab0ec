"""Run records in which one field is not what it should be, for whoever must not stumble over them."""

import copy
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ODD: dict[str, str] = {
    "null": "null",
    "truth": "true",
    "number": "7",
    "negative": "-3",
    "digits": "9" * 400,
    "beyond": "1e400",
    "nan": "NaN",
    "text": '"odd"',
    "path": '"../../etc/passwd"',
    "huge": json.dumps("x" * 300_000),
    "markup": '"<script>alert(1)</script> [x](javascript:1) \\u0000 \\ud800"',
    "list": "[1]",
    "deep": "[" * 5000 + "]" * 5000,
    "object": '{"odd": {"odd": []}}',
    "names": '{"../..": {"key": "../.."}}',
}
"""values by what they are, as JSON, most of which no field takes"""
_PLACE = "value of the field at hand"


def places(record: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Every field of a record, with those of the first entry of each table; `result` only as a whole."""
    yield from _below(record, ())


def _below(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if path:
        yield path
    if isinstance(value, dict) and path != ("result",):
        table = path in (("stages",), ("expected",), ("texts",)) or path[:2] == ("provenance", "inputs")[:2]
        names = list(value)[:1] if table and path[-1:] != ("inputs",) else list(value)
        for name in names:
            yield from _below(value[name], (*path, name))


def with_field(record: dict[str, Any], path: tuple[str, ...], odd: str) -> str:
    """The record as JSON, with one field exchanged for a value that is JSON already."""
    changed = copy.deepcopy(record)
    inner = changed
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = _PLACE
    return json.dumps(changed).replace(json.dumps(_PLACE), odd)


def everywhere(
    record: dict[str, Any], kind: str, readable: Callable[[dict[str, Any]], bool], but: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The record with one odd value in every field that takes it, all at once."""
    found = record
    for path in places(record):
        if ".".join(path).startswith(but) or not _there(found, path):
            continue
        changed = json.loads(with_field(found, path, ODD[kind]))
        if readable(changed):
            found = changed
    return found


def _there(value: Any, path: tuple[str, ...]) -> bool:
    for name in path:
        if not isinstance(value, dict) or name not in value:
            return False
        value = value[name]
    return True


def write_all(root: Path, record: dict[str, Any], every: int = 1) -> dict[str, tuple[str, str]]:
    """Writes a run for every field and every odd value; gives field and value by the run's name.

    `every` leaves out all but each so-many-th of these pairs; 7 leaves every value and every field in.
    """
    found = {}
    pairs = itertools.product(enumerate(places(record)), ODD.items())
    for (number, path), (kind, odd) in itertools.islice(pairs, None, None, every):
        name = f"odd-{number}-{kind}"
        (root / "runs" / name).mkdir(parents=True)
        text = with_field(record, path, odd)
        (root / "runs" / name / "run.json").write_text(text, encoding="utf-8", errors="surrogatepass")
        found[name] = (".".join(path), kind)
    return found
