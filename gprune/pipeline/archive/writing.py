"""Writes a pack: the same bytes for the same run, whole or not at all."""

import hashlib
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from gprune.pipeline.archive import contents_form, privacy
from gprune.pipeline.archive.contents import Contents, contents
from gprune.pipeline.archive.contents_form import Entry, Index
from gprune.pipeline.stages import KINDS, Stage
from gprune.store import Store, checksums, explained, manifests
from gprune.system.errors import SettingsError, StoreError
from gprune.system.files import replaced, require_place
from gprune.system.progress import Progress, silent

LEVEL = 6
_EPOCH = (1980, 1, 1, 0, 0, 0)
_CHUNK = 2**20
_INTERRUPTED = "it was packed before it had ended"


@dataclass(frozen=True, slots=True)
class Packed:
    """What was written."""

    contents: Contents
    """what is in it"""
    size: int
    """bytes of the archive"""
    sha256: str
    """of the archive"""


def write(
    store: Store,
    run: str,
    out: Path,
    *,
    with_texts: bool = False,
    with_steps: bool = False,
    progress: Progress = silent,
) -> Packed:
    """Writes a run as one file; for `with_texts` and `with_steps` see `contents`.

    Raises SettingsError where the file is there already, or its folder is not, StoreError where there is no
    such run, a result is damaged, or the disk is full, UnreadableError where the record cannot be used.
    """
    require_place(out)
    if out.exists():
        raise SettingsError(f"{str(out)!r} is there already: give another name, or delete it")
    chosen = contents(store, run, with_texts=with_texts, with_steps=with_steps)
    with explained(out.resolve().parent):
        with replaced(out) as temporary:
            with temporary.open("w+b") as file:
                fill(store, chosen, file, progress)
                file.seek(0)
                total = hashlib.file_digest(file, "sha256").hexdigest()
                size = file.seek(0, 2)
    return Packed(chosen, size, total)


def fill(store: Store, chosen: Contents, file: IO[bytes], progress: Progress = silent) -> None:
    """Writes the archive into an open file; StoreError where a result is missing or damaged."""
    if chosen.lost:
        raise StoreError(
            f"the result “{chosen.lost[0]}” of the run is missing or damaged: run the study again, finished "
            "stages are kept"
        )
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL) as archive:
        files: dict[str, Entry] = {}
        for number, stage in enumerate(chosen.results):
            progress(number, len(chosen.results), stage.title)
            _add_result(archive, files, store, chosen, stage)
        _add_text(archive, files, contents_form.RECORD, _record(store, chosen))
        with archive.open(_member(contents_form.INDEX), "w") as inside:
            inside.write(Index(chosen.run, files).to_json())
    progress(len(chosen.results), len(chosen.results), "written")


def _add_result(
    archive: zipfile.ZipFile, files: dict[str, Entry], store: Store, chosen: Contents, stage: Stage[Any]
) -> None:
    kind, key = stage.kind, stage.key
    record = KINDS[kind].record
    if record is None:
        raise StoreError(f"the result {kind} is a folder, which no pack holds")
    # says what is damaged before it is passed on
    store.get(kind, key, record)
    manifest = store.manifest(kind, key) or {}
    for name in sorted(contents_form.arrays_of(kind) & set(manifest[manifests.SUMS])):
        _add_file(archive, files, contents_form.place(kind, key, name), store.folder(kind, key) / name)
    kept = {name: value for name, value in manifest.items() if name not in manifests.OF_FILES}
    public = privacy.without_places(kept, chosen.study, store.root)
    _add_text(archive, files, contents_form.place(kind, key, contents_form.MANIFEST), public)


def _record(store: Store, chosen: Contents) -> dict[str, Any]:
    """The run's record as it goes out, with what was left out of the pack."""
    values = privacy.public_record(chosen.record, chosen.study, store.root)
    if values.get("state") in ("running", "interrupted"):
        # on another machine no process will ever be at work on it
        values |= {"state": "cancelled", "error": _INTERRUPTED}
    return values | {"packed": {"left_out": dict(sorted(chosen.left_out.items()))}}


def _member(name: str) -> zipfile.ZipInfo:
    """An entry that says nothing of time, machine or rights."""
    info = zipfile.ZipInfo(name, _EPOCH)
    info.compress_type, info.create_system, info.external_attr = zipfile.ZIP_DEFLATED, 3, 0o100600 << 16
    return info


def _add_file(archive: zipfile.ZipFile, files: dict[str, Entry], name: str, path: Path) -> None:
    member, total, size = _member(name), hashlib.sha256(), 0
    member.file_size = path.stat().st_size
    with path.open("rb") as outside, archive.open(member, "w") as inside:
        while chunk := outside.read(_CHUNK):
            total.update(chunk)
            size += len(chunk)
            inside.write(chunk)
    files[name] = Entry(size, total.hexdigest())


def _add_text(archive: zipfile.ZipFile, files: dict[str, Entry], name: str, values: dict[str, Any]) -> None:
    data = json.dumps(values, indent=1, ensure_ascii=False, sort_keys=False).encode()
    with archive.open(_member(name), "w") as inside:
        inside.write(data)
    files[name] = Entry(len(data), checksums.of_bytes(data))
