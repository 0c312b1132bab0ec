"""State of a run and its job: whether it is live, its progress, and what its pack left out."""

from functools import lru_cache
from pathlib import Path

from gprune.jobs import JobProgress, queue
from gprune.pipeline.eta import Outlook
from gprune.pipeline.runs.opened import Run, all_runs
from gprune.pipeline.stages import Graph, stages_by_name
from gprune.pipeline.stages.inputs import describe_texts
from gprune.study import Study, run_name
from gprune.system.errors import GpruneError, ModelError
from gprune.system.safe_parsing import sentence
from gprune.system.units import seconds_since

SPEEDS = {
    "none": "not measured",
    "auto": "auto: gpu if there is one, else cpu",
    "cpu": "cpu: batch 1, prompt 128, 64 new tokens",
    "gpu": "gpu: the paper's setting, batch 8, prompt 2048, 512 new tokens",
}
"""descriptions of the presets of the speed measurement, by name"""
PACK_HELP = (
    "This run comes from a pack. Its results are here, but its model and texts are not. Cards that need them say so."
)
_JOB_STEPS = {
    "download": "fetching model and texts from the hub",
    "model": "loading the model",
    "estimate": "estimating memory and time",
    "gguf": "writing the GGUF file",
    "map": "computing a neuron map",
    "sweep": "running the studies of a sweep",
    "reproduce": "running the studies of tables",
}
"""titles of the steps that a job reports besides the stages of its study"""


@lru_cache(1024)
def study_of_job(root: str, job_id: str) -> Study | None:
    """Return the study of a job; None if it cannot be read any more."""
    try:
        return queue.study_of(Path(root), job_id)
    except GpruneError:
        return None


def run_of_job(root: str, job_id: str) -> str:
    """Return the name of the run that a job makes; empty if its study cannot be read any more."""
    study = study_of_job(root, job_id)
    return run_name(study) if study is not None else ""


def is_live(run: Run) -> bool:
    """Return True if a process works on this run, or a job for it is queued."""
    if run.state == "running":
        return True
    try:
        jobs = [job for job in queue.jobs(Path(run.root)) if job.active and not job.creates_no_run]
    except GpruneError:
        return False
    return any(run_of_job(run.root, job.id) == run.name for job in jobs)


@lru_cache(maxsize=256)
def _stage_titles(study: Study) -> dict[str, str]:
    return {name: stage.title for name, stage in stages_by_name(Graph(study)).items()}


def stage_title(study: Study, name: str) -> str:
    """Return the title of a stage of a study; the name itself if the study has no such stage."""
    return _JOB_STEPS.get(name) or _stage_titles(study).get(name, name)


def task_label(task: str) -> str:
    """Return the label of a task: its name, or that of its file."""
    # most pages show no task
    from gprune.evaluation.tasks import listed_tasks

    return task if task in listed_tasks() else Path(task).name


def run_outlook(run: Run, progress: JobProgress | None = None) -> Outlook:
    """Return the finished steps of a run and the expected time of the others."""
    ended = {*run.stages, *run.unavailable}
    if progress is None:
        return Outlook.of(run.expected_seconds, ended, 0.0)
    # a run goes in order: the stages before the current one are done, although the record may be read late
    if progress.stage in run.expected_seconds:
        order = list(run.expected_seconds)
        ended |= set(order[: order.index(progress.stage)])
    # count from the start of the stages: the process first loads its libraries
    seconds = seconds_since(run.record.get("started"))
    elapsed_of_job = progress.elapsed or 0.0
    # a start in the future means that the clock was set back since
    elapsed = min(seconds, elapsed_of_job) if seconds >= 0 else elapsed_of_job
    # estimates that do not come from cached timings are proportions, which the timings of this run turn into seconds
    from_cache = run.record.get("expected_from_cache", True)
    timed = None if from_cache else {stage.stage: stage.seconds for stage in progress.stages}
    return Outlook.of(run.expected_seconds, ended, elapsed, progress.stage, progress.fraction, timed)


def pack_reason(run: Run, title: str) -> str:
    """Return why the pack of a run lacks a result, and the remedy; empty if the pack did not leave it out."""
    from gprune.pipeline.packs import STEP, TEXTS

    stage_by_name = stages_by_name(run.graph)
    reason_by_title = {stage_by_name[name].title: why for name, why in run.left_out.items() if name in stage_by_name}
    reason = reason_by_title.get(title, "")
    option = {TEXTS: "--with-contexts", STEP: "--with-steps"}.get(reason)
    if option is None:
        return ""
    texts = ", because texts can be recovered from it" if reason == TEXTS else ""
    return f"Needs “{title}”, which the pack of this run does not contain{texts}: ask for a pack made with {option}."


def pack_sentence(error: GpruneError) -> str:
    """Return an error about a packed run's missing model or text as a sentence with its remedy."""
    return (
        f"Needs data that the pack of this run does not contain ({sentence(error, 140)}): add the data, or do this "
        "where the run was made."
    )


def missing_model_sentence(run: Run) -> str:
    """Return why a packed run has no pruned model, and the remedy."""
    if "checkpoint" in run.left_out:
        return "A pack contains no model. Load or export the pruned model where this run was made."
    return "This run was packed before it wrote its model. Finish it where it was made."


def missing_inputs(run: Run) -> str:
    """Return why nothing can be computed for a packed run on this machine; empty if model and texts are available."""
    if not run.packed:
        return ""
    try:
        _locate_inputs(run.study)
    except GpruneError as error:
        return pack_sentence(error)
    return ""


def require_inputs(root: str, study: Study) -> None:
    """Refuse to compute a study whose model is missing, because its job would fail later.

    Raises ModelError if the model is missing. If all runs of the model come from packs, it also raises ModelError if a
    text is missing.
    """
    runs = [run for run in all_runs(root)[0] if run.study.model == study.model]
    if runs and all(run.packed for run in runs):
        try:
            _locate_inputs(study)
        except GpruneError as error:
            raise ModelError(pack_sentence(error)) from error
    else:
        _locate_model(study.model)


def _locate_inputs(study: Study) -> None:
    _locate_model(study.model)
    describe_texts(study)


def _locate_model(model: str) -> None:
    # imported where a job is started, which most pages do not do
    from gprune.models import identity

    # a model of the hub is downloaded by the job
    if not identity.is_hub_name(model):
        identity.locate(model, download=False)
