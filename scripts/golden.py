#!/usr/bin/env python3
"""Compare the numbers of this checkout with those of an earlier commit, computed on the same machine.

    python scripts/golden.py                          the demo and one study per metric against the reference
    python scripts/golden.py demo flap --data FOLDER  two of the studies

Each study in scripts/golden/ is run by both commits with one thread, in caches of their own. Perplexities, parameter
counts, scores, drift, modules, masks and learned thresholds are compared by name. A difference is reported with its
size and fails, unless scripts/golden/moves.json names its cause and says which value is right:
{"demo": {"perplexity.flap.science-docs": "..."}}.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

PROJECT = Path(__file__).resolve().parent.parent
STUDIES = PROJECT / "scripts" / "golden"
REFERENCE = "adc058663f7088dc07c723066fa32c6c236b31e1"
"""the commit with the tag full-0.1"""
TOLERANCE = 1e-6
"""largest relative difference of a number; masks, labels and token ids must be equal"""
PATHS = ("model", "primary", "auxiliary", "substitute")


def main(names: list[str], reference: str, data: Path) -> int:
    """Run the studies with both commits and print every difference; return 1 if one has no named cause."""
    moves = json.loads((STUDIES / "moves.json").read_text(encoding="utf-8"))
    unexplained = 0
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        work = Path(folder)
        checkout = work / "reference"
        git = ("git", "-C", str(PROJECT), "worktree")
        subprocess.run([*git, "add", "--quiet", "--detach", str(checkout), reference], check=True)
        try:
            for name in names:
                study = write_study(name, data, work)
                before, after = (
                    run_study(root, study, work / label) for root, label in ((checkout, "a"), (PROJECT, "b"))
                )
                unexplained += report(name, compare(before, after), len(after), moves.get(name, {}))
        finally:
            subprocess.run([*git, "remove", "--force", str(checkout)], check=True)
    return min(unexplained, 1)


def write_study(name: str, data: Path, work: Path) -> Path:
    """Write a study with absolute paths for the files that it names below `data`; return its path."""
    study = json.loads((STUDIES / f"{name}.json").read_text(encoding="utf-8"))
    for field in PATHS:
        study[field] = resolve(study.get(field, ""), data)
    study["evaluation"]["texts"] = [resolve(text, data) for text in study["evaluation"]["texts"]]
    path = work / f"{name}.json"
    path.write_text(json.dumps(study), encoding="utf-8")
    return path


def resolve(name: str, data: Path) -> str:
    """Return the path of a file below `data`; a bundled model or text keeps its name."""
    return str((data / name).resolve()) if "/" in name else name


def run_study(checkout: Path, study: Path, cache: Path) -> dict[str, np.ndarray]:
    """Run a study with the package of a checkout; return its arrays and perplexities by name."""
    environment = os.environ | {"PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1", "GPRUNE_CACHE": str(cache)}
    arrays = cache.with_suffix(".npz")

    def call(*arguments: str) -> str:
        command = [sys.executable, "-m", "gprune", *arguments]
        process = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
        if process.returncode:
            sys.exit(f"`gprune {' '.join(arguments)}` failed in {checkout}:\n{process.stderr[-2000:]}")
        return process.stdout

    result = json.loads(call("run", str(study), "--json"))
    figures = {field: result[field] for field in ("perplexity", "parameters", "retention")}
    call("arrays", str(study), str(arrays))
    with np.load(arrays) as file:
        return {**{name: file[name] for name in file.files}, **flatten(figures)}


def flatten(figures: object, prefix: str = "") -> dict[str, np.ndarray]:
    """Return the numbers of nested objects and lists by their path; names of files keep their last part."""
    if isinstance(figures, (int, float)):
        return {prefix: np.array(float(figures))}
    items = figures.items() if isinstance(figures, dict) else enumerate(figures) if isinstance(figures, list) else ()
    parts = [flatten(value, f"{prefix}.{Path(str(key)).name}".lstrip(".")) for key, value in items]
    return {name: value for part in parts for name, value in part.items()}


def compare(before: dict[str, np.ndarray], after: dict[str, np.ndarray]) -> dict[str, str]:
    """Return a sentence for each name whose values differ."""
    return {name: text for name in sorted({*before, *after}) if (text := difference(before.get(name), after.get(name)))}


def difference(before: np.ndarray | None, after: np.ndarray | None) -> str:
    """Return how two arrays differ, or an empty string if they agree."""
    if before is None or after is None:
        return "is new" if before is None else "is gone"
    if before.shape != after.shape:
        return f"has the shape {after.shape}, before {before.shape}"
    if not np.issubdtype(before.dtype, np.floating):
        count = int((before != after).sum())
        return f"differs in {count} of {before.size} values" if count else ""
    close = np.isclose(after, before, rtol=TOLERANCE, atol=0, equal_nan=True)
    if close.all():
        return ""
    if before.ndim == 0:
        return f"is {after:.7g}, before {before:.7g}"
    largest = np.nanmax(np.abs(after - before)[~close] / np.maximum(np.abs(before[~close]), np.finfo(float).tiny))
    return f"differs in {int((~close).sum())} of {before.size} values, by up to {largest:.2g} of the value"


def report(name: str, differences: dict[str, str], count: int, causes: dict[str, str]) -> int:
    """Print the differences of a study with their causes; return how many have none."""
    print(f"{name}: {count - len(differences)} of {count} quantities agree", flush=True)
    for quantity, text in differences.items():
        print(f"  {quantity} {text}: {causes.get(quantity, 'NO CAUSE NAMED in scripts/golden/moves.json')}")
    return len([quantity for quantity in differences if quantity not in causes])


if __name__ == "__main__":
    available = sorted(path.stem for path in STUDIES.glob("*.json") if path.stem != "moves")
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=f"of {', '.join(available)} (default: all)")
    parser.add_argument("--reference", default=REFERENCE, help="a commit or tag (default: the one tagged full-0.1)")
    parser.add_argument("--data", type=Path, default=PROJECT.parent / "shared", help="folder with models/ and data/")
    options = parser.parse_args()
    if unknown := sorted({*options.studies} - {*available}):
        parser.error(f"unknown study {unknown[0]!r}: use one of {', '.join(available)}")
    sys.exit(main(options.studies or available, options.reference, options.data))
