"""Resolve the name of a text and read its documents.

By default a calibration set is drawn from the split train, and perplexity is measured on the split test, for PTB and C4
on validation, as in the literature. Files have no splits and are used unchanged for both.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from gprune.data.demo import texts
from gprune.data.texts import catalogue, chat, naming, reading, sampled
from gprune.data.texts.hub_rows import EVERYTHING, HubRows, HubSplit
from gprune.data.texts.naming import TextName
from gprune.store import Store
from gprune.system import safe_parsing
from gprune.system.errors import CorpusError, SettingsError
from gprune.system.safe_parsing import closest

Role = Literal["calibration", "evaluation"]
Kind = Literal["embedded", "hub", "folder", "records", "file", "sampled"]

HUB_PREFIX = "hub:"
BLANK_LINE = "\n\n"
_RECORD_OPTIONS = ("fields", "documents", "join", *chat.OPTIONS)
_FOLDER_OPTIONS = ("config", "split", *_RECORD_OPTIONS)
# bytes of a hub text that are read per token: more than the mean of any tokenizer
_TOKEN_BYTES = 16
_REPOSITORY = re.compile(r"[\w.-]+(/[\w.-]+)?")


@dataclass(frozen=True, slots=True)
class Source:
    """A resolved text."""

    name: TextName
    kind: Kind
    title: str
    """description for users"""
    split: str = ""
    """empty for a file"""
    files: tuple[Path, ...] = ()
    """files of a local text in the order of reading"""
    format: str = ""
    """name of the reader of the files"""
    joined: bool = False
    """True if the documents are joined by blank lines and tokenized as one string"""
    dataset: reading.Opener | None = field(default=None, compare=False)
    """opens a local text; None for other texts"""
    hub: HubSplit | None = field(default=None, compare=False)
    """dataset of a hub text; None for other texts"""
    rows: HubRows | None = field(default=None, compare=False)
    """documents of a hub text, or None if they are not in the cache"""


def resolve(
    text: str, role: Role, download: bool = False, tokens: int | None = None, cache: Path | None = None
) -> Source:
    """Resolve the name of a text to its files, its stored documents or its dataset on the hub.

    Args:
        text: name of the text.
        role: calibration or evaluation; it determines the default split.
        download: download a hub text that is not in the cache.
        tokens: number of tokens to read from a hub text; None for all.
        cache: folder of the store's texts; by default that of the default store.

    Raises:
        SettingsError: the name has an option that is unknown or not supported by this kind of text.
        CorpusError: the text or its split does not exist.
    """
    name, cache = naming.parse(text), cache or Store().texts
    if name.base in catalogue.HUB_TEXTS or name.base.startswith(HUB_PREFIX):
        return _hub_source(name, role, download, tokens, cache)
    if name.base in texts.NAMES:
        return _embedded_source(name, role)
    if sampled.is_sampled(name.base):
        sampling, prompts = sampled.sampling_of(name), sampled.prompts_of(name)
        title = f"written by the model itself ({sampled.describe_sampling(sampling, prompts)})"
        if prompts:
            title = f"answers to {resolve(prompts, role, download, tokens, cache).title}, {title}"
        return Source(name, "sampled", title)
    with safe_parsing.reraise_as(CorpusError):
        path = safe_parsing.path(name.base, "there is no text there: the path")
    if not naming.path_exists(name.base):
        raise CorpusError(_missing_message(name))
    if path.is_dir():
        return _folder_source(name, path, role, cache)
    if not path.is_file():
        raise CorpusError(f"{name.base!r} is neither a file nor a folder: give a text file or a dataset folder")
    reader = reading.format_of(str(path))
    is_plain = reader == reading.TEXT
    name.require_options(() if is_plain else _RECORD_OPTIONS, "a plain text file" if is_plain else "a file of records")
    title = f"{'text ' if is_plain else ''}file {path.name}"
    dataset = partial(reading.open_files, [str(path)], cache / "datasets")
    return Source(name, "file" if is_plain else "records", title, "", (path,), reader, name.joined, dataset)


def read_documents(source: Source) -> Iterator[str]:
    """Yield the documents of a local or downloaded text in order.

    Raises CorpusError if a file cannot be read, or the slice of documents is empty.
    """
    document_slice = source.name.documents
    # the stored documents of a hub text are already sliced
    if document_slice == slice(None) or source.kind == "hub":
        yield from _all_documents(source)
        return
    count = 0
    for document in reading.slice_documents(_all_documents(source), document_slice):
        count += 1
        yield document
    if not count:
        total = sum(1 for _ in _all_documents(source))
        option = source.name.option("documents")
        raise CorpusError(
            f"documents={option} of the text {source.name.text!r} selects none of its {total:,} documents"
        )


def fields_of(source: Source) -> tuple[str, ...]:
    """Return the fields of a document of a local text; empty for plain text."""
    if source.dataset is None or source.format == reading.TEXT:
        return ()
    return reading.first_fields(source.dataset, source.name)


def _all_documents(source: Source) -> Iterator[str]:
    if source.kind == "sampled":
        raise CorpusError(
            f"the text {source.name.text!r} is written by the model during a run and cannot be read outside "
            "a run: start a run with it"
        )
    if source.kind == "embedded":
        yield from texts.documents(source.name.base, source.split)
    if source.rows is not None:
        yield from source.rows.documents()
    if source.dataset is not None:
        yield from reading.documents_of(source.dataset, source.name)


def _choose_split(name: TextName, role: Role, evaluation: str = "test") -> str:
    return name.option("split") or ("train" if role == "calibration" else evaluation)


def _embedded_source(name: TextName, role: Role) -> Source:
    name.require_options(("split", "documents"), "an embedded text")
    split = name.require_split(_choose_split(name, role), texts.SPLITS, SettingsError)
    return Source(name, "embedded", texts.DESCRIPTIONS[name.base].rstrip("."), split)


def _hub_source(name: TextName, role: Role, download: bool, tokens: int | None, cache: Path) -> Source:
    """Resolve a named text on the hub or any other hub dataset."""
    entry = catalogue.HUB_TEXTS.get(name.base)
    if entry is not None:
        name.require_options(("split", "documents"), "a text known by name")
        split = name.require_split(_choose_split(name, role, entry.evaluation), tuple(entry.files), SettingsError)
        dataset = HubSplit(entry.repository, entry.revision, name, split, entry.files[split])
        title, joined, complete = entry.description, entry.joined, entry.complete
    else:
        name.require_options(("revision", *_FOLDER_OPTIONS), "a hub dataset")
        repository, config = name.base.removeprefix(HUB_PREFIX), name.option("config")
        if not _REPOSITORY.fullmatch(repository):
            raise SettingsError(f"{name.base!r} names no hub dataset: type it like hub:Salesforce/wikitext")
        split = _choose_split(name, role)
        dataset = HubSplit(repository, name.option("revision") or "main", name, split)
        title = f"hub dataset {repository}" + (f", configuration {config}" if config else "")
        joined, complete = name.joined, False
    # bounds counted from the end need all documents
    has_negative_bound = min(name.documents.start or 0, name.documents.stop or 0) < 0
    size = EVERYTHING if complete or tokens is None or has_negative_bound else tokens * _TOKEN_BYTES
    rows = dataset.fetch(size, cache) if download else dataset.load(size, cache)
    return Source(name, "hub", title, split, joined=joined, hub=dataset, rows=rows)


def _folder_source(name: TextName, folder: Path, role: Role, cache: Path) -> Source:
    name.require_options(_FOLDER_OPTIONS, "a dataset folder")
    split = _choose_split(name, role)
    data = reading.open_folder(str(folder), name, split, cache / "datasets")
    # raises an error for unsupported files, for example of a git clone without its large files
    reading.format_of(data.files[0])
    files = tuple(map(Path, data.files))
    return Source(name, "folder", f"dataset folder {folder.name}", split, files, data.format, name.joined, data.open)


def _names_in(folder: Path) -> list[str]:
    try:
        return sorted(child.name for child in safe_parsing.path(str(folder), "the folder").iterdir())
    except (OSError, ValueError):
        return []


def _missing_message(name: TextName) -> str:
    """Return the error message for a location that does not exist, with suggestions."""
    path = Path(name.base)
    folder = path.parent
    similar_name = closest(path.name, _names_in(folder))
    candidates = [closest(name.base, catalogue.named_texts()), str(folder / similar_name) if similar_name else ""]
    suggestion = " or ".join(repr(candidate) for candidate in candidates if candidate)
    if suggestion:
        return f"there is no text {name.base!r}: did you mean {suggestion}?"
    if _REPOSITORY.fullmatch(name.base) and "/" in name.base and not path.suffix:
        return f"there is no folder {name.base!r}: for the dataset on the hub type {HUB_PREFIX}{name.text}"
    names = ", ".join(catalogue.named_texts())
    return f"there is no text {name.base!r}: give a file, a dataset folder, hub:owner/name, or one of {names}"
