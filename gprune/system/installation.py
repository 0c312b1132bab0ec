"""Answers: is this a checkout or an installed package, and where are the files that belong beside the code?

A checkout has the app's script, its pages, Streamlit's settings and the study that Compare shows at its top.
A wheel carries the same files below ``gprune/_app/``, a folder that no checkout has, editable or not.
"""

import sys
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
_CARRIED = _PACKAGE / "_app"

INSTALLED = _CARRIED.is_dir()
"""whether this is a package that pip has put beside others"""
APP_FOLDER = _CARRIED if INSTALLED else _PACKAGE.parent
"""holds app.py, pages/, .streamlit/ and docs/study.md"""
CHILD_FOLDER = None if INSTALLED else _PACKAGE.parent
"""where processes of this package start: a checkout is found from there, a package from anywhere"""


def command(module: str, *arguments: str) -> list[str]:
    """The command line of a module of this package, for a process that starts in ``CHILD_FOLDER``."""
    # the folder in which the app was started may hold anything, also a file torch.py
    safely = ["-P"] if INSTALLED else []
    return [sys.executable, *safely, "-m", module, *arguments]
