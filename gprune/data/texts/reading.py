"""Read the documents of files and dataset folders through the datasets library.

A plain text file is one document. In a file of records, each record is one document: the requested fields, else a
conversation (`chat`), else the field ``text``, else all fields if all of them are text.
"""

import glob
import logging
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from gprune.data.texts import chat
from gprune.data.texts.naming import TextName
from gprune.system import safe_parsing
from gprune.system.errors import CorpusError, GpruneError
from gprune.system.files import make_folder
from gprune.system.safe_parsing import closest

TEXT = "text"
_ENDINGS: Mapping[str, str] = {
    "json": ".json .jsonl .ndjson",
    "csv": ".csv .tsv",
    "parquet": ".parquet",
    "arrow": ".arrow .feather .ipc",
}
"""file endings of each reader, for files that are not identified by their first bytes"""
_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    TEXT: {"sample_by": "document", "encoding": "utf-8-sig"},
    # "NA" and "null" are words, not missing values
    "csv": {"keep_default_na": False},
}
_SIGNATURES = {
    re.compile(rb"PAR1"): "parquet",
    re.compile(rb"ARROW1|\xff{4}"): "arrow",
    re.compile(rb'(\xef\xbb\xbf)?\{".*\}\r?\n\{"'): "json",
}
"""reader of a file by a pattern of its first bytes; JSON files without the ending have one object in each line"""
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".lz4")
_COMPRESSION_SIGNATURES = {
    b"\x1f\x8b": ".gz",
    b"BZh91AY": ".bz2",
    b"\xfd7zXZ": ".xz",
    b"\x28\xb5\x2f\xfd": ".zst",
    b"\x04\x22\x4d\x18": ".lz4",
}
"""ending of a compressed file by its first bytes"""
_REFUSED = {
    b"PK\x03\x04": "a ZIP archive: unpack it and name a file in it",
    b"7z\xbc\xaf": "a 7z archive: unpack it and name a file in it",
    b"FEA1": "an old Feather file: save its table as .parquet",
    b"%PDF": "a PDF document: save its text as .txt",
    b"SQLite format 3": "an SQLite database: save its text as .jsonl",
    b"\x89HDF": "an HDF5 file: save its text as .jsonl",
    b"version https://git-lfs": "a Git LFS pointer: fetch the file itself with `git lfs pull`",
}
"""description and remedy of a file that is not read, by its first bytes"""
_BINARY = "is binary data, not text: give a text, .jsonl, .csv or .parquet file"
_OBJECTS = 'each line must hold one object, like {"text": "..."}'
_HINTS = {
    "JSON": _OBJECTS,
    "Compression type": "decompress it, or pip install zstandard or lz4",
    "Not a gzipped file": "remove .gz from its name if it is not compressed",
    "tokenizing data": "separate values by commas in .csv, by tabs in .tsv, and quote texts that contain them",
}
"""remedies by a substring of the library's message"""
_HEAD_BYTES = 8192
# maximum number of fields that an error message lists
_LISTED_FIELDS = 20

Opener = Callable[[], Any]
"""opens a dataset of the library from its beginning"""


@cache
def library() -> Any:
    """Return the datasets library with its progress bars and log messages switched off."""
    # without USE_TORCH=0 it would import torch, also in processes that do not need it
    use_torch = os.environ.get("USE_TORCH")
    os.environ["USE_TORCH"] = "0"
    try:
        import datasets
    finally:
        os.environ.pop("USE_TORCH")
        if use_torch is not None:
            os.environ["USE_TORCH"] = use_torch
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(logging.CRITICAL)
    return datasets


@dataclass(frozen=True, slots=True)
class Split:
    """One split of a dataset folder."""

    files: tuple[str, ...]
    format: str
    """name of the reader of the files"""
    open: Opener


def format_of(path: str) -> str:
    """Return the name of the reader of a file: json, csv, parquet, arrow or text.

    The first bytes take precedence over the ending; those of a remote file are not read. Raises CorpusError for a kind
    of file that is not supported.
    """
    suffixes = [suffix.lower() for suffix in PurePosixPath(path).suffixes if suffix.lower() not in _COMPRESSED]
    by_ending = (reader for reader, endings in _ENDINGS.items() if suffixes and suffixes[-1] in endings.split())
    reader = next(by_ending, "")
    if "://" in path:
        return reader or TEXT
    with plain_errors(path), open(path, "rb") as file:
        head = file.read(_HEAD_BYTES)
    refusal = next((description for start, description in _REFUSED.items() if head.startswith(start)), "")
    if refusal:
        raise CorpusError(f"{path!r} is {refusal}")
    compression = next((ending for start, ending in _COMPRESSION_SIGNATURES.items() if head.startswith(start)), "")
    if compression and reader in ("parquet", "arrow"):
        raise CorpusError(f"{path!r} is a compressed .{reader} file, which cannot be read: decompress it")
    # the library does not decompress files with one of these endings
    if compression and PurePosixPath(path).suffix.lower() in f".txt {' '.join(_ENDINGS.values())}".split():
        raise CorpusError(f"{path!r} is compressed and its name does not say so: add {compression} to it")
    if reader and not head.strip():
        raise CorpusError(f"{path!r} is empty: give a text with words in it")
    # pyarrow's JSON reader crashes the process on a file that starts with null
    if reader == "json" and head.lstrip(b"\xef\xbb\xbf[ \t\r\n").startswith(b"null"):
        raise CorpusError(f"{path!r} cannot be read: it begins with null; {_OBJECTS}")
    return next((kind for start, kind in _SIGNATURES.items() if start.match(head)), reader or TEXT)


