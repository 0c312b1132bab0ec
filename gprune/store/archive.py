"""Files of results in a zip archive, with reproducible bytes and one error sentence for a damaged archive."""

import shutil
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gprune.system.errors import GpruneError, UnreadableError
from gprune.system.safe_parsing import quote, sentence

AGAIN = "pack the run again"
"""remedy for a damaged archive"""
_EPOCH = (1980, 1, 1, 0, 0, 0)
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, OverflowError)
_CHUNK = 2**20


def new_member(name: str) -> zipfile.ZipInfo:
    """Return an archive entry without time and machine, so that equal content gives equal bytes."""
    member = zipfile.ZipInfo(name, _EPOCH)
    member.compress_type, member.create_system, member.external_attr = zipfile.ZIP_DEFLATED, 3, 0o100600 << 16
    return member


def add_file(archive: zipfile.ZipFile, path: Path, name: str) -> None:
    """Add a file to an archive under `name`."""
    member = new_member(name)
    # use zip64 if the file is large
    member.file_size = path.stat().st_size
    with path.open("rb") as source, archive.open(member, "w") as target:
        shutil.copyfileobj(source, target, _CHUNK)


def extract_file(archive: zipfile.ZipFile, name: str, path: Path) -> None:
    """Write a member to a new file. Raises UnreadableError if it is damaged."""
    with path.open("xb") as target, refuse_damage(f"{quote(name)} of the pack"):
        with archive.open(name) as source:
            shutil.copyfileobj(source, target, _CHUNK)


@contextmanager
def refuse_damage(subject: str) -> Iterator[None]:
    """Turn an error about a damaged archive in the block into an UnreadableError that names `subject`."""
    try:
        yield
    except GpruneError:
        raise
    except _DAMAGE as error:
        raise UnreadableError(f"{subject} is damaged or no zip archive ({sentence(error, 80)}): {AGAIN}") from error
