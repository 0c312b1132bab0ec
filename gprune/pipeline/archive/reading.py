"""Reads a pack into a cache: all of it is checked beside the results before the first of them is kept.

A result that is there already stays. The run's record comes last, so that an interrupted unpacking leaves
whole results at most, and never half a run.
"""

import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gprune.pipeline import runs, stages
from gprune.pipeline.archive import contents_form
from gprune.pipeline.archive.archive import Archive
from gprune.pipeline.archive.contents import REASONS, checked, graph_of
from gprune.pipeline.stages import KINDS
from gprune.store import Store, explain, manifests
from gprune.system.errors import GpruneError, SettingsError, StoreError, UnreadableError
from gprune.system.files import beside, make_folder
from gprune.system.progress import Progress, silent
from gprune.system.safe_parsing import quoted, sentence

_RECORD = "the run's record in the pack"
Place = tuple[str, str]
"""stage and key of a result"""


@dataclass(frozen=True, slots=True)
class Unpacked:
    """What was read."""

    run: str
    """name of the run in the cache"""
    added: int
    """results that were not there"""
    kept: int
    """results that were there and stay"""


def unpack(
    path: Path, store: Store, *, name: str = "", largest: int | None = None, progress: Progress = silent
) -> Unpacked:
    """Reads a pack into a cache, which is made if it is not there.

    `name` is what to call the run here, its own name by default; for `largest` see `Archive`; `progress` is
    told of every result. Raises SettingsError where there is no such file, UnreadableError where it is no
    pack, is damaged, or holds what no pack holds, StoreError where the cache holds another run of that name,
    or cannot be written.
    """
    try:
        with path.open("rb") as file:
            archive = Archive(file, largest)
            return _Unpacking(archive, store, name).run(progress)
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        if error.filename != str(path):
            raise explain(error, store.root) from error
        raise SettingsError(f"the pack {str(path)!r} cannot be read: {error.strerror}") from error
    except OSError as error:
        raise explain(error, store.root) from error


