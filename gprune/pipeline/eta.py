"""How far a run is and how long the rest will take, weighted by what its stages are known to cost.

The seconds of a stage come from this cache: from its own result, from another run on the same model, or else
from the table of kinds. What the run has taken so far corrects them. This is the time left of a run. Two
others measure something else: `jobs.timeline` the step at work by its own rate, as a job that only exports
has no course, and `experiments.scheduler` a series of studies by the mean of those that have ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gprune.pipeline import runs
from gprune.pipeline.stages import KINDS, Results, Stage, on_the_way

_TRUST = 0.25
"""how much of a run must have passed before its own pace counts as much as the expectation"""


@dataclass(frozen=True, slots=True)
class Outlook:
    """Where a run stands."""

    done: int
    """stages that are finished"""
    steps: int
    """stages in all"""
    share: float
    """finished share of the work, in [0, 1]"""
    left: float | None
    """seconds that the rest will take; None where nothing is left"""

    @classmethod
    def of(
        cls,
        expected: Mapping[str, float],
        finished: Collection[str],
        elapsed: float,
        stage: str = "",
        fraction: float = 0.0,
    ) -> Outlook:
        """Puts expectation and progress together.

        `expected` are the seconds of every stage of the run, in order; `finished` names stages that are done;
        `elapsed` are the seconds since the run began; `fraction` of `stage`, at work, is done, in [0, 1].
        """
        whole = sum(expected.values())
        done = sum(seconds for name, seconds in expected.items() if name in finished)
        if stage in expected and stage not in finished:
            done += expected[stage] * fraction
        count = sum(name in finished for name in expected)
        left = whole - done
        if count == len(expected) or whole <= 0:
            return cls(count, len(expected), 1.0, None)
        # the pace of this run against the expectation, which counts for a part of the whole at first
        prior = _TRUST * whole
        pace = (elapsed + prior) / (done + prior)
        return cls(count, len(expected), done / whole, left * pace)


@dataclass(frozen=True, slots=True)
class Extent:
    """The stages that a run goes through, by their keys."""

    keys: frozenset[str]
    missing: frozenset[str]
    """those whose result is not there"""


def extent(results: Results, until: str) -> Extent:
    """The stages of a run as far as `until`."""
    stages = results.course(until)
    missing = frozenset(stage.key for stage in stages if not results.holds(stage))
    return Extent(frozenset(stage.key for stage in stages), missing)


def expected(wanted: Iterable[Stage[Any]], results: Results) -> dict[str, float]:
    """Seconds that every stage of a run will take, by name, in its order; those that are there take none."""
    wanted = tuple(wanted)
    beside = on_the_way(stage for stage in wanted if not results.holds(stage))
    seen, found, keys = _seen(results), dict[str, float](), set[str]()
    for stage in wanted:
        # a stage of the same key is made once, whatever it is called
        made = stage.key in keys or stage in beside or results.holds(stage)
        found[stage.name] = 0.0 if made else seen.get(stage.name, KINDS[stage.kind].seconds)
        keys.add(stage.key)
    return found


def last_time(wanted: Iterable[Stage[Any]], results: Results) -> dict[str, float | None]:
    """Seconds that every stage took when this cache last saw it, by name; None for one that it never saw."""
    seen = _seen(results)
    taken: dict[str, float | None] = {}
    for stage in wanted:
        known = results.details(stage).get("seconds")
        taken[stage.name] = seen.get(stage.name) if known is None else float(known)
    return taken


def _seen(results: Results) -> dict[str, float]:
    """What stages of these names took in other runs on this model and as many tokens, the latest first."""
    found: dict[str, float] = {}
    inputs, calibration = results.graph.inputs, results.graph.study.calibration
    for _, record in runs.every(results.store):
        made = (record.get("provenance") or {}).get("inputs") or {}
        if (made.get("model"), made.get("precision")) != (inputs.model, inputs.precision):
            continue
        other = record["study"].get("calibration") or {}
        if (other.get("samples"), other.get("length")) != (calibration.samples, calibration.length):
            continue
        for stage, entry in record["stages"].items():
            # what was made on the way of another says nothing of a pass of its own
            if "with" not in entry:
                found.setdefault(stage, float(entry.get("seconds") or 0.0))
    return found
