"""Answers: is this the same text as before, and what is it in one line?

A fingerprint hashes what decides the tokens (the bytes of the files, the fields and documents read, how
they are joined) and nothing else, so that two names of one content have one fingerprint.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

from gprune.data.demo import texts
from gprune.data.texts import rows
from gprune.data.texts.sampled import sampling_of
from gprune.data.texts.source import Role, Source, documents, fields_of, resolve
from gprune.store import digests
from gprune.system.errors import CorpusError

# larger texts are described by their size, not by their count of documents
_COUNTED_BYTES = 64 << 20
_KEPT = 256


def fingerprint(text: str, role: Role, memory: Path | None = None, tokens: int | None = None) -> str:
    """SHA-256 of what a text says in a role, without tokenising it.

    `memory` keeps digests of large files for other processes; for `tokens` see `resolve`. A hub text that is
    not on this machine is known by its name only: `prepare` fetches it first. A text that the model writes is
    known by how it is sampled only: what else decides it is in its recipe. Raises SettingsError where the
    name is not valid, CorpusError where the text cannot be read.
    """
    source = resolve(text, role, tokens=tokens)
    name = source.name
    content = {
        "files": _digests(source.files, memory),
        "fields": fields_of(source),
        "documents": [name.documents.start or 0, name.documents.stop],
        "joined": source.joined,
    }
    if source.kind == "embedded":
        content |= {"embedded": name.place, "split": source.split, "version": texts.version(name.place)}
    elif source.kind == "sampled":
        content |= {"sampled": asdict(sampling_of(name)), "role": role}
    elif not source.files:
        content |= {"place": name.place, "split": source.split, "options": sorted(name.options)}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def prepare(text: str, role: Role, tokens: int | None = None) -> None:
    """Makes sure that a text is on this machine: a hub text is downloaded, any other only looked for.

    For `tokens` see `resolve`. Raises SettingsError where the name is not valid, CorpusError where there is
    no such text, or it cannot be downloaded.
    """
    resolve(text, role, download=True, tokens=tokens)


def describe(text: str, role: Role = "calibration") -> str:
    """One line for people: what the text is, how much of it there is, and which fields are joined.

    Raises SettingsError where the name is not valid, CorpusError where there is no such text, or it cannot be
    read.
    """
    source = resolve(text, role)
    parts = [source.title]
    if source.split:
        parts.append(f"split {source.split}")
    if source.files:
        parts += _extent(source)
    elif source.kind == "hub":
        parts.append("not on this machine yet")
    return ", ".join(parts)


def _extent(source: Source) -> list[str]:
    stamps = tuple(stamp(file) for file in source.files)
    size = sum(stamp[1] for stamp in stamps)
    parts = [f"{len(stamps):,} files"] if len(stamps) > 1 else []
    asked = source.name.option("documents")
    if size > _COUNTED_BYTES:
        parts.append(f"{size / 1e6:,.0f} MB" + (f", documents {asked}" if asked else ""))
    else:
        count, characters = _count(source, stamps)
        parts += [f"{count:,} documents"] if source.kind != "file" else []
        parts.append(f"{characters:,} characters")
    fields = fields_of(source)
    if fields:
        parts.append(f"the field {fields[0]}" if len(fields) == 1 else f"fields {' + '.join(fields)} joined")
    return parts


@lru_cache(maxsize=_KEPT)
def _count(source: Source, stamps: tuple[tuple[Path, int, int], ...]) -> tuple[int, int]:
    """Documents and characters; `stamps` makes a changed file a new question."""
    count = characters = 0
    for document in documents(source):
        count += 1
        characters += len(document)
    return count, characters


def stamp(file: Path) -> tuple[Path, int, int]:
    """A file with its size in bytes and its time in nanoseconds; CorpusError where it cannot be read."""
    try:
        state = file.stat()
    except OSError as error:
        raise CorpusError(f"the file {str(file)!r} cannot be read: {error.strerror}") from error
    return file, state.st_size, state.st_mtime_ns


def _digests(files: Sequence[Path], memory: Path | None) -> list[str]:
    """SHA-256 of each file's bytes and of how it is read."""
    found: dict[Path, str] = {}
    for kind in {rows.kind_of(file) for file in files}:
        alike = [file for file in files if rows.kind_of(file) == kind]
        try:
            found |= zip(alike, digests.of_files(alike, memory, kind.encode()), strict=True)
        except OSError as error:
            raise CorpusError(f"the file {str(error.filename)!r} cannot be read: {error.strerror}") from error
    return [found[file] for file in files]
