"""Stages that run the dense model on texts: calibration sets, norms, statistics and contexts (section 3).

The neuron maps at the end of this module are computed on demand, not by a run, and may be deleted at any time.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from gprune import records
from gprune.data import texts
from gprune.data.texts.sampled import Role
from gprune.pipeline.stages.graph import Graph, Stage, StageId, once, settings_of
from gprune.pipeline.stages.inputs import FRESH, ROLES, SAMPLED, recipe_of, roles, text_of
from gprune.pipeline.stages.run_context import RunContext
from gprune.pruning import neuron_embedding
from gprune.records import Contexts, ContextStatistics, SampledText, StrongestPositions, Tokens


@once
def shape(graph: Graph) -> Stage[records.ModelShape]:
    """Declare the sizes of the model, which determine the units that can be pruned."""
    reads = graph.model_digests
    return graph.stage(StageId("shape"), "sizes of the model", lambda work: work.decoder.shape, reads=reads)


@once
def size(graph: Graph) -> Stage[records.ModelSize]:
    """Declare the counts of the model's parameters and biases."""
    reads = graph.model_digests
    return graph.stage(StageId("size"), "parameters of the model", lambda work: work.decoder.size, reads=reads)


@once
def norms(graph: Graph) -> Stage[records.WeightNorms]:
    """Declare the weight norms that the scores need."""
    reads = graph.model_digests
    return graph.stage(StageId("norms"), "weight norms", lambda work: work.decoder.weight_norms(), reads=reads)


@once
def sampled_text(graph: Graph, text: str, *, held_out: bool = False) -> Stage[SampledText]:
    """Declare a text sampled from the dense model; `text` is a calibration role, or the name of an evaluation text.

    With `held_out`, it has other documents than the calibration text, for a choice between models.
    """
    is_calibration = text in (*roles(graph.study), SAMPLED, FRESH)
    name = text_of(graph.study, text) if is_calibration else text
    role: Role = "held_out" if held_out else "calibration" if is_calibration else "evaluation"
    recipe = recipe_of(graph.study, name, role)
    digests = graph.inputs.calibration if is_calibration else graph.inputs.evaluation
    # the digest of answers depends on the prompts
    prompts = {"prompts": digests.get(text, "")} if isinstance(recipe, texts.AnswerRecipe) else {}

    def make(work: RunContext) -> SampledText:
        from gprune.pruning.calibration.own_answers import write_answers
        from gprune.pruning.calibration.sampling import sample

        if not isinstance(recipe, texts.AnswerRecipe):
            return sample(work.language_model, recipe, name, work.progress)
        prompts = texts.read_prompts(name, work.tokenizer, is_calibration, work.text_cache)
        return write_answers(work.language_model, recipe, prompts, name, work.progress, work.resumption)

    index = None if is_calibration else graph.study.evaluation.texts.index(text)
    text_label = f"text {graph.letters[text]}" if index is None else f"evaluation text {index + 1}"
    variant, method = ("held_out",) if held_out else (), "" if is_calibration else "evaluation"
    return graph.stage(
        StageId("sampled", (text,), method=method, variant=variant, item=index),
        f"{text_label}{', held out' if held_out else ''}, written by the model",
        make,
        reads=graph.model_digests | graph.tokenizer_digests | prompts,
        settings=asdict(recipe),
    )


@once
def tokens(graph: Graph, text: str = "primary") -> Stage[Tokens]:
    """Declare the calibration set of a text, by role: primary, auxiliary, substitute or sampled."""
    return _draw_tokens(graph, text, graph.study.calibration.samples)


@once
def held_out(graph: Graph, text: str) -> Stage[Tokens]:
    """Declare sequences of a text, by role, that are not in any calibration set."""
    # sequences of A, B or C follow those of its calibration set; the other texts are for choosing only
    skipped = graph.study.calibration.samples if text in ROLES else 0
    return _draw_tokens(graph, text, graph.study.choice.sequences, skipped)


def _draw_tokens(graph: Graph, text: str, samples: int, after: int | None = None) -> Stage[Tokens]:
    """Declare sequences of a text by role: its calibration set, or held-out sequences that follow the first `after`."""
    name, is_held_out = text_of(graph.study, text), after is not None
    sampling = {"samples": samples, "length": graph.study.calibration.length, "seed": graph.study.seed}
    digest, tokenizer = graph.inputs.calibration.get(text, ""), graph.inputs.tokenizer
    is_generated = texts.is_sampled(name)

    def make(work: RunContext, sampled: SampledText | None = None) -> Tokens:
        if sampled is not None:
            return texts.choose_sampled(sampled, **sampling)
        sequences = None if is_held_out else texts.bundled.bundled_calibration(name, digest, tokenizer, **sampling)
        if sequences is None:
            sequences = texts.draw(name, work.tokenizer, **sampling, cache=work.text_cache, after=after or 0)
            work.require_embedded(sequences.ids, name)
        return sequences

    return graph.stage(
        StageId("tokens", (text,), variant=("held_out",) if is_held_out else ()),
        f"drawing {'held-out sequences of' if is_held_out else 'calibration'} text {graph.letters[text]}",
        make,
        needs={"sampled": sampled_text(graph, text, held_out=is_held_out)} if is_generated else {},
        reads={"text": digest} | graph.tokenizer_digests,
        settings=sampling | ({"after": 0 if is_generated else after} if is_held_out else {}),
    )


