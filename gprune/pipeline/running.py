"""Run a study: compute every stage of its graph in order, from the texts to the measured pruned models.

One process owns a run, and a second start waits for it (gprune.pipeline.record). Studies that need the same result
compute it once, under its lock.
"""

import math
from typing import Any

from gprune.data.texts import is_sampled
from gprune.evaluation import protocol
from gprune.models import identity
from gprune.models.loadable import attention_notice
from gprune.models.vocabulary import embedding_notice
from gprune.pipeline import runs, stages
from gprune.pipeline.computing import StageComputer
from gprune.pipeline.estimate import estimate_missing, require_room
from gprune.pipeline.estimate.forecast import ESTIMATE
from gprune.pipeline.eta import expected_seconds, stage_times
from gprune.pipeline.record import Listener, RunOwner, RunRecord
from gprune.pipeline.stages import Graph, Results, Stage
from gprune.pipeline.stages.inputs import GRADIENT, is_local, read_inputs, require_all, require_tasks
from gprune.pipeline.stages.results import measurable
from gprune.records import Accuracy, Choice, PrunedModel
from gprune.store import Store
from gprune.store.resumption import sweep_checkpoints
from gprune.study import Study, run_name
from gprune.study.methods import METHODS, RECOMMENDED
from gprune.system import safe_parsing
from gprune.system.errors import MethodError, StoreError, TaskError
from gprune.system.progress import Notice


def run(study: Study, store: Store, listener: Listener, until: str = "all", anyway: bool = False) -> dict[str, Any]:
    """Run a study, compute its missing results in the store, and return a summary as plain JSON values.

    `until` is the end of the run, one of gprune.pipeline.stages.UNTIL. With `anyway`, the run starts even if its memory
    estimate exceeds the machine's memory. The listener receives every stage's progress and may raise Cancelled.

    The summary has settings, keys, retention, parameters, checkpoint, perplexities and seconds, as far as the run goes.
    Raises GpruneError with one sentence that states the fault and the remedy.
    """
    if until in ("perplexity", "all"):
        study.recovery.require_installed()
    require_tasks(study)
    missing_tasks: dict[str, str] = {}
    if not is_local(study.model):
        listener("download", 0, 1, "downloading the missing inputs")
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
    """Return the results of a study that any run has computed; nothing is computed or downloaded.

    Raises GpruneError if an input of the study is not on this machine.
    """
    failures = runs.failures(runs.read(store, run_name(study)))
    return Results(store, Graph(study, read_inputs(study, download=False, store=store), failures=failures))


class _Runner(StageComputer):
    """Computes the missing stages of a run, and records each of them."""

    def __init__(self, results: Results, record: RunRecord, owner: RunOwner) -> None:
        super().__init__(results, owner.listener)
        self.record, self.owner = record, owner

    def run(self, plan: tuple[Stage[Any], ...], until: str) -> None:
        """Compute the missing stages in order.

        A method or task that cannot run is left out, with every stage that needs it. Raises MethodError if an essential
        stage cannot be computed.
        """
        graph = self.results.graph
        essential = stages.essential_stages(graph, until)
        self.work.missing = {stage.key for stage in plan if not self.results.holds(stage)}
        self._read_texts(plan)
        for planned in plan:
            # a choice is declared again without its failed candidates
            stage = stages.stages_by_name(graph)[planned.name]
            if stage.key in graph.failures:
                # another stage that also computes this result has failed, as an accuracy does for its answers
                self.record.leave_out(stage, graph.failures[stage.key])
                continue
            try:
                if reason := graph.failure(*stages.required_stages(stage)):
                    raise MethodError(reason)
                self._compute_and_record(stage)
            except (MethodError, TaskError) as error:
                if stage in essential:
                    raise
                reason = safe_parsing.sentence(error)
                graph.record_failure(stage, reason)
                self.record.leave_out(stage, reason)
                self.listener(stage.name, 1, 1, f"left out: {error}")

    def _read_texts(self, plan: tuple[Stage[Any], ...]) -> None:
        """Read every missing text first, so that a text that the model cannot read fails before other stages run."""
        evaluation_texts = self.results.graph.study.evaluation.texts
        missing_stages = [stage for stage in plan if not self.results.holds(stage)]
        for stage in missing_stages:
            # sampled texts need the model, and LLM-Pruner's text is only needed by that method
            if stage.kind == "tokens" and stage.id.texts[0] != GRADIENT and not stage.needs:
                self.compute_if_missing(stage)
        for stage in missing_stages:
            if stage.kind == "overlap" and not is_sampled(text := evaluation_texts[stage.id.item or 0]):
                self.work.stream(text)

    def _compute_and_record(self, stage: Stage[Any]) -> None:
        """Compute a stage if it is missing, and add it to the record of the run."""
        self.compute_if_missing(stage)
        self.record.add_stage(stage, reused=stage not in self.computed)
        self.owner.record_progress()

    def announce(self) -> None:
        """Mark the run as running."""
        self.owner.announce()

    def load(self, stage: Stage[Any]) -> Any:
        """Return the record of a stage; it is computed again if it is damaged or was removed during this run."""
        try:
            return self.results.record(stage)
        except StoreError:
            self._compute_and_record(stage)
            return self.results.record(stage)


