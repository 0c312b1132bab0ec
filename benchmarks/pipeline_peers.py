"""Parts of the pipeline beside a named peer, the two taking turns: for benchmarks/pipeline.py.

A peer is scikit-learn, or the form that the project had before, which is kept here for this alone.
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
from pipeline_machine import Medians, interleaved
from scipy.stats import rankdata

from gprune.pruning.calibration.principal import principal_components
from gprune.pruning.modules.initialization import cluster
from gprune.pruning.ranking import GroupedRanks
from gprune.pruning.rasa import balanced_splits, module_statistics
from gprune.pruning.scoring import neuron_scorer, score
from gprune.records import ActivationStatistics, ModelShape, ModuleStatistics, Partition, WeightNorms
from gprune.store import checksums, digests
from gprune.study import CalibrationSettings, ModularizationSettings, ReliabilitySettings

ROOT = Path(__file__).resolve().parents[1]
COUNTS = (16, 24, 32, 40, 48)


@dataclass(frozen=True, slots=True)
class Ratio:
    """One part and its peer."""

    name: str
    ours: Medians
    peer: Medians
    target: float
    """how many times faster it shall be at least; 0 where seconds are the target"""
    note: str = ""


def ratios(names: list[str], repeats: int, place: torch.device) -> list[Ratio]:
    """Measures some parts beside their peers.

    Args:
        names: keys of PARTS.
        repeats: turns of each.
        place: device of those that torch computes.
    """
    return [PARTS[name](repeats, place) for name in names]


def old_ranks(labels: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Ranks in order of group as they were computed before: one small sort a group."""
    by_group = np.argsort(labels, kind="stable")
    size = np.bincount(labels)
    start = np.cumsum(size) - size
    first = np.repeat(start, size)

    def ranked(scores: np.ndarray) -> np.ndarray:
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

    return ranked


def old_discrepancy(labels: np.ndarray, pairs: Iterable[tuple[np.ndarray, ...]]) -> np.ndarray:
    """(modules,) mean difference of normalised ranks over some pairs, as it was computed before."""
    ranked, size = old_ranks(labels), np.bincount(labels)
    divisor = np.repeat(np.maximum(size - 1, 1), size)
    total, count = np.zeros(len(labels)), 0
    for pair in pairs:
        first, second = (ranked(scores) / divisor for scores in pair)
        total += np.abs(first - second)
        count += 1
    means: np.ndarray = np.add.reduceat(total, np.cumsum(size) - size) / (count * size)
    return means


def modules_of(layers: int, neurons: int, modules: int, seed: int = 0) -> np.ndarray:
    """(layers, neurons) random modules of unequal sizes, as many in each layer, numbered from 0."""
    generator = np.random.default_rng(seed)
    each, rows = modules // layers, []
    for _ in range(layers):
        share = generator.lognormal(0.0, 0.5, each)
        drawn = generator.choice(each, neurons - each, p=share / share.sum())
        rows.append(generator.permutation(np.concatenate([np.arange(each), drawn])))
    return np.stack(rows)


LAYERS, NEURONS, MODULES, SHARDS = 32, 11008, 1312, 8
"""LLaMA-2-7B's, and the modules that BCM makes of it"""