def _create_private(folder: Path) -> str:
    """Create the library's cache folder with access for its owner only, and return its path."""
    # errors are ignored here, because the library raises one if it cannot write to its cache
    with suppress(OSError):
        make_folder(folder)
    return str(folder)


def open_files(files: Sequence[str], cache_folder: Path) -> Any:
    """Open files of one format, local paths or hf:// addresses, as one streaming dataset."""
    reader = format_of(files[0])
    options = dict(_OPTIONS.get(reader, {}))
    if ".tsv" in PurePosixPath(files[0].lower()).suffixes:
        options["sep"] = "\t"
    paths = [file if "://" in file else glob.escape(file) for file in files]
    arguments = {"data_files": paths, "split": "train", "streaming": True, "cache_dir": _create_private(cache_folder)}
    return library().load_dataset(reader, **arguments, **options)


def open_folder(folder: str, name: TextName, split: str, cache_folder: Path, revision: str = "") -> Split:
    """Open one split of a dataset: of the local `folder` or, with a `revision`, of owner/name on the hub.

    In the second case `folder` is owner/name. Raises CorpusError with the available names if there is no such
    configuration or split.
    """
    path = Path(folder)
    with plain_errors(name.base):
        if not revision and any((path / file).is_file() for file in ("dataset_dict.json", "state.json")):
            saved = library().load_from_disk(folder)
            splits = saved if isinstance(saved, dict) else {str(saved.split or "train"): saved}
            dataset = splits[name.require_split(split, list(splits))]
            files = tuple(file["filename"] for file in dataset.cache_files)
            return Split(files, "arrow", dataset.to_iterable_dataset)
        if not revision:
            # the library interprets a relative name such as csv as one of its readers
            folder = str(path.resolve())
            if folder != glob.escape(folder):
                raise CorpusError(
                    f"{name.base!r}: the datasets library reads the characters * ? [ in the path {folder!r} as a "
                    "pattern: rename the folder, or give one of its files"
                )
        arguments = {"cache_dir": _create_private(cache_folder)} | ({"revision": revision} if revision else {})
        builder = _open_builder(folder, name, arguments)
        reader = str(type(builder).__module__).rpartition(".")[2]
        if reader not in {TEXT, *_ENDINGS}:
            if revision:
                raise CorpusError(f"{name.base!r} is no text dataset: the datasets library reads it as {reader!r}")
            # files with unknown endings such as .utf8, or endings of audio such as .raw, are read as text
            builder, reader = library().load_dataset_builder(TEXT, data_dir=folder, **_OPTIONS[TEXT], **arguments), TEXT
        elif reader in _OPTIONS:
            builder = _open_builder(folder, name, {**arguments, **_OPTIONS[reader]})
        splits = {str(key): files for key, files in builder.config.data_files.items()}
        files = splits[name.require_split(split, list(splits))]
        return Split(tuple(files), reader, partial(builder.as_streaming_dataset, split=split))


def _open_builder(folder: str, name: TextName, arguments: Mapping[str, Any]) -> Any:
    """Return the library's builder of a dataset; for a missing configuration, raise CorpusError that lists all."""
    config, load = name.option("config"), library().load_dataset_builder
    try:
        return load(folder, config or None, **arguments)
    except ValueError as error:
        selection = {key: value for key, value in arguments.items() if key == "revision"}
        configs = library().get_dataset_config_names(folder, **selection)
        if config in configs or (not config and len(configs) < 2):
            raise
        if configs != ["default"]:
            problem = f"has no configuration {config!r}" if config else "has several configurations"
            example = name.with_options(config=closest(config, configs) or configs[0])
            raise CorpusError(f"{name.base!r} {problem}: {', '.join(configs)}. Type for example {example}") from error
    # without a README.md, a configuration is a subfolder
    with plain_errors(f"{name.base}/{config}"):
        return load(folder, data_dir=config, **arguments)


