"""A whole tiny run to preview, made once: its model, its texts, its results."""

import json
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import tiny_study

from gprune import pipeline
from gprune.app.preview import Source
from gprune.app.preview.manager import RequestError
from gprune.app.preview.worker.loop import RequestHandler
from gprune.pipeline.stages import Graph
from gprune.pipeline.stages.inputs import from_plain
from gprune.records import PruningMasks
from gprune.store import Store
from gprune.study import from_dict


@dataclass(frozen=True)
class TinyRun:
    """A finished run and what it was made of."""

    root: Path
    name: str

    @property
    def source(self):
        record = json.loads((self.root / "runs" / self.name / "run.json").read_text())
        graph = Graph(from_dict(record["study"]), from_plain(record["provenance"]["inputs"]))
        return Source(str(self.root), graph)

    @property
    def texts(self):
        return self.source.graph.study.evaluation.texts

    def copied(self, folder):
        """The same run with a model folder of its own, and nothing measured yet."""
        shutil.copytree(self.root, folder / "cache", ignore=shutil.ignore_patterns("perplexity"))
        shutil.copytree(self.source.graph.study.model, folder / "model")
        study = replace(self.source.graph.study, model=str(folder / "model"))
        return Source(str(folder / "cache"), Graph(study, self.source.graph.inputs))


Made = Callable[..., TinyRun]


@pytest.fixture(scope="session")
def tiny_run(built_once):
    """Makes a run, once for the same arguments."""

    def run_of(dtype="float32"):
        def build(folder):
            values = tiny_study.made(folder, shape={"kv_heads": 2}, dtype=dtype, device="cpu")
            values["evaluation"]["windows"] = 40
            pipeline.run(from_dict(values), Store(folder / "cache"), lambda *_: None, "perplexity")

        root = built_once(f"preview-{dtype}", build) / "cache"
        return TinyRun(root, next((root / "runs").iterdir()).name)

    return run_of


@pytest.fixture(scope="module")
def source(tiny_run):
    return tiny_run().source


@pytest.fixture(scope="module")
def handler(source):
    return handler_of(source)


def random_masks(shape, seed):
    """About half of the units, at least one of each kind in every layer."""
    rng = np.random.default_rng(seed)

    def some(units):
        mask = rng.random((shape.layers, units)) < 0.5
        mask[np.arange(shape.layers), rng.integers(0, units, shape.layers)] = True
        return mask

    return PruningMasks("test", some(shape.neurons), some(shape.kv_heads), 0.5, 0.5)


def handler_of(source):
    """A worker's handler with the model of a run, in this process."""
    handler = RequestHandler()
    assert handler.answer("load", {"model": source.model}) == ("answer", True)
    return handler


def answered(handler, request, turns=1000):
    """The answer of a request after some turns, or the whole one; a problem is the reply itself."""
    answer = None
    for _ in range(turns):
        reply = handler.answer(request.task, request.arguments, answer)
        if reply[0] != "answer":
            return reply
        answer = reply[1]
        if getattr(answer, "complete", True):
            break
    return answer


class FakeWorker:
    """Answers what its workshop says; `hold` makes it wait until it is free."""

    def __init__(self, model, workshop):
        self.model, self.workshop, self.pid = model, workshop, 1
        self.alive, self.ended, self.loading = True, False, "The model is being loaded: it needs 1.0 GiB"
        self.free = threading.Event()
        if not workshop.hold:
            self.free.set()

    def call(self, task, arguments, previous, go_on):
        if task == "load":
            if self.workshop.broken:
                raise RequestError(self.workshop.broken)
            return self.workshop.loads.wait(60)
        self.workshop.sent.append((self.model.model, task, arguments))
        while not self.free.wait(0.01):
            if self.workshop.report and not go_on(*self.workshop.report):
                return None
        if not self.alive:
            raise RequestError(self.exit_sentence())
        return self.workshop.answer(self.model.model, task, arguments, previous)

    def kill(self):
        self.alive = False
        self.free.set()

    def end(self):
        self.workshop.freed.wait(60)
        self.ended = True
        self.kill()

    def exit_sentence(self):
        return "the process was killed: ask again"


class Workshop:
    """Starts such workers and remembers them; what they answer is what a test makes of it."""

    def __init__(self, answer):
        self.answer = answer
        self.hold, self.broken, self.reason, self.report, self.refusal = False, "", "", None, None
        self.made, self.sent = [], []
        self.freed, self.loads = threading.Event(), threading.Event()
        self.freed.set()
        self.loads.set()

    def start(self, model):
        if self.refusal:
            raise self.refusal
        self.made.append(FakeWorker(model, self))
        return self.made[-1]

    def waits_for(self, root, device):
        if isinstance(self.reason, Exception):
            raise self.reason
        return self.reason
