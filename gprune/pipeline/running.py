"""From a study to a pruned and measured model: every stage of its graph in order, through the store.

One process owns a run, and a second start follows it (gprune.pipeline.run_owner). Studies that need the same
result compute it once, under its lock.
"""

from typing import Any

from gprune.data.texts import is_sampled
from gprune.models import identity
from gprune.models.loadable import attention_notice
from gprune.models.vocabulary import embedding_notice
from gprune.pipeline import runs, stages
from gprune.pipeline.computing import StageComputer
from gprune.pipeline.estimate import estimate_missing, require_room
from gprune.pipeline.estimate.forecast import ESTIMATE
from gprune.pipeline.eta import expected_seconds, stage_times
from gprune.pipeline.record import Listener, RunRecord
from gprune.pipeline.run_owner import RunOwner
from gprune.pipeline.stages import Graph, Results, Stage
from gprune.pipeline.stages.inputs import GRADIENT, is_local, read_inputs, require_all, require_tasks
from gprune.pipeline.summary import summarize
from gprune.store import Store
from gprune.store.resumption import sweep_checkpoints
from gprune.study import Study, run_name
from gprune.system import safe_parsing
from gprune.system.errors import MethodError, StoreError, TaskError
from gprune.system.progress import Notice


def run(study: Study, store: Store, listener: Listener, until: str = "all", anyway: bool = False) -> dict[str, Any]:
    """Run a study through the store.

    `until` is the end of the run, one of gprune.pipeline.stages.UNTIL; `anyway` starts even if it cannot
    fit in memory, as far as arithmetic tells; the listener is told of every stage's progress and may raise
    Cancelled. Gives settings, keys, retention, parameters, checkpoint,
    perplexities and seconds, as plain JSON values; fields of stages that were not asked for are absent.
    Raises GpruneError with one sentence that says what is wrong and what to do.
    """
    if until in ("perplexity", "all"):
        study.recovery.require_installed()
    require_tasks(study)
    missing_tasks: dict[str, str] = {}
    if not is_local(study.model):
        listener("download", 0, 1, "fetching what is not on this machine")
    inputs = read_inputs(study, missing_tasks, store=store)
    require_all(missing_tasks)
    results = Results(store, Graph(study, inputs))
    plan = results.plan(until)
    learning = next((stage.title for stage in plan if stage.id.has_backward and not results.holds(stage)), "")
    if study.offload and learning:
        raise identity.offloaded_error(learning)
    # the records of all runs are read once
    times = stage_times(results)
    record = RunRecord(results, until, expected_seconds(plan, results, times), missing_tasks, listener)
    record.expected_from_cache = times.is_measured
    for notice in filter(None, (attention_notice(identity.locate(study.model)), embedding_notice(study.model))):
        listener(ESTIMATE, 1, 1, Notice(notice))
    require_room(estimate_missing(plan, results, times), listener, anyway)
    store.sweep()
    sweep_checkpoints(store)
    with RunOwner(record, plan, listener) as owner:
        runner = _Runner(results, record, owner)
        runner.work.learning_title = learning
        runner.run(plan, until)
        summary = summarize(results, plan, record)
        owner.finish(summary if until in ("perplexity", "all") else None)
    return summary


def opened(study: Study, store: Store) -> Results:
    """Return the results of a study, of all runs; nothing is computed or downloaded.

    Raises GpruneError if what the study reads is not on this machine.
    """
    failures = runs.failures(runs.read(store, run_name(study)))
    return Results(store, Graph(study, read_inputs(study, download=False, store=store), failures=failures))


class _Runner(StageComputer):
    """Compute the missing stages of a run, and record each."""

    def __init__(self, results: Results, record: RunRecord, owner: RunOwner) -> None:
        super().__init__(results, owner.listener)
        self.record, self.owner = record, owner

    def run(self, plan: tuple[Stage[Any], ...], until: str) -> None:
        """Compute the missing stages in order; leave out a method or a task that cannot run, with what needs it.

        Raises MethodError if an essential stage, without which the run is for nothing, cannot be computed.
        """
        graph = self.results.graph
        essential: list[Stage[Any]] = [stages.drift(graph)]
        essential += [stages.adapted_scores(graph)] if until in ("adapted", "agreement") else []
        self.work.missing = {stage.key for stage in plan if not self.results.holds(stage)}
        self._read_texts(plan)
        for planned in plan:
            # a choice is declared anew without the candidates that failed
            stage = stages.stages_by_name(graph)[planned.name]
            if stage.key in graph.failures:
                # the stage whose work would have yielded it has said why
                self.record.leave_out(stage, graph.failures[stage.key])
                continue
            try:
                if reason := graph.failure(*stages.required_stages(stage)):
                    raise MethodError(reason)
                self._ensure(stage)
            except (MethodError, TaskError) as error:
                if stage in essential:
                    raise
                reason = safe_parsing.sentence(error)
                graph.record_failure(stage, reason)
                self.record.leave_out(stage, reason)
                self.listener(stage.name, 1, 1, f"left out: {error}")

    def _read_texts(self, plan: tuple[Stage[Any], ...]) -> None:
        """Read every text that is not there yet, so that one which the model cannot read fails before the rest."""
        texts = self.results.graph.study.evaluation.texts
        missing_stages = [stage for stage in plan if not self.results.holds(stage)]
        for stage in missing_stages:
            if stage.kind == "tokens" and stage.id.texts[0] != GRADIENT and not stage.needs:
                self.compute_if_missing(stage)
        for stage in missing_stages:
            if stage.kind == "overlap" and not is_sampled(text := texts[stage.id.item or 0]):
                self.work.stream(text)

    def _ensure(self, stage: Stage[Any]) -> None:
        self.compute_if_missing(stage)
        self.record.note(stage, reused=stage not in self.computed)
        self.owner.record_progress()

    def announce(self) -> None:
        """Record that the run goes on."""
        self.owner.announce()

    def load(self, stage: Stage[Any]) -> Any:
        """Return the record of a stage, computed again if it was damaged or removed since this run looked at it."""
        try:
            return self.results.record(stage)
        except StoreError:
            self._ensure(stage)
            return self.results.record(stage)
