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

from gprune.pipeline.stages import KINDS
from gprune.store import Store, checksums
from gprune.store.checksums import MANIFEST, SUMS

Damage = Callable[[Path, random.Random], None]
"""damages the result in a folder"""


def fresh_process() -> None:
    """Forget which files were read."""
    checksums._remembered.clear()


def wait_a_tick() -> None:
    """Waits until the clock of the file system has moved on, so that a change has another time."""
    time.sleep(1.1e-9 * checksums._TICK_NANOSECONDS)


def results(store: Store) -> list[tuple[str, str]]:
    """Stage and key of every result, in order."""
    return [(path.parent.name, path.name) for kind in KINDS for path in sorted((store.root / kind).glob("*"))]


def files(store: Store) -> list[Path]:
    """Every file of every result, in order."""
    folders = [store.folder(*location) for location in results(store)]
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
    all_values = files(store)
    paths = [chosen.choice(all_values) for _ in range(count)]
    return [(path, chosen.randrange(8 * path.stat().st_size)) for path in paths]


def read_manifest(folder: Path) -> dict[str, Any]:
    return json.loads((folder / MANIFEST).read_text(encoding="utf-8"))


def _raw(data: bytes) -> Damage:
    def damage(folder: Path, _: random.Random) -> None:
        (folder / MANIFEST).write_bytes(data)

    return damage


def _cut(folder: Path, chosen: random.Random) -> None:
    data = (folder / MANIFEST).read_bytes()
    (folder / MANIFEST).write_bytes(data[: chosen.randrange(1, len(data) - 1)])


def _entry(name: str, *values: Any) -> Damage:
    """Return a damage that replaces an entry of `meta.json`, or removes it where no value is given."""

    def damage(folder: Path, chosen: random.Random) -> None:
        entries = read_manifest(folder)
        entries.pop(name, None)
        entries |= {name: chosen.choice(values)} if values else {}
        (folder / MANIFEST).write_text(json.dumps(entries), encoding="utf-8")

    return damage


def _checksum(folder: Path, chosen: random.Random) -> None:
    entries = read_manifest(folder)
    entries[SUMS][chosen.choice(sorted(entries[SUMS]))] = "0" * 64
    (folder / MANIFEST).write_text(json.dumps(entries), encoding="utf-8")


def _file_lost(folder: Path, chosen: random.Random) -> None:
    chosen.choice([path for path in sorted(folder.rglob("*")) if path.is_file()]).unlink()


def _a_folder_instead(folder: Path, _: random.Random) -> None:
    (folder / MANIFEST).unlink()
    (folder / MANIFEST).mkdir()


def _a_file_instead(folder: Path, _: random.Random) -> None:
    shutil.rmtree(folder)
    folder.write_text("a file where a result should be", encoding="utf-8")


MANIFESTS: dict[str, Damage] = {
    "cut": _cut,
    "a number": _raw(b"3"),
    "no UTF-8": _raw(b'{"files": "\xff\xfe"}'),
    "checksums": _entry(SUMS, None, [], {"ids.npy": 3}, "a" * 64),
    "checksums lost": _entry(SUMS),
    "checksum": _checksum,
    "file lost": _file_lost,
    "a folder instead": _a_folder_instead,
    "a file instead": _a_file_instead,
}
"""damages of a manifest, and of what it speaks of, by what they are"""
