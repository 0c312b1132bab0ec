"""A whole tiny run to preview, made once: its model, its texts, its results."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import tiny_study

from gprune import pipeline
from gprune.app.preview import Source
from gprune.pipeline.stages import Graph
from gprune.pipeline.stages.inputs import from_plain
from gprune.records import Array, ModelShape, PruningMasks
from gprune.store import Store
from gprune.study import from_dict


@dataclass(frozen=True)
class TinyRun:
    """A finished run and what it was made of."""

    root: Path
    name: str

    @property
    def source(self) -> Source:
        record = json.loads((self.root / "runs" / self.name / "run.json").read_text())
        graph = Graph(from_dict(record["study"]), from_plain(record["provenance"]["inputs"]))
        return Source(str(self.root), graph)

    @property
    def texts(self) -> tuple[str, ...]:
        return self.source.graph.study.evaluation.texts

    def copied(self, folder: Path) -> Source:
        """The same run with a model folder of its own, and nothing measured yet."""
        shutil.copytree(self.root, folder / "cache", ignore=shutil.ignore_patterns("perplexity"))
        shutil.copytree(self.source.graph.study.model, folder / "model")
        study = replace(self.source.graph.study, model=str(folder / "model"))
        return Source(str(folder / "cache"), Graph(study, self.source.graph.inputs))


Made = Callable[..., TinyRun]


@pytest.fixture(scope="session")
def tiny_run(built_once: Callable[..., Path]) -> Made:
    """Makes a run, once for the same arguments."""

    def made(kv_heads: int = 2, dtype: str = "float32") -> TinyRun:
        def build(folder: Path) -> None:
            texts = tiny_study.write_texts(folder / "texts")
            model = tiny_study.write_model(folder / "model", texts, kv_heads=kv_heads)
            evaluation = {"texts": [texts[2], texts[0]], "preset": "16", "windows": 40}
            values = tiny_study.settings(model, texts, dtype=dtype, device="cpu", evaluation=evaluation)
            pipeline.run(from_dict(values), Store(folder / "cache"), lambda *_: None, "perplexity")

        root = built_once(f"preview-{kv_heads}-{dtype}", build) / "cache"
        return TinyRun(root, next((root / "runs").iterdir()).name)

    return made


def random_masks(shape: ModelShape, seed: int) -> PruningMasks:
    """About half of the units, at least one of each kind in every layer."""
    rng = np.random.default_rng(seed)

    def some(units: int) -> Array:
        mask: Array = rng.random((shape.layers, units)) < 0.5
        mask[np.arange(shape.layers), rng.integers(0, units, shape.layers)] = True
        return mask

    return PruningMasks("test", some(shape.neurons), some(shape.kv_heads), 0.5, 0.5)
