"""The fair comparison that comes with the project: measured once, on other models than that of a run."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from gprune.experiments.reproduction.documents import VERDICTS
from gprune.system import installation

DOCUMENT = installation.APP_FOLDER / "docs" / "study.md"
_HEAD, _PART, _ROW = "# ", "## ", "| "


@dataclass(frozen=True, slots=True)
class Document:
    """A document in parts, each a heading and its text."""

    title: str
    opening: str
    """what was measured, on what, by which command"""
    parts: tuple[tuple[str, str], ...]
    text: str
    """all of it, as it was written"""

    @property
    def claims(self) -> Mapping[str, str]:
        """The outcome of every claim and its cases, as `mixed: 8 better, 2 within noise, 6 worse`."""
        lines = dict(self.parts).get(VERDICTS, "").splitlines()
        rows = [line.strip("| ").split(" | ") for line in lines if line.startswith(_ROW)]
        # the first two are the head of the table and the line below it
        return {row[0]: f"{row[2]}: {row[3]}" for row in rows[2:] if len(row) > 3}


def found() -> Document | None:
    """The document; None where it is not among the files of this installation."""
    return _document(DOCUMENT, DOCUMENT.stat().st_mtime_ns) if DOCUMENT.is_file() else None


@lru_cache(maxsize=2)
def _document(path: Path, _changed: int) -> Document:
    return parts_of(path.read_text("utf-8"))


def parts_of(text: str) -> Document:
    """A Markdown document by its headings of the second level."""
    opening, *parts = f"\n{text}".split(f"\n{_PART}")
    title, _, rest = opening.strip().partition("\n")
    named = [part.partition("\n") for part in parts]
    return Document(
        title.removeprefix(_HEAD), rest.strip(), tuple((name, body.strip()) for name, _, body in named), text
    )
