"""The software and machine that computed a result: versions, commit, plug-ins and hardware."""

import hashlib
import importlib.util
import os
import platform
import subprocess
from collections.abc import Collection, Iterator
from dataclasses import asdict
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from gprune.system import installation
from gprune.system.installation import __version__
from gprune.system.machine import has_gpu, peak_memory, version
from gprune.system.safe_parsing import json_object

_LIBRARIES = ("torch", "transformers", "tokenizers", "numpy", "scipy", "scikit-learn", "lm_eval")
_DISTRIBUTION = "gprune-studio"
"""name of this package for pip"""


@cache
def versions() -> dict[str, Any]:
    """Return the versions of this program, Python and the libraries that a result depends on."""
    return {
        "gprune": __version__,
        "python": platform.python_version(),
        **{package: version(package) for package in _LIBRARIES},
        **code(),
    }


@cache
def code() -> dict[str, Any]:
    """Return the exact state of the code, beyond its version; empty if unknown.

    In a checkout, these are `commit` and `uncommitted_changes`, which is True if there are any. In an installed
    package, it is `package`, a digest of its files.
    """
    return _digest_package() if installation.INSTALLED else _read_commit()


def _read_commit() -> dict[str, Any]:
    """Return commit and uncommitted changes of a checkout; empty if they cannot be determined."""
    root = installation.APP_FOLDER
    # files copied into another project's folder do not belong to that project's commit
    if not (root / ".git").exists():
        return {}
    try:
        # no tag has the name -, so git describes the state by the commit
        command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--match", "-"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    described = result.stdout.strip()
    return {"commit": described.removesuffix("-dirty"), "uncommitted_changes": described.endswith("-dirty")}


def _digest_package() -> dict[str, Any]:
    """Return the first 12 hexadecimal digits of a SHA-256, equal on all machines with the same wheel.

    It is computed from the installer's list of files and checksums; empty if there is no such list.
    """
    try:
        listed = metadata.distribution(_DISTRIBUTION).read_text("RECORD") or ""
    except metadata.PackageNotFoundError:
        return {}
    # compiled files, and the programs that the installer writes, differ between machines
    files = [line for line in listed.splitlines() if line.startswith("gprune/") and "__pycache__" not in line]
    digest = hashlib.sha256("\n".join(sorted(files)).encode()).hexdigest()
    return {"package": digest[:12]} if files else {}


def identify_distribution(distribution: metadata.Distribution, groups: Collection[str]) -> str:
    """Return name and version of a distribution and, for an editable install, a digest of its files.

    The files are those of its top-level modules, and of the modules of its entry points in `groups`. Raises
    UnreadableError or OSError if they cannot be read.
    """
    identity = f"{distribution.name} {distribution.version}"
    origin = json_object(distribution.read_text("direct_url.json") or "{}", "direct_url.json")
    if not origin.get("dir_info", {}).get("editable"):
        return identity
    modules = {point.module for point in distribution.entry_points if point.group in groups}
    modules |= set((distribution.read_text("top_level.txt") or "").split())
    content = hashlib.sha256()
    for name, path in sorted({file for module in modules for file in _list_module_files(module.partition(".")[0])}):
        content.update(f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return f"{identity} {content.hexdigest()[:32]}"


def _list_module_files(module: str) -> Iterator[tuple[str, Path]]:
    """Yield the files of a top-level module or package, with their paths relative to it."""
    spec = importlib.util.find_spec(module)
    if spec is None:
        return
    if not spec.submodule_search_locations:
        yield module, Path(spec.origin or "")
    for root in spec.submodule_search_locations or ():
        for folder, _, names in os.walk(root, followlinks=True):
            if "__pycache__" not in folder:
                paths = (Path(folder, name) for name in names)
                yield from ((f"{module}/{path.relative_to(root).as_posix()}", path) for path in paths)


def collect_provenance(inputs: Any, device: str) -> dict[str, Any]:
    """Return versions, machine and digests of inputs for the record of a run.

    `inputs` are `gprune.pipeline.stages.Inputs`; `device` is that of the study, such as auto, cpu or cuda:0.
    """
    return {
        **versions(),
        "platform": platform.platform(terse=True),
        "cores": os.cpu_count(),
        "device": "gpu" if device != "cpu" and has_gpu() else "cpu",
        "peak_memory_mib": peak_memory() // 2**20,
        "inputs": asdict(inputs),
    }
