"""Measure time and memory of every stage of the pipeline for a model shape, and compare parts with references.

    python benchmarks/pipeline.py random:llama2-7b --depth 2 --layers 2      # two of its 32 layers
    python benchmarks/pipeline.py random:llama2-7b --device cuda --dtype bfloat16 --samples 2048
    python benchmarks/pipeline.py FOLDER                                     # a model folder
    python benchmarks/pipeline.py random:llama2-7b --offload FOLDER --dtype bfloat16 # layers stay in files
    python benchmarks/pipeline.py --ratios rasa components modules digests help

The floor of a stage is a lower bound of its time on this device: the time of its matrix operations at the rate of
a large matrix product, or that of the bytes that it has to move at the bandwidth of a copy, whichever is longer.
With `--ratios`, a part of the pipeline and its reference run in turn, and the ratio is that of their medians. The
first line has the load of the machine, because other work slows the measurement.
"""

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count() or 1))
os.environ.setdefault("GOMP_SPINCOUNT", "10000")
# the project is not installed: a script finds it beside its own folder
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import random_folder  # noqa: E402
import torch  # noqa: E402
from pipeline_machine import Device, measure_device  # noqa: E402
from pipeline_peers import PARTS, measure_ratios  # noqa: E402
from pipeline_stages import STAGES, Bench, Sizes  # noqa: E402

from gprune.models import loading  # noqa: E402
from gprune.models.decoder import Decoder  # noqa: E402
from gprune.models.sources import RANDOM, SHAPES  # noqa: E402


def main() -> None:
    """Print the table of stages, the comparisons with references, or both."""
    options = _options()
    torch_device = loading.device_of(options.device)
    dtype = loading.DTYPES[options.dtype]
    device = measure_device(torch_device, torch.float32, *({dtype} - {torch.float32}))
    print(
        f"{torch_device}, {torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}, "
        + ", ".join(f"{rate / 1e9:,.0f} Gflop/s in {str(kind)[6:]}" for kind, rate in device.rates.items())
        + f", {device.bandwidth / 1e9:.0f} GB/s"
    )
    if options.model:
        _print_stages(options, device)
    if options.ratios:
        _print_ratios(options, torch_device)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shapes = ", ".join(SHAPES)
    parser.add_argument("model", nargs="?", help=f"a model folder, or {RANDOM}SHAPE, of {shapes}")
    parser.add_argument("--depth", type=int, help="layers of a random model (those of its shape)")
    parser.add_argument("--layers", type=int, help="layers on which BCM and RASA run (all)")
    offload_help = "leave the layers in their files; a random model is written to this folder once"
    parser.add_argument("--offload", type=Path, help=offload_help)
    parser.add_argument("--stages", nargs="+", choices=list(STAGES), default=list(STAGES))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="float32", choices=list(loading.DTYPES))
    numbers = {"samples": 32, "length": 128, "batch": 16, "context-tokens": 2048, "learning-batch": 32}
    numbers |= {"learning-steps": 2, "epochs": 1, "recovery-steps": 2, "windows": 32, "repeats": 5}
    for name, value in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--ratios", nargs="*", choices=list(PARTS), help="parts to compare with a reference (all)")
    options = parser.parse_args()
    if options.ratios is not None:
        options.ratios = options.ratios or list(PARTS)
    return options


def _load_decoder(options: argparse.Namespace) -> Decoder:
    if not options.model.startswith(RANDOM):
        offload = options.offload is not None
        return loading.load(options.model, options.device, options.dtype, offload=offload)
    from transformers import AutoConfig

    name = options.model.removeprefix(RANDOM)
    if name not in SHAPES:
        raise SystemExit(f"Unknown shape {name!r}. Use one of: {', '.join(SHAPES)}.")
    depth = {"num_hidden_layers": options.depth} if options.depth else {}
    if options.offload is not None:
        folder = random_folder.write_random_model(options.offload, SHAPES[name] | depth, loading.DTYPES[options.dtype])
        device = loading.device_of(options.device)
        return Decoder.from_model(loading.read_weights(folder, device, options.dtype, False, offload=True))
    config = AutoConfig.for_model(**(SHAPES[name] | depth))
    device, dtype = loading.device_of(options.device), loading.DTYPES[options.dtype]
    return Decoder.from_model(loading.make_random_model(config, device, dtype, name))


def _print_stages(options: argparse.Namespace, device: Device) -> None:
    decoder = _load_decoder(options)
    sizes = Sizes(
        options.samples, options.length, options.batch, options.layers or decoder.shape.layers,
        options.context_tokens, options.learning_batch, options.learning_steps, options.epochs,
        options.recovery_steps, options.windows,
    )  # fmt: skip
    print(f"{options.model}: {decoder.shape}\n{sizes}")
    print(f"{'stage':<20}{'seconds':>10}{'floor':>10}{'ratio':>8}{'peak GiB':>10}{'load':>7}")
    rows = []
    for row in Bench(decoder, device, sizes).rows(options.stages):
        rows.append(row)
        ratio = row.usage.seconds / row.floor if row.floor else float("inf")
        print(
            f"{row.name:<20}{row.usage.seconds:>10.2f}{row.floor:>10.2f}{ratio:>8.1f}"
            f"{row.usage.memory / 2**30:>10.2f}{os.getloadavg()[0]:>7.1f}",
            flush=True,
        )
    seconds, peak = sum(row.usage.seconds for row in rows), max(row.usage.memory for row in rows)
    print(f"{'total':<20}{seconds:>10.2f}{sum(row.floor for row in rows):>10.2f}{peak / 2**30:>18.2f}")


def _print_ratios(options: argparse.Namespace, torch_device: torch.device) -> None:
    print(f"medians of {options.repeats} repetitions, each part and its reference in turn")
    for ratio in measure_ratios(options.ratios, options.repeats, torch_device):
        target = f"target {ratio.target:g}×" if ratio.target else ""
        print(
            f"{ratio.name}\n    wall {_format_ratio(ratio.ours.seconds, ratio.reference.seconds)}; CPU "
            f"{_format_ratio(ratio.ours.cpu, ratio.reference.cpu)}\n"
            f"    {'; '.join(filter(None, (target, ratio.note)))} (load {os.getloadavg()[0]:.1f})",
            flush=True,
        )


def _format_ratio(ours: float, reference: float) -> str:
    return f"{ours:.3f} s, reference {reference:.3f} s, {reference / max(ours, 1e-9):.1f}× as fast"


if __name__ == "__main__":
    main()
