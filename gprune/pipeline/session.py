"""One run of one study: what it reads, the store it works through, and the record that it leaves.

A stage that is in the store is read back, never computed again; one that is missing is computed under a
lock, so that two runs of one study share the work. The run's own record (`runs/<run>/run.json`) grows by
one entry a stage, so that the app can draw what is there while the rest is still being made.
"""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gprune import corpora
from gprune.errors import CorpusError, SettingsError
from gprune.fingerprints import VERSIONS
from gprune.pipeline import provenance
from gprune.plan import Inputs, Plan, run_name
from gprune.progress import Progress
from gprune.records import Array, ModelShape, ModelSize
from gprune.store import Store
from gprune.study import Study

if TYPE_CHECKING:
    from gprune.models.decoder import Decoder

Record = TypeVar("Record")
Listener = Callable[[str, int, int, str], None]
"""Called with the stage's name, work done, work in all, and a message; raises Cancelled to stop."""


class Session:
    """What the stages of one run share."""

    def __init__(self, study: Study, store: Store, listener: Listener, until: str = "all") -> None:
        """Resolves what the study reads; nothing heavy is loaded yet.

        Args:
            study: what to run.
            store: where results are kept.
            listener: told of every stage's progress.
            until: the last thing wanted, for the run's record.

        Raises:
            ModelError: the model folder holds no model.
            CorpusError: a text cannot be read.
            SettingsError: two calibration texts hold the same content.
        """
        self.study, self.store, self.listener, self.until = study, store, listener, until
        self.missing_tasks = available_tasks(study)
        self.plan = Plan(study, _inputs(study, self.missing_tasks))
        self.run = run_name(study)
        self.stages: dict[str, dict[str, Any]] = {}
        self.shape: ModelShape | None = None
        self.size: ModelSize | None = None
        self.started = datetime.now(UTC)
        self.unavailable: dict[str, str] = {}
        self.passes: dict[str, dict[str, float]] = {}
        self._streams: dict[str, Array] = {}
        self._counted = [0, 0]

    @cached_property
    def decoder(self) -> Decoder:
        """The dense model, loaded when the first missing stage needs it."""
        from gprune.models.loading import load

        self.listener("model", 0, 1, f"loading {self.study.model}")
        study = self.study
        decoder = load(study.model, study.device, self.plan.inputs.precision, study.trust_remote_code)
        self.listener("model", 1, 1, f"loaded {self.study.model}")
        return decoder

    @cached_property
    def tokenizer(self) -> Any:
        """The model's tokenizer."""
        from gprune.models.loading import load_tokenizer

        return load_tokenizer(self.study.model, self.study.trust_remote_code)

    @property
    def text_cache(self) -> Path:
        """Folder in which texts that are built on the spot are kept."""
        return self.store.root / "texts"

    def stream(self, text: str) -> Array:
        """Token stream of an evaluation text, tokenized once a run."""
        if text not in self._streams:
            evaluation = self.study.evaluation
            limit = evaluation.windows * evaluation.length if evaluation.windows else None
            self._streams[text] = corpora.stream(text, self.tokenizer, cache=self.text_cache, limit=limit)
        return self._streams[text]

    def stage(
        self, name: str, stage: str, key: str, kind: type[Record], compute: Callable[[Progress], Record]
    ) -> Record:
        """Reads one result, or computes and keeps it, and notes it in the run's record.

        Args:
            name: name of the stage in this run, as tokens_primary.
            stage: the store's folder, as tokens.
            key: content key.
            kind: record class of the result.
            compute: makes the result; told how to report progress.

        Returns:
            The record, its arrays as read-only memory maps.
        """
        started = time.perf_counter()
        reused = self.store.has(stage, key)
        if not reused:
            with self.store.lock(stage, key, lambda: self.waiting(name)):
                reused = self.store.has(stage, key)
                if not reused:
                    self.listener(name, 0, 1, "")
                    before = self._tokens_passed()
                    record = compute(lambda done, total, message: self.listener(name, done, total, message))
                    self._count(name, before)
                    seconds = round(time.perf_counter() - started, 3)
                    details = {"seconds": seconds, "passes": self.passes.get(name), **provenance.versions()}
                    self.store.put(stage, key, record, details)
        self.note(name, stage, key, time.perf_counter() - started, reused)
        return self.store.get(stage, key, kind)

    def _tokens_passed(self) -> tuple[int, int]:
        """Tokens run forward and backward through the dense model that no stage has been charged with yet."""
        decoder = self.__dict__.get("decoder")
        seen = (decoder.forward_tokens, decoder.backward_tokens) if decoder is not None else (0, 0)
        return seen[0] - self._counted[0], seen[1] - self._counted[1]

    def _count(self, name: str, before: tuple[int, int]) -> None:
        """Notes how often a stage ran the dense model over a calibration set's worth of tokens."""
        after = self._tokens_passed()
        own = after[0] - before[0], after[1] - before[1]
        self._counted = [counted + tokens for counted, tokens in zip(self._counted, own, strict=True)]
        calibration = self.study.calibration
        whole = calibration.samples * calibration.length
        if any(own):
            # a stage can be computed twice under one name: without and then with a gradient
            earlier = self.passes.get(name, {})
            self.passes[name] = {
                way: round(tokens / whole + earlier.get(way, 0.0), 3)
                for way, tokens in zip(("forward", "backward"), own, strict=True)
            }

    def waiting(self, name: str) -> None:
        """Says that a stage waits for another run."""
        self.listener(name, 0, 1, "waiting for another run that computes the same")

    def note(self, name: str, stage: str, key: str, seconds: float, reused: bool) -> None:
        """Enters a finished stage into the run's record."""
        if name in self.stages and reused:
            return
        entry = {"stage": stage, "key": key, "seconds": round(seconds, 3), "reused": reused}
        passes = self.passes.get(name)
        self.stages[name] = entry | ({"passes": passes} if passes else {})
        words = "".join(f", {count:g} {way} passes" for way, count in (passes or {}).items() if count)
        self.listener(name, 1, 1, "reused" if reused else f"{seconds:.1f} s{words}")
        self.save("running")

    def save(self, state: str, result: dict[str, Any] | None = None, error: str | None = None) -> None:
        """Writes the run's record.

        Args:
            state: running, done, failed or cancelled.
            result: what the run ends with; an earlier result stays when left out.
            error: one sentence, for a run that failed.
        """
        previous = self._previous()
        values = {
            "run": self.run,
            "study": self.study.to_dict(),
            "state": state,
            "until": self.until,
            "formulas": VERSIONS,
            "error": error,
            "started": self.started.isoformat(timespec="seconds"),
            "updated": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round((datetime.now(UTC) - self.started).total_seconds(), 1),
            "stages": {**previous.get("stages", {}), **self.stages},
            "shape": asdict(self.shape) if self.shape else previous.get("shape"),
            "size": asdict(self.size) if self.size else previous.get("size"),
            "texts": self._descriptions,
            "provenance": provenance.collect(self.plan.inputs),
            "result": result or previous.get("result"),
        }
        self.store.save_run(self.run, values)

    def _previous(self) -> dict[str, Any]:
        """The run's earlier record, unless its model or a text has changed since: the two must not mix."""
        record = self.store.run(self.run) or {}
        inputs = (record.get("provenance") or {}).get("inputs")
        return record if inputs == asdict(self.plan.inputs) else {}

    @cached_property
    def _descriptions(self) -> dict[str, str]:
        study = self.study
        roles = {"primary": study.primary, "auxiliary": study.auxiliary, "substitute": study.substitute}
        described = {role: corpora.describe(text, "calibration") for role, text in roles.items() if text}
        return described | {text: corpora.describe(text, "evaluation") for text in study.evaluation.texts}


