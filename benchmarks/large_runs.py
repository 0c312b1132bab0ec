"""Whole runs of the sizes of LLaMA2-7B and 13B, made by hand: for what the pages cost at those sizes.

Everything is there that a page reads, so that every card draws: the run with all methods, tasks and speed,
the job that made it, a model folder without weights, and tables of the paper made here.
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
from gprune.jobs.job import create
from gprune.jobs.local import worker_command
from gprune.jobs.state import update
from gprune.records import ModelShape
from gprune.study import CalibrationSettings, EvaluationSettings, Study, run_name
from gprune.study.methods import METHODS

TASKS = ("boolq", "piqa", "hellaswag", "winogrande", "arc_easy", "arc_challenge", "openbookqa")
LARGER = ModelShape(layers=40, neurons=13824, heads=40, kv_heads=40, head_width=128, hidden=5120)
UNREAD = ("context_statistics",)
"""what no page reads, and what would be more than half of a run"""


@dataclass(frozen=True, slots=True)
class Size:
    """How large a run is."""

    model: str
    shape: ModelShape
    modules: int
    """of each layer"""
    calibration: CalibrationSettings
    windows: int
    """of each evaluation text"""


SIZES = {
    "small": Size("tiny", SMALL, 6, CalibrationSettings(samples=32, length=16, shards=4), 96),
    "7b": Size("llama-2-7b", LARGE, 40, CalibrationSettings(), 2048),
    "13b": Size("llama-2-13b", LARGER, 40, CalibrationSettings(), 2048),
}


def a_large_study(root: Path, size: str) -> Study:
    """The study of a run of some size: every method, the seven tasks, and speed."""
    chosen, texts = SIZES[size], ("wikitext2", "ptb", "c4")
    return a_study(
        model=str(root / "models" / chosen.model),
        name=f"Made-up {chosen.model}",
        **dict(zip(("primary", "auxiliary", "substitute"), texts, strict=True)),
        # what is chosen by measurement, random numbers cannot choose
        methods=tuple(name for name, method in METHODS.items() if method.decision != "chosen"),
        calibration=chosen.calibration,
        evaluation=EvaluationSettings(texts=texts, windows=chosen.windows, tasks=TASKS, speed="gpu"),
    )


def leave_large_run(root: Path, size: str) -> str:
    """Leaves a whole run in a cache, unless it is there, and gives its name.

    Args:
        root: the cache folder.
        size: one of SIZES.
    """
    root, chosen = root.resolve(), SIZES[size]
    study = a_large_study(root, size)
    name = run_name(study)
    if not (root / "runs" / name / "run.json").exists():
        _leave_model(Path(study.model), chosen.shape)
        makers = {kind: make for kind, make in MAKERS.items() if kind not in UNREAD}
        write_run(root, chosen.shape, modules=chosen.modules, study=study, makers=makers)
        write_tables(root, *TABLES)
        _leave_job(root, study)
    return name


def _leave_model(folder: Path, shape: ModelShape) -> None:
    """A folder with a configuration and a tokenizer, as the pages read them, and no weights."""
    folder.mkdir(parents=True)
    for path in MODEL_FOLDER.glob("tokenizer*.json"):
        shutil.copy(path, folder)
    values = {"model_type": "llama", "vocab_size": 32000} | asdict(shape)
    (folder / "config.json").write_text(json.dumps(values), encoding="utf-8")


def _leave_job(root: Path, study: Study) -> None:
    """A job that is done, with an event for every stage; no process is started."""
    home = files.root(root)
    home.mkdir(parents=True, exist_ok=True)
    job = create(home, study, "", (), worker_command)
    with JobReporter(job.folder) as report:
        for stage in names(study=study):
            report(stage, 1, 1, "1.0 s")
    # its process is this one, which goes on, and which the app would stop for not leaving after its end
    update(job.folder, lambda state: replace(state, pid=None, process_started=None))
