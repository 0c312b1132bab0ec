"""Answers: is every result of a cache what was written, and can the record of every run be read?"""

from collections.abc import Callable
from dataclasses import dataclass

from gprune.pipeline.cache.usage import Stored, stored, unreadable
from gprune.system.errors import DamagedError, StoreError
from gprune.pipeline.stages import KINDS
from gprune.store import Store


@dataclass(frozen=True, slots=True)
class Verified:
    """What reading a whole cache has shown."""

    results: int
    files: int
    """those of the results and their manifests"""
    size: int
    """bytes of the results"""
    faults: dict[str, str]
    """what is wrong, by the place of a result"""
    runs: dict[str, str]
    """the runs whose record cannot be read, by name, and why"""


def verified(store: Store, progress: Callable[[Stored, int, int], None]) -> Verified:
    """Reads every file of every result; `progress` gets each, how many are done, and how many there are."""
    found, faults, files = stored(store), dict[str, str](), 0
    for done, one in enumerate(found, start=1):
        kind = KINDS[one.stage].record
        try:
            manifest = store.manifest(one.stage, one.key, kind) or {}
            store.check(one.stage, one.key, kind)
            files += 1 + len(manifest.get("sha256", ()))
        except DamagedError as error:
            faults[one.name] = error.fault
        except StoreError as error:
            faults[one.name] = str(error)
        progress(one, done, len(found))
    return Verified(len(found), files, sum(one.size for one in found), faults, unreadable(store))