def documents_of(dataset: Opener, name: TextName, batch_size: int = 1000) -> Iterator[str]:
    """Yield the documents of a dataset in order, reading `batch_size` records at a time.

    A conversation has the form of `chat.write_document`. Raises CorpusError if the dataset cannot be read, or a record
    has neither text in the fields nor a conversation.
    """
    fields: tuple[str, ...] = ()
    number, is_chat = 0, False
    with plain_errors(name.base):
        stream = dataset()
        for batch in stream.iter(batch_size=batch_size):
            # pandas uses the first values of rows longer than the header as an index
            if stream.builder_name == "csv" and "__index_level_0__" in batch:
                raise CorpusError(
                    f"{name.base!r} has more values in a row than columns in its header: quote texts with commas "
                    'in them, as in "one, two"'
                )
            if not fields:
                fields = choose_fields(batch, name)
                is_chat = not name.fields and chat.chat_fields(_first_record(batch)) == fields
            for parts in zip(*(batch[field] for field in fields), strict=True):
                number += 1
                where = f"row {number} of {name.base!r}"
                if is_chat:
                    yield chat.write_document(dict(zip(fields, parts, strict=True)), where)
                else:
                    yield _join_fields(parts, fields, where)


def slice_documents(documents: Iterator[str], span: slice) -> Iterator[str]:
    """Return a slice of documents; with negative bounds, all documents are read first."""
    if min(span.start or 0, span.stop or 0) < 0:
        return iter(list(documents)[span])
    return islice(documents, span.start, span.stop)


def first_fields(dataset: Opener, name: TextName) -> tuple[str, ...]:
    """Return the fields that are read from each record of a dataset; empty for a dataset without records."""
    with plain_errors(name.base):
        batch = next(iter(dataset().iter(batch_size=1)), None)
    return choose_fields(batch, name) if batch else ()


def choose_fields(batch: Mapping[str, Sequence[Any]], name: TextName) -> tuple[str, ...]:
    """Return the fields to read as text, by a batch's first record, in the order of joining.

    These are the requested fields, else the field ``text``, else all fields if all of them are text. Raises CorpusError
    if a requested field is missing, or if no fields are requested and the choice is ambiguous.
    """
    record = _first_record(batch)
    listing = ", ".join(list(record)[:_LISTED_FIELDS]) or "none"
    text_fields = [field for field, value in record.items() if isinstance(value, str)]
    remedy = ". None of them is text: each record needs a field that is a string"
    if text_fields:
        longest = max(text_fields, key=lambda field: len(record[field]))
        remedy = f". Type for example {name.with_options(fields=longest)}"
    missing = next((field for field in name.fields if field not in record), None)
    if missing is not None:
        raise CorpusError(f"{name.base!r} has no field {missing!r}, only {listing}{remedy}")
    conversation = () if name.fields else chat.chat_fields(record)
    refused = next((option for option in (("join",) if conversation else chat.OPTIONS) if name.option(option)), "")
    if refused:
        kind = "has conversations" if conversation else f"has no field with conversations, only {listing}"
        raise CorpusError(f"{name.base!r} {kind}: remove {refused}= from {name.text!r}")
    if name.fields or conversation:
        return name.fields or conversation
    # 0 stands for a missing field; the field itself may be None in the first record
    if isinstance(record.get("text", 0), str | None):
        return ("text",)
    if len(record) == 1 and re.search(r"[,;|\t]", listing):
        raise CorpusError(
            f"{name.base!r} has one column, {listing!r}: separate values by commas in .csv, by tabs in .tsv, or "
            "add #fields= with its name if it is one"
        )
    if record and len(text_fields) == len(record):
        return tuple(record)
    raise CorpusError(f"{name.base!r} does not say which of its fields is the text: {listing}{remedy}")


def _first_record(batch: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    return {field: values[0] for field, values in batch.items()}


def _join_fields(parts: Sequence[Any], fields: Sequence[str], where: str) -> str:
    """Return the joined values of a record's fields; `where` names the record in error messages."""
    for field, value in zip(fields, parts, strict=True):
        if value is not None and not isinstance(value, str):
            kind = type(value).__name__
            raise CorpusError(f"the field {field!r} of {where} holds a {kind}, not text: choose other fields")
    text = "".join(part or "" for part in parts)
    if "\0" in text[:_HEAD_BYTES]:
        raise CorpusError(f"{where} {_BINARY}")
    return text


@contextmanager
def plain_errors(path: str) -> Iterator[None]:
    """Convert errors of a reader into CorpusError with one sentence that starts with `path`."""
    try:
        yield
    except GpruneError:
        raise
    except UnicodeDecodeError as error:
        is_utf16 = error.object[:2] in (b"\xff\xfe", b"\xfe\xff")
        if b"\0" in error.object[:_HEAD_BYTES] and not is_utf16:
            raise CorpusError(f"{path!r} {_BINARY}") from error
        encoding = "UTF-16" if is_utf16 else "ISO-8859-1"
        raise CorpusError(
            f"{path!r} is not UTF-8 (byte 0x{error.object[error.start]:02x}). Convert it, as with: "
            f"iconv -f {encoding} -t UTF-8 {shlex.quote(path)} > converted.txt"
        ) from error
    except Exception as error:  # each reader and each version has its own classes
        reason = getattr(error, "strerror", None) or safe_parsing.sentence(error, 200) or type(error).__name__
        hint = next((f"; {hint}" for sign, hint in _HINTS.items() if sign in reason), "")
        raise CorpusError(f"{path!r} cannot be read: {reason}{hint}") from error
