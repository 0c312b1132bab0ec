"""Answers: where are the documents of a named text, and which of them are read?

A calibration set is drawn from the split train; perplexity is measured on the split test, of PTB and C4
on validation, as the literature does. Plain files and files of records have no splits and are read as
they are in both roles.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from gprune.data.demo import texts
from gprune.data.texts import catalogue, hub, layout, naming, rows, sampled
from gprune.data.texts.naming import TextName
from gprune.system import safe_parsing
from gprune.system.errors import CorpusError, SettingsError
from gprune.system.nearest import closest

Role = Literal["calibration", "evaluation"]
Kind = Literal["embedded", "hub", "folder", "records", "file", "sampled"]

HUB_PREFIX = "hub:"
BLANK_LINE = "\n\n"
_RECORD_OPTIONS = ("fields", "documents", "join")
_FOLDER_OPTIONS = ("config", "split", *_RECORD_OPTIONS)
# more than any tokenizer puts into one token on average
_CHARACTERS = 16
_REPOSITORY = re.compile(r"[\w.-]+(/[\w.-]+)?")


@dataclass(frozen=True, slots=True)
class Source:
    """A text that was found."""

    name: TextName
    """the name it was asked for by"""
    kind: Kind
    """where it comes from"""
    title: str
    """what it is, for people"""
    split: str = ""
    """its split; empty for a file"""
    files: tuple[Path, ...] = ()
    """its files in order; empty for an embedded text, for one that the model writes, and for a hub text that
    is not on this machine"""
    joined: bool = False
    """its documents, a blank line between them, are one string that is tokenised once"""


def resolve(text: str, role: Role, download: bool = False, tokens: int | None = None) -> Source:
    """Finds a text as typed; the role decides the split that is meant where none was typed.

    A hub text that is not on this machine is fetched if `download`; of a hub dataset with many files the
    first ones are read that hold as many `tokens`, None for all there are. Raises SettingsError where the
    name has an unknown option or one that this kind of text does not take, CorpusError where there is no such
    text, or not this split of it.
    """
    if role not in ("calibration", "evaluation"):
        raise SettingsError(f"role must be calibration or evaluation (got {role!r})")
    name = naming.parse(text)
    if name.place in catalogue.HUB_TEXTS:
        return _known_hub(name, role, download)
    if name.place in texts.NAMES:
        return _embedded(name, role)
    if name.place.startswith(HUB_PREFIX):
        return _any_hub(name, role, download, tokens)
    if sampled.is_sampled(name.place):
        words = sampled.in_words(sampled.sampling_of(name))
        return Source(name, "sampled", f"written by the model itself ({words})")
    with safe_parsing.refused_as(CorpusError):
        path = safe_parsing.path(name.place, "there is no text there: the path")
    if not naming.path_exists(name.place):
        raise CorpusError(_missing(name))
    if path.is_dir():
        return _folder(name, path, role)
    if not path.is_file():
        raise CorpusError(f"{name.place!r} is neither a file nor a folder: give a text file or a dataset folder")
    if rows.kind_of(path) == "text":
        name.allow((), "a plain text file")
        return Source(name, "file", f"text file {path.name}", files=(path,))
    name.allow(_RECORD_OPTIONS, "a file of records")
    return Source(name, "records", f"file {path.name}", files=(path,), joined=name.joined)


def by_amount(text: str) -> bool:
    """Whether what a text says depends on how much of it is asked for.

    So it is with one that the model writes, and with a hub dataset, which is read file by file.
    """
    return sampled.is_sampled(text) or text.strip().startswith(HUB_PREFIX)


def documents(source: Source, cache: Path | None = None) -> Iterator[str]:
    """The documents of a text on this machine, in order and unchanged; `cache` keeps embedded texts.

    Raises CorpusError where a file cannot be read, or the slice of documents is empty.
    """
    span = source.name.documents
    if span == slice(None):
        yield from _all_documents(source, cache)
        return
    found = 0
    for document in _sliced(_all_documents(source, cache), span):
        found += 1
        yield document
    if not found:
        total = sum(1 for _ in _all_documents(source, cache))
        asked = source.name.option("documents")
        raise CorpusError(
            f"documents={asked} of the text {source.name.asked!r} selects none of its {total:,} documents"
        )


def fields_of(source: Source) -> tuple[str, ...]:
    """The fields that make up a document; none where the text has no records."""
    return rows.first_fields(source.files[0], source.name) if source.files else ()


def _sliced(items: Iterator[str], span: slice) -> Iterator[str]:
    if (span.start or 0) < 0 or (span.stop or 0) < 0:
        return iter(list(items)[span])
    return islice(items, span.start, span.stop)


def _all_documents(source: Source, cache: Path | None) -> Iterator[str]:
    if source.kind == "sampled":
        raise CorpusError(
            f"the text {source.name.asked!r} is written by the model in a run and cannot be read without one"
            ": start a run with it"
        )
    if source.kind == "embedded":
        yield from texts.documents(source.name.place, source.split)
    for file in source.files:
        yield from rows.read_documents(file, source.name)


def _split(name: TextName, role: Role, evaluation: str = "test") -> str:
    return name.option("split") or ("train" if role == "calibration" else evaluation)


def _known_split(name: TextName, split: str, known: tuple[str, ...]) -> str:
    if split not in known:
        example = name.typed(split=closest(split, known) or known[0])
        raise SettingsError(
            f"the text {name.place!r} has no split {split!r}, only {', '.join(known)}. Type for example {example}"
        )
    return split


def _embedded(name: TextName, role: Role) -> Source:
    name.allow(("split", "documents"), "an embedded text")
    split = _known_split(name, _split(name, role), texts.SPLITS)
    return Source(name, "embedded", texts.DESCRIPTIONS[name.place].rstrip("."), split)


def _known_hub(name: TextName, role: Role, download: bool) -> Source:
    entry = catalogue.HUB_TEXTS[name.place]
    name.allow(("split", "documents"), "a text known by name")
    split = _known_split(name, _split(name, role, entry.evaluation), tuple(entry.files))
    where = (entry.repository, entry.revision, entry.files[split])
    file = hub.fetch(*where) if download else hub.cached_file(*where)
    return Source(name, "hub", entry.description, split, (file,) if file else (), entry.joined)


def _any_hub(name: TextName, role: Role, download: bool, tokens: int | None) -> Source:
    repository = name.place.removeprefix(HUB_PREFIX)
    name.allow(("revision", *_FOLDER_OPTIONS), "a hub dataset")
    if not _REPOSITORY.fullmatch(repository):
        raise SettingsError(f"{name.place!r} names no hub dataset: type it like hub:Salesforce/wikitext")
    split = _split(name, role)
    span = name.documents
    whole = (tokens is None and span.stop is None) or min(span.start or 0, span.stop or 0) < 0
    revision = name.option("revision") or "main"
    found = hub.split_files(repository, revision, name, split, download, whole)
    files = tuple(file for file, _ in found) if whole else _enough(found, name, tokens)
    config = name.option("config")
    title = f"hub dataset {repository}" + (f", configuration {config}" if config else "")
    return Source(name, "hub", title, split, files, name.joined)


def _enough(found: Iterator[tuple[Path, bool]], name: TextName, tokens: int | None) -> tuple[Path, ...]:
    """The first files that hold the documents asked for, or as many tokens whatever the tokenizer."""
    span, taken = name.documents, list[Path]()
    wanted = math.inf if tokens is None else tokens * _CHARACTERS
    documents = characters = 0
    for file, last in found:
        taken.append(file)
        for document in () if last else rows.read_documents(file, name):
            characters += len(document) if documents >= (span.start or 0) else 0
            documents += 1
            if characters >= wanted or documents == span.stop:
                return tuple(taken)
    return tuple(taken)


def _folder(name: TextName, folder: Path, role: Role) -> Source:
    name.allow(_FOLDER_OPTIONS, "a dataset folder")
    split = _split(name, role)
    files = layout.folder_files(folder, name, split)
    return Source(name, "folder", f"dataset folder {folder.name}", split, files, name.joined)


def _names_in(folder: Path) -> list[str]:
    try:
        return sorted(child.name for child in safe_parsing.path(str(folder), "the folder").iterdir())
    except (OSError, ValueError):
        return []


def _missing(name: TextName) -> str:
    """What may have been meant by a place that does not exist."""
    path = Path(name.place)
    folder = path.parent
    near = closest(path.name, _names_in(folder))
    hints = [closest(name.place, catalogue.names()), str(folder / near) if near else ""]
    meant = " or ".join(repr(hint) for hint in hints if hint)
    if meant:
        return f"there is no text {name.place!r}: did you mean {meant}?"
    if _REPOSITORY.fullmatch(name.place) and "/" in name.place and not path.suffix:
        return f"there is no folder {name.place!r}: for the dataset on the hub type {HUB_PREFIX}{name.asked}"
    known = ", ".join(catalogue.names())
    return f"there is no text {name.place!r}: give a file, a dataset folder, hub:owner/name, or one of {known}"
