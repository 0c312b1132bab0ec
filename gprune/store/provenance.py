"""Versions, commit and machine behind a result."""

import hashlib
import os
import platform
import subprocess
from dataclasses import asdict
from functools import cache
from importlib import metadata
from typing import Any

from gprune.system import installation
from gprune.system.installation import __version__
from gprune.system.machine import has_gpu, peak_memory, version

_PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "scipy", "scikit-learn", "lm_eval")
_DISTRIBUTION = "gprune-studio"
"""our own name for pip"""


@cache
def versions() -> dict[str, Any]:
    """Return the versions that a result depends on."""
    return {
        "gprune": __version__,
        "python": platform.python_version(),
        **{package: version(package) for package in _PACKAGES},
        **code(),
    }


@cache
def code() -> dict[str, Any]:
    """Return the state of the code, more exact than its version; empty if it is unknown.

    Of a checkout `commit`, and `uncommitted_changes`: whether it has any. Of an installed package `package`,
    a digest of its files.
    """
    return _package() if installation.INSTALLED else _commit()


def _commit() -> dict[str, Any]:
    root = installation.APP_FOLDER
    # files that were copied into another project's folder are not of that project's commit
    if not (root / ".git").exists():
        return {}
    try:
        command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--match", "-"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    described = result.stdout.strip()
    return {"commit": described.removesuffix("-dirty"), "uncommitted_changes": described.endswith("-dirty")}


def _package() -> dict[str, Any]:
    """Return the first 12 hexadecimal digits of a SHA-256, equal wherever the same wheel is installed.

    Taken of the list of files and checksums that the installer keeps beside the package, if it keeps one.
    """
    try:
        listed = metadata.distribution(_DISTRIBUTION).read_text("RECORD") or ""
    except metadata.PackageNotFoundError:
        return {}
    # what the installer compiles, and the programs that it writes, differ from machine to machine
    files = [line for line in listed.splitlines() if line.startswith("gprune/") and "__pycache__" not in line]
    digest = hashlib.sha256("\n".join(sorted(files)).encode()).hexdigest()
    return {"package": digest[:12]} if files else {}


def collect_provenance(inputs: Any, device: str) -> dict[str, Any]:
    """Return versions, machine, precision and fingerprints of a run's inputs.

    `device` is auto, cpu or cuda, as in its study.
    """
    return {
        **versions(),
        "platform": platform.platform(terse=True),
        "cores": os.cpu_count(),
        "device": "gpu" if device != "cpu" and has_gpu() else "cpu",
        "peak_memory_mib": peak_memory() // 2**20,
        "inputs": asdict(inputs),
    }
