"""What a run will take, asked before it starts: by the run itself, by `--dry-run` and by the launch form."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import tee
from typing import Any

from gprune.pipeline import runs
from gprune.pipeline.estimate import Forecast, TooLarge, forecast, judged, libraries
from gprune.pipeline.eta import last_time
from gprune.pipeline.record import Listener
from gprune.pipeline.stages import Graph, Results, Stage, course
from gprune.pipeline.stages.inputs import Inputs, precision_of
from gprune.study import Study
from gprune.system.errors import GpruneError
from gprune.system.progress import Notice

ESTIMATE = "estimate"
"""the name under which a run tells what it will take, among those of its stages"""


def foreseen(wanted: Iterable[Stage[Any]], results: Results, *, measure: bool = False) -> Forecast | None:
    """What those stages of a run take that are not there yet; None where the model's sizes are not known.

    What the libraries take is known from the latest run; if `measure`, a process is started where none says.
    """
    missing = [stage for stage in wanted if not results.holds(stage)]
    graph = results.graph
    known = last_time(missing, results)
    # each record is read once, and none further back than either asks for
    records, again = tee(record for _, record in runs.every(results.store))
    found = forecast(graph.study, graph.inputs.precision, missing, records, known)
    return _with_libraries(found, again, measure)


def _with_libraries(found: Forecast | None, records: Iterable[Mapping[str, Any]], measure: bool) -> Forecast | None:
    if found is None or not found.stages:
        return found
    size = libraries.recorded(records) or (libraries.measured() if measure else libraries.ASSUMED)
    return replace(found, libraries=size)


def anew(study: Study, records: Iterable[Mapping[str, Any]] = (), *, measure: bool = False) -> Forecast | None:
    """What a whole run of a study takes, if nothing of it is there yet; nothing but its model is looked at.

    `records` of a cache's runs, the latest first, tell how fast this machine is; for `measure` see `foreseen`.
    None where the model is not on this machine, or cannot be used.
    """
    records, again = tee(records)
    try:
        stages = course(Graph(study), "all", lambda _: False)
        found = forecast(study, precision_of(study), stages, records)
    except GpruneError:
        # what is wrong with it is said when the run is started
        return None
    return _with_libraries(found, again, measure)


def further_seconds(studies: Sequence[Study], records: Iterable[Mapping[str, Any]] = ()) -> float:
    """Seconds that whole runs of studies take beside the first of them: what they do not share with it.

    For studies that differ in their seed, whose model is on this machine; otherwise as `anew`.
    """
    records, made, seconds = list(records), set[str](), 0.0
    for number, study in enumerate(studies):
        # the digests are blank, and alike: what tells the keys apart is what the studies differ in
        stages = course(Graph(study, Inputs.unknown(study)), "all", lambda _: False)
        own = [stage for stage in stages if stage.key not in made]
        made |= {stage.key for stage in own}
        found = forecast(study, precision_of(study), own, records) if number else None
        seconds += found.seconds if found else 0.0
    return seconds


def require_room(wanted: Iterable[Stage[Any]], results: Results, listener: Listener, anyway: bool) -> None:
    """Says what a run will take, and refuses what cannot fit unless it starts `anyway`.

    The listener is told of the estimate, and of what will be halved. Raises TooLarge where it cannot fit on
    this machine.
    """
    found = foreseen(wanted, results)
    if found is None or not found.stages:
        return
    # what this process takes itself, at its start: it will have to load them anyway
    verdict = judged(replace(found, libraries=float(libraries.own())))
    for words in (verdict.summary, *verdict.warnings):
        listener(ESTIMATE, 1, 1, Notice(words))
    if verdict.refusal:
        if not anyway:
            raise TooLarge(verdict.refusal)
        listener(ESTIMATE, 1, 1, Notice(f"started anyway: {verdict.refusal}"))
