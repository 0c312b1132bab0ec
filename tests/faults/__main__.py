"""`make faults`: kills runs and fills their disk, and counts what went wrong.

All counts must be 0; the exit code says so. The seed is printed, and the same seed does the same faults.
"""

import argparse
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

# a child of a process with threads must not be forked: everything here computes with one
os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# so that every step of a learning has its own state, which a fault may meet
os.environ["GPRUNE_SAVE_SECONDS"] = "0"

from faults import scenarios
from faults.arena import Arena
from faults.verdict import FINDINGS


def main() -> int:
    """Runs the plan and prints one line a scenario."""
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("--short", action="store_true", help="few kills at operations")
    parser.add_argument("--seed", type=int, default=0, help="which instants")
    options = parser.parse_args()
    began, failed = time.monotonic(), []
    with tempfile.TemporaryDirectory(prefix="gprune-faults-") as home:
        arena = Arena.built(Path(home).resolve())
        print(f"seed {options.seed}")
        print(f"{'':<34}{'tries':>6}" + "".join(f"{kind:>16}" for kind in FINDINGS))
        at_operations = partial(scenarios.kills_at_operations, tries=12 if options.short else 100, seed=options.seed)
        for scenario in (at_operations, scenarios.kills_at_events, scenarios.full_at_events):
            verdict = scenario(arena)
            print(verdict.row, flush=True)
            failed += verdict.sentences
    print("\n".join(failed[:100]))
    print(f"{len(failed)} findings in {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