@once
def statistics(graph: Graph, text: str = "primary", metric: str = "") -> Stage[records.ActivationStatistics]:
    """Declare the activation statistics of a calibration set for the study's metric and, if not empty, `metric`.

    FLAP's released recursion is stored with the moments if one of the metrics needs it.
    """
    settings = graph.study.calibration
    released = settings.flap_variant == "released" and "flap" in (graph.study.metric, metric)
    collect_settings, count = replace(settings, flap_variant="released" if released else "paper"), settings.positions

    def make(work: RunContext, tokens: Tokens) -> records.ActivationStatistics:
        from gprune.pruning.calibration import collect, track_strongest

        # the same pass also finds the strongest positions, if their own stage has yet to be computed
        key = positions(graph, text).key if count else ""
        strongest = track_strongest(work.decoder, tokens, count) if key in work.missing else None
        moments = collect(work.decoder, tokens, collect_settings, work.progress, strongest)
        if strongest is not None:
            work.keep(key, strongest.result(tokens))
        return moments

    return graph.stage(
        StageId("statistics", (text,), variant=("released",) if released else ()),
        f"activation statistics on {graph.letters[text]}" + ", as FLAP's code takes them" * released,
        make,
        needs={"tokens": tokens(graph, text)},
        reads=graph.model_digests,
        settings={"shards": settings.shards, "released": released},
    )


@once
def positions(graph: Graph, text: str = "primary") -> Stage[StrongestPositions]:
    """Declare the positions of each FFN neuron's strongest activations, which the pass of the statistics also computes.

    If the statistics exist already, this stage runs a separate pass of the model.
    """
    settings = graph.study.calibration

    def make(work: RunContext, tokens: Tokens) -> StrongestPositions:
        from gprune.pruning.calibration import collect_strongest

        return collect_strongest(work.decoder, tokens, settings, settings.positions, work.progress)

    return graph.stage(
        StageId("positions", (text,)),
        f"strongest positions on {graph.letters[text]}",
        make,
        needs={"tokens": tokens(graph, text)},
        reads=graph.model_digests,
        settings={"count": settings.positions},
    )


@once
def contexts(graph: Graph, text: str = "primary", *, other_seed: bool = False) -> Stage[Contexts]:
    """Declare the context clusters that token-weighted FLAP and FANG use, from a sample of a calibration set.

    With `other_seed`, here and below, the seed is the study's plus one.
    """
    study = graph.study
    seed = study.seed + other_seed
    # the default clustering is not part of the key, so that older keys stay valid
    default = ("clustering",) if study.contexts.clustering == "balanced" else ()

    def make(work: RunContext, tokens: Tokens) -> Contexts:
        from gprune.pruning.calibration.contexts import fit_contexts

        return fit_contexts(work.project(tokens), study.contexts, seed, work.progress)

    return graph.stage(
        StageId("contexts", (text,), variant=seed_variant(other_seed)),
        f"contexts of {graph.letters[text]}{seed_suffix(other_seed)}",
        make,
        needs={"tokens": tokens(graph, text)},
        reads=graph.model_digests,
        settings=settings_of(study.contexts, without=("temperature", "module_profile", *default)) | {"seed": seed},
    )


@once
def context_statistics(
    graph: Graph, text: str = "primary", made_on: str = "primary", *, gradient: bool, other_seed: bool = False
) -> Stage[ContextStatistics]:
    """Declare statistics of a calibration set by the contexts of the text `made_on`.

    With `gradient`, a backward pass also measures the affinity of neurons and contexts.
    """
    settings = graph.study.calibration
    # one pass serves FANG's groups under both seeds, because the other seed's groups are the control
    control = None
    if gradient and text == made_on and not other_seed:
        control = context_statistics(graph, text, text, gradient=True, other_seed=True)

    def make(work: RunContext, tokens: Tokens, contexts: Contexts) -> ContextStatistics:
        from gprune.pruning.calibration.context_statistics import collect_contexts

        clusterings = [contexts]
        if control is not None and control.key in work.missing:
            stage = control.needs["contexts"]
            clusterings.append(stage.make(work, tokens))
            work.keep(stage.key, clusterings[1])
        statistics, *controls = collect_contexts(
            work.decoder, tokens, clusterings, settings.shards, settings.batch, gradient, work.progress
        )
        if control is not None and controls:
            work.keep(control.key, controls[0])
        return statistics

    context_label = "" if made_on == text else f" under the contexts of {graph.letters[made_on]}"
    text_roles = (text,) if made_on == "primary" else (text, made_on)
    variant = (() if gradient else ("forward",)) + seed_variant(other_seed)
    return graph.stage(
        StageId("context_statistics", text_roles, variant=variant),
        f"statistics by context on {graph.letters[text]}{context_label}{seed_suffix(other_seed)}"
        + ", without gradients" * (not gradient),
        make,
        needs={"tokens": tokens(graph, text), "contexts": contexts(graph, made_on, other_seed=other_seed)},
        reads=graph.model_digests,
        settings={"shards": settings.shards, "gradient": gradient},
    )