class _Unpacking:
    """One pack on its way into a cache."""

    def __init__(self, archive: Archive, store: Store, name: str) -> None:
        self.archive, self.store = archive, store
        self.name = name or archive.index.run
        if not contents_form.NAME.fullmatch(self.name):
            raise SettingsError(
                f"a run cannot be called {quoted(self.name)}: use small letters, digits, dots and dashes"
            )
        self.record = self._read_record()
        self.results = archive.index.results
        self._require_of_the_run()

    def run(self, progress: Progress) -> Unpacked:
        """Checks everything, then keeps it."""
        self._require_free()
        staging = beside(self.store.folder("runs", self.name))
        try:
            make_folder(staging)
            aside = Store(staging)
            for number, place in enumerate(self.results):
                progress(number, len(self.results), "checking")
                self._check(aside, place)
            added = [place for place in self.results if not self.store.has(*place)]
            for place in added:
                self._keep(aside, place)
            runs.save(self.store, self.name, self.record)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        progress(len(self.results), len(self.results), "unpacked")
        return Unpacked(self.name, len(added), len(self.results) - len(added))

    def _read_record(self) -> dict[str, Any]:
        values = self.archive.json(contents_form.RECORD)
        found = checked(values, _RECORD)
        left_out = (values.get("packed") or {}).get("left_out")
        if not isinstance(left_out, dict) or not set(left_out.values()) <= set(REASONS):
            raise UnreadableError(f"{_RECORD} does not say what was left out: ask for it again")
        return found | {"run": self.name, "packed": {"left_out": left_out}}

    def _require_of_the_run(self) -> None:
        """Refuses results that the run does not name: no page would show them."""
        graph = graph_of(self.record, _RECORD)
        known = {(stage.kind, stage.key) for stage in stages.named(graph).values()}
        foreign = [place for place in self.results if place not in known]
        if foreign:
            raise UnreadableError(
                f"{len(foreign)} of {len(self.results)} results of the pack are of another version of this "
                f"program or of another run ({quoted('/'.join(foreign[0]))}): use the program that made it"
            )

    def _require_free(self) -> None:
        """Refuses to replace another run; one that came from a pack of the same study makes way."""
        if not (self.store.folder("runs", self.name) / "run.json").exists():
            return
        there = runs.read(self.store, self.name) or {}
        same = {**there, "packed": None} == {**self.record, "packed": None}
        if same or ("packed" in there and _reads(there) == _reads(self.record)):
            return
        raise StoreError(
            f"the cache {self.store.root} holds another run called {self.name!r}: say --as NAME to read the "
            "pack beside it; results that both have are kept once"
        )

    def _check(self, aside: Store, place: Place) -> None:
        """Unpacks a result beside the others and reads it back as the record that it should be."""
        files, kind = self.results[place], KINDS[place[0]].record
        if contents_form.MANIFEST not in files or kind is None:
            raise UnreadableError(f"a result of the pack ({'/'.join(place)}) has no manifest: ask for it again")
        manifest = self.archive.json(files[contents_form.MANIFEST])
        if manifest.get("record") != kind.__name__:
            raise UnreadableError(
                f"a result of the pack ({'/'.join(place)}) is {quoted(manifest.get('record'))}, not "
                f"{kind.__name__}: do not use it"
            )

        names = sorted(set(files) - {contents_form.MANIFEST})

        def write(folder: Path) -> dict[str, Any]:
            for name in names:
                self.archive.save(files[name], folder / name)
                require_array(folder / name, files[name])
            return _entries(manifest)

        try:
            aside.put_folder(*place, write)
            aside.get(*place, kind)
        except UnreadableError:
            raise
        except (GpruneError, ValueError) as error:
            what = sentence(str(error).replace(str(aside.root), ""), 120)
            raise UnreadableError(
                f"a result of the pack ({'/'.join(place)}) is no sound {kind.__name__} ({what}): do not use it"
            ) from error

    def _keep(self, aside: Store, place: Place) -> None:
        """Moves a checked result into the cache by the way that every result goes."""
        source = aside.folder(*place)
        manifest = aside.manifest(*place)
        if manifest is None:
            raise StoreError(f"what was unpacked beside {self.store.root} has gone: unpack again")

        def write(folder: Path) -> dict[str, Any]:
            for path in source.glob("*.npy"):
                path.replace(folder / path.name)
            return _entries(manifest)

        self.store.put_folder(*place, write)


def _entries(manifest: dict[str, Any]) -> dict[str, Any]:
    """What a manifest says besides what the store says of the files."""
    return {name: value for name, value in manifest.items() if name not in manifests.OF_FILES}


def _reads(record: dict[str, Any]) -> tuple[Any, Any]:
    """The study of a run and what it has read."""
    return record.get("study"), (record.get("provenance") or {}).get("inputs")


def require_array(path: Path, name: str) -> None:
    """Raises UnreadableError where a file is not one whole array of plain numbers."""
    try:
        with path.open("rb") as file:
            version = np.lib.format.read_magic(file)
            readers = {
                (1, 0): np.lib.format.read_array_header_1_0,
                (2, 0): np.lib.format.read_array_header_2_0,
            }
            shape, _, kind = readers[version](file)
            start = file.tell()
    except OSError:
        raise
    except Exception as error:  # whatever the header makes numpy raise
        raise UnreadableError(f"{quoted(name)} of the pack is no array of numpy: do not use it") from error
    if kind.kind not in "biuf":
        raise UnreadableError(f"{quoted(name)} of the pack holds {quoted(str(kind))}, not numbers: do not use it")
    sound = all(isinstance(side, int) and side >= 0 for side in shape)
    if not sound or start + math.prod(shape) * kind.itemsize != path.stat().st_size:
        raise UnreadableError(f"{quoted(name)} of the pack is not as long as its shape {quoted(shape)}: do not use it")
