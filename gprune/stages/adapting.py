"""The stages of reliability-aware score adaptation (RASA, section 3.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gprune.records import AdaptedScores, Array, ModuleStatistics, Partition, UnitScores
from gprune.reliability import adapt, balanced_splits, module_statistics
from gprune.stages.exploring import Scorer, partition, scoring
from gprune.stages.graph import PAIR, Graph, Stage, StageId, once, settings_of
from gprune.stages.work import Work


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

    return graph.stage(
        StageId("modules"),
        "module statistics",
        make,
        needs={
            "both": [how.neurons(graph) for how in hows],
            "partition": partition(graph),
            "parts": [how.neuron_needs(graph) for how in hows],
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
            "both": [how.neurons(graph) for how in hows],
            "partition": partition(graph),
            "modules": modules(graph),
        },
        settings=settings_of(graph.study.reliability) | {"seed": graph.study.seed},
    )