# the result of a run as plain JSON values, read back from the store


def summarize(results: Results, plan: tuple[Stage[Any], ...], record: RunRecord) -> dict[str, Any]:
    """Return a summary of a run's results; see `run`."""
    graph, study, until = results.graph, results.graph.study, record.until
    unavailable = {} if until in ("drift", "adapted", "agreement") else _unavailable_methods(results, record)
    methods = [name for name in study.methods if name not in unavailable]
    result: dict[str, Any] = {"settings": study.to_dict(), "run": record.name}
    if study.prunes_experts:
        drifts = map(results.record, stages.drifts_of_experts(graph))
        means = {drift.criterion: drift.summary.items() for drift in drifts}
        result["expert_drift"] = {name: {key: _finite(mean) for key, mean in items} for name, items in means.items()}
    if until in ("masks", "perplexity", "all"):
        result |= sizes(results, methods)
        inputs = {name: stages.method_inputs(results, name) for name in methods}
        result["given"] = {name: values.to_dict() for name, values in inputs.items() if values is not None}
        if study.chooses:
            choices = {name: choice for name in methods if (choice := stages.find_choice(results, name)) is not None}
            result["choice"] = {name: _list_candidates(results, choice) for name, choice in choices.items()}
    if until in ("perplexity", "all"):
        result |= _collect_measurements(results, record, methods)
    if until == "all" and "gprune" in methods:
        result["checkpoint"] = str(results.model_folder(stages.checkpoint(graph)))
        recovered = stages.checkpoint(graph, recovery=True) if stages.recovers(study) else None
        if recovered is not None and recovered.name not in record.unavailable:
            result["recovered_checkpoint"] = str(results.model_folder(recovered))
    if until == "all" and study.prunes_experts:
        for name in set(methods).intersection(stages.exported_methods(study)):
            result["checkpoint"] = str(results.model_folder(stages.checkpoint(graph, name)))
    if until == "all" and RECOMMENDED in methods:
        result["recommended_checkpoint"] = str(results.model_folder(stages.checkpoint(graph, RECOMMENDED)))
    entries = {stage.name: record.stages[stage.name] for stage in plan if stage.name in record.stages}
    result["unavailable"] = unavailable
    result["keys"] = {name: entry["key"] for name, entry in entries.items()}
    result["seconds"] = {name: entry["seconds"] for name, entry in entries.items()}
    result["passes"] = {name: entry["passes"] for name, entry in entries.items() if "passes" in entry}
    result["reused"] = [name for name, entry in entries.items() if entry["reused"]]
    return result


def _collect_measurements(results: Results, record: RunRecord, methods: list[str]) -> dict[str, Any]:
    """Return perplexities, accuracies and speed of the methods that could run."""
    graph, study, values = results.graph, results.graph.study, dict[str, Any]()
    values["perplexity"] = _perplexities(results, stages.perplexity, methods)
    tasks_by_method = {name: _list_measured_tasks(results, record, name) for name in methods}
    values["protocols"] = _collect_protocols(results, tasks_by_method)
    statuses = stages.holdout_statuses(results.graph, results.get)
    values["texts"] = {text: status.to_dict() for text, status in statuses.items()}
    if study.evaluation.tasks:
        values["accuracy"] = {
            name: {task: _accuracy_values(results.get(stages.accuracy, name, task)) for task in tasks}
            for name, tasks in tasks_by_method.items()
        }
        values["unavailable_tasks"] = record.unmeasured_tasks()
    if stages.recovers(study):
        values["recovery"] = _collect_recovery(results, record, methods)
    if study.evaluation.speed != "none" and stages.speed(graph).name not in record.unavailable:
        speed = results.get(stages.speed)
        values["speed"] = {"setting": speed.setting, "machine": speed.machine, "rows": list(speed.rows)}
    return values


def _perplexities(results: Results, declare: Any, methods: list[str]) -> dict[str, dict[str, float]]:
    """Return the perplexities of stages that `declare` declares, by method and evaluation text."""
    texts = results.graph.study.evaluation.texts
    return {name: {text: float(results.get(declare, name, text).perplexity) for text in texts} for name in methods}


def _collect_recovery(results: Results, record: RunRecord, methods: list[str]) -> dict[str, Any]:
    """Return the recovery settings of every method, and its perplexities after recovery."""
    graph, settings = results.graph, results.graph.study.recovery
    pruning = [name for name in methods if METHODS[name].decision != "none"]
    trained = [name for name in pruning if stages.recovered_weights(graph, name).name not in record.unavailable]
    return {
        "trained": stages.recovery_label(graph),
        "steps": settings.steps,
        "perplexity": _perplexities(results, stages.recovered_perplexity, trained),
        "unavailable": {
            name: record.unavailable[stages.recovered_weights(graph, name).name]["reason"]
            for name in pruning
            if name not in trained
        },
    }


