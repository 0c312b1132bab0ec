"""The stages that measure: perplexity and speed of every method (section 4).

Beside them, how far an evaluated text is one that was calibrated on.
"""

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from gprune.data import texts
from gprune.data.texts import corpus_relation
from gprune.pipeline.stages.calibration import held_out, tokens
from gprune.pipeline.stages.calibration import sampled as sampled_text
from gprune.pipeline.stages.graph import PAIR, Graph, Stage, StageId, once
from gprune.pipeline.stages.inputs import CHECK, roles
from gprune.pipeline.stages.pruned_models import (
    pruned,
    pruned_model,
    recovered_from,
)
from gprune.pipeline.stages.run_context import RunContext
from gprune.records import (
    Array,
    Perplexity,
    SampledText,
    TextOverlap,
    Throughput,
    Tokens,
)
from gprune.study.methods import METHODS


@once
def overlap(graph: Graph, text: str) -> Stage[TextOverlap]:
    """How much of an evaluation text's windows stands in the calibration sets of A and B."""
    evaluation = graph.study.evaluation

    def make(work: RunContext, calibration: list[Tokens], sampled: SampledText | None = None) -> TextOverlap:
        windows = corpus_relation.cut(_stream(work, text, sampled), evaluation.length, evaluation.windows)
        return corpus_relation.measured(text, windows, calibration, len(work.tokenizer))

    # a check text counts as one that was calibrated on: it has chosen
    read = [tokens(graph, role) for role in PAIR]
    read += [held_out(graph, role) for role in roles(graph.study) if role == CHECK]
    index = evaluation.texts.index(text)
    return graph.stage(
        StageId("overlap", item=index),
        f"overlap of text {index + 1} with A and B",
        make,
        needs={"calibration": read, **_written(graph, text)},
        reads={"text": graph.inputs.evaluation[text]} | graph.tokenizer,
        settings={"length": evaluation.length, "windows": evaluation.windows},
    )


@once
def perplexity(graph: Graph, method: str, text: str) -> Stage[Perplexity]:
    """Perplexity of a method on an evaluation text of the study."""
    identity = StageId("perplexity", method=method, item=graph.study.evaluation.texts.index(text))
    return _perplexity(graph, identity, text, method, pruned(graph, method))


@once
def recovered_perplexity(graph: Graph, method: str, text: str) -> Stage[Perplexity]:
    """Perplexity of a method after its recovery; what is measured without stands at its own key."""
    identity = StageId("recovered_perplexity", method=method, item=graph.study.evaluation.texts.index(text))
    needs = recovered_from(graph, method)
    return _perplexity(graph, identity, text, f"{method}_recovered", needs, " after recovery")


def _perplexity(
    graph: Graph,
    identity: StageId,
    text: str,
    name: str,
    needs: Mapping[str, Any],
    how: str = "",
) -> Stage[Perplexity]:
    """Measures the model called `name`, made of the records of `needs`."""
    evaluation, method = graph.study.evaluation, identity.method

    def make(work: RunContext, sampled: SampledText | None = None, **parts: Any) -> Perplexity:
        from gprune.evaluation import perplexity as measurement

        # the model first: a method that leaves nothing must not wait for a text
        model = work.cut(name, pruned_model(graph, method, **parts))
        return measurement.perplexity(model, _stream(work, text, sampled), text, evaluation, work.progress)

    return graph.stage(
        identity,
        f"perplexity of {METHODS[method].label}{how}, text {evaluation.texts.index(text) + 1}",
        make,
        needs={**needs, **_written(graph, text)},
        reads=graph.model | {"text": graph.inputs.evaluation[text]} | graph.tokenizer,
        settings={"preset": evaluation.preset, "windows": evaluation.windows},
    )


def _written(graph: Graph, text: str) -> dict[str, Stage[SampledText]]:
    """What an evaluation text needs that the model writes itself."""
    return {"sampled": sampled_text(graph, text)} if texts.is_sampled(text) else {}


def _stream(work: RunContext, text: str, sampled: SampledText | None) -> Array:
    """The tokens of an evaluation text: read, or written by the model."""
    return work.stream(text) if sampled is None else sampled.ids.ravel()


@once
def speed(graph: Graph) -> Stage[Throughput]:
    """Tokens a second of the dense model and of every method that can run, side by side in one run.

    Beside the dense model and the first one, one at a time is in memory. Prompt and new tokens shrink to what
    the model can read. A method that does not fit ends the stage: its result has all methods or is none.
    """
    study = graph.study

    def make(work: RunContext, models: dict[str, Any]) -> Throughput:
        from gprune.evaluation import speed as measurement

        decoder, chosen = work.decoder, measurement.preset(study.evaluation.speed)
        fitting = measurement.fitting(decoder.config, chosen)
        known = {"device": str(decoder.device), "dtype": work.inputs.precision}
        chosen = measurement.with_changes(chosen, **known, **fitting)
        # a method without masks could not run, unless it is the dense model
        able = {n: parts for n, parts in models.items() if "masks" in parts or METHODS[n].decision == "none"}
        work.let_go()
        cuts = {name: partial(work.pruned, pruned_model(graph, name, **parts)) for name, parts in able.items()}
        rows = measurement.measure(cuts, chosen, work.progress)
        return Throughput(chosen.describe(), measurement.where(decoder.device), tuple(asdict(row) for row in rows))

    return graph.stage(
        StageId("speed"),
        "measuring tokens a second",
        make,
        needs={"models": {name: pruned(graph, name) for name in study.methods}},
        reads=graph.model,
        settings={
            "preset": study.evaluation.speed,
            "machine": graph.inputs.machine,
            "order": list(study.methods),
        },
        optional=True,
    )
