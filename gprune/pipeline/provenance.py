"""Where a number comes from: versions, commit, machine (kept beside every result)."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import resource
import subprocess
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from gprune import __version__

_PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "scipy", "scikit-learn", "lm_eval")


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


@cache
def versions() -> dict[str, Any]:
    """Versions that a result depends on."""
    return {
        "gprune": __version__,
        "python": platform.python_version(),
        **{package: _version(package) for package in _PACKAGES},
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


@cache
def machine(device: str) -> str:
    """Processor or GPU on which a speed is measured, and its threads.

    Args:
        device: auto, cpu or cuda, as in a study.
    """
    import torch

    from gprune.models.loading import device_of

    place = device_of(device)
    libraries = f"torch {torch.__version__}, transformers {_version('transformers')}"
    if place.type == "cuda":
        return f"{torch.cuda.get_device_name(place)}, {libraries}"
    return f"{_processor()}, {torch.get_num_threads()} threads, {libraries}"


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def collect(inputs: Any) -> dict[str, Any]:
    """Versions, machine, precision and fingerprints of what a run read."""
    return {
        **versions(),
        "platform": platform.platform(terse=True),
        "cores": os.cpu_count(),
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "inputs": asdict(inputs),
    }
