"""Measure how long the bundled demo takes: in the app until its results appear, and on the command line.

    python benchmarks/demo.py [--threads N] [--only app|run]

In the app: the server starts on an empty cache, where it starts the demo, and headless Chromium opens the
Overview page once. Seconds count from the start of the server until the page shows the first drift chart, the
perplexities of FLAP and Wanda-sp, and the headline with GPrune's perplexity.

On the command line: `gprune run demo` runs with an empty cache and again with the full one. Both runs are child
processes, so that imports and model loading count. Each value has its target, for two idle CPU cores.
"""

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# the project is not installed
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from served_app import NotHereError, browser, opened, served  # noqa: E402

from gprune.jobs.queue import at_work, cancel  # noqa: E402

APP_TARGETS = {"first drift chart": 8.0, "FLAP and Wanda-sp": 30.0, "headline": 45.0}
"""seconds after the start of the server"""
RUN_TARGETS = {"empty cache": 45.0, "full cache": 2.0}
MEMORY_TARGET_MIB = 2048
PATIENCE = 600.0
"""seconds after which the benchmark no longer waits for a result"""
READ_TEXTS = """() => {
    const text = (selector) => [...document.querySelectorAll(selector)].map((item) => item.textContent).join(" ")
    return [text("[class*=st-key-card_ov_slope] .js-plotly-plot .main-svg"),
            text("[class*=st-key-card_ov_cost] .js-plotly-plot .main-svg"), text(".st-key-ov_headline")]
}"""
"""function that returns the texts of the drift chart, the chart of perplexities and the headline on the Overview"""
GPRUNE_RESULT = re.compile(r"perplexity on .*with GPrune")


def measure_app(threads: int) -> dict[str, float | None]:
    """Return seconds from the start of the server to each entry of APP_TARGETS; None if it never appears.

    Raises:
        NotHereError: the browser or the app does not start.
    """
    seconds: dict[str, float | None] = dict.fromkeys(APP_TARGETS)
    os.environ["OMP_NUM_THREADS"] = str(threads)
    with tempfile.TemporaryDirectory() as cache, browser() as chromium:
        started = time.perf_counter()
        with served(Path(cache), autostart=True) as server:
            page = opened(chromium, server, viewport={"width": 1280, "height": 1000})
            page.goto(server.address)
            while None in seconds.values() and time.perf_counter() - started < PATIENCE:
                texts, now = page.evaluate(READ_TEXTS), time.perf_counter() - started
                for name in results_shown(*texts):
                    seconds[name] = seconds[name] or now
                time.sleep(0.1)
        # the job outlives the server, and would slow down what is measured next
        for job in at_work(Path(cache)):
            cancel(Path(cache), job.id)
        while at_work(Path(cache)):
            time.sleep(0.1)
    return seconds


def results_shown(drift: str, cost: str, headline: str) -> list[str]:
    """Return the entries of APP_TARGETS that a page shows, from the texts that READ_TEXTS returns."""
    flags = (drift != "", "FLAP" in cost and "Wanda-sp" in cost, GPRUNE_RESULT.search(headline) is not None)
    return [name for name, is_shown in zip(APP_TARGETS, flags, strict=True) if is_shown]


def run_demo(cache: str, threads: int) -> tuple[float, dict[str, Any]]:
    """Run the demo in a child process; return its seconds and what it prints as JSON."""
    environment = {**os.environ, "GPRUNE_CACHE": cache, "OMP_NUM_THREADS": str(threads)}
    started = time.perf_counter()
    command = [sys.executable, "-m", "gprune", "run", "demo", "--json"]
    process = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True)
    return time.perf_counter() - started, json.loads(process.stdout)


def print_runs(threads: int) -> None:
    """Run the demo twice and print the seconds of stages and runs, the peak memory, and the perplexities."""
    with tempfile.TemporaryDirectory() as cache:
        runs = {name: run_demo(cache, threads) for name in RUN_TARGETS}
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    result = runs["empty cache"][1]
    for stage, seconds in result["seconds"].items():
        print(f"  {stage:<40} {seconds:8.2f} s")
    for name, target in RUN_TARGETS.items():
        print(f"{f'run, {name}':<24} {runs[name][0]:8.1f} s   (target {target:.0f} s)")
    print(f"{'peak memory':<24} {peak:8.0f} MiB (target {MEMORY_TARGET_MIB} MiB)")
    for method, perplexities in result["perplexity"].items():
        print(f"  {method:<14}" + "".join(f"{text} {value:9.2f}   " for text, value in perplexities.items()))


def main() -> None:
    """Print every value with its target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", choices=("app", "run"), help="measure one of the two parts")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"demo study, {options.threads} threads on {os.cpu_count()} cores, load {load:.1f}")
    if options.only != "run":
        try:
            times = measure_app(options.threads)
        except NotHereError as error:
            sys.exit(str(error))
        for name, target in APP_TARGETS.items():
            value = times[name]
            shown = "never appeared" if value is None else f"{value:8.1f} s  "
            print(f"{f'app, {name}':<24} {shown} (target {target:.0f} s)", flush=True)
    if options.only != "app":
        print_runs(options.threads)


if __name__ == "__main__":
    main()
