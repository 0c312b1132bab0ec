"""Test the package on a GPU and write one report to paste into an issue.

    python scripts/gpu_check.py [--to FILE] [--model random:SHAPE]

Four steps run in turn: the tests marked `gpu`; the demo with every kind of method, a repair and a recovery; every
stage of the pipeline at the paper's sizes on a model with random weights; and the speed table with the paper's
settings. The report has the output of every step, failed ones included. The exit code is the largest of the steps.
"""

import argparse
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# the project is not installed
sys.path.insert(0, str(ROOT))

from gprune.system import machine  # noqa: E402
from gprune.system.files import write_text  # noqa: E402

MODEL = "random:llama2-7b"
NO_GPU = 2
_LEFT_OUT = "torch finds no GPU, so nothing was run. Install a build of torch for the GPU of this machine."


@dataclass(frozen=True, slots=True)
class Step:
    """A command of the check."""

    title: str
    command: tuple[str, ...]
    """arguments of the Python interpreter"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a step."""

    step: Step
    code: int
    seconds: float
    output: str


def steps(model: str, cache: Path) -> tuple[Step, ...]:
    """Return the steps in order.

    Args:
        model: random:SHAPE, as in `python -m gprune speed`.
        cache: an empty folder for the demo's results.
    """
    paper = ("--device", "cuda", "--dtype", "bfloat16", "--samples", "2048", "--batch", "32")
    # two epochs over both texts, and about the windows of the test set of WikiText2
    paper += ("--context-tokens", "16384", "--learning-steps", "128", "--epochs", "2", "--windows", "2600")
    paper += ("--recovery-steps", "100")
    demo = ("run", "demo", "--device", "cuda", "--repair", "least_squares", "--recover", "lora", "--methods")
    demo += (
        "dense",
        "gprune",
        "gates",
        "llm_pruner",
        "wanda_sp",
        "flap",
        "fang",
        "osscar",
        "slimllm",
        "--cache",
        str(cache),
    )
    # not the mode without graphs: its time depends on kernel launches, hardly on the widths
    speed = ("--preset", "gpu", "--repeats", "3", "--modes", "graph", "compiled", "--", model, f"{model}@0.5")
    return (
        Step("Tests on the GPU", ("-m", "pytest", "-q", "-m", "gpu", "-rs")),
        Step("Every kind of method on the demo", ("-m", "gprune", *demo)),
        Step("Stages at the paper's sizes", ("benchmarks/pipeline.py", model, *paper)),
        Step("Tokens a second", ("-m", "gprune", "speed", *speed)),
    )


def run_steps(steps_to_run: Sequence[Step]) -> Iterator[Outcome]:
    """Run steps one after the other, each in its own process, so that each has the whole GPU."""
    for step in steps_to_run:
        started = time.monotonic()
        process = subprocess.run(
            [sys.executable, *step.command],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip
        yield Outcome(step, process.returncode, time.monotonic() - started, process.stdout)


def format_report(outcomes: Sequence[Outcome]) -> str:
    """Return the report as Markdown."""
    lines = ["# GPU check", "", machine.describe("cuda"), ""]
    for outcome in outcomes:
        result = "ended well" if outcome.code == 0 else f"failed with exit code {outcome.code}"
        lines += [f"## {outcome.step.title}: {result} after {outcome.seconds:.0f} s", ""]
        # a fence longer than any in the output
        lines += [
            f"    python {shlex.join(outcome.step.command)}",
            "",
            "~~~~~~text",
            outcome.output.strip(),
            "~~~~~~",
            "",
        ]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run every step and print where the report is; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=Path("gpu-check.md"), help="path of the report (gpu-check.md)")
    parser.add_argument("--model", default=MODEL, help=f"shape of the measured model ({MODEL})")
    options = parser.parse_args(arguments)
    if not machine.has_gpu():
        print(f"error: {_LEFT_OUT}", file=sys.stderr)
        return NO_GPU
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as cache:
        for outcome in run_steps(steps(options.model, Path(cache))):
            outcomes.append(outcome)
            print(f"{outcome.step.title}: exit code {outcome.code} after {outcome.seconds:.0f} s", flush=True)
            # after every step, so that an interrupted check keeps its finished steps
            write_text(options.to, format_report(outcomes))
    print(f"The report is {options.to}. Paste it into an issue.")
    return max((abs(outcome.code) for outcome in outcomes), default=0)


if __name__ == "__main__":
    sys.exit(main())
