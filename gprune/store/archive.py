"""Files of results in a zip archive, with reproducible bytes and one error sentence for a damaged archive."""

import shutil
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gprune.system.errors import GpruneError, UnreadableError
from gprune.system.safe_parsing import quote, sentence

REMEDY = "pack the run again"
"""remedy for a damaged archive"""
_EARLIEST_TIME = (1980, 1, 1, 0, 0, 0)
"""earliest time that a zip archive can store"""
_DAMAGE_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, OverflowError)
"""errors that zipfile raises for a damaged archive"""
_CHUNK = 2**20
"""bytes that are copied at a time"""


def new_member(name: str) -> zipfile.ZipInfo:
    """Return an archive entry without time and machine, so that equal content gives equal bytes."""
    member = zipfile.ZipInfo(name, _EARLIEST_TIME)
    # system 3 is Unix, and the mode is that of a regular file that only its owner can read and write
    member.compress_type, member.create_system, member.external_attr = zipfile.ZIP_DEFLATED, 3, 0o100600 << 16
    return member


def add_file(archive: zipfile.ZipFile, path: Path, name: str) -> None:
    """Add a file to an archive under `name`."""
    member = new_member(name)
    # zipfile uses zip64 for a large file only if it knows the size in advance
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
        # some of these errors are also a ValueError
        raise
    except _DAMAGE_ERRORS as error:
        raise UnreadableError(f"{subject} is damaged or no zip archive ({sentence(error, 80)}): {REMEDY}") from error
