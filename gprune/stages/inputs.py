"""What a study reads from outside, as digests: its model, its texts, its tasks, the machine it measures.

All that a content key needs to know of the world. None of it loads a model.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import os
import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gprune import corpora
from gprune.errors import CorpusError, SettingsError
from gprune.models import identity
from gprune.study import Study

_ROLES = ("primary", "auxiliary", "substitute")


@dataclass(frozen=True, slots=True)
class Inputs:
    """Digests of everything a study reads from outside."""

    model: str
    """content of the model folder"""
    tokenizer: str
    """content of the tokenizer files"""
    precision: str
    """float32, bfloat16 or float16, as resolved on this machine"""
    calibration: dict[str, str]
    """content of the calibration texts, by role: primary, auxiliary, substitute"""
    evaluation: dict[str, str]
    """content of the evaluation texts, by the name they were given under"""
    tasks: dict[str, str] = field(default_factory=dict)
    """content of the zero-shot tasks that have data here, by the name they were given under"""
    scoring: str = ""
    """what asks and scores the tasks, with its version; empty without tasks"""
    machine: str = ""
    """where speed is measured, and with which libraries; empty where it is not"""

    @classmethod
    def unknown(cls, study: Study) -> Inputs:
        """Blanks for all that a study reads."""
        evaluation = study.evaluation
        blanks = dict.fromkeys(evaluation.texts, ""), dict.fromkeys(evaluation.tasks, "")
        return cls("", "", "", dict.fromkeys(roles(study), ""), *blanks)


def roles(study: Study) -> dict[str, str]:
    """The calibration texts of a study, by role."""
    return {role: getattr(study, role) for role in _ROLES if getattr(study, role)}


def read(study: Study, missing_tasks: dict[str, str] | None = None, *, download: bool = True) -> Inputs:
    """Digests of what a study reads, after everything has been found.

    Args:
        study: the study.
        missing_tasks: gets why tasks of the study cannot be measured here, by task.
        download: whether what is on the hub only may be fetched.

    Raises:
        ModelError: the model folder holds no model.
        CorpusError: a text cannot be read.
        SettingsError: two calibration texts hold the same content, or there is no such task.
    """
    # the model first: a wrong folder is the commonest slip and the cheapest to find
    identity.locate(study.model, download=download)
    texts = roles(study)
    if download:
        for text in texts.values():
            corpora.prepare(text, "calibration")
        for text in study.evaluation.texts:
            corpora.prepare(text, "evaluation")
    calibration = {role: corpora.fingerprint(text, "calibration") for role, text in texts.items()}
    _require_different(texts, calibration)
    return Inputs(
        model=identity.fingerprint(study.model),
        tokenizer=identity.tokenizer_fingerprint(study.model),
        precision=_precision(study),
        calibration=calibration,
        evaluation={text: corpora.fingerprint(text, "evaluation") for text in study.evaluation.texts},
        tasks=_tasks(study, {} if missing_tasks is None else missing_tasks, download),
        scoring=_scoring(study),
        machine=_machine(study) if study.evaluation.speed != "none" else "",
    )


def _require_different(texts: dict[str, str], found: dict[str, str]) -> None:
    for first, second in (_ROLES[:2], _ROLES[::2], _ROLES[1:]):
        if second in found and found[first] == found[second]:
            raise SettingsError(
                f"{first} {texts[first]!r} and {second} {texts[second]!r} are the same text: "
                "rank drift between them would be zero. Choose texts with different content"
            )


def _tasks(study: Study, missing: dict[str, str], download: bool) -> dict[str, str]:
    """Content of the tasks that have data; the others join the missing ones with the reason."""
    if not study.evaluation.tasks:
        return {}
    from gprune.evaluation import tasks

    settings = study.evaluation
    for task in settings.tasks:
        # a task that has no data is left out; one that does not exist is a slip
        with contextlib.suppress(CorpusError):
            tasks.resolve(task, settings)
    missing |= {task: reason for task, reason in tasks.available(settings.tasks, settings).items() if reason}
    found = {}
    for task in settings.tasks:
        if task not in missing:
            try:
                found[task] = tasks.fingerprint(tasks.resolve(task, settings, download=download))
            except CorpusError as error:
                missing[task] = str(error)
    return found


def _scoring(study: Study) -> str:
    if not study.evaluation.tasks:
        return ""
    from gprune.evaluation import tasks

    return tasks.scoring_version()


def _precision(study: Study) -> str:
    """The number type that `auto` means on this machine."""
    if study.dtype != "auto":
        return study.dtype
    if study.device == "cpu" or not _has_gpu():
        return "float32"
    stored = identity.configuration(identity.locate(study.model))
    return str(stored.get("dtype") or stored.get("torch_dtype") or "float32")


def _has_gpu() -> bool:
    """Whether torch will find a CUDA device: asked of the driver, since importing torch takes seconds."""
    if "+cpu" in _version("torch"):
        return False
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _machine(study: Study) -> str:
    """What a speed depends on besides the models: devices, threads, libraries."""
    libraries = f"torch {_version('torch')}, transformers {_version('transformers')}"
    if study.device != "cpu" and _has_gpu():
        return f"{study.device}, {', '.join(_graphics()) or 'GPU'}, {libraries}"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    threads = os.environ.get("OMP_NUM_THREADS", "") or cores
    return f"{processor()}, {threads} threads, {libraries}"


def _graphics() -> list[str]:
    """Names of the NVIDIA devices that the driver reports."""
    found = []
    for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        found += _values(path, "Model")
    return found


def processor() -> str:
    """Name of the processor."""
    return next(
        iter(_values(Path("/proc/cpuinfo"), "model name")), platform.processor() or platform.machine()
    )


def _values(path: Path, name: str) -> list[str]:
    """What a file of `name: value` lines says under a name."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    return [line.partition(":")[2].strip() for line in lines if line.startswith(name)]


def from_plain(values: Any) -> Inputs | None:
    """Digests as a run's record keeps them; None where the record lacks some."""
    try:
        return Inputs(**values)
    except TypeError:
        return None
