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
    operations: dict[str, int]
    """how many file operations of each kind it did"""
    events: list[str]
    """names of what takes its final name in it: kinds of results, and other files with their suffix"""

    @classmethod
    def built(cls, home: Path) -> Arena:
        """Builds model and texts in a folder and runs the study once."""
        # loaded once, for all the children
        import gprune.pipeline.stages.pruning  # noqa: F401

        texts = tiny_study.write_texts(home / "texts")
        model = tiny_study.write_model(home / "model", texts)
        study, cache, observed = home / "study.json", home / "undisturbed", home / "observed.json"
        # three times through the texts: what the dense model has said of them is kept, and has to come back
        learned = {"epochs": 3, "batch": 8}
        study.write_text(
            json.dumps(
                tiny_study.settings(model, texts, sparsity=learned, methods=["dense", "gprune", "flap", "gates"])
            )
        )
        ended = victims.run(study, cache, victims.recording(cache, observed))
        if ended.code != 0:
            raise RuntimeError(f"the undisturbed run failed: {ended.said}")
        operations, events = json.loads(observed.read_text())
        return cls(home, study, cache, operations, events)

    @property
    def name(self) -> str:
        """The run's name."""
        return run_name(from_file(self.study))

    def cache(self, name: str) -> Path:
        """An empty place for a cache."""
        folder = self.home / name
        shutil.rmtree(folder, ignore_errors=True)
        return folder


Contents = dict[str, dict[str, str]]
"""Digests of a cache's files by result (stage/key) and name; times are left out"""


def manifests(cache: Path) -> list[Path]:
    """The manifests of all results; what was set aside as damaged is none."""
    return sorted(path for kind in KINDS for path in cache.glob(f"{kind}/[!.]*/meta.json"))


def contents(cache: Path) -> Contents:
    """What a cache holds, whichever process made it."""
    result: Contents = {}
    for manifest in manifests(cache):
        folder = manifest.parent
        files = (path for path in sorted(folder.rglob("*")) if path.is_file())
        result[str(folder.relative_to(cache))] = {
            str(path.relative_to(folder)): _digest(path, manifest) for path in files
        }
    return result


def _digest(path: Path, manifest: Path) -> str:
    if path == manifest:
        values = json.loads(path.read_bytes()).get("values")
        return hashlib.sha256(json.dumps(_timeless(values), sort_keys=True).encode()).hexdigest()
    if path.suffix == ".npy":
        array = np.load(path, allow_pickle=False)
        return hashlib.sha256(f"{array.dtype} {array.shape}".encode() + array.tobytes()).hexdigest()
    if path.suffix == ".json":
        return hashlib.sha256(json.dumps(_timeless(json.loads(path.read_bytes()))).encode()).hexdigest()
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(item) for key, item in value.items() if not any(t in key for t in _TIMES)}
    return [_timeless(item) for item in value] if isinstance(value, list) else value


def different(actual: Contents, expected: Contents) -> list[str]:
    """The results of one cache that are wrong or missing in another."""
    return sorted(name for name, files in expected.items() if actual.get(name) != files)
