"""What a run ends with, as plain JSON values, read back from the store."""

import math
from typing import Any

from gprune.evaluation import protocol
from gprune.evaluation.protocol import Stamp
from gprune.pipeline import stages
from gprune.pipeline.record import RunRecord
from gprune.records import Accuracy, Choice, PrunedModel
from gprune.study.methods import METHODS, RECOMMENDED


def summarized(results: stages.Results, wanted: tuple[stages.Stage[Any], ...], record: RunRecord) -> dict[str, Any]:
    """The result of a run."""
    graph, study = results.graph, results.graph.study
    until = record.until
    unavailable = {} if until in ("positions", "drift", "adapted", "agreement") else _unavailable(results, record)
    able = [name for name in study.methods if name not in unavailable]
    found: dict[str, Any] = {"settings": study.to_dict(), "run": record.name}
    if until in ("masks", "perplexity", "all"):
        found |= sizes(results, able)
        facts = {name: stages.given(results, name) for name in able}
        found["given"] = {name: one.to_dict() for name, one in facts.items() if one is not None}
        if study.chooses:
            found["choice"] = _chosen(results, able)
    if until in ("perplexity", "all"):
        found |= _measured(results, record, able)
    if until == "all" and "gprune" in able:
        found["checkpoint"] = str(results.model_folder(stages.checkpoint(graph)))
        trained = stages.checkpoint(graph, recovery=True) if stages.recovers(study) else None
        if trained is not None and trained not in record.unavailable:
            found["recovered_checkpoint"] = str(results.model_folder(trained))
    if until == "all" and RECOMMENDED in able:
        found["recommended_checkpoint"] = str(results.model_folder(stages.checkpoint(graph, RECOMMENDED)))
    ran = {stage.name: record.stages[stage.name] for stage in wanted if stage.name in record.stages}
    found["unavailable"] = unavailable
    found["keys"] = {name: entry["key"] for name, entry in ran.items()}
    found["seconds"] = {name: entry["seconds"] for name, entry in ran.items()}
    found["passes"] = {name: entry["passes"] for name, entry in ran.items() if "passes" in entry}
    found["reused"] = [name for name, entry in ran.items() if entry["reused"]]
    return found


def _measured(results: stages.Results, record: RunRecord, able: list[str]) -> dict[str, Any]:
    """Perplexities, accuracies and speed of the methods that could run."""
    graph, study, found = results.graph, results.graph.study, dict[str, Any]()
    texts = study.evaluation.texts
    found["perplexity"] = {
        name: {text: float(results.get(stages.perplexity, name, text).perplexity) for text in texts} for name in able
    }
    answered = {name: _answered(results, record, name) for name in able}
    found |= _protocols(results, answered)
    known = stages.standings(results.graph, results.get)
    found["texts"] = {text: standing.to_dict() for text, standing in known.items()}
    if study.evaluation.tasks:
        found["accuracy"] = {
            name: {task: _plain(results.get(stages.accuracy, name, task)) for task in tasks}
            for name, tasks in answered.items()
        }
        found["unavailable_tasks"] = record.unmeasured_tasks()
    if stages.recovers(study):
        found["recovery"] = _recovered(results, record, able)
    if study.evaluation.speed != "none" and stages.speed(graph) not in record.unavailable:
        timed = results.get(stages.speed)
        found["speed"] = {"setting": timed.setting, "machine": timed.machine, "rows": list(timed.rows)}
    return found


def _recovered(results: stages.Results, record: RunRecord, able: list[str]) -> dict[str, Any]:
    """How every method was trained on, and the perplexities after it, apart from all others."""
    graph, settings = results.graph, results.graph.study.recovery
    cutting = [name for name in able if METHODS[name].decision != "none"]
    trained = [name for name in cutting if stages.recovered(graph, name) not in record.unavailable]
    return {
        "trained": stages.recovery_label(graph),
        "steps": settings.steps,
        "perplexity": {
            name: {
                text: float(results.get(stages.recovered_perplexity, name, text).perplexity)
                for text in graph.study.evaluation.texts
            }
            for name in trained
        },
        "unavailable": {
            name: record.unavailable[stages.recovered(graph, name)] for name in cutting if name not in trained
        },
    }


