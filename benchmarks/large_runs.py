"""Write synthetic runs with the array shapes of LLaMA2-7B and 13B, for measuring the app at those sizes.

They hold random numbers and everything that a page reads: the results of all methods, tasks and speed, the
finished job, a model folder without weights, and the tables of the paper.
"""

import json
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from synthetic_run import LARGE, MAKERS, SMALL, a_study, names, write_run
from synthetic_tables import write_tables

from gprune.data.demo import MODEL_FOLDER
from gprune.experiments.reproduction.tables import TABLES
from gprune.jobs import JobReporter
from gprune.jobs import folder as files
from gprune.jobs.folder import create, update, worker_command
from gprune.records import ModelShape
from gprune.study import CalibrationSettings, EvaluationSettings, Study, run_name
from gprune.study.methods import METHODS

TASKS = ("boolq", "piqa", "hellaswag", "winogrande", "arc_easy", "arc_challenge", "openbookqa")
LARGER = ModelShape(layers=40, neurons=13824, heads=40, kv_heads=40, head_width=128, hidden=5120)
NOT_READ_BY_PAGES = ("context_statistics",)
"""kinds of results that are left out; they would be more than half of the run"""


@dataclass(frozen=True, slots=True)
class Size:
    """The dimensions of a run."""

    model: str
    shape: ModelShape
    modules: int
    """modules per layer"""
    calibration: CalibrationSettings
    windows: int
    """perplexity windows per evaluation text"""


SIZES = {
    "small": Size("tiny", SMALL, 6, CalibrationSettings(samples=32, length=16, shards=4), 96),
    "7b": Size("llama-2-7b", LARGE, 40, CalibrationSettings(), 2048),
    "13b": Size("llama-2-13b", LARGER, 40, CalibrationSettings(), 2048),
}


def large_study(root: Path, size: str) -> Study:
    """Return the study of a synthetic run: every method with fixed masks or thresholds, the seven tasks, and speed."""
    dimensions, texts = SIZES[size], ("wikitext2", "ptb", "c4")
    return a_study(
        model=str(root / "models" / dimensions.model),
        name=f"Synthetic {dimensions.model}",
        **dict(zip(("primary", "auxiliary", "substitute"), texts, strict=True)),
        # without a method that chooses among measured candidates, because the run has no candidates
        methods=tuple(name for name, method in METHODS.items() if method.decision != "chosen"),
        calibration=dimensions.calibration,
        evaluation=EvaluationSettings(texts=texts, windows=dimensions.windows, tasks=TASKS, speed="gpu"),
    )


def write_large_run(root: Path, size: str) -> str:
    """Write a synthetic run into a cache unless it is there; return its name.

    Args:
        root: the cache folder.
        size: one of SIZES.
    """
    root, dimensions = root.resolve(), SIZES[size]
    study = large_study(root, size)
    name = run_name(study)
    if not (root / "runs" / name / "run.json").exists():
        _write_model_folder(Path(study.model), dimensions.shape)
        makers = {kind: make for kind, make in MAKERS.items() if kind not in NOT_READ_BY_PAGES}
        write_run(root, dimensions.shape, modules=dimensions.modules, study=study, makers=makers)
        write_tables(root, *TABLES)
        _write_finished_job(root, study)
    return name


def _write_model_folder(folder: Path, shape: ModelShape) -> None:
    # the pages read configuration and tokenizer, and no weights
    folder.mkdir(parents=True)
    for path in MODEL_FOLDER.glob("tokenizer*.json"):
        shutil.copy(path, folder)
    values = {"model_type": "llama", "vocab_size": 32000} | asdict(shape)
    (folder / "config.json").write_text(json.dumps(values), encoding="utf-8")


def _write_finished_job(root: Path, study: Study) -> None:
    jobs = files.root(root)
    jobs.mkdir(parents=True, exist_ok=True)
    job = create(jobs, study, "", (), worker_command)
    with JobReporter(job.folder) as report:
        for stage in names(study=study):
            report(stage, 1, 1, "1.0 s")
    # the job records this process as its own; the app would stop it, because it still runs after the job has ended
    update(job.folder, lambda state: replace(state, pid=None, process_started=None))
