"""Packages in other versions, and tests in a process that takes them before the installed ones."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest


def install(folder: Path, *packages: str) -> None:
    """Install packages into a folder, without what they need; skip where no index has them."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--target", str(folder)]
    done = subprocess.run([*command, *packages], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no package index, or it lacks {packages}: {done.stderr[-200:]}")


def environment_of(folder: Path) -> dict[str, str]:
    """The variables of a process that takes the packages of a folder first, and has no network."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return kept | {"PYTHONPATH": str(folder), "HF_HOME": str(folder / "hub"), "HF_HUB_OFFLINE": "1"}


def require_passing(least: int, environment: Mapping[str, str], *arguments: str) -> None:
    """Run tests in a process with these variables; all of them have to pass, and at least so many to be there."""
    options = ["-p", "no:xdist", "-p", "no:cacheprovider", f"--basetemp={tempfile.mkdtemp()}"]
    command = [sys.executable, "-m", "pytest", *arguments, *options]
    root = Path(__file__).parents[1]
    process = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout[-4000:]
    passed = re.search(r"(\d+) passed", process.stdout)
    assert passed and int(passed[1]) >= least, process.stdout[-500:]
