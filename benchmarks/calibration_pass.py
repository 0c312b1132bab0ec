"""Compare the pass that collects calibration statistics with a plain forward pass of the same tokens.

    python benchmarks/calibration_pass.py [MODEL] [--samples N] [--length N] [--batch N] [--repeats N]

The statistics pass is also compared with a pass that records the strongest positions of every neuron as well.
Without a model folder, a random LLaMA of the given shape is measured. All passes run in turn within a repetition,
and a ratio is the median over repetitions, so that other work on the machine slows all passes alike. Such work
hardly changes CPU seconds. The targets: the statistics pass takes at most 1.10 times as long as a plain forward
pass, and with positions at most 1.15 times as long as without.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("GOMP_SPINCOUNT", "10000")
# the project is not installed: a script finds it beside its own folder
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch

from gprune.models.decoder import Decoder
from gprune.models.loading import load
from gprune.models.tiny import tiny_decoder
from gprune.pruning.calibration import collect, track_strongest
from gprune.records import Tokens
from gprune.study import CalibrationSettings

TARGET, POSITIONS_TARGET = 1.10, 1.15
"""largest ratios of times: statistics pass to forward pass, and statistics pass with positions to without"""
PASSES = ("model with LM head", "backbone alone", "statistics pass", "with positions")


def main() -> None:
    """Print the seconds of the passes and their ratios."""
    options = _options()
    torch.set_num_threads(options.threads)
    decoder = _load_decoder(options)
    generator = np.random.default_rng(0)
    vocabulary = decoder.model.get_input_embeddings().weight.shape[0]  # type: ignore[operator]
    ids = generator.integers(0, vocabulary, (options.samples, options.length), dtype=np.int32)
    wall, cpu = _measure(_passes(decoder, ids, options), options.repeats, decoder.device)
    print(
        f"{options.model or 'random llama'}: {decoder.shape}, {decoder.dtype} on {decoder.device}, "
        f"{options.samples} x {options.length} tokens, batch {options.batch}, {options.threads} threads, "
        f"FLAP variant {options.variant}"
    )
    print(f"{'pass':<20}{'wall s':>9}{'CPU s':>9}{'wall ratio':>12}{'CPU ratio':>11}")
    for index, name in enumerate(PASSES):
        seconds = f"{np.median(wall[:, index]):>9.3f}{np.median(cpu[:, index]):>9.3f}"
        ratios = [np.median(times[:, 2] / times[:, index]) for times in (wall, cpu)]
        print(f"{name:<20}{seconds}{ratios[0]:>12.3f}{ratios[1]:>11.3f}")
    print(f"ratios: statistics pass / this pass, medians of {options.repeats} repeats; target <= {TARGET:.2f}")
    increases = [np.median(times[:, 3] / times[:, 2]) - 1 for times in (wall, cpu)]
    print(
        f"{options.positions} positions per neuron add {increases[0]:+.1%} wall, {increases[1]:+.1%} CPU to the "
        f"statistics pass; target <= {POSITIONS_TARGET - 1:.0%}; load {os.getloadavg()[0]:.1f}"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="model folder (default: a random model)")
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--positions", type=int, default=CalibrationSettings().positions)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--variant", choices=("paper", "released"), default="paper")
    shape = {"layers": 4, "hidden": 256, "neurons": 688, "heads": 8, "kv-heads": 4, "vocabulary": 4096}
    for name, value in shape.items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"of the random model ({value})")
    return parser.parse_args()


def _load_decoder(options: argparse.Namespace) -> Decoder:
    if options.model:
        return load(options.model, options.device, options.dtype)
    decoder = tiny_decoder(
        layers=options.layers,
        hidden=options.hidden,
        neurons=options.neurons,
        heads=options.heads,
        kv_heads=options.kv_heads,
        vocabulary=options.vocabulary,
        dtype=getattr(torch, options.dtype),
    )
    if options.device != "auto":
        decoder.model.to(options.device)
    return decoder


def _passes(decoder: Decoder, ids: np.ndarray, options: argparse.Namespace) -> list[Callable[[], object]]:
    """Return the passes over the same tokens, in the order of PASSES."""
    batches = torch.from_numpy(ids.astype(np.int64)).to(decoder.device).split(options.batch)
    shards = min(8, options.samples // 2 * 2)
    settings = CalibrationSettings(
        samples=options.samples,
        length=options.length,
        shards=shards,
        batch=options.batch,
        flap_variant=options.variant,
    )
    tokens = Tokens("benchmark", "", ids, len(ids))

    @torch.no_grad()
    def model() -> None:
        for batch in batches:
            decoder.model(input_ids=batch, use_cache=False)

    @torch.no_grad()
    def backbone() -> None:
        for batch in batches:
            decoder.hidden_states(batch)

    def with_positions() -> None:
        strongest = track_strongest(decoder, tokens, options.positions)
        collect(decoder, tokens, settings, strongest=strongest)
        strongest.result(tokens)

    return [model, backbone, lambda: collect(decoder, tokens, settings), with_positions]


def _measure(passes: list[Callable[[], object]], repeats: int, device: torch.device) -> tuple[np.ndarray, np.ndarray]:
    """Return (repeats, passes) wall and CPU seconds; every pass runs once before it is timed."""
    wall, cpu = np.zeros((2, repeats, len(passes)))
    # repeat -1 warms up; it is written to the last row, which the last repetition overwrites
    for repeat in range(-1, repeats):
        for offset in range(len(passes)):
            index = (repeat + offset) % len(passes)
            started = time.perf_counter(), time.process_time()
            passes[index]()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            wall[repeat, index] = time.perf_counter() - started[0]
            cpu[repeat, index] = time.process_time() - started[1]
    return wall, cpu


if __name__ == "__main__":
    main()
