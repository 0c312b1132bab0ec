"""Files that a person gives the app: kept below the cache, whatever they are called, and by their content."""

import hashlib
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gprune.store import explained
from gprune.system.errors import CorpusError
from gprune.system.files import make_folder, write_bytes


def place(root: str, folder: str, name: str, suffix: str, raw: bytes) -> Path:
    """Where a file is kept.

    Of `name` only letters and digits survive; `suffix` has its dot; a hash of `raw` becomes part of the name.
    """
    stem = name.lower().removesuffix(suffix)
    safe = re.sub(r"[^a-z0-9]+", "-", stem).strip("-")[:40].strip("-") or folder
    return Path(root) / folder / "user" / f"{safe}-{hashlib.sha256(raw).hexdigest()[:12]}{suffix}"


@contextmanager
def as_file(raw: bytes, suffix: str, name: str) -> Iterator[Path]:
    """What was given as a file, for as long as it is read; a CorpusError calls it by its name."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"text{suffix}"
        file.write_bytes(raw)
        try:
            yield file
        except CorpusError as error:
            # the person knows no such file
            raise CorpusError(str(error).replace(str(file), name)) from error


def save(path: Path, raw: bytes) -> None:
    """Writes a file in one step; one that is there with the same content stays. StoreError if it cannot."""
    with explained(path.parent):
        make_folder(path.parent)
        if path.is_file() and path.read_bytes() == raw:
            return
        write_bytes(path, raw)
