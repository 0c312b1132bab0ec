"""Compute the fingerprint of a text's content, or describe the text in one line.

A fingerprint is a hash of everything that determines the tokens: the bytes of local files or the documents of a hub
text, the selected fields and documents, and how they are joined.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

from gprune.data.demo import texts
from gprune.data.texts import chat, sampled
from gprune.data.texts.reading import TEXT, plain_errors
from gprune.data.texts.source import Role, Source, fields_of, read_documents, resolve
from gprune.store import Store, checksums

# larger texts are described by their size instead of the number of documents
_COUNTED_BYTES = 64 << 20
_CACHED = 256


def fingerprint(
    text: str,
    role: Role,
    memory: Path | None = None,
    tokens: int | None = None,
    cache: Path | None = None,
) -> str:
    """Return the SHA-256 of a text's content in a role, without tokenizing it.

    For a hub text that is not in the cache, only its name is hashed; call `prepare` first. For a text that the model
    writes, only the role and the options are hashed.

    Args:
        text: name of the text.
        role: calibration or evaluation.
        memory: folder with stored digests of large files, shared between processes.
        tokens: see `resolve`.
        cache: see `resolve`.

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
        content |= {"embedded": name.base, "split": source.split, "version": texts.VERSIONS[name.base]}
    elif source.kind == "sampled":
        sampling = asdict(sampled.sampling_of(name))
        if prompts := sampled.prompts_of(name):
            content["prompts"] = fingerprint(prompts, role, memory, tokens, cache)
        else:
            del sampling["prompt"]
        content |= {"sampled": sampling, "role": role}
    elif source.rows is not None:
        content = {"rows": source.rows.sha256, "revision": source.rows.revision, "joined": source.joined}
    elif source.kind == "hub":
        content |= {"place": name.base, "split": source.split, "options": sorted(name.options)}
    options = {option: value for option, value in name.options if option in chat.OPTIONS}
    if options or (not name.fields and content.get("fields") in chat.FORMS):
        content["chat"] = options
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def prepare(text: str, role: Role, tokens: int | None = None, cache: Path | None = None) -> None:
    """Download a hub text that is not in the cache, or check that any other text exists.

    For arguments and errors see `resolve`.
    """
    resolve(text, role, download=True, tokens=tokens, cache=cache)


def describe(text: str, role: Role = "calibration", cache: Path | None = None) -> str:
    """Return a description of a text in one line: title, split, size and fields; see `resolve` for the arguments."""
    cache = cache or Store().texts
    source = resolve(text, role, cache=cache)
    parts = [source.title]
    if source.split:
        parts.append(f"split {source.split}")
    if source.files:
        parts += _describe_size(source)
    elif source.hub is not None:
        rows = max((rows for _, rows in source.hub.stored(cache)), key=lambda rows: len(rows.ends), default=None)
        if rows is None:
            parts.append("not on this machine yet")
        else:
            parts.append(f"{len(rows.ends):,} documents of commit {rows.revision[:7]} on this machine")
    return ", ".join(parts)


def _describe_size(source: Source) -> list[str]:
    with plain_errors(source.name.base):
        states = [file.stat() for file in source.files]
    size = sum(state.st_size for state in states)
    parts = [f"{len(states):,} files"] if len(states) > 1 else []
    document_slice = source.name.option("documents")
    if size > _COUNTED_BYTES:
        parts.append(f"{size / 1e6:,.0f} MB" + (f", documents {document_slice}" if document_slice else ""))
    else:
        count, characters = _count_characters(source, tuple((state.st_size, state.st_mtime_ns) for state in states))
        parts += [f"{count:,} documents"] if source.kind != "file" else []
        parts.append(f"{characters:,} characters")
    fields = fields_of(source)
    if fields:
        parts.append(f"the field {fields[0]}" if len(fields) == 1 else f"fields {' + '.join(fields)} joined")
    return parts


@lru_cache(maxsize=_CACHED)
def _count_characters(source: Source, states: tuple[tuple[int, int], ...]) -> tuple[int, int]:
    """Return the number of documents and characters; with the sizes and times in `states`, a changed file is reread."""
    lengths = [chat.count_characters(document) for document in read_documents(source)]
    return len(lengths), sum(lengths)


def _digests(source: Source, memory: Path | None) -> Sequence[str]:
    """Return, for each file, the SHA-256 of its bytes and the name of its reader."""
    # "document" stands for the text reader; another word would change the keys of stored results
    salt = "document" if source.format == TEXT else source.format
    with plain_errors(source.name.base):
        return checksums.of_files(source.files, memory, salt.encode())