@once
def groups(graph: Graph, text: str = "primary", *, other_seed: bool = False) -> Stage[records.Partition]:
    """Declare FANG's functional groups of neurons on one text (section 4, baselines), from its contexts."""
    grouping = graph.study.baselines.fang_grouping

    def make(_: Any, measured: ContextStatistics) -> records.Partition:
        from gprune.pruning.modules.functional_groups import functional_groups

        return functional_groups(measured.affinity, grouping)

    statistics_stage = context_statistics(graph, text, text, gradient=True, other_seed=other_seed)
    return graph.stage(
        StageId("groups", (text,), variant=seed_variant(other_seed)),
        f"FANG’s functional groups on {graph.letters[text]}{seed_suffix(other_seed)}",
        make,
        needs={"measured": statistics_stage},
        settings={"grouping": grouping},
    )


@once
def components(graph: Graph, layer: int) -> Stage[records.Components]:
    """Declare the principal components of a layer's neuron parameters; layers count from 0."""

    def make(work: RunContext) -> records.Components:
        from gprune.pruning.calibration.principal import principal_coordinates

        rows = work.decoder.neuron_parameters(layer).cpu().numpy()
        work.progress(0, 1, f"principal components of {len(rows):,} neurons")
        neuron_embedding.require_distinct(rows, f"the parameters of layer {layer}")
        return records.Components(layer, *principal_coordinates(rows, neuron_embedding.MOST_COMPONENTS))

    return graph.stage(
        StageId("components", variant=(f"layer{layer}",)),
        f"principal components of the parameters of layer {layer}",
        make,
        reads=graph.model_digests,
        settings={"layer": layer, "most": neuron_embedding.MOST_COMPONENTS},
    )


@once
def neuron_map(graph: Graph, layer: int, basis: str, texts: tuple[str, ...] = ()) -> Stage[records.NeuronMap]:
    """Declare the UMAP layout of a layer's neurons; layers count from 0.

    `basis` is BEHAVIOUR or PARAMETERS. `texts` are the roles of the texts whose statistics describe the behaviour; they
    have no effect on parameters.
    """
    seed = graph.study.seed
    texts = texts if basis == neuron_embedding.BEHAVIOUR else ()

    def make(
        work: RunContext,
        measured: Sequence[records.ActivationStatistics] = (),
        reduced: records.Components | None = None,
    ) -> records.NeuronMap:
        points = neuron_embedding.behaviour(measured, layer).places if reduced is None else reduced.places
        work.progress(0, 1, f"UMAP of {len(points):,} neurons")
        layout, variance = neuron_embedding.umap_layout(points, seed)
        return records.NeuronMap(layer, basis, variance, layout)

    needs: dict[str, Any] = {"reduced": components(graph, layer)}
    if basis == neuron_embedding.BEHAVIOUR:
        needs = {"measured": [statistics(graph, text) for text in texts]}
    basis_label = basis if not texts else f"{basis} on {', '.join(graph.letters[text] for text in texts)}"
    return graph.stage(
        StageId("map", texts, method=basis, variant=(f"layer{layer}",)),
        f"UMAP of layer {layer} by {basis_label}",
        make,
        needs=needs,
        settings={"layer": layer, "basis": basis, "seed": seed, **neuron_embedding.SETTINGS},
    )


def mapped_texts(graph: Graph, has: Callable[[Stage[Any]], bool]) -> tuple[str, ...]:
    """Return the roles of the texts with statistics, by which a neuron map can describe behaviour.

    `has` returns True if the result of a stage exists.
    """
    return tuple(role for role in ROLES if getattr(graph.study, role) and has(statistics(graph, role)))


def seed_variant(other_seed: bool) -> tuple[str, ...]:
    """Return the part of a stage's identity that marks another seed; empty for the study's seed."""
    return ("other_seed",) if other_seed else ()


def seed_suffix(other_seed: bool) -> str:
    """Return the suffix of a stage's title for another seed; empty for the study's seed."""
    return ", another seed" if other_seed else ""
