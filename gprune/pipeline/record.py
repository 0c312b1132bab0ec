"""The record that a run leaves (`runs/<run>/run.json`): what ran, how long it took, and how it ended.

It grows by one entry a stage, so that the app can draw what is there while the rest is still being made.
Whether a result is valid is decided by its key alone: entries of an earlier run of the study stay only where
the graph of today gives the same key.
"""

import json
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from gprune.data import texts
from gprune.pipeline import provenance, runs
from gprune.pipeline.stages import Results, Stage, accuracy, named, needed
from gprune.pipeline.stages.inputs import roles
from gprune.study import from_dict, run_name
from gprune.system import processes
from gprune.system.errors import SettingsError
from gprune.system.progress import Reused
from gprune.system.safe_parsing import sentence

Listener = Callable[[str, int, int, str], None]
"""Called with the stage's name, work done, work in all, and a message; raises Cancelled to stop."""


class RunRecord:
    """What is written down of one run while it goes on."""

    def __init__(
        self,
        results: Results,
        until: str,
        expected: dict[str, float],
        missing_tasks: dict[str, str],
        listener: Listener,
    ) -> None:
        """Takes over what an earlier run of the study has left and is still valid; nothing is written.

        `expected` are the seconds of every stage up to `until`, in order; `missing_tasks` says why tasks
        cannot be measured here; the listener is told of every stage that is finished.
        """
        self.results, self.until, self.expected, self.listener = results, until, expected, listener
        self.missing_tasks = missing_tasks
        self.expected_from_cache = True
        """False if `expected` are proportions only, because this cache has no seconds of the model"""
        self.name = run_name(results.graph.study)
        self.stages: dict[str, dict[str, Any]] = {}
        self.unavailable: dict[Stage[Any], str] = {}
        self.started, self._began = datetime.now(UTC), time.monotonic()
        self.read()
        self._texts = self._descriptions()

    def read(self) -> None:
        """Reads what the record holds now, and keeps of it what is still valid."""
        previous = runs.read(self.results.store, self.name) or {}
        entries, known = previous.get("stages", {}), named(self.results.graph).values()
        valid = {(stage.name, stage.key) for stage in known}
        self._earlier, self._told = (
            {name: one for name, one in found.items() if (name, one["key"]) in valid}
            for found in (entries, previous.get("unavailable") or {})
        )
        self._current = len(self._earlier) == len(entries)
        self._result = previous.get("result") if self._current else None
        self.previous = previous

    def unmeasured_tasks(self) -> dict[str, str]:
        """Why tasks of the study were not measured, by task: they have no data, or could not be answered."""
        found, reasons = dict(self.missing_tasks), self._reasons()
        graph = self.results.graph
        for task in (task for task in graph.study.evaluation.tasks if task in graph.inputs.tasks):
            for stage in (accuracy(graph, method, task) for method in graph.study.methods):
                # a method that cannot run has no accuracy either, and says nothing of the task
                own = not any(need.name in reasons for need in needed(stage))
                if own and stage.name in reasons and stage.name not in self.stages:
                    found.setdefault(task, reasons[stage.name]["reason"])
        return found

    def _reasons(self) -> dict[str, dict[str, str]]:
        """Why stages cannot be had; what an earlier run has found stays until this one knows better."""
        return self._told | {
            stage.name: {"key": stage.key, "reason": reason} for stage, reason in self.unavailable.items()
        }

    def covers(self, wanted: Iterable[Stage[Any]]) -> bool:
        """Whether the record, as read last, says that all of this is done; it then stays as it is."""
        measured = self.until in ("perplexity", "all")
        same = (_today(self.previous.get("study")), self.previous.get("missing_tasks"))
        return (
            self._current
            and self.previous.get("state") == "done"
            and same == (json.loads(self.results.graph.study.to_json()), self.unmeasured_tasks())
            and (self._result is not None or not measured)
            and all(stage.name in self._earlier or stage.name in self._told for stage in wanted)
        )

    def whole(self, wanted: Iterable[Stage[Any]]) -> bool:
        """Whether every result of a run is there, but for those that an earlier run could not have either."""
        return all(stage.name in self._told or self.results.holds(stage) for stage in wanted)

    def note(self, stage: Stage[Any], reused: bool) -> None:
        """Enters a finished stage with what is kept beside its result; nothing is written yet."""
        details = self.results.details(stage)
        seconds, passes = float(details.get("seconds") or 0.0), details.get("passes")
        entry = {"key": stage.key, "seconds": round(seconds, 3), "reused": reused}
        names = ("passes", "notices", "with", "resumed")
        kept = {name: details.get(name) for name in names}
        self.stages[stage.name] = entry | {name: value for name, value in kept.items() if value}
        if reused:
            self.listener(stage.name, 1, 1, Reused("reused"))
        else:
            words = _cost(seconds, passes)
            if "resumed" in details:
                own = details["resumed"]
                words += f" in all; {_cost(own['seconds'], own['passes'])} of it after step {own['step']}, here"
            taken = f"made on the way of {details['with']}" if "with" in details else words
            self.listener(stage.name, 1, 1, f"{taken}{self._standing()}")

    def _standing(self) -> str:
        """Where the run stands, for whoever reads its log."""
        ended = {*self.stages, *(stage.name for stage in self.unavailable)}
        return f" (step {len(ended & self.expected.keys())} of {len(self.expected)})"

    def save(self, state: str, result: dict[str, Any] | None = None, error: str | None = None) -> None:
        """Writes the record.

        `state` is running, done, failed, cancelled or interrupted; an earlier `result`, what the run ends
        with, stays when left out; `error` is one sentence, for a run that failed.
        """
        reasons = self._reasons()
        values = {
            "run": self.name,
            "study": self.results.graph.study.to_dict(),
            "state": state,
            "until": self._asked_for(),
            "error": error if error is None else sentence(error),
            "owner": processes.this_one() if state == "running" else None,
            "started": self.started.isoformat(timespec="seconds"),
            "updated": datetime.now(UTC).isoformat(timespec="seconds"),
            # by a clock that nobody sets
            "seconds": round(time.monotonic() - self._began, 1),
            "expected": self.expected,
            "expected_from_cache": self.expected_from_cache,
            "stages": {**self._earlier, **self.stages},
            "unavailable": {name: one for name, one in reasons.items() if name not in self.stages},
            "missing_tasks": self.unmeasured_tasks(),
            "texts": self._texts,
            "provenance": provenance.collect(self.results.graph.inputs, self.results.graph.study.device),
            "result": result or self._result,
        }
        runs.save(self.results.store, self.name, values)

    def _asked_for(self) -> str:
        """The last thing wanted: extra results take a finished run no further than it was."""
        earlier = self.previous.get("until")
        return earlier if self.until in ("positions", "answers") and self._earlier and earlier else self.until

    def _descriptions(self) -> dict[str, str]:
        study = self.results.graph.study
        cache = self.results.store.texts
        described = {role: texts.describe(text, "calibration", cache) for role, text in roles(study).items()}
        return described | {text: texts.describe(text, "evaluation", cache) for text in study.evaluation.texts}


def _cost(seconds: float, passes: dict[str, float] | None) -> str:
    """What a stage took, in words."""
    counted = (f", {count:g} {way} passes" for way, count in (passes or {}).items() if count)
    return f"{seconds:.1f} s{''.join(counted)}"


def _today(study: Any) -> Any:
    """A study as this version writes it, where it was written before some settings were there."""
    try:
        return json.loads(from_dict(study).to_json())
    except SettingsError:
        return study
