"""Plant small faults in a copy of the code, one at a time, and report those that the tests do not detect.

    python scripts/planted_faults.py [--room ROOM] [--file PART] [--show]

tests/planted/faults.json lists the faults: a line of `gprune/`, its replacement, and the tests that must pass
without the fault and fail with it. The exit code is 0 if every fault is detected.
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
DETECTED = "detected"
LIST = PROJECT / "tests" / "planted" / "faults.json"
# tests read more of a checkout than its packages
FILES = subprocess.run(
    ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
    cwd=PROJECT,
    capture_output=True,
    text=True,
    check=True,
).stdout.splitlines()


def copy_checkout(folder: Path) -> Path:
    """Copy the files of the checkout that git does not ignore to a folder, and return it."""
    for name in FILES:
        if (PROJECT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / name, folder / name)
    return folder


def try_fault(fault: dict[str, Any], checkout: Path, is_verbose: bool, passed: set[tuple[str, ...]]) -> str:
    """Run the tests of a fault; return `detected`, `not detected`, or why the fault could not be tried.

    Args:
        fault: an entry of the list.
        checkout: the copy of the checkout.
        is_verbose: print the output of the tests.
        passed: groups of tests that passed without a fault; this call may add one.
    """
    path = checkout / fault["file"]
    if not path.is_file():
        return "no such file"
    text = path.read_text(encoding="utf-8")
    if text.count(fault["before"]) != 1:
        return f"line occurs {text.count(fault['before'])} times"
    tests = tuple(fault["tests"])
    if tests not in passed and _run_tests(fault["tests"], checkout, is_verbose):
        return "fails without"
    passed.add(tests)
    path.write_text(text.replace(fault["before"], fault["after"]), encoding="utf-8")
    try:
        code = _run_tests(fault["tests"], checkout, is_verbose)
    finally:
        path.write_text(text, encoding="utf-8")
    # 1: a test failed; 2 and more: pytest itself failed, which detects nothing
    return {0: "not detected", 1: DETECTED}.get(code, f"pytest ended with {code}")


def _run_tests(tests: list[str], checkout: Path, is_verbose: bool) -> int:
    shared = os.environ.get("GPRUNE_SHARED", str(PROJECT.parent / "shared"))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"GPRUNE_SHARED": shared, "PYTHONPATH": str(checkout)}
    process = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    if is_verbose:
        print(process.stdout[-2000:], process.stderr[-500:])
    return process.returncode


def main() -> int:
    """Try the selected faults and print the result of each; return 1 if one is not detected."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--room", default="", help="only the faults of one room")
    parser.add_argument("--file", default="", help="only the faults of files whose path contains this")
    parser.add_argument("--show", action="store_true", help="print the output of the tests")
    options = parser.parse_args()
    faults = json.loads(LIST.read_text(encoding="utf-8"))
    selected = [fault for fault in faults if options.room in ("", fault["room"]) and options.file in fault["file"]]
    missed, passed = 0, set[tuple[str, ...]]()
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        checkout = copy_checkout(Path(folder))
        for fault in selected:
            started = time.monotonic()
            result = try_fault(fault, checkout, options.show, passed)
            missed += result != DETECTED
            seconds = time.monotonic() - started
            print(f"{result:<20} {seconds:5.0f} s  {fault['file']}: {fault['before']}", flush=True)
    print(f"{len(selected) - missed} of {len(selected)} faults were detected")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
