"""What the stages of a job are called, and how far its run is."""

from functools import lru_cache
from pathlib import Path

from gprune.evaluation.tasks import known
from gprune.jobs import JobProgress
from gprune.pipeline.eta import Outlook
from gprune.pipeline.runs.opened import Run
from gprune.pipeline.stages import Graph, named
from gprune.study import Study
from gprune.system.units import seconds_since

_BESIDE = {
    "download": "fetching the model from the hub",
    "model": "loading the model",
    "estimate": "estimating memory and time",
    "gguf": "writing the GGUF file",
    "map": "laying out the neurons of a layer",
    "sweep": "running the studies of a sweep",
    "reproduce": "running the studies of tables",
}
"""what a job reports besides the stages of its study"""
SPEEDS = {
    "none": "not measured",
    "auto": "auto: gpu where there is one, else cpu",
    "cpu": "cpu: batch 1, prompt 128, 64 new tokens",
    "gpu": "gpu: the paper's setting, batch 8, prompt 2048, 512 new tokens",
}
"""presets of the speed measurement, in words"""


@lru_cache(maxsize=256)
def _titles(study: Study) -> dict[str, str]:
    """Titles by name."""
    return {name: stage.title for name, stage in named(Graph(study)).items()}


def title(study: Study, name: str) -> str:
    """What a stage of a study does, in words; the name itself where the study has no such stage."""
    return _BESIDE.get(name) or _titles(study).get(name, name)


def outlook(run: Run, progress: JobProgress | None = None) -> Outlook:
    """How far a run is."""
    ended = {*run.stages, *run.unavailable}
    if progress is None:
        return Outlook.of(run.outlook, ended, 0.0)
    # a run goes in order: what stands before the stage at work is done, although its record may be read late
    if progress.stage in run.outlook:
        order = list(run.outlook)
        ended |= set(order[: order.index(progress.stage)])
    # from when the stages began: a process that starts has yet to load its libraries
    begun = seconds_since(run.record.get("started"))
    known = progress.elapsed or 0.0
    # a start in the future is of a clock that was set back since
    elapsed = min(begun, known) if begun >= 0 else known
    # proportions become seconds once this run has timed a batch
    from_cache = run.record.get("expected_from_cache", True)
    timed = None if from_cache else {stage.stage: stage.seconds for stage in progress.stages}
    return Outlook.of(run.outlook, ended, elapsed, progress.stage, progress.fraction, timed)


def called(task: str) -> str:
    """What to call a task: its name, or that of its file."""
    return task if task in known() else Path(task).name
