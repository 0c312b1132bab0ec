"""What a run will take, asked before it starts: by the run itself, by `--dry-run` and by the launch form."""

from collections.abc import Iterable, Mapping
from typing import Any

from gprune.pipeline import runs
from gprune.pipeline.estimate import Forecast, forecast, judged
from gprune.pipeline.eta import last_time
from gprune.pipeline.record import Listener
from gprune.pipeline.stages import Graph, Results, Stage, course
from gprune.pipeline.stages.inputs import precision_of
from gprune.study import Study
from gprune.system.errors import GpruneError
from gprune.system.progress import Notice

ESTIMATE = "estimate"
"""the name under which a run tells what it will take, among those of its stages"""


def foreseen(wanted: Iterable[Stage[Any]], results: Results, processes: int = 1) -> Forecast | None:
    """What those stages of a run take that are not there yet; None where the model's sizes are not known."""
    missing = [stage for stage in wanted if not results.holds(stage)]
    records = (record for _, record in runs.every(results.store))
    graph = results.graph
    known = last_time(missing, results)
    return forecast(graph.study, graph.inputs.precision, missing, records, known, processes)


def anew(study: Study, records: Iterable[Mapping[str, Any]] = (), processes: int = 1) -> Forecast | None:
    """What a whole run of a study takes, if nothing of it is there yet; nothing but its model is looked at.

    `records` of a cache's runs, the latest first, tell how fast this machine is; `processes` compute the one
    model together. None where the model is not on this machine, or cannot be used.
    """
    try:
        stages = course(Graph(study), "all", lambda _: False)
        return forecast(study, precision_of(study), stages, records, None, processes)
    except GpruneError:
        # what is wrong with it is said when the run is started
        return None


def require_room(
    wanted: Iterable[Stage[Any]], results: Results, listener: Listener, anyway: bool, processes: int = 1
) -> None:
    """Says what a run will take, and refuses what cannot fit unless it starts `anyway`.

    The listener is told of the estimate, and of what will be halved. Raises TooLarge where it cannot fit on
    this machine.
    """
    found = foreseen(wanted, results, processes)
    if found is None or not found.stages:
        return
    verdict = judged(found)
    for words in (verdict.summary, *verdict.warnings):
        listener(ESTIMATE, 1, 1, Notice(words))
    if not anyway:
        verdict.require_fitting()
    elif verdict.refusal:
        listener(ESTIMATE, 1, 1, Notice(f"started anyway: {verdict.refusal}"))
