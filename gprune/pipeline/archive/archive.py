"""A zip archive from elsewhere, read so that nothing in it can do worse than be refused.

Python's zipfile is lenient: it takes data before and behind the archive, names twice, links, and whatever
size an entry turns out to have. A pack has none of these, so each is refused in one sentence.
"""

import hashlib
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from gprune.pipeline.archive import contents_form
from gprune.pipeline.archive.contents_form import Entry, Index
from gprune.store import checksums
from gprune.system.errors import UnreadableError
from gprune.system.safe_parsing import json_object, quoted, sentence

MOST_BYTES = 8 * 2**30
"""of everything in a pack together, where nobody says more"""
MOST_RATIO, HARMLESS_BYTES = 100, 256 * 2**20
"""how many times larger than the archive its content may be; what is not said of a small content"""
_CHUNK = 2**20
_END, _END64, _LOCATOR = struct.Struct("<4s4H2LH"), struct.Struct("<4sQ2H2L4Q"), struct.Struct("<4sLQL")
_LOCAL_HEADER = 30
_FLAGS = 0x0002 | 0x0004 | 0x0008 | 0x0800
"""how hard it was compressed, sizes behind the data, names in UTF-8; not: encrypted, patched, masked"""
_AGAIN = "ask for the pack again"


class Archive:
    """An open pack whose list of files has been checked."""

    def __init__(self, file: IO[bytes], largest: int | None = None) -> None:
        """Reads the list of files and the index of an open file; nothing is unpacked.

        `largest` is the bytes that everything together may have; MOST_BYTES and MOST_RATIO where left out.
        Raises UnreadableError where it is no pack, or holds what no pack holds.
        """
        size = file.seek(0, 2)
        _require_plain_end(file, size)
        try:
            self._zip = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, ValueError, OverflowError, NotImplementedError) as error:
            raise UnreadableError(f"the file is no zip archive ({sentence(error, 80)}): {_AGAIN}") from error
        self._members = _members(self._zip.infolist(), size)
        _require_bounded(sum(one.file_size for one in self._members.values()), size, largest)
        self.index = self._index()

    def _index(self) -> Index:
        """The index, which lists exactly the files that are there."""
        found = self._members.get(contents_form.INDEX)
        if found is None:
            raise UnreadableError(
                f"the archive has no {contents_form.INDEX}: give a file that `python -m gprune pack` has written"
            )
        index = contents_form.read_index(self._whole(contents_form.INDEX, contents_form.MOST_INDEX_BYTES))
        odd = set(index.files) ^ (set(self._members) - {contents_form.INDEX})
        if odd:
            raise UnreadableError(f"the index of the pack and its files differ over {quoted(min(odd))}: {_AGAIN}")
        for name, entry in index.files.items():
            size = self._members[name].file_size
            if size != entry.size:
                raise UnreadableError(
                    f"{quoted(name)} has {size} bytes in the archive and {entry.size} in its index: {_AGAIN}"
                )
        return index

    def json(self, name: str) -> dict[str, Any]:
        """A manifest or the run's record; UnreadableError where it is damaged, or not as the index says."""
        data = self._whole(name, contents_form.MOST_RECORD_BYTES)
        self._compare(name, len(data), checksums.of_bytes(data))
        return json_object(data, f"{quoted(name)} of the pack", finite=False)

    def save(self, name: str, path: Path) -> None:
        """Writes a file of the pack to a path.

        Raises UnreadableError where it is not what the index says, OSError where it cannot be written.
        """
        total, size = hashlib.sha256(), 0
        with path.open("xb") as out:
            for chunk in self._chunks(name, self.index.files[name].size):
                total.update(chunk)
                size += len(chunk)
                out.write(chunk)
        self._compare(name, size, total.hexdigest())

    def _compare(self, name: str, size: int, total: str) -> None:
        if self.index.files[name] != Entry(size, total):
            raise UnreadableError(f"{quoted(name)} of the pack is not what its index says: {_AGAIN}")

    def _whole(self, name: str, most: int) -> bytes:
        return b"".join(self._chunks(name, min(most, self._members[name].file_size)))

    def _chunks(self, name: str, most: int) -> Iterator[bytes]:
        """What a file holds, whatever its header says; given up when it is more than it may be."""
        size = 0
        try:
            with self._zip.open(self._members[name]) as inside:
                while chunk := inside.read(_CHUNK):
                    size += len(chunk)
                    if size > most:
                        raise UnreadableError(f"{quoted(name)} of the pack has more than {most} bytes: {_AGAIN}")
                    yield chunk
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as error:
            reason = sentence(error, 80)
            raise UnreadableError(f"{quoted(name)} of the pack is damaged ({reason}): {_AGAIN}") from error


