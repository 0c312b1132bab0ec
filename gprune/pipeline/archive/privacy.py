"""What a pack tells of the machine that made it: paths that the study does not name are shortened.

What stays is said to whoever packs a run (`STAYS`).
"""

import re
import socket
from pathlib import Path
from typing import Any

from gprune.pipeline.archive.contents import FIELDS
from gprune.study import Study

STAYS = (
    "the study as it was written, with the names or paths of its model and texts and its display name; "
    "SHA-256 digests of model, tokenizer, texts and tasks; versions of the program, its libraries and "
    "plug-ins; "
    "operating system, number of cores, peak memory, processor or GPU; times and durations; why methods or "
    "tasks are missing"
)
_PATH = re.compile(r"(?<![\w.:/\\~-])(?:~|[A-Za-z]:)?[/\\](?:[^\s'\"“”`,;:()<>|*?/\\]+[/\\])+[^\s'\"“”`,;:()<>|*?/\\]*")
_SENTENCE = re.compile(r"[ /\\]")
"""what a name or a digest has none of"""
_LOCAL = ("checkpoint", "recovered_checkpoint")
"""fields of a run's result that are places on the machine"""


def without_places(values: Any, study: Study, root: Path) -> Any:
    """A copy of plain values in which no text names a place of this machine that the study does not name."""
    known = frozenset(_strings(study.to_dict()))
    return _cleaned(values, known, _own(root))


def public_record(record: dict[str, Any], study: Study, root: Path) -> dict[str, Any]:
    """A run's record as it may leave this machine."""
    # what is not known to be harmless stays, as who runs it
    known = {name: value for name, value in record.items() if name in FIELDS}
    found: dict[str, Any] = without_places(known, study, root)
    # as it was typed: the run's name and its keys follow from it
    found["study"] = record["study"]
    result = found.get("result")
    if isinstance(result, dict):
        found["result"] = {name: value for name, value in result.items() if name not in _LOCAL}
    return found


def _own(root: Path) -> re.Pattern[str]:
    """What would tell whose machine this is."""
    named = sorted({str(root), str(Path.home()), socket.gethostname()}, key=len, reverse=True)
    return re.compile("|".join(rf"(?<![\w-]){re.escape(one)}(?![\w-])" for one in named if len(one) > 3) or "(?!)")


def _cleaned(value: Any, known: frozenset[str], own: re.Pattern[str]) -> Any:
    if isinstance(value, dict):
        # names of stages, methods and of what the study names
        return {name: _cleaned(one, known, own) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(one, known, own) for one in value]
    if not isinstance(value, str) or value in known or not _SENTENCE.search(value):
        return value
    # a sentence may quote what the study names
    text = _PATH.sub(lambda found: found[0] if _named(found[0], known) else _shortened(found[0]), value)
    return own.sub(lambda found: found[0] if _named(found[0], known) else "…", text)


def _named(path: str, known: frozenset[str]) -> bool:
    return any(name.startswith(path) for name in known)


def _shortened(path: str) -> str:
    """The last part of a path."""
    return "…/" + re.split(r"[/\\]", path.rstrip("/\\"))[-1]


def _strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for one in value.values() for text in _strings(one)]
    if isinstance(value, list | tuple):
        return [text for one in value for text in _strings(one)]
    return [value] if isinstance(value, str) else []
