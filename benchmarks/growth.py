"""Measure how the time of each stage grows with tokens, layers, neurons and modules.

    python benchmarks/growth.py [--repeats N]

The growth is an exponent: the slope of log(CPU seconds) over log(size) at three sizes. An exponent of 1 means linear
growth; a smaller one means that part of the time does not depend on the size. The seconds are the minimum over
several repetitions with one thread, so that other work on the machine has little influence.
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
from pipeline_machine import Device, measure_device  # noqa: E402
from pipeline_stages import STAGES, Bench, Sizes  # noqa: E402

from gprune.models.tiny import tiny_decoder  # noqa: E402
from gprune.pruning.modules.partition import cluster_layers  # noqa: E402
from gprune.study.settings import ModularizationSettings  # noqa: E402

FACTORS = (1, 2, 4)
"""multiples of a dimension of Scale at which the time is measured"""
LINEAR = 1.15
"""an exponent above this is reported as more than linear; three sizes do not resolve it further"""


@dataclass(frozen=True, slots=True)
class Scale:
    """The dimensions of a measured run; modules are per layer."""

    tokens: int = 4096
    layers: int = 4
    neurons: int = 1024
    modules: int = 32


STAGES_BY_AXIS = {
    "tokens": ("statistics", "context inputs", "learning", "perplexity"),
    "layers": ("statistics", "scores and drift", "module clusters", "module refinement", "RASA", "learning"),
    "neurons": ("statistics", "scores and drift", "module clusters", "module refinement", "RASA", "learning"),
    "modules": ("module clusters", "module refinement", "RASA"),
}
"""stages whose time depends on each dimension"""
_LENGTH, _BATCH = 64, 16


def make_bench(scale: Scale, device: Device) -> Bench:
    """Return a random model and the sizes of its calibration sets."""
    decoder = tiny_decoder(layers=scale.layers, hidden=256, neurons=scale.neurons, heads=8, kv_heads=8)
    samples = scale.tokens // _LENGTH
    sizes = Sizes(
        samples=samples, length=_LENGTH, batch=_BATCH, layers=scale.layers, context_tokens=scale.tokens,
        learning_batch=_BATCH, learning_steps=samples // _BATCH, epochs=1, recovery_steps=0,
        windows=samples,
    )  # fmt: skip
    return Bench(decoder, device, sizes)


def cpu_seconds(scale: Scale, device: Device) -> dict[str, float]:
    """Run every stage that is measured along some dimension; return the CPU seconds of each."""
    bench, seconds = make_bench(scale, device), dict[str, float]()
    measured_stages = {name for names in STAGES_BY_AXIS.values() for name in names}
    for name in (name for name in STAGES if name in measured_stages):
        started = time.process_time()
        if name == "module clusters":
            _cluster_modules(bench, scale)
        else:
            STAGES[name](bench)
        seconds[name] = time.process_time() - started
    return seconds


def _cluster_modules(bench: Bench, scale: Scale) -> None:
    # the stage itself would choose among several numbers of modules; here the number is fixed
    settings = ModularizationSettings(candidates=(scale.modules,), restarts=1)
    rows = bench.decoder.neuron_parameters
    bench.results["clusters"] = cluster_layers(rows, scale.layers, scale.neurons, settings, 0)


def exponents(axis: str, repeats: int, device: Device) -> Iterator[tuple[str, list[float], float]]:
    """Yield the name of every stage along a dimension, its minimum CPU seconds at each size, and its exponent."""
    base = Scale()
    scales = [replace(base, **{axis: factor * getattr(base, axis)}) for factor in FACTORS]
    repetitions = [[cpu_seconds(scale, device) for scale in scales] for _ in range(repeats)]
    for name in STAGES_BY_AXIS[axis]:
        least = [min(times[index][name] for times in repetitions) for index in range(len(scales))]
        yield name, least, float(np.polyfit(np.log(FACTORS), np.log(least), 1)[0])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="repetitions, of which the fastest counts (3)")
    options = parser.parse_args()
    device = measure_device(torch.device("cpu"), torch.float32)
    print(f"{Scale()}, times {', '.join(map(str, FACTORS))}; load {os.getloadavg()[0]:.1f}")
    print(f"{'size':<10}{'stage':<20}{'CPU seconds':>24}{'exponent':>10}")
    for axis in STAGES_BY_AXIS:
        for name, least, exponent in exponents(axis, options.repeats, device):
            seconds = " ".join(f"{value:.3f}" for value in least)
            remark = "" if exponent <= LINEAR else "  more than linear"
            print(f"{axis:<10}{name:<20}{seconds:>24}{exponent:>10.2f}{remark}", flush=True)


if __name__ == "__main__":
    main()
