"""The result of a run as plain JSON values, read back from the store."""

import math
from typing import Any

from gprune.evaluation import protocol
from gprune.evaluation.protocol import Stamp
from gprune.pipeline import stages
from gprune.pipeline.record import RunRecord
from gprune.pipeline.stages.results import measurable
from gprune.records import Accuracy, Choice, PrunedModel
from gprune.study.methods import METHODS, RECOMMENDED


def summarize(results: stages.Results, plan: tuple[stages.Stage[Any], ...], record: RunRecord) -> dict[str, Any]:
    """Return the result of a run."""
    graph, study, until = results.graph, results.graph.study, record.until
    unavailable = {} if until in ("drift", "adapted", "agreement") else _unavailable(results, record)
    methods = [name for name in study.methods if name not in unavailable]
    result: dict[str, Any] = {"settings": study.to_dict(), "run": record.name}
    if until in ("masks", "perplexity", "all"):
        result |= sizes(results, methods)
        facts = {name: stages.method_inputs(results, name) for name in methods}
        result["given"] = {name: fact.to_dict() for name, fact in facts.items() if fact is not None}
        if study.chooses:
            choices = {name: choice for name in methods if (choice := stages.find_choice(results, name)) is not None}
            result["choice"] = {name: _candidates(results, choice) for name, choice in choices.items()}
    if until in ("perplexity", "all"):
        result |= _measurements(results, record, methods)
    if until == "all" and "gprune" in methods:
        result["checkpoint"] = str(results.model_folder(stages.checkpoint(graph)))
        trained = stages.checkpoint(graph, recovery=True) if stages.recovers(study) else None
        if trained is not None and trained.name not in record.unavailable:
            result["recovered_checkpoint"] = str(results.model_folder(trained))
    if until == "all" and RECOMMENDED in methods:
        result["recommended_checkpoint"] = str(results.model_folder(stages.checkpoint(graph, RECOMMENDED)))
    entries = {stage.name: record.stages[stage.name] for stage in plan if stage.name in record.stages}
    result["unavailable"] = unavailable
    result["keys"] = {name: entry["key"] for name, entry in entries.items()}
    result["seconds"] = {name: entry["seconds"] for name, entry in entries.items()}
    result["passes"] = {name: entry["passes"] for name, entry in entries.items() if "passes" in entry}
    result["reused"] = [name for name, entry in entries.items() if entry["reused"]]
    return result


def _measurements(results: stages.Results, record: RunRecord, methods: list[str]) -> dict[str, Any]:
    """Return perplexities, accuracies and speed of the methods that could run."""
    graph, study, values = results.graph, results.graph.study, dict[str, Any]()
    values["perplexity"] = _perplexities(results, stages.perplexity, methods)
    answered = {name: _measured_tasks(results, record, name) for name in methods}
    values["protocols"] = _protocols(results, answered)
    overlaps = stages.holdout_statuses(results.graph, results.get)
    values["texts"] = {text: overlap.to_dict() for text, overlap in overlaps.items()}
    if study.evaluation.tasks:
        values["accuracy"] = {
            name: {task: _accuracy_values(results.get(stages.accuracy, name, task)) for task in tasks}
            for name, tasks in answered.items()
        }
        values["unavailable_tasks"] = record.unmeasured_tasks()
    if stages.recovers(study):
        values["recovery"] = _recovery_results(results, record, methods)
    if study.evaluation.speed != "none" and stages.speed(graph).name not in record.unavailable:
        timed = results.get(stages.speed)
        values["speed"] = {"setting": timed.setting, "machine": timed.machine, "rows": list(timed.rows)}
    return values


def _perplexities(results: stages.Results, declare: Any, methods: list[str]) -> dict[str, dict[str, float]]:
    texts = results.graph.study.evaluation.texts
    return {name: {text: float(results.get(declare, name, text).perplexity) for text in texts} for name in methods}


def _recovery_results(results: stages.Results, record: RunRecord, methods: list[str]) -> dict[str, Any]:
    """Return how every method was trained on, and the perplexities after it."""
    graph, settings = results.graph, results.graph.study.recovery
    cutting = [name for name in methods if METHODS[name].decision != "none"]
    trained = [name for name in cutting if stages.recovered_weights(graph, name).name not in record.unavailable]
    return {
        "trained": stages.recovery_label(graph),
        "steps": settings.steps,
        "perplexity": _perplexities(results, stages.recovered_perplexity, trained),
        "unavailable": {
            name: record.unavailable[stages.recovered_weights(graph, name).name]["reason"]
            for name in cutting
            if name not in trained
        },
    }


def _protocols(results: stages.Results, answered: dict[str, list[str]]) -> list[dict[str, Any]]:
    """Return the protocols of all perplexities and accuracies, each once."""
    graph = results.graph
    evaluation, precision = graph.study.evaluation, graph.inputs.precision
    stamps = list[Stamp]()
    for method, tasks in answered.items():
        for text in evaluation.texts:
            stage = stages.perplexity(graph, method, text)
            details = results.details(stage)
            stamps.append(protocol.of_perplexity(results.record(stage), details, precision, evaluation.windows))
        for task in tasks:
            accuracy_stage = stages.accuracy(graph, method, task)
            details = results.details(accuracy_stage)
            stamps.append(protocol.of_accuracy(results.record(accuracy_stage), details, precision=precision))
    return [stamp.to_dict() | {"line": stamp.line} for stamp in dict.fromkeys(stamps)]


def _candidates(results: stages.Results, choice: Choice) -> dict[str, Any]:
    """Return the masks and repairs that a choice was made from, the best first."""
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
    return float(value) if math.isfinite(value) else None


def _unavailable(results: stages.Results, record: RunRecord) -> dict[str, str]:
    """Return why methods could not run, by method."""
    names = [name for name in results.graph.study.methods if name != "dense"]
    masks = {name: stages.masks(results.graph, METHODS[name].masks).name for name in names}
    return {name: record.unavailable[stage]["reason"] for name, stage in masks.items() if stage in record.unavailable}


def sizes(results: stages.Results, methods: list[str]) -> dict[str, Any]:
    """Return the retention of the decoder's weights and the parameters of the model, by method."""
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


def _measured_tasks(results: stages.Results, record: RunRecord, method: str) -> list[str]:
    """Return the tasks that could be measured on a method."""
    names = {task: stages.accuracy(results.graph, method, task).name for task in measurable(results.graph)}
    return [task for task, name in names.items() if name not in record.unavailable]


def _accuracy_values(accuracy: Accuracy) -> dict[str, Any]:
    """Return an accuracy as plain values, with None for a number that the task does not have."""
    names = ("acc", "acc_norm", "acc_error", "acc_norm_error", "chance")
    values: dict[str, Any] = {name: _finite(getattr(accuracy, name)) for name in names}
    values |= {"samples": accuracy.samples, "version": accuracy.version}
    return values if accuracy.metric == "acc" else values | {"metric": accuracy.metric, "metrics": accuracy.metrics}