def available_tasks(study: Study) -> dict[str, str]:
    """Why tasks of a study cannot be measured here, by task; those that can are not in it.

    Raises:
        SettingsError: there is no such task.
    """
    if not study.evaluation.tasks:
        return {}
    from gprune.evaluation import tasks

    for task in study.evaluation.tasks:
        # a task that has no data is left out; one that does not exist is a slip
        with contextlib.suppress(CorpusError):
            tasks.resolve(task, study.evaluation)
    reasons = tasks.available(study.evaluation.tasks, study.evaluation)
    return {task: reason for task, reason in reasons.items() if reason}


def _tasks(study: Study, missing: dict[str, str]) -> dict[str, str]:
    """Content of the tasks that have data; those whose data cannot be had after all join the missing ones."""
    from gprune.evaluation import tasks

    found = {}
    for task in study.evaluation.tasks:
        if task in missing:
            continue
        try:
            found[task] = tasks.fingerprint(tasks.resolve(task, study.evaluation, download=True))
        except CorpusError as error:
            missing[task] = str(error)
    return found


def _scoring(study: Study) -> str:
    if not study.evaluation.tasks:
        return ""
    from gprune.evaluation import tasks

    return tasks.scoring_version()


def _inputs(study: Study, missing_tasks: dict[str, str]) -> Inputs:
    from gprune.models import identity

    roles = {"primary": study.primary, "auxiliary": study.auxiliary}
    if study.substitute:
        roles["substitute"] = study.substitute
    # the model first: a wrong folder is the commonest slip and the cheapest to find
    identity.locate(study.model, download=True)
    model, tokenizer = identity.fingerprint(study.model), identity.tokenizer_fingerprint(study.model)
    for text in roles.values():
        corpora.prepare(text, "calibration")
    for text in study.evaluation.texts:
        corpora.prepare(text, "evaluation")
    calibration = {role: corpora.fingerprint(text, "calibration") for role, text in roles.items()}
    for first, second in (("primary", "auxiliary"), ("primary", "substitute"), ("auxiliary", "substitute")):
        if second in calibration and calibration[first] == calibration[second]:
            raise SettingsError(
                f"{first} {roles[first]!r} and {second} {roles[second]!r} are the same text: "
                "rank drift between them would be zero. Choose texts with different content"
            )
    return Inputs(
        model=model,
        tokenizer=tokenizer,
        precision=_precision(study),
        calibration=calibration,
        evaluation={text: corpora.fingerprint(text, "evaluation") for text in study.evaluation.texts},
        tasks=_tasks(study, missing_tasks) if study.evaluation.tasks else {},
        scoring=_scoring(study),
    )


def _precision(study: Study) -> str:
    """The number type that `auto` means on this machine."""
    if study.dtype != "auto":
        return study.dtype
    if study.device == "cpu" or not _has_driver():
        return "float32"
    from gprune.models import identity
    from gprune.models.loading import device_of

    if device_of(study.device).type == "cpu":
        return "float32"
    stored = identity.configuration(identity.locate(study.model))
    return str(stored.get("dtype") or stored.get("torch_dtype") or "float32")


def _has_driver() -> bool:
    """Whether CUDA can be there at all: asked of the system, since importing torch to ask takes seconds."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True
