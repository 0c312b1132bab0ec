"""A run made of random numbers in the true form, for tests of the pages; no model is needed."""

import json
import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import made_runs
import synthetic_measurements
from made_runs import Makers, digest, leave

from gprune.pipeline import runs
from gprune.pipeline.record import RunRecord
from gprune.pipeline.runs.opened import Run, all_runs
from gprune.pipeline.stages import KINDS, Graph, Inputs, Results, Stage, execution_plan
from gprune.pipeline.stages.inputs import from_plain, plugin_records, roles
from gprune.records import ModelShape
from gprune.store import Store
from gprune.study import CalibrationSettings, EvaluationSettings, Study, from_dict, run_name

MAKERS: Makers = {**made_runs.MAKERS, **synthetic_measurements.MAKERS}
SMALL = ModelShape(layers=4, neurons=60, heads=4, kv_heads=2, head_width=8, hidden=16)
LARGE = ModelShape(layers=32, neurons=11008, heads=32, kv_heads=32, head_width=128, hidden=4096)


def a_study(**changes: Any) -> Study:
    """A study whose texts are known by name and cost nothing."""
    texts = {"primary": "python-reference", "auxiliary": "science-docs", "substitute": "python-code"}
    values: dict[str, Any] = {
        "model": "demo",
        "name": "Synthetic",
        "calibration": CalibrationSettings(samples=32, length=16, shards=4),
        "evaluation": EvaluationSettings(texts=("python-reference", "science-docs"), windows=96),
    }
    return Study(**(texts | values | changes))


def names(until: str = "all", study: Study | None = None) -> tuple[str, ...]:
    """The stages that a run of a study goes through until something."""
    return tuple(stage.name for stage in execution_plan(Graph(study or a_study()), until))


class _OfNoTexts(RunRecord):
    """A record of texts that need not be there."""

    def _describe_texts(self) -> dict[str, str]:
        study = self.results.graph.study
        texts = roles(study) | {text: text for text in study.evaluation.texts}
        return {role: f"What is known of {text}" for role, text in texts.items()}


def write_run(
    root: Path,
    shape: ModelShape = SMALL,
    *,
    modules: int = 6,
    study: Study | None = None,
    stages: str | Collection[str] = "all",
    state: str = "done",
    seed: int = 0,
    missing_tasks: Mapping[str, str] | None = None,
    makers: Makers = MAKERS,
    **how: Any,
) -> str:
    """Writes the results of a run and its run.json anew; the run was on an afternoon that is past.

    Runs of different seeds, shapes or modules share no result. `stages` says what is there, `makers` what it
    holds and `missing_tasks` why tasks have no data here; for both and the rest see `leave`.
    """
    study, store, missing = study or a_study(), Store(root), dict(missing_tasks or {})
    graph = Graph(study, _inputs(study, missing, (shape, modules, seed)))
    (root / "runs" / run_name(study) / "run.json").unlink(missing_ok=True)
    expected = {stage.name: KINDS[stage.kind].seconds for stage in execution_plan(graph)}
    record = _OfNoTexts(Results(store, graph), "all", expected, missing, lambda *_: None)
    error = "the disk is full" if state == "failed" else None
    name = leave(record, makers, shape, modules, present=stages, state=state, error=error, **how)
    times = {"started": "2026-11-21T12:00:00+00:00", "updated": "2026-11-21T12:01:30+00:00", "seconds": 90.0}
    change_record(root, name, **times, owner=None)
    return name


def grouped_runs(root: Path, count: int = 3) -> tuple[str, list[str]]:
    """Writes a run, and runs of a study beside it; their names."""
    created = [a_study(group="reproduce", seed=seed, name="part") for seed in range(1, count + 1)]
    return write_run(root), [write_run(root, study=study) for study in created]


def the_run(root: Path, name: str = "") -> Run:
    """The run of a name in a cache, or the one that was started last."""
    return next(run for run in all_runs(str(root))[0] if name in ("", run.name))


def _inputs(study: Study, missing_tasks: Collection[str], salt: object) -> Inputs:
    """Digests of made-up contents, which differ where names or `apart` differ."""
    evaluation = study.evaluation

    def digests(part: str, texts: Mapping[str, str]) -> dict[str, str]:
        return {name: digest(part, text, salt) for name, text in texts.items()}

    return Inputs(
        **digests("model", {"model": study.model, "tokenizer": f"tokenizer of {study.model}"}),
        precision="float32",
        calibration=digests("calibration", roles(study)),
        evaluation=digests("evaluation", {text: text for text in evaluation.texts}),
        tasks=digests("task", {task: task for task in evaluation.tasks if task not in missing_tasks}),
        scoring="made up" if evaluation.tasks else "",
        machine="made up" if evaluation.speed != "none" else "",
        plugins=plugin_records(study),
    )


def read(root: Path, name: str) -> dict[str, Any]:
    """The record of a run as plain values."""
    return json.loads((root / "runs" / name / "run.json").read_text(encoding="utf-8"))


def change_record(root: Path, name: str, **changes: Any) -> None:
    """Change the record of a run; `owner` is `processes.identify_process()` for a run at work."""
    runs.save(Store(root), name, read(root, name) | changes)


def folder_of(root: Path, name: str, declare: Callable[..., Stage[Any]], *args: Any) -> Path:
    """Where a result of a run is kept: `folder_of(root, name, stages.scores, "auxiliary")`."""
    values = read(root, name)
    graph = Graph(from_dict(values["study"]), from_plain(values["provenance"]["inputs"]))
    stage = declare(graph, *args)
    return root / stage.kind / stage.key


def exchange(root: Path, name: str, record: object, declare: Callable[..., Stage[Any]], *args: Any) -> None:
    """Puts another record in the place of a result of a run."""
    folder = folder_of(root, name, declare, *args)
    shutil.rmtree(folder)
    Store(root).put(folder.parent.name, folder.name, record)
