"""How long the bundled demo study takes, fresh and from the cache, and how much memory it needs.

    python benchmarks/demo.py [--threads N]

Both runs are child processes, so that imports and model loading count and the peak memory is the run's own.
The fresh run starts from an empty cache in a temporary folder. The targets on two CPU cores: at most 45 s
fresh, 2 s from the cache, 2 GiB, and 100 ms for the keys of every stage.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gprune.pipeline.stages import Graph, Inputs, all_stages  # noqa: E402
from gprune.study.demo import demo_study  # noqa: E402
from gprune.study.methods import METHODS  # noqa: E402

TARGETS = {"fresh": 45.0, "from the cache": 2.0}
MEMORY_TARGET_MIB = 2048
KEYS_TARGET_MS = 100


def _run(cache: str, threads: int) -> tuple[float, dict[str, Any]]:
    environment = {**os.environ, "GPRUNE_CACHE": cache, "OMP_NUM_THREADS": str(threads)}
    started = time.perf_counter()
    command = [sys.executable, "-m", "gprune", "run", "demo", "--json"]
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True)
    return time.perf_counter() - started, json.loads(done.stdout)


def _keys() -> float:
    """Seconds for all content keys of a study with every method, its digests known; the median of nine."""
    study = replace(demo_study(), metric="twflap", methods=tuple(METHODS))
    times = []
    for _ in range(9):
        started = time.perf_counter()
        all_stages(Graph(study, Inputs.unknown(study)))
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def main() -> None:
    """Prints the seconds of both runs, of every stage, and the peak memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as cache:
        for name in TARGETS:
            seconds[name], result = _run(cache, options.threads)
            if name == "fresh":
                stages, perplexity = result["seconds"], result["perplexity"]
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"demo study, {options.threads} threads on {os.cpu_count()} cores")
    for name, value in stages.items():
        print(f"  {name:<40} {value:8.2f} s")
    for name, target in TARGETS.items():
        print(f"{name:<20} {seconds[name]:8.1f} s   (target {target:.0f} s)")
    print(f"{'peak memory':<20} {peak:8.0f} MiB (target {MEMORY_TARGET_MIB} MiB)")
    print(f"{'keys of every stage':<20} {1000 * _keys():8.0f} ms  (target {KEYS_TARGET_MS} ms)")
    for method, values in perplexity.items():
        print(f"  {method:<14}" + "".join(f"{text} {value:9.2f}   " for text, value in values.items()))


if __name__ == "__main__":
    main()
