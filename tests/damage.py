"""What can happen to a cache: flipped bits and damaged manifests, made at random from a seed.

Every function changes one result in place and returns nothing; `fresh_process` makes this process forget
what it has read before, as one that has just started.
"""

import json
import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gprune.pipeline.stages import KINDS
from gprune.store import Store, checksums, manifests
from gprune.store.manifests import NAME, SUMS

Damage = Callable[[Path, random.Random], None]
"""damages the result in a folder"""


def fresh_process() -> None:
    """Forgets which files were read and looked at."""
    checksums._known.clear()
    manifests._looked.clear()


def wait_a_tick() -> None:
    """Waits until a change of a file could not be missed: what is younger is read again each time."""
    time.sleep(1.1e-9 * checksums._TICK_NANOSECONDS)


def results(store: Store) -> list[tuple[str, str]]:
    """Stage and key of every result, in order."""
    return [(path.parent.name, path.name) for kind in KINDS for path in sorted((store.root / kind).glob("*"))]


def files(store: Store) -> list[Path]:
    """Every file of every result, in order."""
    folders = [store.folder(*place) for place in results(store)]
    return [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]


def flip_bit(path: Path, bit: int) -> None:
    """Flips one bit of a file in place; the times of the file are as before, as far as they can be."""
    status = path.stat()
    with open(path, "r+b") as file:
        file.seek(bit // 8)
        byte = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([byte ^ (1 << bit % 8)]))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def random_flips(store: Store, count: int, seed: int) -> list[tuple[Path, int]]:
    """Files of different results, and a bit of each; small files are as likely as large ones."""
    chosen = random.Random(seed)
    everything = files(store)
    return [
        (path, chosen.randrange(8 * path.stat().st_size)) for path in (chosen.choice(everything) for _ in range(count))
    ]


def read_manifest(folder: Path) -> dict[str, Any]:
    return json.loads((folder / NAME).read_text(encoding="utf-8"))


def write_manifest(folder: Path, entries: Any) -> None:
    """Write a manifest with a seal that fits."""
    (folder / NAME).write_bytes(manifests.sealed({k: v for k, v in entries.items() if k != "seal"}))


def _raw(data: bytes) -> Damage:
    def damage(folder: Path, _: random.Random) -> None:
        (folder / NAME).write_bytes(data)

    return damage


def _cut(folder: Path, chosen: random.Random) -> None:
    data = (folder / NAME).read_bytes()
    (folder / NAME).write_bytes(data[: chosen.randrange(1, len(data) - 1)])


def _letter(folder: Path, chosen: random.Random) -> None:
    """Another digit in the manifest of a result, as a slip of a disk or of an editor."""
    data = bytearray((folder / NAME).read_bytes())
    place = chosen.choice([at for at, byte in enumerate(data) if chr(byte).isdigit()])
    data[place] = ord("0") + (data[place] - ord("0") + 1 + chosen.randrange(9)) % 10
    (folder / NAME).write_bytes(data)


def _entry(name: str, *values: Any) -> Damage:
    """Another value of an entry of the manifest, sealed anew."""

    def damage(folder: Path, chosen: random.Random) -> None:
        changed = read_manifest(folder) | {name: chosen.choice(values)}
        write_manifest(folder, changed)

    return damage


def _without(*names: str) -> Damage:
    def damage(folder: Path, chosen: random.Random) -> None:
        entries, name = read_manifest(folder), chosen.choice(names)
        del entries[name]
        (folder / NAME).write_text(json.dumps(entries), encoding="utf-8")

    return damage


def _file_named(*names: str) -> Damage:
    """One more file in the manifest, with a size and a checksum."""

    def damage(folder: Path, chosen: random.Random) -> None:
        entries, name = read_manifest(folder), chosen.choice(names)
        entries["files"][name] = 2
        entries[SUMS][name] = checksums.of_bytes(b"{}")
        write_manifest(folder, entries)

    return damage


def _file_forgotten(folder: Path, chosen: random.Random) -> None:
    entries = read_manifest(folder)
    if entries["files"]:
        name = chosen.choice(sorted(entries["files"]))
        del entries["files"][name], entries[SUMS][name]
        write_manifest(folder, entries)
    else:
        _entry("files", None)(folder, chosen)


