"""Times one step of modular sparsity learning, part by part, beside a plain forward pass of the same tokens.

    python benchmarks/sparsity.py                        # a random decoder
    python benchmarks/sparsity.py --model FOLDER         # a model folder
    python benchmarks/sparsity.py --device cuda --dtype bfloat16 --layers 32 --hidden 4096 ...

Every figure is the best of --repeats, in seconds. The first epoch pays for teacher, student, head and both
backward passes; in later epochs the teacher's hidden states come from memory. A step of gates stands beside
that of thresholds.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count() or 1))
os.environ.setdefault("GOMP_SPINCOUNT", "10000")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch

from gprune.models.decoder import Decoder
from gprune.models.loading import load
from gprune.models.tiny import tiny_decoder
from gprune.pruning.sparsity.activation_checkpointing import SUBSETS
from gprune.pruning.sparsity.gates import learn_gates
from gprune.pruning.sparsity.learner import Setting
from gprune.pruning.sparsity.learning import learn
from gprune.pruning.sparsity.mask_hooks import gate_decoder
from gprune.pruning.sparsity.masks import MaskFamily
from gprune.pruning.sparsity.objective import head_losses
from gprune.pruning.sparsity.units import RankedUnits
from gprune.records import Partition, Tokens, UnitScores
from gprune.study import GateSettings, SparsitySettings
from gprune.system.progress import Progress

MODULE_SIZE = 40


def main() -> None:
    """Reads the arguments and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder of a model; a random decoder by default")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16", "float16"))
    for name, value in (("batch", 32), ("length", 128), ("repeats", 3), ("layers", 6), ("hidden", 256)):
        parser.add_argument(f"--{name}", type=int, default=value)
    for name, value in (("neurons", 768), ("heads", 8), ("kv-heads", 8), ("vocabulary", 4096)):
        parser.add_argument(f"--{name}", type=int, default=value)
    arguments = parser.parse_args()
    decoder = _decoder(arguments)
    print(
        f"{decoder.shape}\n{arguments.batch} sequences of {arguments.length} tokens, {torch.get_num_threads()} threads"
    )
    parts = _parts(decoder, arguments.batch, arguments.length, arguments.repeats)
    for name, learns in (("step", learned_thresholds), ("step of gates", learned_gates)):
        first, later = _steps(decoder, arguments, learns)
        parts |= {f"whole {name}, first epoch": first, f"whole {name}, later epochs": later}
    floor = parts["plain forward pass"]
    for name, seconds in parts.items():
        print(f"{name:32} {seconds:9.4f} s {seconds / floor:7.2f} x")


def _decoder(arguments: argparse.Namespace) -> Decoder:
    if arguments.model:
        return load(arguments.model, device=arguments.device, dtype=arguments.dtype)
    decoder = tiny_decoder(
        layers=arguments.layers,
        hidden=arguments.hidden,
        neurons=arguments.neurons,
        heads=arguments.heads,
        kv_heads=arguments.kv_heads,
        vocabulary=arguments.vocabulary,
        dtype=getattr(torch, arguments.dtype),
    )
    decoder.model.to(arguments.device)
    return decoder


def _case(decoder: Decoder) -> tuple[np.ndarray, np.ndarray, Partition]:
    """Random scores, and modules of equal size."""
    shape, generator = decoder.shape, np.random.default_rng(0)
    modules = max(1, shape.neurons // MODULE_SIZE)
    labels = np.tile(np.arange(shape.neurons) % modules, (shape.layers, 1)).astype(np.int32)
    counts = np.full(shape.layers, modules, dtype=np.int32)
    nothing = np.full((shape.layers, 1), np.nan)
    partition = Partition(
        kind="random",
        profile="magnitude",
        labels=labels,
        counts=counts,
        initial_counts=counts,
        silhouette=nothing,
        mixing=nothing[:2, 0],
        variation=nothing[:2, 0],
        history=np.zeros((shape.layers, 0, 5)),
    )
    return (
        generator.random((shape.layers, shape.neurons)),
        generator.random((shape.layers, shape.kv_heads)),
        partition,
    )


def _parts(decoder: Decoder, batch: int, length: int, repeats: int) -> dict[str, float]:
    """Seconds of the plain forward pass and of each part of a step."""
    vocabulary = decoder.model.config.vocab_size
    ids = torch.randint(vocabulary, (batch - batch % SUBSETS, length), device=decoder.device)
    family = MaskFamily.of(RankedUnits.build(decoder.shape, *_case(decoder)), decoder.device)
    thresholds = torch.full((family.count,), 0.5, device=decoder.device)

    def best(work: Callable[[], object]) -> float:
        return _best(work, repeats, decoder.device)

    with torch.no_grad():
        parts = {"plain forward pass": best(lambda: decoder.logits(decoder.hidden_states(ids)))}
    with gate_decoder(decoder) as gate:
        with torch.no_grad():
            teacher = decoder.hidden_states(ids)
            parts["teacher forward"] = best(lambda: decoder.hidden_states(ids))
        gate.open(family, thresholds)
        parts["student forward"] = best(lambda: decoder.hidden_states(ids))
        student = decoder.hidden_states(ids)
        losses = head_losses(decoder.logits, student, teacher, ids, 1.0)
        parts["head, losses, their gradients"] = best(lambda: head_losses(decoder.logits, student, teacher, ids, 1.0))
        parts["one of two backward passes"] = best(
            lambda: torch.autograd.grad(student, gate.channels, losses.cross_entropy_gradient, retain_graph=True)
        )
    return parts


Learns = Callable[[Decoder, tuple[Tokens, Tokens], SparsitySettings, Progress], object]


def learned_thresholds(
    decoder: Decoder, texts: tuple[Tokens, Tokens], settings: SparsitySettings, told: Progress
) -> object:
    """Learns a threshold for each module of a random partition, from random scores."""
    return learn(Setting(decoder, texts, settings, 0, told), *_case(decoder), 0.5)


def learned_gates(decoder: Decoder, texts: tuple[Tokens, Tokens], settings: SparsitySettings, told: Progress) -> object:
    """Learns a gate for each unit, from random scores."""
    neurons, groups, _ = _case(decoder)
    channels = np.zeros((decoder.shape.layers, decoder.shape.heads * decoder.shape.head_width))
    scores = UnitScores("flap", "random", neurons, groups, channels)
    setting = Setting(decoder, texts, settings, 0, told)
    return learn_gates(setting, [scores], GateSettings(), 0.5, settings.epochs)


def _steps(decoder: Decoder, arguments: argparse.Namespace, learns: Learns) -> tuple[float, float]:
    """Seconds of the fastest whole step in the first and in the second epoch of a real run."""
    generator = np.random.default_rng(0)
    size = (arguments.batch // 2 * arguments.repeats, arguments.length)
    vocabulary = decoder.model.config.vocab_size
    first, second = (
        Tokens(name, "", generator.integers(0, vocabulary, size).astype(np.int32), size[0]) for name in "AB"
    )
    ticks = [time.perf_counter()]
    settings = SparsitySettings(epochs=2, batch=arguments.batch)
    learns(decoder, (first, second), settings, lambda *_: ticks.append(time.perf_counter()))
    early, later = np.split(np.diff(ticks), 2)
    return float(early.min()), float(later.min())


def _best(work: Callable[[], object], repeats: int, device: torch.device) -> float:
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - start)
    return min(times[1:])


if __name__ == "__main__":
    main()
