"""Stages that measure every method: text overlap, perplexity, zero-shot accuracy and speed (section 4).

The pass that measures an accuracy also yields the answers. They are a separate result, on which no other key depends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from gprune.data import texts
from gprune.data.texts import corpus_relation
from gprune.evaluation.tasks import PROMPTS
from gprune.pipeline.stages.calibration import held_out, sampled_text, tokens
from gprune.pipeline.stages.graph import PAIR, Graph, Stage, StageId, every_need, once
from gprune.pipeline.stages.inputs import CHECK, roles
from gprune.pipeline.stages.pruned_models import model_inputs, pruned_model, recovered_from
from gprune.pipeline.stages.run_context import RunContext
from gprune.records import Accuracy, Answers, Array, Perplexity, Questions, SampledText, TextOverlap, Throughput, Tokens
from gprune.system import safe_parsing
from gprune.system.errors import CorpusError, MethodError, NumericsError, SettingsError, TaskError


@once
def overlap(graph: Graph, text: str) -> Stage[TextOverlap]:
    """Declare the share of an evaluation text's token runs that occur in the sequences of A, B and a check text."""
    evaluation, index = graph.study.evaluation, graph.study.evaluation.texts.index(text)

    def make(work: RunContext, calibration: list[Tokens], sampled: SampledText | None = None) -> TextOverlap:
        windows = corpus_relation.cut(_read_token_stream(work, text, sampled), evaluation.length, evaluation.windows)
        return corpus_relation.measure_overlap(text, windows, calibration, len(work.tokenizer))

    # a check text counts as a calibration text, because the repair was chosen on it
    calibration = [tokens(graph, role) for role in PAIR]
    calibration += [held_out(graph, role) for role in roles(graph.study) if role == CHECK]
    return graph.stage(
        StageId("overlap", item=index),
        f"overlap of text {index + 1} with A and B",
        make,
        needs={"calibration": calibration, **_sampled_text_needs(graph, text)},
        reads={"text": graph.inputs.evaluation[text]} | graph.tokenizer_digests,
        settings={"length": evaluation.length, "windows": evaluation.windows},
    )


@once
def perplexity(graph: Graph, method: str, text: str) -> Stage[Perplexity]:
    """Declare the perplexity of a method on an evaluation text of the study."""
    return _declare_perplexity(graph, "perplexity", method, text, model_inputs(graph, method))


@once
def recovered_perplexity(graph: Graph, method: str, text: str) -> Stage[Perplexity]:
    """Declare the perplexity of a method after recovery, whose key differs from that of the perplexity before it."""
    return _declare_perplexity(graph, "recovered_perplexity", method, text, recovered_from(graph, method))


def _declare_perplexity(graph: Graph, kind: str, method: str, text: str, needs: Mapping[str, Any]) -> Stage[Perplexity]:
    """Declare a perplexity; `kind` tells if it is before or after recovery, and `needs` are those of the model."""
    evaluation, index = graph.study.evaluation, graph.study.evaluation.texts.index(text)
    name, suffix = (method, "") if kind == "perplexity" else (f"{method}_recovered", " after recovery")

    def make(work: RunContext, sampled: SampledText | None = None, **parts: Any) -> Perplexity:
        from gprune.evaluation import perplexity as measurement

        # build the model first, so that a method that fails does not wait for a text
        model = work.live_model(name, pruned_model(graph, method, **parts))
        return measurement.perplexity(model, _read_token_stream(work, text, sampled), text, evaluation, work.progress)

    return graph.stage(
        StageId(kind, method=method, item=index),
        f"perplexity of {graph.methods[method].label}{suffix}, text {index + 1}",
        make,
        needs={**needs, **_sampled_text_needs(graph, text)},
        reads=graph.model_digests | {"text": graph.inputs.evaluation[text]} | graph.tokenizer_digests,
        settings={"preset": evaluation.preset, "windows": evaluation.windows},
    )


def _sampled_text_needs(graph: Graph, text: str) -> dict[str, Stage[SampledText]]:
    """Return the need for an evaluation text that the model writes; empty for other texts."""
    return {"sampled": sampled_text(graph, text)} if texts.is_sampled(text) else {}


def _read_token_stream(work: RunContext, text: str, sampled: SampledText | None) -> Array:
    """Return the token stream of an evaluation text, from the record `sampled` if the model wrote it."""
    return work.stream(text) if sampled is None else sampled.stream


@once
def speed(graph: Graph) -> Stage[Throughput]:
    """Declare the tokens per second of the dense model and of every method that can run, measured in one run.

    The dense model and the first measured model stay in memory, with one other model at a time. Prompt and new tokens
    are limited to the model's context. If one method does not fit in memory, the whole stage fails.
    """
    study = graph.study
    needs = {name: model_inputs(graph, name) for name in study.methods}

    def make(work: RunContext, models: dict[str, Any]) -> Throughput:
        from gprune.evaluation import speed as measurement

        decoder, speed_settings = work.language_model, measurement.preset(study.evaluation.speed)
        if decoder.is_mapped:
            raise MethodError("speed is measured on one device: set device cuda:0 and offload off, or speed none")
        fitting = measurement.fit_preset(decoder.config, speed_settings)
        device_facts = {"device": str(decoder.device), "dtype": work.inputs.precision}
        speed_settings = measurement.with_changes(speed_settings, **device_facts, **fitting)
        work.release_model()
        builders = {name: partial(work.prune, pruned_model(graph, name, **parts)) for name, parts in models.items()}
        rows = measurement.measure(builders, speed_settings, work.progress)
        return Throughput(
            speed_settings.describe(), measurement.describe_device(decoder.device), tuple(asdict(row) for row in rows)
        )

    return graph.stage(
        StageId("speed"),
        "measuring tokens per second",
        make,
        needs={"models": {name: parts for name, parts in needs.items() if not graph.failure(*every_need(parts))}},
        reads=graph.model_digests,
        settings={"preset": study.evaluation.speed, "machine": graph.inputs.machine, "order": list(study.methods)},
    )


