"""Proves the GPU path on a machine that has a GPU, and writes one file to paste into an issue.

    python scripts/gpu_check.py [--to FILE] [--model random:SHAPE]

The tests that are marked `gpu` run first, then the demo by every kind of method with a repair and a recovery,
then every stage of the pipeline at the paper's sizes on a model with random weights, then the speed table at
the paper's setting. Whatever a step says goes into the file, its failure too; the exit code is that of the
worst step.
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
# the project is not installed: a script finds it beside its own folder
sys.path.insert(0, str(ROOT))

from gprune.system import machine  # noqa: E402
from gprune.system.files import write_text  # noqa: E402

MODEL = "random:llama2-7b"
NO_GPU = 2
_LEFT_OUT = "torch sees no GPU here, so nothing was run: install a build of torch for the GPU of this machine"


@dataclass(frozen=True, slots=True)
class Step:
    """One command whose output belongs into the file."""

    title: str
    command: tuple[str, ...]
    """arguments behind the Python that runs this"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step said."""

    step: Step
    code: int
    seconds: float
    said: str


def steps(model: str, cache: Path) -> tuple[Step, ...]:
    """What is run, in order.

    Args:
        model: random:SHAPE, as `python -m gprune speed` takes it.
        cache: an empty folder, so that the demo finds no result of an earlier run.
    """
    paper = ("--device", "cuda", "--dtype", "bfloat16", "--samples", "2048", "--batch", "32")
    # two epochs over both texts, and as many windows as WikiText2's test set has
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
    # kernel by kernel a step takes as long at any width, so that this is left to whoever wants it
    speed = ("--preset", "gpu", "--repeats", "3", "--modes", "graph", "compiled", "--", model, f"{model}@0.5")
    return (
        Step("Tests on the GPU", ("-m", "pytest", "-q", "-m", "gpu", "-rs")),
        Step("Every kind of method on the demo", ("-m", "gprune", *demo)),
        Step("Stages at the paper's sizes", ("benchmarks/pipeline.py", model, *paper)),
        Step("Tokens a second", ("-m", "gprune", "speed", *speed)),
    )


def run(every: Sequence[Step]) -> Iterator[Outcome]:
    """Runs the steps one after the other, each in a process of its own, so that each has the whole GPU."""
    for step in every:
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, *step.command],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip
        yield Outcome(step, done.returncode, time.monotonic() - began, done.stdout)


def report(found: Sequence[Outcome]) -> str:
    """The file, as Markdown."""
    lines = ["# GPU check", "", machine.describe("cuda"), ""]
    for one in found:
        ended = "ended well" if one.code == 0 else f"failed with exit code {one.code}"
        lines += [f"## {one.step.title}: {ended} after {one.seconds:.0f} s", ""]
        # a fence longer than any in the output
        lines += [
            f"    python {shlex.join(one.step.command)}",
            "",
            "~~~~~~text",
            one.said.strip(),
            "~~~~~~",
            "",
        ]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Runs every step, and says where the file is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=Path("gpu-check.md"), help="the file (gpu-check.md)")
    parser.add_argument("--model", default=MODEL, help=f"whose shape is measured ({MODEL})")
    options = parser.parse_args(arguments)
    if not machine.has_gpu():
        print(f"error: {_LEFT_OUT}", file=sys.stderr)
        return NO_GPU
    found: list[Outcome] = []
    with tempfile.TemporaryDirectory() as cache:
        for one in run(steps(options.model, Path(cache))):
            found.append(one)
            print(f"{one.step.title}: exit code {one.code} after {one.seconds:.0f} s", flush=True)
            # after every step: what is known is not lost where the next one is stopped
            write_text(options.to, report(found))
    print(f"everything is in {options.to}: paste it into an issue")
    return max((abs(one.code) for one in found), default=0)


if __name__ == "__main__":
    sys.exit(main())
