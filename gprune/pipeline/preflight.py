"""Estimate of a run before it starts, for the run itself, `--dry-run` and the launch form."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gprune.pipeline.estimate import Forecast, TooLarge, forecast, judge
from gprune.pipeline.eta import Stages, StageTimes, stage_times
from gprune.pipeline.record import Listener
from gprune.pipeline.stages import Graph, Results, execution_plan
from gprune.pipeline.stages.inputs import Inputs, precision_of
from gprune.study import Study
from gprune.system.errors import GpruneError
from gprune.system.progress import Notice

ESTIMATE = "estimate"
"""the stage name under which a run reports its estimate"""
Records = Iterable[Mapping[str, Any]]
"""`run.json` of a cache's runs, the latest first"""


def estimate_missing(stages: Stages, results: Results, times: StageTimes | None = None) -> Forecast | None:
    """Estimate the stages of a run that have no result; None if the model is not on this machine."""
    missing = [stage for stage in stages if not results.holds(stage)]
    return forecast(results.graph.study, results.graph.inputs.precision, missing, times or stage_times(results))


def estimate_study(study: Study, records: Records = ()) -> Forecast | None:
    """Estimate a whole run of a study, as if it had no results; None if its model is absent or unusable."""
    try:
        precision = precision_of(study)
        stages = execution_plan(Graph(study))
        return forecast(study, precision, stages, StageTimes.of(records, study, precision))
    except GpruneError:
        # the sentence appears when the run is started
        return None


def further_seconds(studies: Sequence[Study], records: Records = ()) -> float | None:
    """Seconds of whole runs of studies after the first, without the stages they share; None if unknown.

    The studies differ in their seed, and their model is on this machine.
    """
    times = StageTimes.of(records, studies[0], precision_of(studies[0]))
    # the digests are blank and alike, so that keys differ where the studies do
    first, *further_courses = (execution_plan(Graph(study, Inputs.unknown(study))) for study in studies)
    first_keys = {stage.key for stage in first}
    return times.total(stage for stages in further_courses for stage in stages if stage.key not in first_keys)


def require_room(stages: Stages, results: Results, times: StageTimes, listener: Listener, anyway: bool) -> None:
    """Report a run's estimate to its listener; TooLarge if it cannot fit on this machine and not `anyway`."""
    estimate = estimate_missing(stages, results, times)
    if estimate is None or not estimate.stages:
        return
    verdict = judge(estimate)
    for words in (verdict.summary, *verdict.warnings):
        listener(ESTIMATE, 1, 1, Notice(words))
    if verdict.refusal:
        if not anyway:
            raise TooLarge(verdict.refusal)
        listener(ESTIMATE, 1, 1, Notice(f"started anyway: {verdict.refusal}"))