def _collect_protocols(results: Results, tasks_by_method: dict[str, list[str]]) -> list[dict[str, Any]]:
    """Return the distinct protocols of all perplexities and accuracies; `tasks_by_method` are the measured tasks."""
    graph = results.graph
    evaluation, precision = graph.study.evaluation, graph.inputs.precision
    stamps = list[protocol.Stamp]()
    for method, tasks in tasks_by_method.items():
        for text in evaluation.texts:
            stage = stages.perplexity(graph, method, text)
            details = results.details(stage)
            stamps.append(protocol.of_perplexity(results.record(stage), details, precision, evaluation.windows))
        for task in tasks:
            accuracy_stage = stages.accuracy(graph, method, task)
            details = results.details(accuracy_stage)
            stamps.append(protocol.of_accuracy(results.record(accuracy_stage), details, precision=precision))
    return [stamp.to_dict() | {"line": stamp.line} for stamp in dict.fromkeys(stamps)]


def _list_candidates(results: Results, choice: Choice) -> dict[str, Any]:
    """Return the weights of a choice, and the masks and repairs among which it was made, best first."""
    rows = [
        {
            "masks": choice.masks[index],
            "repair": choice.repairs[index],
            "is": stages.describe_candidate(results.graph, choice.repairs[index]),
            "number": _finite(choice.numbers[index]),
            **{name: _finite(value) for name, value in zip(choice.measures, choice.figures[index], strict=True)},
            "chosen": index == choice.chosen,
            "reference": index == choice.reference,
        }
        for index in choice.order
    ]
    weights = dict(zip(choice.measures, map(float, choice.weights), strict=True))
    complete = all(row["number"] is not None for row in rows)
    return {"weights": weights, "sequences": choice.sequences, "complete": complete, "tried": rows}


def _finite(value: float) -> float | None:
    """Return a number for JSON, or None for NaN and infinity."""
    return float(value) if math.isfinite(value) else None


def _unavailable_methods(results: Results, record: RunRecord) -> dict[str, str]:
    """Return the reason why a method could not run, by method: its masks or its repair could not be computed."""
    reasons = {name: entry["reason"] for name, entry in record.unavailable.items()}
    inputs = {name: stages.every_need(stages.model_inputs(results.graph, name)) for name in results.graph.study.methods}
    failed = {name: [reasons[stage.name] for stage in needs if stage.name in reasons] for name, needs in inputs.items()}
    return {name: causes[0] for name, causes in failed.items() if causes}


def sizes(results: Results, methods: list[str]) -> dict[str, Any]:
    """Return the retention of the decoder's weights and the parameters of the model, by method.

    For methods of experts, the retention is that of the parameters of experts and routers.
    """
    if results.graph.study.prunes_experts:
        return _expert_sizes(results, methods)
    shape, size = results.get(stages.shape), results.get(stages.size)
    retention, parameters = {}, {}
    for name in methods:
        method = METHODS[name]
        if method.decision == "none":
            retention[name], parameters[name] = 1.0, size.parameters
            continue
        masks = results.get(stages.masks, method.masks)
        retention[name] = masks.retention
        parameters[name] = PrunedModel(masks, stages.applied_repairs(results, name)).parameters(shape, size)
    values: dict[str, Any] = {"retention": retention, "parameters": parameters}
    return values | ({"retained_fraction": retention["gprune"]} if "gprune" in retention else {})


def _expert_sizes(results: Results, methods: list[str]) -> dict[str, Any]:
    """Return retention, parameters and experts per mixture, by method."""
    shape, counts, retention = results.get(stages.expert_shape), dict[str, int](), dict[str, float]()
    for name in methods:
        masks = None if name == "dense" else results.get(stages.expert_masks, name)
        counts[name] = shape.experts if masks is None else masks.count
        retention[name] = 1.0 if masks is None else masks.retention
    parameters = {name: shape.pruned_parameters(count) for name, count in counts.items()}
    return {"retention": retention, "parameters": parameters, "experts": counts}


def _list_measured_tasks(results: Results, record: RunRecord, method: str) -> list[str]:
    """Return the tasks that were measured on a method."""
    names = {task: stages.accuracy(results.graph, method, task).name for task in measurable(results.graph)}
    return [task for task, name in names.items() if name not in record.unavailable]


def _accuracy_values(accuracy: Accuracy) -> dict[str, Any]:
    """Return an accuracy as plain values, with None for a figure that the task does not have."""
    names = ("acc", "acc_norm", "acc_error", "acc_norm_error", "chance")
    values: dict[str, Any] = {name: _finite(getattr(accuracy, name)) for name in names}
    values |= {"samples": accuracy.samples, "version": accuracy.version}
    return values if accuracy.metric == "acc" else values | {"metric": accuracy.metric, "metrics": accuracy.metrics}
