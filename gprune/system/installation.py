"""Version of the package, and places of it and of the files beside it: in a checkout or installed.

A checkout has the app's script, its pages, Streamlit's settings and the study that Compare shows at its top.
A wheel carries the same files below ``gprune/_app/``, a folder that no checkout has, editable or not.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

from gprune.system.errors import UnreadableError
from gprune.system.safe_parsing import json_object, sentence

__version__ = "0.1.0"
"""the one place that a release changes"""
_PACKAGE = Path(__file__).resolve().parents[1]
_CARRIED = _PACKAGE / "_app"

INSTALLED = _CARRIED.is_dir()
"""whether this is a package that pip has put beside others"""
APP_FOLDER = _CARRIED if INSTALLED else _PACKAGE.parent
"""holds app.py, pages/, .streamlit/ and docs/fair_study.md"""
CHILD_FOLDER = None if INSTALLED else _PACKAGE.parent
"""where processes of this package start: a checkout is found from there, a package from anywhere"""


def command(module: str, *arguments: str) -> list[str]:
    """Return the command line of a module of this package, for a process that starts in ``CHILD_FOLDER``."""
    # the folder in which the app was started may hold anything, also a file torch.py
    safely = ["-P"] if INSTALLED else []
    return [sys.executable, *safely, "-m", module, *arguments]


def ask_command(*arguments: str) -> dict[str, Any]:
    """Return the JSON object in the last line that `gprune ARGUMENTS` writes. Raises UnreadableError if it fails."""
    reason: object = ""
    try:
        process = subprocess.run(command("gprune", *arguments), cwd=CHILD_FOLDER, capture_output=True, timeout=120)
        reason = process.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        # a plug-in may print while it is imported
        return json_object(process.stdout.splitlines()[-1], "its output")
    except (OSError, subprocess.TimeoutExpired, IndexError, UnreadableError) as error:
        raise UnreadableError(f"`gprune {arguments[0]}` failed ({sentence(reason or error, 140)})") from error
