r"""What the results of a study take on the disk at another shape, told from a run that is there.

    python benchmarks/results_on_disk.py CACHE RUN --layers 80 --neurons 28672 --heads 64 --kv-heads 8 \
        --hidden 8192 --axis samples=2048 length=128 shards=8

Every array is as large as the product of its named dimensions. Those that follow from the model's shape are
replaced, and so are those of the settings; types of numbers stay. Without any of them it prints what the run
takes as it is, so that the sum can be held against the folder's.
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


def lengths(options: argparse.Namespace) -> dict[str, int]:
    """Lengths of dimensions at the other shape, by their names."""
    found = {word.partition("=")[0]: int(word.partition("=")[2]) for word in options.axis}
    if options.layers:
        width = options.hidden // options.heads
        found |= {"layers": options.layers, "neurons": options.neurons, "hidden": options.hidden}
        found |= {"channels": options.heads * width, "groups": options.kv_heads}
        found |= {"modules": options.layers * options.modules}
    return found


def of_result(store: Store, kind: str, key: str, other: dict[str, int]) -> tuple[int, int]:
    """Bytes of a result as it is, and at the other shape; what is no array stays."""
    folder, record = store.folder(kind, key), KINDS[kind].record
    here = size_of(folder)
    if record is None:
        return here, here
    there = here
    for name, axes in axes_of(record).items():
        array = np.load(folder / f"{name}.npy", mmap_mode="r")
        shape, dtype = array.shape, array.dtype
        grown = [other.get(axis, length) for axis, length in zip(axes.names, shape, strict=True)]
        there += (math.prod(grown) - math.prod(shape)) * dtype.itemsize
    return here, there


def main() -> None:
    """Prints bytes by kind of result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cache", type=Path)
    parser.add_argument("run")
    for name in ("layers", "neurons", "heads", "kv-heads", "hidden"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--modules", type=int, default=48, help="modules of a layer (default: 48, the most)")
    parser.add_argument("--axis", nargs="*", default=[], metavar="NAME=LENGTH")
    options = parser.parse_args()
    store, other = Store(options.cache), lengths(options)
    kinds: dict[str, list[tuple[int, int]]] = defaultdict(list)
    stages = runs.require_record(store, options.run)["stages"]
    for place in sorted({(_kind(store, name, one["key"]), one["key"]) for name, one in stages.items()}):
        kinds[place[0]].append(of_result(store, *place, other))
    for kind, sizes in kinds.items():
        here, there = (sum(size[way] for size in sizes) for way in (0, 1))
        print(f"{kind:<20} {len(sizes):>4} {amount(here):>14} {amount(there):>14}")
    here, there = (sum(size[way] for sizes in kinds.values() for size in sizes) for way in (0, 1))
    print(f"{'together':<20} {sum(map(len, kinds.values())):>4} {amount(here):>14} {amount(there):>14}")


def _kind(store: Store, name: str, key: str) -> str:
    """The kind of a stage: the longest that its name begins with and that holds its key."""
    fitting = (kind for kind in KINDS if name.startswith(kind) and store.folder(kind, key).exists())
    return max(fitting, key=len)


if __name__ == "__main__":
    main()
