"""Answers: how many bytes does a process take once its libraries are loaded, before it holds any model?

Measured, not assumed: by a run at its start, in its own process, and for whoever only asks by what the latest
run of the cache has found, or by a process that is started for it. Run as a module it prints its own.
"""

import importlib
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import psutil

from gprune.system import installation, machine

ASSUMED = 0.45 * 2**30
"""bytes where nothing has run yet and nobody waits for a measurement, as on a page"""
LOADED = ("torch", "gprune.models.loading", "gprune.pruning.sparsity", "gprune.pruning.calibration")
"""what every stage that runs a model loads"""
CLASSES = ("AutoModelForCausalLM", "AutoTokenizer")
"""of transformers, which loads what is named"""
SECONDS = 120.0
"""after which a process that was started to measure is given up"""
_found: list[int] = []


def own() -> int:
    """Bytes of this process with its libraries, which it loads where it has not; the first answer stays."""
    if not _found:
        for name in LOADED:
            importlib.import_module(name)
        for name in CLASSES:
            getattr(importlib.import_module("transformers"), name)
        _found.append(int(psutil.Process().memory_info().rss))
    return _found[0]


def told() -> dict[str, int]:
    """What this process has measured of itself, for the record of its run."""
    return {"libraries_mib": _found[0] // 2**20} if _found else {}


def recorded(records: Iterable[Mapping[str, Any]]) -> float | None:
    """What the latest run that has measured it found with the torch that is installed; None without one."""
    torch = machine.version("torch")
    for record in records:
        known = record.get("provenance") or {}
        size = known.get("libraries_mib")
        if known.get("torch") == torch and isinstance(size, int) and 0 < size < 2**20:
            return float(size * 2**20)
    return None


@cache
def measured() -> float:
    """What a process of its own finds, which takes seconds; what is assumed where it cannot be started.

    None is started where this process has loaded them already.
    """
    if "torch" in sys.modules:
        return float(own())
    words = installation.command("gprune.pipeline.estimate.libraries")
    threads = {machine.THREADS_VARIABLE: machine.threads()}
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=SECONDS, check=True,
            cwd=installation.CHILD_FOLDER, env={**os.environ, **threads},
        )  # fmt: skip
        return float(int(done.stdout))
    except (OSError, ValueError, subprocess.SubprocessError):
        return ASSUMED


if __name__ == "__main__":
    sys.stdout.write(str(own()))
