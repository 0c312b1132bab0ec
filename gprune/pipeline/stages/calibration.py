"""The stages that read and run the dense model: calibration sets, norms, statistics, contexts (section 3)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from gprune.data import texts
from gprune.data.texts.sampled import Role
from gprune.pipeline.stages.graph import Graph, Stage, StageId, once, settings_of
from gprune.pipeline.stages.inputs import FRESH, ROLES, SAMPLED, recipe_of, roles, text_of
from gprune.pipeline.stages.run_context import RunContext
from gprune.pruning.modules.functional_groups import functional_groups
from gprune.records import (
    ActivationStatistics,
    Contexts,
    ContextStatistics,
    ModelShape,
    ModelSize,
    Partition,
    SampledText,
    StrongestPositions,
    Tokens,
    WeightNorms,
)
from gprune.study import Study


@once
def shape(graph: Graph) -> Stage[ModelShape]:
    """The sizes of the model that decide what can be pruned."""
    make = lambda work: work.decoder.shape  # noqa: E731
    return graph.stage(StageId("shape"), "sizes of the model", make, reads=graph.model)


@once
def size(graph: Graph) -> Stage[ModelSize]:
    """Parameters and biases of the model."""
    make = lambda work: work.decoder.size  # noqa: E731
    return graph.stage(StageId("size"), "parameters of the model", make, reads=graph.model)


@once
def norms(graph: Graph) -> Stage[WeightNorms]:
    """Weight norms that the scores need."""
    make = lambda work: work.decoder.weight_norms()  # noqa: E731
    return graph.stage(StageId("norms"), "weight norms", make, reads=graph.model)


@once
def sampled(graph: Graph, text: str, *, held_out: bool = False) -> Stage[SampledText]:
    """What the dense model writes, for a calibration text by role or an evaluation text by name.

    If `held_out`, other documents of a calibration text, for a choice between models.
    """
    calibration = text in (*roles(graph.study), SAMPLED, FRESH)
    name = text_of(graph.study, text) if calibration else text
    role: Role = "held_out" if held_out else "calibration" if calibration else "evaluation"
    recipe = recipe_of(graph.study, name, role)

    def make(work: RunContext) -> SampledText:
        from gprune.pruning.calibration.sampling import sample

        return sample(work.decoder, recipe, name, work.progress)

    index = None if calibration else graph.study.evaluation.texts.index(text)
    words = f"text {graph.letters[text]}" if index is None else f"evaluation text {index + 1}"
    return graph.stage(
        StageId(
            "sampled",
            (text,),
            method="" if calibration else "evaluation",
            variant=("held_out",) if held_out else (),
            item=index,
        ),
        f"{words}{', held out' if held_out else ''}, written by the model",
        make,
        reads=graph.model | graph.tokenizer,
        settings=asdict(recipe),
    )


@once
def tokens(graph: Graph, text: str = "primary") -> Stage[Tokens]:
    """The calibration set of a role: primary, auxiliary, substitute or sampled."""
    return _drawn(graph, text, graph.study.calibration.samples)


@once
def held_out(graph: Graph, text: str) -> Stage[Tokens]:
    """Sequences of a text, by role, that took part in nothing: none is of a calibration set."""
    after = graph.study.calibration.samples if text in ROLES else 0
    return _drawn(graph, text, graph.study.choice.sequences, after)


def _drawn(graph: Graph, text: str, samples: int, after: int | None = None) -> Stage[Tokens]:
    """Sequences of a text by role: its calibration set, or held-out ones after so many."""
    name, held = text_of(graph.study, text), after is not None
    drawn = {"samples": samples, "length": graph.study.calibration.length, "seed": graph.study.seed}
    digest, tokenizer = graph.inputs.calibration.get(text, ""), graph.inputs.tokenizer
    written = texts.is_sampled(name)

    def make(work: RunContext, sampled: SampledText | None = None) -> Tokens:
        if sampled is not None:
            return texts.choose(name, sampled.ids.ravel(), **drawn)
        kept = None if held else texts.bundled.drawn(name, digest, tokenizer, **drawn)
        if kept is None:
            kept = texts.draw(name, work.tokenizer, **drawn, cache=work.text_cache, after=after or 0)
            work.require_embedded(kept.ids, name)
        return kept

    return graph.stage(
        StageId("tokens", (text,), variant=("held_out",) if held else ()),
        f"drawing {'held-out sequences of' if held else 'calibration'} text {graph.letters[text]}",
        make,
        needs={"sampled": sampled(graph, text, **{"held_out": True} if held else {})} if written else {},
        reads={"text": digest} | graph.tokenizer,
        settings=drawn | ({"after": 0 if written else after} if held else {}),
    )


@once
def statistics(graph: Graph, text: str = "primary", *, released: bool = False) -> Stage[ActivationStatistics]:
    """One pass of the dense model over a calibration set.

    If `released`, the recursion of FLAP's released code is kept beside the moments.
    """
    settings = graph.study.calibration
    variant = replace(settings, flap_variant="released" if released else "paper")
    # the moments are the same whether or not the recursion is kept beside them
    richer = statistics(graph, text, released=True) if not released else None
    count = settings.positions

    def make(work: RunContext, tokens: Tokens, also: tuple[StageId, ...] = ()) -> Any:
        from gprune.pruning.calibration import collect, strongest_of

        decoder, kept = work.decoder, count if also else 0
        strongest = strongest_of(decoder, tokens, kept) if kept else None
        found = collect(decoder, tokens, variant, work.progress, strongest)
        return found if strongest is None else (found, strongest.result(tokens))

    return graph.stage(
        StageId("statistics", (text,), variant=("released",) if released else ()),
        f"activation statistics on {graph.letters[text]}",
        make,
        needs={"tokens": tokens(graph, text)},
        reads=graph.model,
        settings={"shards": settings.shards, "released": released},
        served_by=richer,
        beside=(positions(graph, text),) if count else (),
    )


def recursive(study: Study, metric: str) -> bool:
    """Whether a metric needs the recursion of FLAP's released code beside the moments."""
    return metric == "flap" and study.calibration.flap_variant == "released"


