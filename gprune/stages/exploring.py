"""The stages that explore: importance scores, rank drift, modules, RASA (sections 3.1 and 3.2).

Most metrics score neurons without regard to modules, so the order is scores, drift, modules. Token-weighted
FLAP scores a neuron within its module, so its order is coupled (appendix, BCM settings): FLAP's ranks make
the first modules, their token-weighted scores the drift that refines them, and the refined modules the scores
that count. The coupling is visible below, where `scores`, `drift` and `partition` call each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gprune.drift import rank_drift
from gprune.methods import METRICS
from gprune.records import (
    AdaptedScores,
    Array,
    ModuleStatistics,
    Partition,
    RankDrift,
    UnitScores,
)
from gprune.reliability import adapt, balanced_splits, module_statistics
from gprune.scoring import score, twflap
from gprune.stages.graph import LETTERS, PAIR, Graph, Part, Stage, StageId, once, settings_of
from gprune.stages.reading import (
    another,
    context_statistics,
    contexts,
    norms,
    seeded,
    shape,
    statistics,
)
from gprune.stages.work import Work
from gprune.study import Study

Pair = tuple[str, str]
Scorer = Callable[..., UnitScores]
"""Scores a calibration set, or the shards given by the keyword `shards`."""


@dataclass(frozen=True, slots=True)
class Scoring:
    """How the units of a text are scored, without another pass of the model."""

    needs: Mapping[str, Any]
    """what it takes"""
    scorer: Callable[[Study, Mapping[str, Any]], Scorer]
    """makes the scorer from a study and the records of the needs"""
    settings: Mapping[str, Any]
    """the settings that change the scores of neurons"""
    head_settings: Mapping[str, Any]
    """those that change the scores of heads only"""


@once
def scoring(graph: Graph, text: str, metric: str = "", pair: Pair = PAIR) -> Scoring:
    """How a text is scored under a metric (the study's by default); twFLAP under the modules of a pair."""
    metric = metric or graph.study.metric
    if metric == "twflap":
        return _weighted(graph, text, pair, partition(graph, *pair))
    calibration = graph.study.calibration
    released = metric == "flap" and calibration.flap_variant == "released"
    needs = {
        "statistics": statistics(graph, text, released=released),
        "norms": norms(graph),
        "shape": shape(graph),
    }

    def scorer(study: Study, parts: Mapping[str, Any]) -> Scorer:
        return partial(score, metric, parts["statistics"], parts["norms"], parts["shape"], study.calibration)

    flap = metric == "flap"
    settings = {"metric": metric} | ({"variant": calibration.flap_variant} if flap else {})
    return Scoring(needs, scorer, settings, {"square": calibration.square_head_score} if flap else {})


@once
def _weighted(graph: Graph, text: str, pair: Pair, modules: Stage[Partition]) -> Scoring:
    """Token-weighted FLAP under some modules; contexts and affinity are the first text's."""
    needs = {
        "measured": context_statistics(graph, text, pair[0], gradient=text == pair[0]),
        "own": context_statistics(graph, pair[0], pair[0], gradient=True),
        "contexts": contexts(graph, pair[0]),
        "norms": norms(graph),
        "modules": modules,
        "heads": scores(graph, text, "flap"),
    }

    def scorer(study: Study, parts: Mapping[str, Any]) -> Scorer:
        made, kind = parts["modules"], study.contexts.module_profile
        profile = twflap.module_profile(parts["own"].affinity, made.labels, int(made.counts.max()), kind)
        known = parts["measured"], parts["contexts"], parts["norms"]
        return partial(twflap.score, *known, made.labels, profile, parts["heads"], study.contexts)

    chosen = graph.study.contexts
    settings = {"metric": "twflap", "temperature": chosen.temperature, "profile": chosen.module_profile}
    return Scoring(needs, scorer, settings, {})


def _scored(graph: Graph, identity: StageId, title: str, how: Scoring) -> Stage[UnitScores]:
    """The scores that a way of scoring gives."""

    def make(work: Work, **parts: Any) -> UnitScores:
        return how.scorer(work.study, parts)()

    settings = {**how.settings, **how.head_settings}
    return graph.stage(identity, title, make, needs=how.needs, settings=settings)


def _neurons(graph: Graph, stage: Stage[UnitScores], how: Scoring) -> Part[UnitScores]:
    """The scores of neurons alone: what changes only heads does not change what follows from them."""
    return graph.part(stage, how.settings, _neuron_needs(graph, how))


def _neuron_needs(graph: Graph, how: Scoring) -> dict[str, Any]:
    """What the scores of neurons take; those of heads are FLAP's under twFLAP as well."""
    needs = dict(how.needs)
    if "heads" in needs:
        text = needs["heads"].id.texts[0]
        needs["heads"] = _neurons(graph, needs["heads"], scoring(graph, text, "flap"))
    return needs


@once
def scores(graph: Graph, text: str = "primary", metric: str = "", pair: Pair = PAIR) -> Stage[UnitScores]:
    """Importance scores of a text under a metric (the study's by default), from its statistics."""
    own = metric in ("", graph.study.metric)
    metric = metric or graph.study.metric
    # only scores that follow from modules depend on the pair
    texts = (text,) if pair == PAIR or metric != "twflap" else (text, *pair)
    words = "importance scores" if own else f"importance scores of {METRICS[metric]}"
    title = f"{words} on {LETTERS[text]}{_under(texts[1:])}"
    identity = StageId("scores", texts, metric="" if own else metric)
    return _scored(graph, identity, title, scoring(graph, text, metric, pair))


def _under(pair: tuple[str, ...]) -> str:
    return f" under the modules of {_pair(pair)}" if pair else ""


def _pair(pair: tuple[str, ...]) -> str:
    return " and ".join(LETTERS[text] for text in pair)


@once
def drift(
    graph: Graph, first: str = "primary", second: str = "auxiliary", metric: str = ""
) -> Stage[RankDrift]:
    """Rank drift between two texts (Eq. 1) with its re-sampling control."""
    pair = (first, second)
    own = metric in ("", graph.study.metric)
    hows = [scoring(graph, text, metric, pair) for text in pair]
    both = [scores(graph, text, metric, pair) for text in pair]
    words = "rank drift" if own else f"rank drift of {METRICS[metric]}"
    identity = StageId("drift", () if pair == PAIR else pair, metric="" if own else metric)
    return _drifted(graph, identity, f"{words} between {_pair(pair)}", both, hows)


def _drifted(
    graph: Graph, identity: StageId, title: str, both: list[Stage[UnitScores]], hows: list[Scoring]
) -> Stage[RankDrift]:
    """The drift between two texts' scores, and between halves of each: the even and the odd shards."""

    def make(work: Work, both: list[UnitScores], parts: list[Mapping[str, Any]]) -> RankDrift:
        shards = range(work.study.calibration.shards)
        makes = [how.scorer(work.study, part) for how, part in zip(hows, parts, strict=True)]
        halves = [(one(shards=shards[::2]), one(shards=shards[1::2])) for one in makes]
        return rank_drift(both[0], both[1], *halves)

    needs = {
        "both": [_neurons(graph, one, how) for one, how in zip(both, hows, strict=True)],
        "parts": [_neuron_needs(graph, how) for how in hows],
    }
    return graph.stage(identity, title, make, needs=needs)


@once
def clusters(graph: Graph, *, other_seed: bool = False) -> Stage[Partition]:
    """Clusters of the parameters alone: partitions by any drift start from the same ones."""
    settings, seed = graph.study.modularization, graph.study.seed + other_seed

    def make(work: Work) -> Partition:
        from gprune.modularization.partition import cluster_layers

        known = work.decoder.shape
        rows = work.decoder.neuron_parameters
        return cluster_layers(rows, known.layers, known.neurons, settings, seed, work.progress)

    return graph.stage(
        StageId("clusters", variant=seeded(other_seed)),
        f"clusters of the neurons’ parameters{another(other_seed)}",
        make,
        reads=graph.model,
        settings={"candidates": settings.candidates, "restarts": settings.restarts, "seed": seed},
    )


@once
def partition(
    graph: Graph,
    first: str = "primary",
    second: str = "auxiliary",
    *,
    kind: str = "",
    other_seed: bool = False,
) -> Stage[Partition]:
    """Modules of a pair of texts (BCM, section 3.1).

    Args:
        graph: the study's graph.
        first: role of the first text.
        second: role of the second.
        kind: refined, initialization or random; the study's by default.
        other_seed: whether the seed is the next one.
    """
    pair = (first, second)
    changes: dict[str, Any] = {"kind": kind} if kind else {}
    chosen = replace(graph.study.modularization, **changes)
    variant = seeded(other_seed) + ((kind,) if kind else ())
    identity = StageId("partition", () if pair == PAIR else pair, variant=variant)
    needs: dict[str, Any] = {}
    if chosen.direction == "auto" and identity != StageId("partition") and not kind:
        # whether the direction takes part is decided once per metric (appendix), on the study's own pair
        needs["profile"] = partition(graph)
    if graph.study.metric == "twflap":
        start = _first_partition(graph, pair, chosen.kind, variant, other_seed)
        hows = [_weighted(graph, text, pair, start) for text in pair]
        under = [_first_scores(graph, text, pair, variant, how) for text, how in zip(pair, hows, strict=True)]
        moved = StageId("drift", pair if pair != PAIR else (), variant=("first", *variant))
        needs |= {"start": start, **_behaviour(graph, under, hows)}
        needs["moved"] = _drifted(graph, moved, f"rank drift under {_first(pair, variant)}", under, hows)
    else:
        hows = [scoring(graph, text) for text in pair]
        needs |= _behaviour(graph, [scores(graph, text) for text in pair], hows)
        needs |= {"clusters": clusters(graph, other_seed=other_seed), "moved": drift(graph, *pair)}
    words = {"initialization": "clusters of the modules", "random": "random modules"}.get(kind, "modules")
    title = words if identity == StageId("partition") else f"{words} of {_pair(pair)}{another(other_seed)}"
    return _modularized(graph, identity, title, changes, other_seed, needs)


def _behaviour(graph: Graph, both: list[Stage[UnitScores]], hows: list[Scoring]) -> dict[str, Any]:
    return {"both": [_neurons(graph, one, how) for one, how in zip(both, hows, strict=True)]}


def _first(pair: Pair, variant: tuple[str, ...]) -> str:
    words = ", ".join(word.replace("_", " ") for word in variant)
    return f"the first modules of {_pair(pair)}" + (f", {words}" if words else "")


@once
def _first_partition(
    graph: Graph, pair: Pair, kind: str, variant: tuple[str, ...], other_seed: bool
) -> Stage[Partition]:
    """The modules that twFLAP starts from: FLAP's ranks, not refined."""
    hows = [scoring(graph, text, "flap") for text in pair]
    needs = {
        "clusters": clusters(graph, other_seed=other_seed),
        "moved": drift(graph, *pair, "flap"),
        **_behaviour(graph, [scores(graph, text, "flap") for text in pair], hows),
    }
    # random stays random, all else starts from the clusters
    start = "random" if kind == "random" else "initialization"
    identity = StageId("partition", pair if pair != PAIR else (), variant=("first", *variant))
    changes = {"kind": start, "direction": "magnitude"}
    return _modularized(graph, identity, _first(pair, variant), changes, other_seed, needs)


def _first_scores(
    graph: Graph, text: str, pair: Pair, variant: tuple[str, ...], how: Scoring
) -> Stage[UnitScores]:
    texts = (text,) if pair == PAIR else (text, *pair)
    identity = StageId("scores", texts, variant=("first", *variant))
    return _scored(
        graph, identity, f"importance scores on {LETTERS[text]} under {_first(pair, variant)}", how
    )


def _modularized(
    graph: Graph,
    identity: StageId,
    title: str,
    changes: dict[str, Any],
    other_seed: bool,
    needs: dict[str, Any],
) -> Stage[Partition]:
    settings = replace(graph.study.modularization, **changes)
    seed = graph.study.seed + other_seed

    def make(
        work: Work,
        moved: RankDrift,
        both: list[UnitScores],
        clusters: Partition | None = None,
        start: Partition | None = None,
        profile: Partition | None = None,
    ) -> Partition:
        from gprune.modularization.partition import modularize

        rows, labels, chosen = (
            work.decoder.neuron_parameters,
            None if start is None else start.labels,
            settings,
        )
        if profile is not None and profile.profile in ("magnitude", "direction"):
            chosen = replace(settings, direction=profile.profile)  # type: ignore[arg-type]
        return modularize(rows, moved, both[0], both[1], chosen, seed, work.progress, labels, clusters)

    plain = settings_of(settings) | {"seed": seed}
    return graph.stage(identity, title, make, needs=needs, reads=graph.model, settings=plain)


@once
def modules(graph: Graph) -> Stage[ModuleStatistics]:
    """Drift, mean score and repeatability of every module (RASA before its thresholds)."""
    hows = [scoring(graph, text) for text in PAIR]

    def make(
        work: Work, both: list[UnitScores], partition: Partition, parts: list[Mapping[str, Any]]
    ) -> ModuleStatistics:
        settings = work.study.reliability
        makes = [how.scorer(work.study, part) for how, part in zip(hows, parts, strict=True)]
        splits = [_split_scores(work, text, one) for text, one in zip(PAIR, makes, strict=True)]
        return module_statistics(both[0], both[1], partition, splits[0], splits[1], settings)

    both = [scores(graph, text) for text in PAIR]
    return graph.stage(
        StageId("modules"),
        "module statistics",
        make,
        needs={
            **_behaviour(graph, both, hows),
            "partition": partition(graph),
            "parts": [_neuron_needs(graph, how) for how in hows],
        },
        settings={"score_scale": graph.study.reliability.score_scale},
    )


def _split_scores(work: Work, text: str, scorer: Scorer) -> Iterator[tuple[Array, Array]]:
    """Scores of every balanced split, one pair at a time: at 7B all pairs of a text would be gigabytes."""
    splits = balanced_splits(work.study.calibration.shards)
    for done, (first, second) in enumerate(splits):
        work.progress(done, len(splits), f"repeatability on the {text} text")
        yield scorer(shards=first).ffn, scorer(shards=second).ffn


@once
def adapted(graph: Graph) -> Stage[AdaptedScores]:
    """RASA (section 3.2): scores in which unreliable modules are re-scored."""

    def make(
        work: Work, both: list[UnitScores], partition: Partition, modules: ModuleStatistics
    ) -> AdaptedScores:
        study = work.study
        return adapt(both[0], both[1], partition, modules, study.reliability, study.seed)

    hows = [scoring(graph, text) for text in PAIR]
    return graph.stage(
        StageId("adapted"),
        "score adaptation",
        make,
        needs={
            **_behaviour(graph, [scores(graph, text) for text in PAIR], hows),
            "partition": partition(graph),
            "modules": modules(graph),
        },
        settings=settings_of(graph.study.reliability) | {"seed": graph.study.seed},
    )
