"""A whole tiny run to preview, made once: its model, its texts, its results."""

import json
import queue
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

    def made(kv_heads=2, dtype="float32"):
        def build(folder):
            values = tiny_study.made(folder, shape={"kv_heads": kv_heads}, dtype=dtype, device="cpu")
            values["evaluation"]["windows"] = 40
            pipeline.run(from_dict(values), Store(folder / "cache"), lambda *_: None, "perplexity")

        root = built_once(f"preview-{kv_heads}-{dtype}", build) / "cache"
        return TinyRun(root, next((root / "runs").iterdir()).name)

    return made


def random_masks(shape, seed):
    """About half of the units, at least one of each kind in every layer."""
    rng = np.random.default_rng(seed)

    def some(units):
        mask = rng.random((shape.layers, units)) < 0.5
        mask[np.arange(shape.layers), rng.integers(0, units, shape.layers)] = True
        return mask

    return PruningMasks("test", some(shape.neurons), some(shape.kv_heads), 0.5, 0.5)


class FakeWorker:
    """Answers in a thread of its own what its workshop says; `hold` makes it wait."""

    def __init__(self, model, on_reply, workshop):
        self.model, self.ready, self.replies = model, False, queue.SimpleQueue()
        self.on_reply, self.workshop, self.pid = on_reply, workshop, 1
        self.ended = self.gone = False
        self.free, self.dropped = threading.Event(), set()
        if not workshop.hold:
            self.free.set()
        self.say({"problem": workshop.broken, "ready": False} if workshop.broken else {"ready": True})

    def say(self, reply):
        self.replies.put(reply)
        threading.Thread(target=self.on_reply, daemon=True).start()

    def send(self, message):
        self.workshop.sent.append(message)
        if "drop" in message:
            self.dropped.add(message["drop"])
            return
        threading.Thread(target=self.work, args=(message,), daemon=True).start()

    def work(self, message):
        self.free.wait(60)
        if not self.ended and message["id"] not in self.dropped:
            self.say({"id": message["id"]} | self.workshop.answer(self.model["model"], message))

    def end(self):
        self.ended, self.gone = True, not self.workshop.lingers
        self.free.set()

    def die(self):
        """Ends by itself, as a process does that somebody kills."""
        self.end()
        self.say(None)

    def why(self):
        return "the process ended by itself: ask again"


class Workshop:
    """Starts such workers and remembers them; what they answer is what a test makes of it."""

    def __init__(self, answer):
        self.answer = answer
        self.hold, self.broken, self.reason, self.lingers = False, "", "", False
        self.made, self.sent = [], []

    def start(self, model, on_reply):
        self.made.append(FakeWorker(model, on_reply, self))
        return self.made[-1]

    def waits_for(self, root, device):
        return self.reason
