"""Packs to be changed, and archives that no one should read."""

import hashlib
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gprune.pipeline.archive import contents_form


@dataclass
class Draft:
    """The files of a pack, to be changed and written again."""

    files: dict[str, bytes]
    more: list[tuple[zipfile.ZipInfo, bytes]] = field(default_factory=list)
    """entries behind the files"""

    def write(self, path: Path, *, honest: bool = True, method: int = zipfile.ZIP_DEFLATED) -> Path:
        """Writes the archive.

        Args:
            path: file to write.
            honest: whether sizes and sums of the index are those of the files.
            method: how files are compressed.
        """
        if honest:
            self.list_files()
        with zipfile.ZipFile(path, "w", method) as archive:
            for name, data in self.files.items():
                archive.writestr(name, data)
            for info, data in self.more:
                archive.writestr(info, data)
        return path

    def list_files(self) -> None:
        index = json.loads(self.files[contents_form.INDEX])
        index["files"] = {
            name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in self.files.items()
            if name != contents_form.INDEX
        }
        self.files[contents_form.INDEX] = json.dumps(index).encode()

    def edit(self, name: str, change: Callable[[dict], object]) -> None:
        """Changes a file of JSON in place."""
        values = json.loads(self.files[name])
        change(values)
        self.files[name] = json.dumps(values).encode()

    def an_array(self, kind: str) -> str:
        """Name of an array file of some kind of result."""
        return next(name for name in self.files if name.startswith(f"results/{kind}/") and name.endswith(".npy"))

    def a_manifest(self, kind: str) -> str:
        """Name of the manifest of some kind of result."""
        return next(name for name in self.files if name.startswith(f"results/{kind}/") and name.endswith(".json"))
