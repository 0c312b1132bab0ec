"""The stages that measure: perplexity and zero-shot accuracy of every method (section 4)."""

from __future__ import annotations

import math
from dataclasses import asdict
from functools import cached_property
from typing import Any

from gprune.methods import METHODS
from gprune.pipeline import provenance, prune
from gprune.pipeline.session import Session
from gprune.progress import Progress
from gprune.records import Accuracy, Perplexity, Throughput


class Measured:
    """One method's model, cut when the first missing measurement needs it and let go with this object."""

    def __init__(self, session: Session, name: str) -> None:
        """Binds a method.

        Args:
            session: the run.
            name: a method of the study that can run.
        """
        self.session, self.name = session, name
        self.identity = METHODS[name].masks, prune.compensated(session, name)
        self._accuracies: dict[str, Accuracy] = {}

    @cached_property
    def model(self) -> Any:
        """The dense model, or the smaller one."""
        return prune.cut(self.session, self.name)

    def perplexity(self) -> dict[str, float]:
        """Perplexity on every evaluation text."""
        texts = self.session.study.evaluation.texts
        return {text: self._perplexity(index, text) for index, text in enumerate(texts)}

    def _perplexity(self, index: int, text: str) -> float:
        session = self.session

        def compute(progress: Progress) -> Perplexity:
            from gprune.evaluation import perplexity as evaluation

            stream, settings = session.stream(text), session.study.evaluation
            return evaluation.perplexity(self.model, stream, text, settings, progress)

        key = session.plan.perplexity(*self.identity, text)
        name = f"perplexity.{self.name}.{index}"
        return float(session.stage(name, "perplexity", key, Perplexity, compute).perplexity)

    def accuracy(self) -> dict[str, dict[str, Any]]:
        """Zero-shot accuracy on every task that has data; the missing ones are measured in one call."""
        plan, store = self.session.plan, self.session.store
        keys = {task: plan.accuracy(*self.identity, task) for task in plan.inputs.tasks}
        missing = tuple(task for task, key in keys.items() if not store.has("accuracy", key))
        found = {task: self._accuracy(task, key, missing) for task, key in keys.items()}
        return {task: _plain(accuracy) for task, accuracy in found.items()}

    def _accuracy(self, task: str, key: str, missing: tuple[str, ...]) -> Accuracy:
        session = self.session

        def compute(progress: Progress) -> Accuracy:
            if task not in self._accuracies:
                from gprune.evaluation.accuracy import accuracy

                wanted = missing if task in missing else (task,)
                settings, cache = session.study.evaluation, session.text_cache
                tokenizer = session.tokenizer
                self._accuracies |= accuracy(self.model, tokenizer, wanted, settings, progress, cache)
            return self._accuracies[task]

        index = list(session.study.evaluation.tasks).index(task)
        return session.stage(f"accuracy.{self.name}.{index}", "accuracy", key, Accuracy, compute)


def _plain(accuracy: Accuracy) -> dict[str, Any]:
    """What the run's result keeps; a task without a normalised form has null there."""
    names = ("acc", "acc_norm", "acc_error", "acc_norm_error")
    values = {name: getattr(accuracy, name) for name in names}
    numbers = {name: value if math.isfinite(value) else None for name, value in values.items()}
    return numbers | {"samples": accuracy.samples, "chance": accuracy.chance, "version": accuracy.version}


def speed(session: Session, names: list[str]) -> Throughput:
    """Tokens a second of the dense model and of every method, side by side in one run.

    All models are in memory at once. Prompt and new tokens shrink to what the model can read.
    """
    settings = session.study.evaluation
    parts = {
        name: session.plan.pruned(METHODS[name].masks, prune.compensated(session, name)) for name in names
    }
    machine = provenance.machine(session.study.device)

    def compute(progress: Progress) -> Throughput:
        from gprune.evaluation import speed as measurement

        decoder = session.decoder
        chosen = measurement.with_changes(
            measurement.preset(settings.speed),
            device=str(decoder.device),
            dtype=session.plan.inputs.precision,
            **_lengths(decoder.model.config, measurement.preset(settings.speed)),
        )
        models = {name: prune.cut(session, name) for name in names}
        rows = measurement.measure(models, chosen, progress)
        return Throughput(chosen.describe(), machine, tuple(asdict(row) for row in rows))

    return session.stage("speed", "speed", session.plan.speed(parts, machine), Throughput, compute)


def _lengths(config: Any, preset: Any) -> dict[str, int]:
    """Prompt and new tokens that fit the positions of a model, in the preset's proportion."""
    positions = getattr(config, "max_position_embeddings", None)
    if positions is None or preset.prompt + preset.new_tokens <= positions:
        return {}
    prompt = positions * preset.prompt // (preset.prompt + preset.new_tokens)
    return {"prompt": prompt, "new_tokens": positions - prompt}