def _partition() -> Partition:
    labels, counts = modules_of(LAYERS, NEURONS, MODULES), np.full(LAYERS, MODULES // LAYERS, dtype=np.int32)
    nothing = np.full(2, np.nan)
    shown = np.full((LAYERS, 1), np.nan), nothing, nothing, np.zeros((LAYERS, 0, 5))
    return Partition("random", "magnitude", labels.astype(np.int32), counts, counts, *shown)


def _measured(seed: int) -> ActivationStatistics:
    """Random moments of every channel."""
    generator = np.random.default_rng(seed)
    sizes = {"ffn": NEURONS, "attention": LAYERS * 128}
    parts = [(f"{part}_{kind}", n) for part, n in sizes.items() for kind in ("mean", "moment", "energy")]
    moments = {name: generator.lognormal(0, 1, (SHARDS, LAYERS, n)) for name, n in parts}
    released = {f"{part}_released_fluctuation": np.zeros((LAYERS, n)) for part, n in sizes.items()}
    tokens = np.full(SHARDS, 256 * 128)
    return ActivationStatistics("t", "f", tokens // 128, tokens, **moments, **released)


def _rasa(repeats: int, place: torch.device) -> Ratio:
    """From the statistics of both texts to the drift and the repeatability of every module."""
    partition, splits = _partition(), balanced_splits(SHARDS)
    flat, shape = partition.global_labels.ravel(), ModelShape(LAYERS, NEURONS, 32, 32, 128, 4096)
    texts = [_measured(seed) for seed in range(2)]
    norms = WeightNorms(*(np.ones((LAYERS, n)) for n in (NEURONS, NEURONS, 4096, 4096)))
    whole = [score("flap", each, norms, shape, CalibrationSettings()) for each in texts]

    def parts(text: ActivationStatistics) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        make = neuron_scorer("flap", text, norms)
        for one, other in splits:
            yield make(one), make(other)

    def ours() -> ModuleStatistics:
        halves = (parts(text) for text in texts)
        return module_statistics(*whole, partition, *halves, ReliabilitySettings())

    def old() -> list[np.ndarray]:
        def halves(text: ActivationStatistics) -> Iterator[tuple[np.ndarray, ...]]:
            for split in splits:
                scored = (score("flap", text, norms, shape, CalibrationSettings(), half) for half in split)
                yield tuple(each.ffn.ravel() for each in scored)

        pairs = [(whole[0].ffn.ravel(), whole[1].ffn.ravel())]
        return [old_discrepancy(flat, each) for each in (pairs, halves(texts[0]), halves(texts[1]))]

    taken = interleaved({"ours": ours, "old": old}, repeats, place)
    found, before = ours(), old()
    apart = max(
        float(np.abs(one / other - 1).max())
        for one, other in zip((found.drift, found.u_primary, found.u_auxiliary), before, strict=True)
    )
    better = (found.u_auxiliary < found.u_primary) == (before[2] < before[1])
    return Ratio(
        "RASA, 32 x 11,008 in 1,312 modules: 140 halves scored by FLAP and ranked", *taken.values(), 0.0,
        f"target 1 s; largest relative difference {apart:.0e}, decisions the same: {bool(better.all())}",
    )  # fmt: skip


def _ranks(repeats: int, place: torch.device) -> Ratio:
    """Only the ranking of scores that are there."""
    flat, generator = _partition().global_labels.ravel(), np.random.default_rng(1)
    grouped, ranked = GroupedRanks(flat), old_ranks(flat)
    base = generator.lognormal(0.0, 1.0, (2, len(flat)))

    def old() -> np.ndarray:
        size = np.repeat(grouped.size - 1, grouped.size)
        return np.abs(ranked(base[0]) / size - ranked(base[1]) / size)

    taken = interleaved({"ours": lambda: grouped.displacement(*base), "old": old}, 10 * repeats, place)
    same = all((grouped.in_group_order(each) == ranked(each)).all() for each in base)
    return Ratio("one pair of rankings of these neurons", *taken.values(), 0.0, f"ranks identical: {same}")


def _library_ranks(repeats: int, place: torch.device) -> Ratio:
    """Measure ranks within modules beside one call of scipy a module."""
    labels = _partition().global_labels.ravel()
    grouped = GroupedRanks(labels)
    scores = np.random.default_rng(1).lognormal(0.0, 1.0, len(labels))

    def peer() -> np.ndarray:
        modules = np.split(scores[grouped.by_group], grouped.start[1:])
        return np.concatenate([rankdata(module) - 1 for module in modules])

    timings = interleaved({"ours": lambda: grouped.in_group_order(scores), "peer": peer}, 10 * repeats, place)
    same = bool((grouped.in_group_order(scores) == peer()).all())
    name = "ranks of 32 x 11,008 scores within 1,312 modules, beside scipy.stats.rankdata module by module"
    return Ratio(name, *timings.values(), 3.0, f"ranks identical: {same}")


def _components(repeats: int, place: torch.device) -> Ratio:
    points = decaying(2048, 2048).to(place)

    def old() -> torch.Tensor:
        _, vectors = torch.linalg.eigh((points.T @ points).double())
        rows = vectors[:, -64:].T.flip(0).float()
        return points @ rows.T

    taken = interleaved({"ours": lambda: principal_components(points, 64), "old": old}, repeats, place)
    captured = principal_components(points, 64)[1].double().square().sum() / old().double().square().sum()
    return Ratio(
        "64 principal components of 2,048 x 2,048, beside eigh in float64",
        taken["ours"], taken["old"], 10.0, f"variance captured: {float(captured):.6f} of the exact one",
    )  # fmt: skip


def decaying(points: int, width: int, seed: int = 0) -> torch.Tensor:
    """(points, width) of mean zero, whose variances fall as slowly as those of FFN inputs (about 1/index)."""
    generator = torch.Generator().manual_seed(seed)
    spread = torch.arange(1, width + 1).float() ** -0.5
    turned = torch.linalg.qr(torch.randn(width, width, generator=generator)).Q
    drawn = torch.randn(points, width, generator=generator) * spread @ turned
    return drawn - drawn.mean(0)


def _modules(repeats: int, place: torch.device, greedy: bool = True) -> Ratio:
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    restarts = ModularizationSettings().restarts
    rows = grouped(4096, 1024).to(place)
    values, found = rows.cpu().numpy(), {"ours": [], "peer": []}

    def ours() -> None:
        result = cluster(rows, COUNTS, restarts, np.random.default_rng(0), greedy)
        found["ours"].append(np.nanmax(result.silhouette))

    def peer() -> None:
        scores = []
        for count in COUNTS:
            labels = KMeans(count, n_init=restarts, random_state=0).fit(values).labels_
            scores.append(silhouette_score(values, labels, metric="cosine"))
        found["peer"].append(max(scores))

    taken = interleaved({"ours": ours, "peer": peer}, repeats, place)
    return Ratio(
        f"modules among {len(COUNTS)} counts, 4,096 x 1,024, {restarts} {'greedy' if greedy else 'plain'} "
        "starts, beside scikit-learn",
        taken["ours"], taken["peer"], 4.0,
        f"silhouette {max(found['ours']):.4f} beside {max(found['peer']):.4f}",
    )  # fmt: skip


def grouped(neurons: int, width: int, groups: int = 40, seed: int = 0) -> torch.Tensor:
    """(neurons, width) unit rows with groups as weak as those of trained weights: silhouettes near zero."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(groups, width, generator=generator)
    own = torch.randint(groups, (neurons,), generator=generator)
    rows = torch.randn(neurons, width, generator=generator) + 0.25 * centres[own]
    return torch.nn.functional.normalize(rows, dim=1)


def _digests(repeats: int, place: torch.device) -> Ratio:
    with tempfile.TemporaryDirectory() as folder:
        memory, files = Path(folder, "cache", "digests"), []
        memory.parent.mkdir()
        block = os.urandom(2**26)
        for index in range(4):
            files.append(Path(folder, f"part-{index}"))
            files[-1].write_bytes(block * 4)

        def anew() -> None:
            for file in files:
                hashlib.sha256(file.read_bytes()).hexdigest()

        def ours() -> None:
            # as in a process that starts
            checksums._remembered.clear()
            digests.of_files(files, memory)

        taken = interleaved({"ours": ours, "old": anew}, repeats, place)
    return Ratio("digests of 1 GiB in four files, known from before, beside reading", *taken.values(), 100.0)


def _help(repeats: int, place: torch.device) -> Ratio:
    def started(*words: str) -> Callable[[], object]:
        command = [sys.executable, *words]
        return lambda: subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)

    works = {"ours": started("-m", "gprune", "--help"), "peer": started("-c", "import argparse, numpy")}
    taken = interleaved(works, repeats, place)
    return Ratio("python -m gprune --help, beside python that imports numpy", *taken.values(), 0.0, "target 0.3 s")


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