@once
def accuracy(graph: Graph, method: str, task: str) -> Stage[Accuracy]:
    """Declare the zero-shot accuracy of a method on a task of the study."""

    def make(work: RunContext, **parts: Any) -> Accuracy:
        try:
            result = _answer_task(graph, work, method, task, parts)
        except TaskError as error:
            # record the failure, because the stages of answers would fail on the same questions
            for by_product in (answers, generated_answers):
                graph.record_failure(by_product(graph, method, task), safe_parsing.sentence(error))
            raise
        work.keep(answers(graph, method, task).key, result.answers)
        work.keep(generated_answers(graph, method, task).key, result.generated)
        work.keep(questions(graph, task).key, result.questions)
        return result.accuracy

    return _declare_question_stage(graph, "accuracy", method, task, make)


@once
def answers(graph: Graph, method: str, task: str) -> Stage[Answers]:
    """Declare a method's likelihood of every option of a task's questions, which the accuracy's pass also computes."""

    def make(work: RunContext, **parts: Any) -> Any:
        return _answer_task(graph, work, method, task, parts).answers

    return _declare_question_stage(graph, "answers", method, task, make)


@once
def generated_answers(graph: Graph, method: str, task: str) -> Stage[Any]:
    """Declare a method's generated answers to a task, which the accuracy's pass also yields; empty without any."""

    def make(work: RunContext, **parts: Any) -> Any:
        return _answer_task(graph, work, method, task, parts).generated

    return _declare_question_stage(graph, "generated_answers", method, task, make)


@once
def open_answers(graph: Graph, method: str, task: str) -> Stage[Any]:
    """Declare a method's answers to the questions of a multiple-choice task without their options."""

    def make(work: RunContext, **parts: Any) -> Any:
        return _answer_task(graph, work, method, task, parts, "ask_openly")

    return _declare_question_stage(graph, "open_answers", method, task, make)


def has_prompts(graph: Graph, task: str) -> bool:
    """Return True if a task is a file of own prompts."""
    return graph.inputs.tasks[task].startswith(PROMPTS)


def _declare_question_stage(graph: Graph, kind: str, method: str, task: str, make: Any) -> Stage[Any]:
    """Declare a result of a method on a task, such as accuracy or answers."""
    index = graph.study.evaluation.tasks.index(task)
    return graph.stage(
        StageId(kind, method=method, item=index),
        f"{kind.replace('_', ' ')} of {graph.methods[method].label}, task {index + 1}",
        make,
        needs=model_inputs(graph, method),
        reads=graph.model_digests | {"task": graph.inputs.tasks[task]} | graph.tokenizer_digests,
        settings=_task_protocol(graph, task, kind),
    )


def _answer_task(
    graph: Graph, work: RunContext, method: str, task: str, parts: dict[str, Any], function: str = "measure_tasks"
) -> Any:
    """Return the result of a function of `gprune.evaluation.accuracy` for a method on a task.

    `parts` are the records of the method's `model_inputs`.
    """
    from gprune.evaluation import accuracy as measurement

    settings, model = work.study.evaluation, work.live_model(method, pruned_model(graph, method, **parts))
    with safe_parsing.reraise_as(TaskError, CorpusError, SettingsError, NumericsError):
        return getattr(measurement, function)(model, work.tokenizer, task, settings, work.progress)


@once
def questions(graph: Graph, task: str) -> Stage[Questions]:
    """Declare the questions of a task as presented to the models; no model is loaded."""
    index = graph.study.evaluation.tasks.index(task)

    def make(work: RunContext) -> Questions:
        from gprune.evaluation.accuracy import questions as read

        with safe_parsing.reraise_as(TaskError, CorpusError, SettingsError, NumericsError):
            return read(task, work.study.evaluation, work.tokenizer)

    template = graph.tokenizer_digests if graph.study.evaluation.chat_template else {}
    return graph.stage(
        StageId("questions", item=index),
        f"questions of task {index + 1}",
        make,
        reads={"task": graph.inputs.tasks[task]} | template,
        settings=_task_protocol(graph, task),
    )


def _task_protocol(graph: Graph, task: str, kind: str = "") -> dict[str, Any]:
    """Return the settings on which the questions of a task depend, and a result of a kind of stage on it."""
    evaluation = graph.study.evaluation
    # settings that were added later are in the key only if they are used
    added = {} if evaluation.few_shot is None else {"few_shot": evaluation.few_shot}
    added |= {"chat_template": True} if evaluation.chat_template else {}
    if kind == "open_answers" or has_prompts(graph, task):
        added["generated_tokens"] = evaluation.generated_tokens
    return {"limit": evaluation.limit, "scoring": graph.inputs.scoring} | added
