"""Progress and time left of a run, from the seconds that stages of the same kind took in earlier runs of the cache.

If the model was never timed in this cache, the time left follows from the first batch of the run itself.
`jobs.reporting` only has the progress of the current stage.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gprune.pipeline import runs
from gprune.pipeline.stages import KINDS, Results, Stage
from gprune.study import Study
from gprune.system import machine

Stages = Iterable[Stage[Any]]
_EXPECTATION_WEIGHT = 0.25
"""share of a run after which its own speed has the same weight as the expectation"""
_BATCHED_SECONDS = 2.0
"""seconds in `KINDS` from which a stage has batches that show the model's speed"""
# longer kinds come first, so that recovered_perplexity is not read as recovered; then a dot, an underscore or the end
_KIND = re.compile(rf"({'|'.join(sorted(KINDS, key=len, reverse=True))})(?![^_.])")
"""the kind at the beginning of a stage's name"""


@dataclass(frozen=True, slots=True)
class Outlook:
    """Progress of a run."""

    done: int
    """finished stages"""
    steps: int
    """all stages"""
    share: float
    """finished share of the work, in [0, 1]"""
    left: float | None
    """seconds left, or None if the run is finished or no batch was timed yet"""

    @classmethod
    def of(
        cls,
        expected: Mapping[str, float],
        finished: Collection[str],
        elapsed: float,
        stage: str = "",
        fraction: float = 0.0,
        timed: Mapping[str, float] | None = None,
    ) -> Outlook:
        """Return the progress and the time left, from the expected and the elapsed seconds.

        Args:
            expected: seconds of every stage, in order.
            finished: names of finished stages.
            elapsed: seconds since the run began.
            stage: name of the current stage; empty if there is none.
            fraction: finished share of the current stage, in [0, 1].
            timed: seconds of this run's stages if `expected` are only proportions; None if they are measured seconds.
        """
        # expected seconds of the finished work, by stage
        work = {name: seconds for name, seconds in expected.items() if name in finished}
        count = len(work)
        if stage in expected and stage not in finished:
            work[stage] = expected[stage] * fraction
        total, done = sum(expected.values()), sum(work.values())
        if count == len(expected) or total <= 0:
            return cls(count, len(expected), 1.0, None)
        # the ratio of elapsed to expected seconds, as if `weight` more seconds had passed exactly as expected
        weight = _EXPECTATION_WEIGHT * total
        seconds_spent, seconds_expected = elapsed + weight, done + weight
        if timed is not None:
            batched = [name for name in work if name in timed and work[name] and expected[name] >= _BATCHED_SECONDS]
            seconds_spent = sum(timed[name] for name in batched)
            seconds_expected = sum(work[name] for name in batched)
        left = (total - done) * seconds_spent / seconds_expected if seconds_expected else None
        return cls(count, len(expected), done / total, left)


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Seconds that stages took in earlier runs of a model."""

    seconds: Mapping[str, float]
    """seconds by the name and by the kind of stage, from the latest run with it; empty if no batches were timed"""
    scale: float = 1.0
    """ratio of these seconds to those in `KINDS`, for kinds that never ran"""

    @property
    def is_measured(self) -> bool:
        """Return True if batches of the model were timed; else only proportions are known."""
        return bool(self.seconds)

    @classmethod
    def of(cls, records: Iterable[Mapping[str, Any]], study: Study, precision: str) -> StageTimes:
        """Return the stage times from those runs that have the study's model, token counts and kind of device.

        `records` are those of the cache's runs, latest first; `precision` is the model's number type.
        """
        device = "gpu" if study.device != "cpu" and machine.has_gpu() else "cpu"
        settings = (study.model, device, precision, study.calibration.samples, study.calibration.length)
        seconds = dict[str, float]()
        for record in (record for record in records if _timing_settings(record) == settings):
            for name, entry in record["stages"].items():
                # seconds of a later run are not replaced
                if match := _KIND.match(name):
                    seconds.setdefault(name, float(entry.get("seconds") or 0.0))
                    seconds.setdefault(match[0], seconds[name])
        batched = [name for name, kind in KINDS.items() if name in seconds and kind.seconds >= _BATCHED_SECONDS]
        demo_seconds = sum(KINDS[kind].seconds for kind in batched)
        return cls(seconds, sum(seconds[kind] for kind in batched) / demo_seconds) if batched else cls({})

    def of_stage(self, stage: Stage[Any]) -> float:
        """Return the expected seconds of a stage.

        If no batches were timed, it is the stage's share of the work in arbitrary units.
        """
        by_kind = self.seconds.get(stage.kind, self.scale * KINDS[stage.kind].seconds)
        return self.seconds.get(stage.name, by_kind)

    def total(self, stages: Stages) -> float | None:
        """Return the expected seconds of all of `stages`, or None if no batches were timed."""
        distinct = {stage.key or stage.name: stage for stage in stages}.values()
        return sum(map(self.of_stage, distinct)) if self.is_measured else None


def _timing_settings(record: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the settings that determine a run's seconds: model, device, number type and size of calibration sets."""
    study, provenance = record["study"], record.get("provenance") or {}
    calibration, precision = study.get("calibration") or {}, (provenance.get("inputs") or {}).get("precision")
    sizes = calibration.get("samples"), calibration.get("length")
    return (study.get("model"), provenance.get("device"), precision, *sizes)


def stage_times(results: Results) -> StageTimes:
    """Return the stage times in the runs of a cache."""
    records = (record for _, record in runs.read_all(results.store))
    return StageTimes.of(records, results.graph.study, results.graph.inputs.precision)


def missing_seconds(stages: Stages, results: Results) -> float | None:
    """Return the expected seconds of the stages without a result, or None if no batches were timed."""
    return stage_times(results).total(stage for stage in stages if not results.holds(stage))


def expected_seconds(stages: Stages, results: Results, times: StageTimes) -> dict[str, float]:
    """Return the expected seconds of every stage of a run by name, in order; 0 for existing results.

    If no batches were timed, the values are proportions, measured on the bundled demo.
    """
    seconds, keys = dict[str, float](), set[str]()
    for stage in stages:
        # stages with the same key are computed once
        is_computed = stage.key in keys or results.holds(stage)
        seconds[stage.name] = 0.0 if is_computed else times.of_stage(stage)
        keys.add(stage.key)
    return seconds