def _size(*sizes: Any) -> Damage:
    def damage(folder: Path, chosen: random.Random) -> None:
        entries = read_manifest(folder)
        names = sorted(entries["files"]) or ["new.npy"]
        entries["files"][chosen.choice(names)] = chosen.choice(sizes)
        write_manifest(folder, entries)

    return damage


def _value(*values: Any) -> Damage:
    """Another type of a plain field of the record."""

    def damage(folder: Path, chosen: random.Random) -> None:
        entries = read_manifest(folder)
        if entries.get("values"):
            entries["values"][chosen.choice(sorted(entries["values"]))] = chosen.choice(values)
            write_manifest(folder, entries)
        else:
            _entry("record", "Nothing")(folder, chosen)

    return damage


def _other_shape(folder: Path, chosen: random.Random) -> None:
    """An array of one dimension too many, or of letters, with everything else to fit."""
    arrays = sorted(folder.glob("*.npy"))
    if not arrays:
        _entry("files", [])(folder, chosen)
        return
    path, entries = chosen.choice(arrays), read_manifest(folder)
    array = np.load(path)
    np.save(path, array[..., None] if chosen.random() < 0.5 else array.astype("U3"), allow_pickle=False)
    entries["files"][path.name] = path.stat().st_size
    entries[SUMS][path.name] = checksums.of_bytes(path.read_bytes())
    write_manifest(folder, entries)


def _file_lost(folder: Path, chosen: random.Random) -> None:
    chosen.choice([path for path in sorted(folder.rglob("*")) if path.is_file()]).unlink()


def _link_outside(folder: Path, chosen: random.Random) -> None:
    """A file that leads out of the cache, to the very same content."""
    path = chosen.choice([path for path in sorted(folder.rglob("*")) if path.is_file()])
    outside = folder.parents[2] / f"outside-{chosen.randrange(10**9)}"
    path.rename(outside)
    path.symlink_to(outside)


def _a_folder_instead(folder: Path, _: random.Random) -> None:
    (folder / NAME).unlink()
    (folder / NAME).mkdir()


def _a_file_instead(folder: Path, _: random.Random) -> None:
    shutil.rmtree(folder)
    folder.write_text("a file where a result should be", encoding="utf-8")


MANIFESTS: dict[str, Damage] = {
    "empty": _raw(b""),
    "cut": _cut,
    "another digit": _letter,
    "a list": _raw(b"[]"),
    "a number": _raw(b"3"),
    "null": _raw(b"null"),
    "nothing in it": _raw(b"{}"),
    "nested deeply": _raw(b'{"files": ' * 100_000),
    "nested lists": _raw(b'{"files": {}, "values": ' + b"[" * 500 + b"]" * 500 + b"}"),
    "no UTF-8": _raw(b'{"files": "\xff\xfe"}'),
    "zeros": _raw(b"\0" * 512),
    "a long number": _raw(b'{"files": {"a": ' + b"9" * 5000 + b"}}"),
    "an endless number": _raw(b'{"seconds": 1e400, "files": {}}'),
    "files": _entry("files", None, [], "all", 3, {"a.npy": None}),
    "file too many": _file_named("more.npy", "model/more.json"),
    "file outside": _file_named("../../x", "/etc/hostname", "a/../../b", "..", ".", "", "a\0b", "x" * 5000),
    "file forgotten": _file_forgotten,
    "size": _size(-1, 0, 3.0, True, None, "12", 10**18),
    "record": _entry("record", "Nothing", "Array", None, 7, ["Tokens"], "Learning", "__all__", "pool"),
    "values": _entry("values", None, [], "text", {"more": 1}),
    "value": _value(None, [], {}, True, [[1]], {"a": []}),
    "shape": _other_shape,
    "seconds": _entry("seconds", "long", -1, [], True, {}),
    "passes": _entry("passes", [1], 3, {"forward": "one"}, {"forward": -1}, "all"),
    "resumed": _entry("resumed", 3, [], {"step": 1}, {"step": -1, "seconds": 1.0, "passes": None}),
    "left out": _entry("left_out", 3, "masks", [1], {"a": 1}),
    "checksums": _entry(SUMS, None, [], {}, "a" * 64, {"ids.npy": "A" * 64}),
    "checksums lost": _without(SUMS),
    "seal lost": _without("seal"),
    "files lost": _without("files"),
    "file lost": _file_lost,
    "link outside": _link_outside,
    "a folder instead": _a_folder_instead,
    "a file instead": _a_file_instead,
}
"""damages of a manifest, and of what it speaks of, by what they are"""