@once
def positions(graph: Graph, text: str = "primary") -> Stage[StrongestPositions]:
    """Where each FFN neuron answers most on a calibration set: made by the pass of the statistics.

    Where these are there already, as in the runs of versions that kept no positions, it takes a pass.
    """
    settings = graph.study.calibration
    count = settings.positions

    def make(work: RunContext, tokens: Tokens) -> StrongestPositions:
        from gprune.pruning.calibration import collect_strongest

        return collect_strongest(work.decoder, tokens, settings, count, work.progress)

    return graph.stage(
        StageId("positions", (text,)),
        f"strongest positions on {graph.letters[text]}",
        make,
        needs={"tokens": tokens(graph, text)},
        reads=graph.model,
        settings={"count": count},
    )


@once
def contexts(graph: Graph, text: str = "primary", *, other_seed: bool = False) -> Stage[Contexts]:
    """Context clusters made from a sample of a calibration set (base metric twFLAP, FANG)."""
    study = graph.study
    seed = study.seed + other_seed
    # every clustering is a setting but the one that was there before there were two
    plain = ("clustering",) if study.contexts.clustering == "balanced" else ()

    def make(work: RunContext, tokens: Tokens) -> Contexts:
        from gprune.pruning.calibration.contexts import fit_contexts

        return fit_contexts(work.projected(tokens), study.contexts, seed, work.progress)

    return graph.stage(
        StageId("contexts", (text,), variant=seeded(other_seed)),
        f"contexts of {graph.letters[text]}{another(other_seed)}",
        make,
        needs={"tokens": tokens(graph, text)},
        reads=graph.model,
        settings=settings_of(study.contexts, without=("temperature", "module_profile", *plain)) | {"seed": seed},
    )


@once
def context_statistics(
    graph: Graph,
    text: str = "primary",
    made_on: str = "primary",
    *,
    gradient: bool,
    other_seed: bool = False,
) -> Stage[ContextStatistics]:
    """One pass over a calibration set under the contexts of another, `made_on`, maybe of another seed.

    If `gradient`, the affinity of neurons and contexts is measured as well, by a backward pass.
    """
    settings = graph.study.calibration
    # the moments are the same with and without a gradient
    richer = None
    if not gradient:
        richer = context_statistics(graph, text, made_on, gradient=True, other_seed=other_seed)

    def make(work: RunContext, tokens: Tokens, contexts: Contexts, joined: Sequence[Mapping[str, Any]] = ()) -> Any:
        from gprune.pruning.calibration.context_statistics import collect_contexts

        known, shards = [contexts, *(one["contexts"] for one in joined)], settings.shards
        found = collect_contexts(work.decoder, tokens, known, shards, settings.batch, gradient, work.progress)
        return found if joined else found[0]

    under = "" if made_on == text else f" under the contexts of {graph.letters[made_on]}"
    return graph.stage(
        StageId(
            "context_statistics",
            (text,) if made_on == "primary" else (text, made_on),
            variant=(() if gradient else ("forward",)) + seeded(other_seed),
        ),
        f"statistics by context on {graph.letters[text]}{under}{another(other_seed)}",
        make,
        needs={"tokens": tokens(graph, text), "contexts": contexts(graph, made_on, other_seed=other_seed)},
        reads=graph.model,
        settings={"shards": settings.shards, "gradient": gradient},
        served_by=richer,
        # FANG's groups of a text under another seed are the control of those under its own
        joined=(context_statistics(graph, text, text, gradient=True, other_seed=True),)
        if gradient and text == made_on and not other_seed
        else (),
    )


@once
def groups(graph: Graph, text: str = "primary", *, other_seed: bool = False) -> Stage[Partition]:
    """FANG's functional groups of one text (section 4, baselines); the seed is that of its contexts."""
    grouping = graph.study.baselines.fang_grouping

    def make(_: Any, measured: ContextStatistics) -> Partition:
        return functional_groups(measured.affinity, grouping)

    measured = context_statistics(graph, text, text, gradient=True, other_seed=other_seed)
    return graph.stage(
        StageId("groups", (text,), variant=seeded(other_seed)),
        f"FANG’s functional groups on {graph.letters[text]}{another(other_seed)}",
        make,
        needs={"measured": measured},
        settings={"grouping": grouping},
    )


def seeded(other_seed: bool) -> tuple[str, ...]:
    """The variant of a stage under another seed."""
    return ("other_seed",) if other_seed else ()


def another(other_seed: bool) -> str:
    """The same in words."""
    return ", another seed" if other_seed else ""
