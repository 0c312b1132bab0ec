"""Where a number comes from: versions, commit, machine (kept beside every result)."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from gprune import __version__
from gprune.machine import has_gpu, version

_PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "scipy", "scikit-learn", "lm_eval")


@cache
def versions() -> dict[str, Any]:
    """Versions that a result depends on."""
    return {
        "gprune": __version__,
        "python": platform.python_version(),
        **{package: version(package) for package in _PACKAGES},
        **commit(),
    }


@cache
def commit() -> dict[str, Any]:
    """The commit of the checkout and whether it has uncommitted changes; empty outside a checkout."""
    root = Path(__file__).resolve().parents[2]
    try:
        command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--match", "-"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    described = done.stdout.strip()
    return {"commit": described.removesuffix("-dirty"), "uncommitted_changes": described.endswith("-dirty")}


def collect(inputs: Any, device: str) -> dict[str, Any]:
    """Versions, machine, precision and fingerprints of what a run read.

    Args:
        inputs: digests of what it read.
        device: auto, cpu or cuda, as in its study.
    """
    return {
        **versions(),
        "platform": platform.platform(terse=True),
        "cores": os.cpu_count(),
        "device": "gpu" if device != "cpu" and has_gpu() else "cpu",
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "inputs": asdict(inputs),
    }
