"""Where faults are tried: a small study, what it gives undisturbed, and what a cache holds beside that."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tiny_study
from faults import victims

from gprune.pipeline.stages import KINDS
from gprune.study import from_file, run_name

# how long something took is no part of what it found
_TIMES = ("seconds", "started", "updated", "versions", "created")


@dataclass(frozen=True, slots=True)
class Arena:
    """One study and its undisturbed results."""

    home: Path
    """folder of everything"""
    study: Path
    """the study's file"""
    undisturbed: Path
    """a cache with a finished run"""
    seconds: float
    """what the undisturbed run took"""
    operations: dict[str, int]
    """how many file operations of each kind it did"""

    @classmethod
    def built(cls, home: Path) -> Arena:
        """Builds model and texts in a folder and runs the study once."""
        import time

        # loaded once, for all the children
        import gprune.pipeline.stages.pruning  # noqa: F401

        texts = tiny_study.write_texts(home / "texts")
        model = tiny_study.write_model(home / "model", texts)
        study, cache, counts = home / "study.json", home / "undisturbed", home / "operations.json"
        # three times through the texts: what the dense model has said of them is kept, and has to come back
        learned = {"epochs": 3, "batch": 8}
        study.write_text(json.dumps(tiny_study.settings(model, texts, sparsity=learned)))
        warm = victims.run(study, home / "warm")
        if warm.code != 0:
            raise RuntimeError(f"the undisturbed run failed: {warm.said}")
        shutil.rmtree(home / "warm")
        began = time.monotonic()
        victims.run(study, cache, victims.counting(cache, counts))
        return cls(home, study, cache, time.monotonic() - began, json.loads(counts.read_text()))

    @property
    def name(self) -> str:
        """The run's name."""
        return run_name(from_file(self.study))

    def cache(self, name: str) -> Path:
        """An empty place for a cache."""
        place = self.home / name
        shutil.rmtree(place, ignore_errors=True)
        return place


Contents = dict[str, dict[str, str]]
"""Digests of a cache's files by result (stage/key) and name; times are left out"""


def manifests(cache: Path) -> list[Path]:
    """The manifests of all results; what was set aside as damaged is none."""
    return sorted(path for kind in KINDS for path in cache.glob(f"{kind}/[!.]*/meta.json"))


def contents(cache: Path) -> Contents:
    """What a cache holds, whichever process made it."""
    found: Contents = {}
    for manifest in manifests(cache):
        folder = manifest.parent
        files = (path for path in sorted(folder.rglob("*")) if path.is_file())
        found[str(folder.relative_to(cache))] = {
            str(path.relative_to(folder)): _digest(path, manifest) for path in files
        }
    return found


def _digest(path: Path, manifest: Path) -> str:
    if path == manifest:
        try:
            values = json.loads(path.read_bytes())["values"]
        except (ValueError, KeyError, TypeError):
            values = None
        return hashlib.sha256(json.dumps(_timeless(values), sort_keys=True).encode()).hexdigest()
    if path.suffix == ".npy":
        try:
            array = np.load(path, allow_pickle=False)
        except (OSError, ValueError, SyntaxError):
            return "cannot be read"
        return hashlib.sha256(f"{array.dtype} {array.shape}".encode() + array.tobytes()).hexdigest()
    if path.suffix == ".json":
        return hashlib.sha256(json.dumps(_timeless(json.loads(path.read_bytes()))).encode()).hexdigest()
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(one) for key, one in value.items() if not any(t in key for t in _TIMES)}
    return [_timeless(one) for one in value] if isinstance(value, list) else value


def different(ours: Contents, theirs: Contents) -> list[str]:
    """The results of one cache that are wrong or missing in another."""
    return sorted(name for name, files in theirs.items() if ours.get(name) != files)
