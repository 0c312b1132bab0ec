"""Plants small faults, one at a time, and tells whether the tests that are named find them.

    python scripts/planted_faults.py [--room ROOM] [--file PART] [--show]

tests/planted/faults.json lists them: a line of `gprune/`, what it becomes, and the tests that have to fail
then, and pass without it. Each is planted in a copy of the checkout, never in the checkout itself. The exit
code is 0 where every fault is found.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
LIST = PROJECT / "tests" / "planted" / "faults.json"
# what tests read of a checkout beside its packages
COPIED = subprocess.run(
    ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
    cwd=PROJECT,
    capture_output=True,
    text=True,
    check=True,
).stdout.splitlines()


def copied(folder: Path) -> Path:
    """A copy of the checkout's files in a folder."""
    for name in COPIED:
        if (PROJECT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / name, folder / name)
    return folder


def tried(fault: dict[str, Any], checkout: Path, shows: bool, passed: set[tuple[str, ...]]) -> str:
    """What the tests say of one fault: found, not found, or why it could not be tried.

    Args:
        fault: an entry of the list.
        checkout: the copy.
        shows: whether what the tests print is shown.
        passed: tests that have passed without a fault; grows.
    """
    path = checkout / fault["file"]
    if not path.is_file():
        return "no such file"
    text = path.read_text(encoding="utf-8")
    if text.count(fault["before"]) != 1:
        return f"stands there {text.count(fault['before'])} times"
    tests = tuple(fault["tests"])
    if tests not in passed and _run(fault["tests"], checkout, shows):
        return "fails anyway"
    passed.add(tests)
    path.write_text(text.replace(fault["before"], fault["after"]), encoding="utf-8")
    try:
        code = _run(fault["tests"], checkout, shows)
    finally:
        path.write_text(text, encoding="utf-8")
    # 1: a test has failed; 2 and more: pytest itself could not go on, which finds nothing
    return {0: "not found", 1: "found"}.get(code, f"pytest ended with {code}")


def _run(tests: list[str], checkout: Path, shows: bool) -> int:
    shared = os.environ.get("GPRUNE_SHARED", str(PROJECT.parent / "shared"))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"GPRUNE_SHARED": shared, "PYTHONPATH": str(checkout)}
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    if shows:
        print(done.stdout[-2000:], done.stderr[-500:])
    return done.returncode


def main() -> int:
    """Tries the faults that are asked for, and says of each what became of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--room", default="", help="only the faults of one room")
    parser.add_argument("--file", default="", help="only the faults of files that hold this in their names")
    parser.add_argument("--show", action="store_true", help="print what the tests say")
    options = parser.parse_args()
    faults = json.loads(LIST.read_text(encoding="utf-8"))
    chosen = [one for one in faults if options.room in ("", one["room"]) and options.file in one["file"]]
    missed, passed = 0, set[tuple[str, ...]]()
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        checkout = copied(Path(folder))
        for one in chosen:
            begun = time.monotonic()
            words = tried(one, checkout, options.show, passed)
            missed += words != "found"
            seconds = time.monotonic() - begun
            print(f"{words:<12} {seconds:5.0f} s  {one['file']}: {one['before']}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} faults were found")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
