r"""Compute the disk space of a study's results at another model shape from an existing run.

    python benchmarks/results_on_disk.py CACHE RUN --layers 80 --neurons 28672 --heads 64 --kv-heads 8 \
        --hidden 8192 --axis samples=2048 length=128 shards=8

The size of an array is the product of its named dimensions. The options replace the dimensions of the model, and
those of `--axis`; number types do not change. For each kind of result, the table has the number of results and their
bytes now and at the other shape. Without a shape both are equal, so that the total can be compared with the folder.
"""

import argparse
import math
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

# the project is not installed: a script finds it beside its own folder
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gprune.pipeline import runs  # noqa: E402
from gprune.pipeline.cache import size_of  # noqa: E402
from gprune.pipeline.stages import KINDS  # noqa: E402
from gprune.records.base import axes_of  # noqa: E402
from gprune.store import Store  # noqa: E402
from gprune.system.units import amount  # noqa: E402


def replaced_lengths(options: argparse.Namespace) -> dict[str, int]:
    """Return the lengths of the replaced dimensions by name."""
    sizes = {pair.partition("=")[0]: int(pair.partition("=")[2]) for pair in options.axis}
    if options.layers:
        width = options.hidden // options.heads
        sizes |= {"layers": options.layers, "neurons": options.neurons, "hidden": options.hidden}
        sizes |= {"channels": options.heads * width, "groups": options.kv_heads}
        sizes |= {"modules": options.layers * options.modules}
    return sizes


def result_bytes(store: Store, kind: str, key: str, lengths: dict[str, int]) -> tuple[int, int]:
    """Return the bytes of a result as it is and with replaced dimensions; files other than arrays keep their size."""
    folder, record = store.folder(kind, key), KINDS[kind].record
    current = size_of(folder)
    if record is None:
        return current, current
    resized = current
    for name, axes in axes_of(record).items():
        path = folder / f"{name}.npy"
        if axes.optional and not path.exists():
            continue
        array = np.load(path, mmap_mode="r")
        shape, dtype = array.shape, array.dtype
        new_shape = [lengths.get(axis, length) for axis, length in zip(axes.names, shape, strict=True)]
        resized += (math.prod(new_shape) - math.prod(shape)) * dtype.itemsize
    return current, resized


def main() -> None:
    """Print the bytes of each kind of result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cache", type=Path)
    parser.add_argument("run")
    for name in ("layers", "neurons", "heads", "kv-heads", "hidden"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--modules", type=int, default=48, help="modules per layer (default: 48, the maximum)")
    parser.add_argument("--axis", nargs="*", default=[], metavar="NAME=LENGTH")
    options = parser.parse_args()
    store, lengths = Store(options.cache), replaced_lengths(options)
    kinds: dict[str, list[tuple[int, int]]] = defaultdict(list)
    stages = runs.require_record(store, options.run)["stages"]
    results = {(_kind_of_stage(store, name, stage["key"]), stage["key"]) for name, stage in stages.items()}
    for kind, key in sorted(results):
        kinds[kind].append(result_bytes(store, kind, key, lengths))
    kinds["total"] = [size for sizes in kinds.values() for size in sizes]
    for kind, sizes in kinds.items():
        current, resized = (sum(column) for column in zip(*sizes, strict=True))
        print(f"{kind:<20} {len(sizes):>4} {amount(current):>14} {amount(resized):>14}")


def _kind_of_stage(store: Store, name: str, key: str) -> str:
    # the longest kind that begins the name and has a result with this key
    candidates = (kind for kind in KINDS if name.startswith(kind) and store.folder(kind, key).exists())
    return max(candidates, key=len)


if __name__ == "__main__":
    main()