def _protocols(results: stages.Results, answered: dict[str, list[str]]) -> dict[str, Any]:
    """By what protocols the figures of quality were measured, each once, and the number of each figure's."""
    graph, numbers = results.graph, dict[Stamp, int]()
    evaluation, precision = graph.study.evaluation, graph.inputs.precision

    def number(stamp: Stamp) -> int:
        return numbers.setdefault(stamp, len(numbers))

    def of_text(method: str, text: str) -> Stamp:
        stage = stages.perplexity(graph, method, text)
        details = results.details(stage)
        return protocol.of_perplexity(results.record(stage), details, precision, evaluation.windows)

    def of_task(method: str, task: str) -> Stamp:
        stage = stages.accuracy(graph, method, task)
        return protocol.of_accuracy(results.record(stage), results.details(stage), precision=precision)

    stamped: dict[str, Any] = {
        "perplexity": {name: {t: number(of_text(name, t)) for t in evaluation.texts} for name in answered}
    }
    if any(answered.values()):
        stamped["accuracy"] = {n: {t: number(of_task(n, t)) for t in tasks} for n, tasks in answered.items()}
    return {
        "protocols": [stamp.to_dict() | {"line": stamp.line} for stamp in numbers],
        "protocol of": stamped,
    }


def _chosen(results: stages.Results, methods: list[str]) -> dict[str, Any]:
    """What was tried before a repair, or masks and repair, were chosen, by method; the best first."""
    known = {name: one for name in methods if (one := stages.made(results, name)) is not None}
    return {name: _tried(results, one) for name, one in known.items()}


def _tried(results: stages.Results, one: Choice) -> dict[str, Any]:
    rows = [
        {
            "masks": one.masks[place],
            "repair": one.repairs[place],
            "is": stages.described(results.graph, one.repairs[place]),
            "number": _finite(one.numbers[place]),
            **{name: _finite(value) for name, value in zip(one.measures, one.figures[place], strict=True)},
            "chosen": place == one.chosen,
            "reference": place == one.reference,
        }
        for place in one.order
    ]
    weights = dict(zip(one.measures, map(float, one.weights), strict=True))
    return {"weights": weights, "sequences": one.sequences, "tried": rows}


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _unavailable(results: stages.Results, record: RunRecord) -> dict[str, str]:
    """Why methods could not run, by method."""
    cutting = {name: METHODS[name].masks for name in results.graph.study.methods if name != "dense"}
    cut = {name: stages.masks(results.graph, kept) for name, kept in cutting.items()}
    return {name: record.unavailable[stage] for name, stage in cut.items() if stage in record.unavailable}


def sizes(results: stages.Results, methods: list[str]) -> dict[str, Any]:
    """Retention of the decoder's weights and parameters of the whole model, by method."""
    known, whole = results.get(stages.shape), results.get(stages.size)
    retention, parameters = {}, {}
    for name in methods:
        method = METHODS[name]
        if method.decision == "none":
            retention[name], parameters[name] = 1.0, whole.parameters
            continue
        kept = results.get(stages.masks, method.masks)
        retention[name] = kept.retention
        parameters[name] = PrunedModel(kept, stages.carried_out(results, name)).parameters(known, whole)
    found: dict[str, Any] = {"retention": retention, "parameters": parameters}
    return found | ({"retained_fraction": retention["gprune"]} if "gprune" in retention else {})


def _answered(results: stages.Results, record: RunRecord, method: str) -> list[str]:
    """The tasks that could be measured on a method."""
    graph = results.graph
    tasks = [task for task in graph.study.evaluation.tasks if task in graph.inputs.tasks]
    return [task for task in tasks if stages.accuracy(graph, method, task) not in record.unavailable]


def _plain(found: Accuracy) -> dict[str, Any]:
    """What the result keeps of an accuracy; a task without a normalised form has null there."""
    names = ("acc", "acc_norm", "acc_error", "acc_norm_error")
    values = {name: getattr(found, name) for name in names}
    numbers = {name: value if math.isfinite(value) else None for name, value in values.items()}
    chance = found.chance if math.isfinite(found.chance) else None
    other = {} if found.metric == "acc" else {"metric": found.metric, "metrics": found.metrics}
    return numbers | {"samples": found.samples, "chance": chance, "version": found.version} | other
