"""What every stage of the pipeline takes at a given shape, and some of them beside a named peer.

    python benchmarks/pipeline.py random:llama2-7b --depth 2 --layers 2      # two of its 32 layers
    python benchmarks/pipeline.py random:llama2-7b --device cuda --dtype bfloat16 --samples 2048
    python benchmarks/pipeline.py FOLDER                                     # a model of one's own
    python benchmarks/pipeline.py random:llama2-7b --offload FOLDER --dtype bfloat16 # layers stay in files
    python benchmarks/pipeline.py --ratios rasa components modules digests help

Beside the time of a stage stands its floor: the operations of its matrix products, counted while it runs, at
the rate that this device reaches in a large product, or the bytes that it has to move at the bandwidth of a
copy, whichever is more. Peers take turns with what they are held against, and the ratios are of medians. The
load of the machine stands above everything: other work on it slows all of this.
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
from pipeline_machine import Device, measured_device  # noqa: E402
from pipeline_peers import PARTS, ratios  # noqa: E402
from pipeline_stages import STAGES, Bench, Sizes  # noqa: E402

from gprune.models import loading, random_weights  # noqa: E402
from gprune.models.decoder import Decoder  # noqa: E402
from gprune.models.shapes import RANDOM, SHAPES  # noqa: E402


def main() -> None:
    """Prints the table of stages, the table of ratios, or both."""
    options = _options()
    place = loading.device_of(options.device)
    dtype = loading.DTYPES[options.dtype]
    device = measured_device(place, torch.float32, *({dtype} - {torch.float32}))
    print(
        f"{place}, {torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}, "
        + ", ".join(f"{rate / 1e9:,.0f} Gflop/s in {str(kind)[6:]}" for kind, rate in device.rates.items())
        + f", {device.bandwidth / 1e9:.0f} GB/s"
    )
    if options.model:
        _show_stages(options, device)
    if options.ratios:
        _show_ratios(options, place)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shapes = ", ".join(SHAPES)
    parser.add_argument("model", nargs="?", help=f"a model folder, or {RANDOM}SHAPE, of {shapes}")
    parser.add_argument("--depth", type=int, help="layers of a random model (those of its shape)")
    parser.add_argument("--layers", type=int, help="layers of BCM and RASA (all)")
    words = "leave the layers in their files; those of a random model are made in this folder, once"
    parser.add_argument("--offload", type=Path, help=words)
    parser.add_argument("--stages", nargs="+", choices=list(STAGES), default=list(STAGES))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="float32", choices=list(loading.DTYPES))
    numbers = {"samples": 32, "length": 128, "batch": 16, "context-tokens": 2048, "learning-batch": 32}
    numbers |= {"learning-steps": 2, "epochs": 1, "recovery-steps": 2, "windows": 32, "repeats": 5}
    for name, value in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--ratios", nargs="*", choices=list(PARTS), help="parts to hold against a peer (all)")
    options = parser.parse_args()
    if options.ratios is not None:
        options.ratios = options.ratios or list(PARTS)
    return options


def _decoder(options: argparse.Namespace) -> Decoder:
    """A model folder, or a model of a published shape with random weights."""
    if not options.model.startswith(RANDOM):
        offload = options.offload is not None
        return loading.load(options.model, options.device, options.dtype, offload=offload)
    from transformers import AutoConfig

    name = options.model.removeprefix(RANDOM)
    if name not in SHAPES:
        raise SystemExit(f"{options.model} is none of {', '.join(SHAPES)}: check the spelling")
    depth = {"num_hidden_layers": options.depth} if options.depth else {}
    if options.offload is not None:
        folder = random_folder.write(options.offload, SHAPES[name] | depth, loading.DTYPES[options.dtype])
        place = loading.device_of(options.device)
        read = loading.read_weights(folder, place, options.dtype, False, offload=True)
        return Decoder.from_model(read)
    config = AutoConfig.for_model(**(SHAPES[name] | depth))
    place, dtype = loading.device_of(options.device), loading.DTYPES[options.dtype]
    return Decoder.from_model(random_weights.make_model(config, place, dtype, name))


def _show_stages(options: argparse.Namespace, device: Device) -> None:
    decoder = _decoder(options)
    sizes = Sizes(
        options.samples, options.length, options.batch, options.layers or decoder.shape.layers,
        options.context_tokens, options.learning_batch, options.learning_steps, options.epochs,
        options.recovery_steps, options.windows,
    )  # fmt: skip
    print(f"{options.model}: {decoder.shape}\n{sizes}")
    print(f"{'stage':<20}{'seconds':>10}{'floor':>10}{'times':>8}{'peak GiB':>10}{'load':>7}")
    rows = []
    for row in Bench(decoder, device, sizes).rows(options.stages):
        rows.append(row)
        times = row.took.seconds / row.floor if row.floor else float("inf")
        print(
            f"{row.name:<20}{row.took.seconds:>10.2f}{row.floor:>10.2f}{times:>8.1f}"
            f"{row.took.memory / 2**30:>10.2f}{os.getloadavg()[0]:>7.1f}",
            flush=True,
        )
    seconds, peak = sum(row.took.seconds for row in rows), max(row.took.memory for row in rows)
    print(f"{'together':<20}{seconds:>10.2f}{sum(row.floor for row in rows):>10.2f}{peak / 2**30:>18.2f}")


def _show_ratios(options: argparse.Namespace, place: torch.device) -> None:
    print(f"medians of {options.repeats} turns, each part and its peer in turn")
    for found in ratios(options.ratios, options.repeats, place):
        goal = f"target {found.target:g} times" if found.target else ""
        print(
            f"{found.name}\n    {_beside(found.ours.seconds, found.peer.seconds)}; of the processor "
            f"{_beside(found.ours.processor, found.peer.processor)}\n"
            f"    {'; '.join(filter(None, (goal, found.note)))} (load {os.getloadavg()[0]:.1f})",
            flush=True,
        )


def _beside(ours: float, peer: float) -> str:
    return f"{ours:.3f} s beside {peer:.3f} s, {peer / max(ours, 1e-9):.1f} times as fast"


if __name__ == "__main__":
    main()
