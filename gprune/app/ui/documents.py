"""Documents that come with the project: the glossary and the fair comparison of methods."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from gprune.analysis.claims import VERDICTS
from gprune.records.repairs import REPAIR_BY_WORD
from gprune.system import installation

DOCUMENT = installation.APP_FOLDER / "docs" / "fair_study.md"
_TITLE, _HEADING, _ROW = "# ", "## ", "| "
"""first characters of a title, a heading of the second level and a row of a table in Markdown"""


@dataclass(frozen=True, slots=True)
class Document:
    """A Markdown document, split at its headings of the second level."""

    title: str
    opening: str
    """text before the first part: what was measured, on what, by which command"""
    parts: tuple[tuple[str, str], ...]
    """heading and text of each part"""
    text: str
    """the whole document as Markdown"""

    @property
    def claims(self) -> Mapping[str, str]:
        """The outcome of every claim and its cases, as `mixed: 8 better, 2 within noise, 6 worse`."""
        lines = dict(self.parts).get(VERDICTS, "").splitlines()
        rows = [line.strip("| ").split(" | ") for line in lines if line.startswith(_ROW)]
        # the first two rows are the heading of the table and the line below it
        return {row[0]: f"{row[2]}: {row[3]}" for row in rows[2:] if len(row) > 3}


def fair_study() -> Document | None:
    """Return the comparison of methods in docs/fair_study.md; None if this installation lacks the file."""
    return _read_document(DOCUMENT, DOCUMENT.stat().st_mtime_ns) if DOCUMENT.is_file() else None


@lru_cache(maxsize=2)
def _read_document(path: Path, _modified: int) -> Document:
    """Read a document; the time of its modification is part of the cache key."""
    return split_document(path.read_text("utf-8"))


def split_document(text: str) -> Document:
    """Split a Markdown document at its headings of the second level."""
    opening, *parts = f"\n{text}".split(f"\n{_HEADING}")
    title, _, rest = opening.strip().partition("\n")
    sections = [part.partition("\n") for part in parts]
    return Document(
        title.removeprefix(_TITLE), rest.strip(), tuple((name, body.strip()) for name, _, body in sections), text
    )


def _read_terms() -> dict[str, str]:
    """Return the glossary's terms with their meanings, sorted; the repairs replace the entry Repairs."""
    terms = dict[str, str]()
    repairs = {repair.label.capitalize(): repair.about for repair in REPAIR_BY_WORD.values()}
    for word, meaning in split_document(Path(__file__).with_name("glossary.md").read_text("utf-8")).parts:
        terms |= repairs if word == "Repairs" else {word: " ".join(meaning.split())}
    return dict(sorted(terms.items(), key=lambda term: term[0].lower()))


TERMS = _read_terms()
"""the glossary: the meaning of each word in one or two sentences"""
_ALIASES = {
    "A, B, C": ("calibration text",),
    "Drift d": ("drift",),
    "Nats/token": ("nats/token", "nats"),
    "Repeatability u": ("repeatability",),
}


def aliases(term: str) -> tuple[str, ...]:
    """Return the names of a term in sentences, the shortest first."""
    return _ALIASES.get(term) or tuple(term.split(", "))


def search_terms(typed: str) -> list[str]:
    """Return the terms that match a search.

    A search without commas matches names and meanings, names first. Several words separated by commas match only whole
    names, and their terms have the order of the words.
    """
    words = [word.strip().lower() for word in typed.split(",") if word.strip()]
    if len(words) > 1:
        term_by_alias = {alias.lower(): term for term in TERMS for alias in (term, *aliases(term))}
        return list(dict.fromkeys(term_by_alias[word] for word in words if word in term_by_alias))
    part = words[0] if words else ""
    hits = [term for term, meaning in TERMS.items() if part in f"{term} {meaning}".lower()]
    return sorted(hits, key=lambda term: part not in term.lower())


def terms_in(*texts: str) -> list[str]:
    """Return the terms that some texts use, in the order of their first use."""
    text = " ".join(texts)
    positions = {term: [start for alias in aliases(term) if (start := _position(alias, text)) >= 0] for term in TERMS}
    return sorted((term for term in TERMS if positions[term]), key=lambda term: min(positions[term]))


def _position(word: str, text: str) -> int:
    """Return the position of a word in a text, singular or plural, or -1; abbreviations are case-sensitive."""
    flags = re.NOFLAG if word.isupper() else re.IGNORECASE
    match = re.search(rf"(?<!\w){re.escape(word)}(es|s)?(?!\w)", text, flags)
    return match.start() if match else -1
