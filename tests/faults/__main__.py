"""`make faults`: disturbs runs in every way that machines and people do, and counts what went wrong.

All counts must be 0; the exit code says so. The seed is printed, and the same seed does the same faults.
"""

import argparse
import os
import sys
import tempfile
import time
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

# scenario, tries, tries of the short form
PLAN = (
    (scenarios.kills_at_operations, 100, 12),
    (scenarios.kills_at_events, 1, 1),
    (scenarios.full_at_events, 1, 1),
    (scenarios.full_disks, 12, 4),
    (scenarios.damaged_results, 24, 4),
)


def main() -> int:
    """Runs the plan and prints one line a scenario."""
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("--short", action="store_true", help="few tries of each")
    parser.add_argument("--seed", type=int, default=0, help="which instants, bits and orders")
    parser.add_argument("--only", default="", help="scenarios whose function has this in its name")
    options = parser.parse_args()
    began, failed = time.monotonic(), []
    with tempfile.TemporaryDirectory(prefix="gprune-faults-") as home:
        arena = Arena.built(Path(home).resolve())
        print(f"seed {options.seed}; the undisturbed run takes {arena.seconds:.1f} s")
        print(f"{'':<34}{'tries':>6}" + "".join(f"{kind:>16}" for kind in FINDINGS))
        for scenario, tries, few in PLAN:
            if options.only in scenario.__name__:
                verdict = scenario(arena, few if options.short else tries, options.seed)
                print(verdict.row, flush=True)
                failed += verdict.sentences
    print("\n".join(failed[:100]))
    print(f"{len(failed)} findings in {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
