"""Compare parts of the pipeline with a reference, for benchmarks/pipeline.py.

The reference is scikit-learn, scipy, or an earlier implementation of the project, which is kept here.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from pipeline_machine import Medians, compare_calls
from scipy.stats import rankdata

from gprune.pruning.calibration.principal import principal_components
from gprune.pruning.modules.initialization import cluster
from gprune.pruning.ranking import GroupedRanks
from gprune.pruning.rasa import balanced_splits, module_statistics
from gprune.pruning.scoring import neuron_scorer, score
from gprune.records import ActivationStatistics, ModelShape, ModuleStatistics, Partition, WeightNorms
from gprune.store import checksums
from gprune.study import CalibrationSettings, ModularizationSettings, ReliabilitySettings

ROOT = Path(__file__).resolve().parents[1]
MODULE_COUNTS = (16, 24, 32, 40, 48)
"""candidates for the number of modules of a layer"""


@dataclass(frozen=True, slots=True)
class Ratio:
    """The times of a part and of its reference."""

    name: str
    ours: Medians
    reference: Medians
    target: float
    """smallest ratio of the reference's time to ours; 0 if there is none, or if `note` has a target in seconds"""
    note: str = ""


def measure_ratios(names: list[str], repeats: int, device: torch.device) -> list[Ratio]:
    """Measure parts and their references.

    Args:
        names: keys of PARTS.
        repeats: number of repetitions.
        device: device of the parts that use torch.
    """
    return [PARTS[name](repeats, device) for name in names]


