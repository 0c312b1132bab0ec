"""Update the tables of docs/results.md from the results of `reproduce` in a cache.

    python -m gprune reproduce main ablation --model demo      # first; the document has the command above each table
    python scripts/results.py [--cache FOLDER] [--document FILE]

Tables without results in the cache stay as they are and are listed; the exit code is then 3.
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# the project is not installed
sys.path.insert(0, str(ROOT))

from gprune.store import default_cache  # noqa: E402
from gprune.system.errors import GpruneError  # noqa: E402
from gprune.system.files import write_text  # noqa: E402
from scripts.results_document import rewritten  # noqa: E402

INCOMPLETE = 3


def main(arguments: list[str] | None = None) -> int:
    """Update the document; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cache", type=Path, default=default_cache(), help="folder of the cache")
    parser.add_argument("--document", type=Path, default=ROOT / "docs" / "results.md", help="the document")
    options = parser.parse_args(arguments)
    try:
        before = options.document.read_text(encoding="utf-8")
        text, missing = rewritten(before, options.cache, options.document.with_suffix(""))
    except (OSError, GpruneError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if text != before:
        write_text(options.document, text)
    for table in missing:
        print(f"Not updated, because {options.cache} has no results of it: {table}", file=sys.stderr)
    return INCOMPLETE if missing else 0


if __name__ == "__main__":
    sys.exit(main())
