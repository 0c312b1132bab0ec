"""Version of the package, and the paths of its files, in a checkout or an installation.

A checkout has the app's script, its pages, Streamlit's settings and the study of the page Compare at its top level. A
wheel has the same files in ``gprune/_app/``, a folder that does not exist in any checkout.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

from gprune.system.errors import UnreadableError
from gprune.system.safe_parsing import json_object, sentence

__version__ = "0.1.0"
"""version of the package; a release changes it here only"""
_PACKAGE = Path(__file__).resolve().parents[1]
_WHEEL_APP = _PACKAGE / "_app"

INSTALLED = _WHEEL_APP.is_dir()
"""True if the package was installed by pip, False in a checkout"""
APP_FOLDER = _WHEEL_APP if INSTALLED else _PACKAGE.parent
"""folder with app.py, pages/, .streamlit/ and docs/fair_study.md"""
CHILD_FOLDER = None if INSTALLED else _PACKAGE.parent
"""folder in which processes of this package start, so that they can import a checkout"""


def command(module: str, *arguments: str) -> list[str]:
    """Return the command line of a module of this package, for a process that starts in ``CHILD_FOLDER``."""
    # -P: the folder in which the app was started may contain any file, such as a torch.py, which must not be imported
    options = ["-P"] if INSTALLED else []
    return [sys.executable, *options, "-m", module, *arguments]


def ask_command(*arguments: str) -> dict[str, Any]:
    """Return the JSON object in the last output line of `gprune ARGUMENTS`. Raises UnreadableError if this fails."""
    reason: object = ""
    try:
        process = subprocess.run(command("gprune", *arguments), cwd=CHILD_FOLDER, capture_output=True, timeout=120)
        reason = process.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        # only the last line, because a plug-in may print during its import
        return json_object(process.stdout.splitlines()[-1], "its output")
    except (OSError, subprocess.TimeoutExpired, IndexError, UnreadableError) as error:
        raise UnreadableError(f"`gprune {arguments[0]}` failed ({sentence(reason or error, 140)})") from error
