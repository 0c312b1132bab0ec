"""Runs that were read from a pack: what they did not bring, and what can be done about it."""

from gprune.models import identity
from gprune.pipeline import stages
from gprune.pipeline.packs import STEP, TEXTS
from gprune.pipeline.runs.opened import Run, all_runs
from gprune.pipeline.stages.inputs import describe_texts
from gprune.study import Study
from gprune.system.errors import GpruneError, ModelError
from gprune.system.safe_parsing import sentence as line

ABOUT = (
    "This run was computed elsewhere and read from a pack: its results are here, its model and its texts are "
    "not. Cards that need them say so."
)
_OPTIONS = {TEXTS: "--with-contexts", STEP: "--with-steps"}


def reason(run: Run, title: str) -> str:
    """Why a result did not come with the pack of a run, and how to get it; empty where that is not why."""
    known = stages.named(run.graph)
    named = {known[name].title: why for name, why in run.left_out.items() if name in known}
    option = _OPTIONS.get(named.get(title, ""))
    if option is None:
        return ""
    texts = ", because its texts can be had back from it" if option == _OPTIONS[TEXTS] else ""
    return f"Needs “{title}”, which the pack of this run did not bring{texts}: ask for one that was made with {option}."


def sentence(error: GpruneError) -> str:
    """What is missing for a run that brought neither model nor texts."""
    return (
        f"Needs what the pack of this run did not bring ({line(error, 140)}): put it there, or do this where "
        "the run was made."
    )


def no_model(run: Run) -> str:
    """Where the pruned model of a packed run is."""
    if "checkpoint" in run.left_out:
        return "The pruned model is where this run was made: a pack brings no model. Load or export it there."
    return "This run had not written its model when it was packed: finish it where it was made."


def lacking(run: Run) -> str:
    """Why nothing can be computed for a packed run on this machine; empty where nothing is missing."""
    try:
        _require_inputs(run.study)
    except GpruneError as error:
        return sentence(error) if run.packed else ""
    return ""


def require_here(root: str, study: Study) -> None:
    """Refuses to compute a study whose model is not here: a job would only fail after a while.

    Raises ModelError where the model is missing, or a text of one that is known from packs alone.
    """
    runs = [run for run in all_runs(root)[0] if run.study.model == study.model]
    if runs and all(run.packed for run in runs):
        try:
            _require_inputs(study)
        except GpruneError as error:
            raise ModelError(sentence(error)) from error
    elif not identity.is_hub_name(study.model):
        identity.locate(study.model, download=False)


def _require_inputs(study: Study) -> None:
    """Finds the model and the texts of a study; nothing is downloaded."""
    # a model of the hub is downloaded by the job
    if not identity.is_hub_name(study.model):
        identity.locate(study.model, download=False)
    describe_texts(study)
