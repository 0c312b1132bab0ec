"""Identify a text by its content, and describe it in one line.

A fingerprint hashes what decides the tokens (the bytes of local files or the documents of a hub text, the fields and
documents read, how they are joined) and nothing else.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

from gprune.data.demo import texts
from gprune.data.texts.reading import TEXT, plain_errors
from gprune.data.texts.sampled import sampling_of
from gprune.data.texts.source import Role, Source, fields_of, read_documents, resolve
from gprune.store import Store, digests

# larger texts are described by their size, not by their count of documents
_COUNTED_BYTES = 64 << 20
_CACHED = 256


def fingerprint(
    text: str,
    role: Role,
    memory: Path | None = None,
    tokens: int | None = None,
    cache: Path | None = None,
) -> str:
    """Return the SHA-256 of what a text says in a role, without tokenising it.

    A hub text that is not in the cache is known by its name only: `prepare` fetches it first. A text that the model
    writes is known by how it is sampled only: what else decides it is in its recipe.

    Args:
        text: its name
        role: calibration or evaluation
        memory: folder that keeps digests of large files for other processes
        tokens: see `resolve`
        cache: see `resolve`

    Raises:
        SettingsError: the name is not valid.
        CorpusError: the text cannot be read.
    """
    source = resolve(text, role, tokens=tokens, cache=cache)
    name = source.name
    content = {
        "files": _digests(source, memory),
        "fields": fields_of(source),
        "documents": [name.documents.start or 0, name.documents.stop],
        "joined": source.joined,
    }
    if source.kind == "embedded":
        content |= {"embedded": name.place, "split": source.split, "version": texts.VERSIONS[name.place]}
    elif source.kind == "sampled":
        content |= {"sampled": asdict(sampling_of(name)), "role": role}
    elif source.rows is not None:
        content = {"rows": source.rows.sha256, "revision": source.rows.revision, "joined": source.joined}
    elif source.kind == "hub":
        content |= {"place": name.place, "split": source.split, "options": sorted(name.options)}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def prepare(text: str, role: Role, tokens: int | None = None, cache: Path | None = None) -> None:
    """Make sure that a text is on this machine: a hub text is fetched, any other only looked for.

    For arguments and errors see `resolve`.
    """
    resolve(text, role, download=True, tokens=tokens, cache=cache)


def describe(text: str, role: Role = "calibration", cache: Path | None = None) -> str:
    """Return one line for people: what the text is, how much of it there is, and which fields are joined.

    For arguments and errors see `resolve`.
    """
    cache = cache or Store().texts
    source = resolve(text, role, cache=cache)
    parts = [source.title]
    if source.split:
        parts.append(f"split {source.split}")
    if source.files:
        parts += _extent(source)
    elif source.hub is not None:
        rows = max((rows for _, rows in source.hub.stored(cache)), key=lambda rows: len(rows.ends), default=None)
        if rows is None:
            parts.append("not on this machine yet")
        else:
            parts.append(f"{len(rows.ends):,} documents of commit {rows.revision[:7]} on this machine")
    return ", ".join(parts)


def _extent(source: Source) -> list[str]:
    with plain_errors(source.name.place):
        states = [file.stat() for file in source.files]
    size = sum(state.st_size for state in states)
    parts = [f"{len(states):,} files"] if len(states) > 1 else []
    span = source.name.option("documents")
    if size > _COUNTED_BYTES:
        parts.append(f"{size / 1e6:,.0f} MB" + (f", documents {span}" if span else ""))
    else:
        count, characters = _count(source, tuple((state.st_size, state.st_mtime_ns) for state in states))
        parts += [f"{count:,} documents"] if source.kind != "file" else []
        parts.append(f"{characters:,} characters")
    fields = fields_of(source)
    if fields:
        parts.append(f"the field {fields[0]}" if len(fields) == 1 else f"fields {' + '.join(fields)} joined")
    return parts


@lru_cache(maxsize=_CACHED)
def _count(source: Source, states: tuple[tuple[int, int], ...]) -> tuple[int, int]:
    """Return the number of documents and of characters; `states` makes a changed file another argument."""
    lengths = [len(document) for document in read_documents(source)]
    return len(lengths), sum(lengths)


def _digests(source: Source, memory: Path | None) -> Sequence[str]:
    """Return the SHA-256 of each file's bytes and of how it is read."""
    salt = "document" if source.format == TEXT else source.format
    with plain_errors(source.name.place):
        return digests.of_files(source.files, memory, salt.encode())
