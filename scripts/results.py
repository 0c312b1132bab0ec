"""Writes the tables of docs/results.md anew, from what `reproduce` has left in a cache.

    python -m gprune reproduce main ablation --model demo      # first, as the document says above each table
    python scripts/results.py [--cache FOLDER] [--document FILE]

Tables that the cache does not have stay as they are and are named; the exit code is then 3.
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# the project is not installed: a script finds it beside its own folder
sys.path.insert(0, str(ROOT))

from gprune.store import default_cache  # noqa: E402
from gprune.system.errors import GpruneError  # noqa: E402
from gprune.system.files import write_text  # noqa: E402
from scripts.results_document import rewritten  # noqa: E402

UNFILLED = 3


def main(arguments: list[str] | None = None) -> int:
    """Rewrites the document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cache", type=Path, default=default_cache(), help="folder of the cache")
    parser.add_argument("--document", type=Path, default=ROOT / "docs" / "results.md", help="what to rewrite")
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
        print(f"not in {options.cache}, left as it is: {table}", file=sys.stderr)
    return UNFILLED if missing else 0


if __name__ == "__main__":
    sys.exit(main())