def _require_plain_end(file: IO[bytes], size: int) -> None:
    """Refuses an archive that is cut off, has more before or behind it, or lists too much to be read."""
    if size < _END.size:
        raise UnreadableError(f"the file has {size} bytes and is no zip archive: {_AGAIN}")
    file.seek(size - _END.size)
    mark, _, _, _, count, length, offset, comment = _END.unpack(file.read(_END.size))
    if mark != b"PK\x05\x06" or comment:
        raise UnreadableError(
            f"the file does not end as a zip archive ends (cut off, or something stands behind it): {_AGAIN}"
        )
    end = size - _END.size
    # zipfile takes the numbers of the large form wherever it finds that, whatever the small one says
    if count == 0xFFFF or 0xFFFFFFFF in (length, offset) or _has_locator(file, end):
        count, length, offset, end = _large_end(file, end)
    if count > contents_form.MOST_FILES or length > contents_form.MOST_INDEX_BYTES:
        raise UnreadableError(f"the archive lists {count} files, and a pack has at most {contents_form.MOST_FILES}")
    if offset + length != end:
        raise UnreadableError(f"the archive does not begin where its file begins: {_AGAIN}")


def _has_locator(file: IO[bytes], end: int) -> bool:
    """Whether the mark of an archive beyond 4 GiB stands before the end."""
    file.seek(max(end - _LOCATOR.size, 0))
    return file.read(4) == b"PK\x06\x07"


def _large_end(file: IO[bytes], end: int) -> tuple[int, int, int, int]:
    """Files, bytes and place of the list of an archive beyond 4 GiB, and where that list has to end."""
    place = end - _LOCATOR.size - _END64.size
    if place >= 0:
        file.seek(place)
        found, locator = _END64.unpack(file.read(_END64.size)), _LOCATOR.unpack(file.read(_LOCATOR.size))
        if found[0] == b"PK\x06\x06" and locator[0] == b"PK\x06\x07" and locator[2] == place:
            return found[7], found[8], found[9], place
    raise UnreadableError(f"the end of the archive is damaged: {_AGAIN}")


def _members(listed: list[zipfile.ZipInfo], size: int) -> dict[str, zipfile.ZipInfo]:
    """The files of an archive by name, after each was found to be one that a pack may hold."""
    found: dict[str, zipfile.ZipInfo] = {}
    for info in listed:
        # zipfile cuts a name at NUL
        name = info.orig_filename
        if name != contents_form.INDEX:
            contents_form.require_place(name)
        if name in found:
            raise UnreadableError(f"the pack holds {quoted(name)} twice: do not use it")
        _require_plain_file(name, info)
        found[name] = info
    # files that share their bytes are how a small archive becomes a huge one
    end = 0
    for info in sorted(listed, key=lambda one: one.header_offset):
        if info.header_offset < end:
            raise UnreadableError(f"{quoted(info.orig_filename)} lies over another file of the pack: do not use it")
        end = info.header_offset + _LOCAL_HEADER + len(info.orig_filename) + info.compress_size
    if end > size:
        raise UnreadableError(f"the archive says that it is larger than its file: {_AGAIN}")
    return found


def _require_plain_file(name: str, info: zipfile.ZipInfo) -> None:
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise UnreadableError(f"{quoted(name)} of the pack is a link or no plain file: do not use it")
    if info.flag_bits & 0x0001:
        raise UnreadableError(f"{quoted(name)} of the pack is encrypted, and packs are not: {_AGAIN}")
    if info.flag_bits & ~_FLAGS or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise UnreadableError(f"{quoted(name)} of the pack is compressed in a way that is not read: {_AGAIN}")


def _require_bounded(total: int, size: int, largest: int | None) -> None:
    most = MOST_BYTES if largest is None else largest
    if total > most:
        raise UnreadableError(
            f"the pack unpacks to {total / 2**30:,.1f} GiB, more than the {most / 2**30:,.1f} GiB that are "
            "allowed: if you trust it, say --largest with more GiB"
        )
    if largest is None and total > HARMLESS_BYTES and total > MOST_RATIO * size:
        raise UnreadableError(
            f"the pack unpacks to {total / size:,.0f} times its size, which no results of a run do: if "
            f"you trust it, say --largest {-(-total // 2**30)} (GiB)"
        )
