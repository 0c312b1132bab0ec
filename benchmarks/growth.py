"""How the stages grow with tokens, layers, neurons and modules: exponents from three sizes each.

    python benchmarks/growth.py [--repeats N]

An exponent is the slope of the processor's seconds over the size, both as logarithms: 1 is linear, and less
means that something of fixed size takes part. It is fitted to the least of several turns, of a process that
uses one thread, so that other work on the machine matters little.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
# the project is not installed: a script finds it beside its own folder
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from pipeline_machine import Device, measured_device  # noqa: E402
from pipeline_stages import STAGES, Bench, Sizes  # noqa: E402

from gprune.models.tiny import tiny_decoder  # noqa: E402
from gprune.pruning.modules.partition import cluster_layers  # noqa: E402
from gprune.study.settings import ModularizationSettings  # noqa: E402

FACTORS = (1, 2, 4)
LINEAR = 1.15
"""an exponent above this is called more than linear: three sizes do not tell it closer"""


@dataclass(frozen=True, slots=True)
class Scale:
    """How large the run is."""

    tokens: int = 4096
    layers: int = 4
    neurons: int = 1024
    modules: int = 32


MEASURED = {
    "tokens": ("statistics", "context inputs", "learning", "perplexity"),
    "layers": ("statistics", "scores and drift", "module clusters", "module refinement", "RASA", "learning"),
    "neurons": ("statistics", "scores and drift", "module clusters", "module refinement", "RASA", "learning"),
    "modules": ("module clusters", "module refinement", "RASA"),
}
"""stages by what they should grow with"""
_LENGTH, _BATCH = 64, 16


def bench_of(scale: Scale, device: Device) -> Bench:
    """A random model and calibration sets of a scale."""
    decoder = tiny_decoder(layers=scale.layers, hidden=256, neurons=scale.neurons, heads=8, kv_heads=8)
    samples = scale.tokens // _LENGTH
    sizes = Sizes(
        samples=samples, length=_LENGTH, batch=_BATCH, layers=scale.layers, context_tokens=scale.tokens,
        learning_batch=_BATCH, learning_steps=samples // _BATCH, epochs=1, windows=samples,
    )  # fmt: skip
    return Bench(decoder, device, sizes)


def seconds(scale: Scale, device: Device) -> dict[str, float]:
    """Processor seconds of every stage."""
    bench, taken = bench_of(scale, device), dict[str, float]()
    for name, stage in STAGES.items():
        began = time.process_time()
        if name == "module clusters":
            _clusters(bench, scale)
        else:
            stage(bench)
        taken[name] = time.process_time() - began
    return taken


def _clusters(bench: Bench, scale: Scale) -> None:
    """As the stage does, with one number of modules."""
    settings = ModularizationSettings(candidates=(scale.modules,), restarts=1)
    rows = bench.decoder.neuron_parameters
    bench.made["clusters"] = cluster_layers(rows, scale.layers, scale.neurons, settings, 0)


def exponents(axis: str, repeats: int, device: Device) -> Iterator[tuple[str, list[float], float]]:
    """Stage, least seconds at each size, and exponent."""
    base = Scale()
    scales = [replace(base, **{axis: factor * getattr(base, axis)}) for factor in FACTORS]
    turns = [[seconds(scale, device) for scale in scales] for _ in range(repeats)]
    for name in MEASURED[axis]:
        least = [min(turn[index][name] for turn in turns) for index in range(len(scales))]
        yield name, least, float(np.polyfit(np.log(FACTORS), np.log(least), 1)[0])


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="turns, of which the least counts")
    options = parser.parse_args()
    device = measured_device(torch.device("cpu"), torch.float32)
    print(f"{Scale()}, times {', '.join(map(str, FACTORS))}; load {os.getloadavg()[0]:.1f}")
    print(f"{'with':<10}{'stage':<20}{'seconds':>24}{'exponent':>10}")
    for axis in MEASURED:
        for name, least, exponent in exponents(axis, options.repeats, device):
            shown = " ".join(f"{value:.3f}" for value in least)
            words = "" if exponent <= LINEAR else "  more than linear"
            print(f"{axis:<10}{name:<20}{shown:>24}{exponent:>10.2f}{words}", flush=True)


if __name__ == "__main__":
    main()