def earlier_ranks(labels: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return the earlier implementation of ranks within groups, which sorts each group separately."""
    by_group = np.argsort(labels, kind="stable")
    size = np.bincount(labels)
    start = np.cumsum(size) - size
    first = np.repeat(start, size)

    def rank(scores: np.ndarray) -> np.ndarray:
        values, order = scores[by_group], first.copy()
        for begin, count in zip(start.tolist(), size.tolist(), strict=True):
            order[begin : begin + count] += values[begin : begin + count].argsort()
        result = np.empty(len(values))
        ordered = values[order]
        equal = ordered[1:] == ordered[:-1]
        equal[start[1:] - 1] = False
        positions = np.arange(len(values), dtype=np.float64)
        if equal.any():
            starts = np.flatnonzero(np.concatenate([[True], ~equal]))
            ends = np.append(starts[1:], len(ordered))
            positions = np.repeat((starts + ends - 1) / 2.0, ends - starts)
        result[order] = positions - first
        return result

    return rank


def earlier_discrepancy(labels: np.ndarray, pairs: Iterable[tuple[np.ndarray, ...]]) -> np.ndarray:
    """Return (modules,) mean differences of normalised ranks over pairs, by the earlier implementation."""
    rank, size = earlier_ranks(labels), np.bincount(labels)
    divisor = np.repeat(np.maximum(size - 1, 1), size)
    total, count = np.zeros(len(labels)), 0
    for pair in pairs:
        first, second = (rank(scores) / divisor for scores in pair)
        total += np.abs(first - second)
        count += 1
    means: np.ndarray = np.add.reduceat(total, np.cumsum(size) - size) / (count * size)
    return means


def random_modules(layers: int, neurons: int, modules: int, seed: int = 0) -> np.ndarray:
    """Return (layers, neurons) labels of random modules of unequal sizes, numbered from 0 in each layer."""
    generator = np.random.default_rng(seed)
    count, rows = modules // layers, []
    for _ in range(layers):
        share = generator.lognormal(0.0, 0.5, count)
        labels = generator.choice(count, neurons - count, p=share / share.sum())
        rows.append(generator.permutation(np.concatenate([np.arange(count), labels])))
    return np.stack(rows)


LAYERS, NEURONS, MODULES, SHARDS = 32, 11008, 1312, 8
"""the shape of LLaMA-2-7B, its number of modules, and the shards of the statistics"""


def _partition() -> Partition:
    labels, counts = random_modules(LAYERS, NEURONS, MODULES), np.full(LAYERS, MODULES // LAYERS, dtype=np.int32)
    unknown = np.full(2, np.nan)
    diagnostics = np.full((LAYERS, 1), np.nan), unknown, unknown, np.zeros((LAYERS, 0, 5))
    return Partition("random", "magnitude", labels.astype(np.int32), counts, counts, *diagnostics)


def _random_statistics(seed: int) -> ActivationStatistics:
    generator = np.random.default_rng(seed)
    sizes = {"ffn": NEURONS, "attention": LAYERS * 128}
    parts = [(f"{part}_{kind}", n) for part, n in sizes.items() for kind in ("mean", "moment", "energy")]
    moments = {name: generator.lognormal(0, 1, (SHARDS, LAYERS, n)) for name, n in parts}
    released = {f"{part}_released_fluctuation": np.zeros((LAYERS, n)) for part, n in sizes.items()}
    tokens = np.full(SHARDS, 256 * 128)
    return ActivationStatistics("t", "f", tokens // 128, tokens, **moments, **released)


def _rasa(repeats: int, device: torch.device) -> Ratio:
    """Compare RASA's module statistics with those of the earlier implementation."""
    partition, splits = _partition(), balanced_splits(SHARDS)
    flat, shape = partition.global_labels.ravel(), ModelShape(LAYERS, NEURONS, 32, 32, 128, 4096)
    texts = [_random_statistics(seed) for seed in range(2)]
    norms = WeightNorms(*(np.ones((LAYERS, n)) for n in (NEURONS, NEURONS, 4096, 4096)))
    scores = [score("flap", text, norms, shape, CalibrationSettings()) for text in texts]

    def parts(text: ActivationStatistics) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        scorer = neuron_scorer("flap", text, norms)
        for first, second in splits:
            yield scorer(first), scorer(second)

    def ours() -> ModuleStatistics:
        halves = (parts(text) for text in texts)
        return module_statistics(*scores, partition, *halves, ReliabilitySettings())

    def reference() -> list[np.ndarray]:
        def halves(text: ActivationStatistics) -> Iterator[tuple[np.ndarray, ...]]:
            for split in splits:
                half_scores = (score("flap", text, norms, shape, CalibrationSettings(), half) for half in split)
                yield tuple(part.ffn.ravel() for part in half_scores)

        pair = [(scores[0].ffn.ravel(), scores[1].ffn.ravel())]
        return [earlier_discrepancy(flat, pairs) for pairs in (pair, halves(texts[0]), halves(texts[1]))]

    medians = compare_calls({"ours": ours, "reference": reference}, repeats, device)
    result, expected = ours(), reference()
    largest_difference = max(
        float(np.abs(value / other - 1).max())
        for value, other in zip((result.drift, result.u_primary, result.u_auxiliary), expected, strict=True)
    )
    is_same_decision = (result.u_auxiliary < result.u_primary) == (expected[2] < expected[1])
    return Ratio(
        "RASA, 32 x 11,008 in 1,312 modules: 140 halves scored by FLAP and ranked", *medians.values(), 0.0,
        f"target 1 s; largest relative difference {largest_difference:.0e}, "
        f"equal decisions: {bool(is_same_decision.all())}",
    )  # fmt: skip


def _ranks(repeats: int, device: torch.device) -> Ratio:
    """Compare the displacement of ranks within modules with that of the earlier implementation."""
    flat, generator = _partition().global_labels.ravel(), np.random.default_rng(1)
    grouped, rank = GroupedRanks(flat), earlier_ranks(flat)
    base = generator.lognormal(0.0, 1.0, (2, len(flat)))

    def reference() -> np.ndarray:
        size = np.repeat(grouped.size - 1, grouped.size)
        return np.abs(rank(base[0]) / size - rank(base[1]) / size)

    medians = compare_calls({"ours": lambda: grouped.displacement(*base), "reference": reference}, 10 * repeats, device)
    same = all((grouped.in_group_order(scores) == rank(scores)).all() for scores in base)
    name = "one pair of rankings of 32 x 11,008 neurons within 1,312 modules, beside the earlier implementation"
    return Ratio(name, *medians.values(), 0.0, f"ranks identical: {same}")


def _library_ranks(repeats: int, device: torch.device) -> Ratio:
    """Compare ranks within modules with one call of scipy per module."""
    labels = _partition().global_labels.ravel()
    grouped = GroupedRanks(labels)
    scores = np.random.default_rng(1).lognormal(0.0, 1.0, len(labels))

    def reference() -> np.ndarray:
        modules = np.split(scores[grouped.by_group], grouped.start[1:])
        return np.concatenate([rankdata(module) - 1 for module in modules])

    timings = compare_calls(
        {"ours": lambda: grouped.in_group_order(scores), "reference": reference}, 10 * repeats, device
    )
    same = bool((grouped.in_group_order(scores) == reference()).all())
    name = "ranks of 32 x 11,008 scores within 1,312 modules, beside scipy.stats.rankdata module by module"
    return Ratio(name, *timings.values(), 3.0, f"ranks identical: {same}")


def _components(repeats: int, device: torch.device) -> Ratio:
    """Compare principal components with an eigendecomposition in float64."""
    points = decaying_points(2048, 2048).to(device)

    def reference() -> torch.Tensor:
        _, vectors = torch.linalg.eigh((points.T @ points).double())
        rows = vectors[:, -64:].T.flip(0).float()
        return points @ rows.T

    medians = compare_calls({"ours": lambda: principal_components(points, 64), "reference": reference}, repeats, device)
    captured = principal_components(points, 64)[1].double().square().sum() / reference().double().square().sum()
    return Ratio(
        "64 principal components of 2,048 x 2,048, beside eigh in float64",
        medians["ours"], medians["reference"], 10.0,
        f"variance captured: {float(captured):.6f} of the exact components'",
    )  # fmt: skip


def decaying_points(points: int, width: int, seed: int = 0) -> torch.Tensor:
    """Return (points, width) values of mean zero whose variances decay like those of FFN inputs (about 1 / index)."""
    generator = torch.Generator().manual_seed(seed)
    spread = torch.arange(1, width + 1).float() ** -0.5
    rotation = torch.linalg.qr(torch.randn(width, width, generator=generator)).Q
    values = torch.randn(points, width, generator=generator) * spread @ rotation
    return values - values.mean(0)


def _modules(repeats: int, device: torch.device, greedy: bool = True) -> Ratio:
    """Compare the clustering into modules, over several numbers of modules, with scikit-learn."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    restarts = ModularizationSettings().restarts
    rows = clustered_rows(4096, 1024).to(device)
    values, silhouettes = rows.cpu().numpy(), {"ours": [], "reference": []}

    def ours() -> None:
        result = cluster(rows, MODULE_COUNTS, restarts, np.random.default_rng(0), greedy)
        silhouettes["ours"].append(np.nanmax(result.silhouette))

    def reference() -> None:
        scores = []
        for count in MODULE_COUNTS:
            labels = KMeans(count, n_init=restarts, random_state=0).fit(values).labels_
            scores.append(silhouette_score(values, labels, metric="cosine"))
        silhouettes["reference"].append(max(scores))

    medians = compare_calls({"ours": ours, "reference": reference}, repeats, device)
    return Ratio(
        f"modules among {len(MODULE_COUNTS)} counts, 4,096 x 1,024, {restarts} {'greedy' if greedy else 'plain'} "
        "starts, beside scikit-learn",
        medians["ours"], medians["reference"], 4.0,
        f"silhouette {max(silhouettes['ours']):.4f}, reference {max(silhouettes['reference']):.4f}",
    )  # fmt: skip


def clustered_rows(neurons: int, width: int, groups: int = 40, seed: int = 0) -> torch.Tensor:
    """Return (neurons, width) rows of norm 1 in weakly separated groups, as of trained weights (silhouettes near 0)."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(groups, width, generator=generator)
    labels = torch.randint(groups, (neurons,), generator=generator)
    rows = torch.randn(neurons, width, generator=generator) + 0.25 * centres[labels]
    return torch.nn.functional.normalize(rows, dim=1)


def _digests(repeats: int, device: torch.device) -> Ratio:
    """Compare the checksums of unchanged files with reading and hashing the files."""
    with tempfile.TemporaryDirectory() as folder:
        memory, files = Path(folder, "cache", "digests"), []
        memory.parent.mkdir()
        block = os.urandom(2**26)
        for index in range(4):
            files.append(Path(folder, f"part-{index}"))
            files[-1].write_bytes(block * 4)

        def reference() -> None:
            for file in files:
                hashlib.sha256(file.read_bytes()).hexdigest()

        def ours() -> None:
            # forget the checksums in memory, as in a new process
            checksums._remembered.clear()
            checksums.of_files(files, memory)

        medians = compare_calls({"ours": ours, "reference": reference}, repeats, device)
    return Ratio(
        "digests of 1 GiB in four files, with remembered checksums, beside reading them", *medians.values(), 100.0
    )


def _help(repeats: int, device: torch.device) -> Ratio:
    """Compare the start of the command line with that of Python with numpy."""

    def run_python(*arguments: str) -> Callable[[], object]:
        command = [sys.executable, *arguments]
        return lambda: subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)

    functions = {
        "ours": run_python("-m", "gprune", "--help"),
        "reference": run_python("-c", "import argparse, numpy"),
    }
    medians = compare_calls(functions, repeats, device)
    return Ratio("python -m gprune --help, beside python that imports numpy", *medians.values(), 0.0, "target 0.3 s")


PARTS: dict[str, Callable[[int, torch.device], Ratio]] = {
    "rasa": _rasa,
    "ranks": _ranks,
    "library-ranks": _library_ranks,
    "components": _components,
    "modules": partial(_modules, greedy=False),
    "greedy-modules": partial(_modules, greedy=True),
    "digests": _digests,
    "help": _help,
}
