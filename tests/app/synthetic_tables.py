"""Reproduced tables made of hand-made answers in their true form, for tests of the pages; nothing is run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gprune.experiments.reproduction import assembly, catalogue, tables
from gprune.experiments.reproduction.grid import Row, Series
from gprune.experiments.reproduction.lookup import Answer, Value
from gprune.experiments.reproduction.scale import choose

LEVELS = {"dense": 20.0, "gprune:flap": 40.0, "gprune:wanda_sp": 60.0, "gprune:twflap": 38.0}
LEVELS |= {"flap": 50.0, "wanda_sp": 100.0, "fang": 45.0, "llm_pruner": 90.0}
Fill = Callable[[Row], Answer]


class Answers:
    """Stands in for the finished runs of a cache."""

    def __init__(self, fill: Fill) -> None:
        self.answer = fill

    def failure(self, row: Row) -> str:
        return ""


def level(row: Row) -> float:
    """The perplexity that a row is given: by method, retention and seed."""
    base = LEVELS.get(row.method_id, 70.0)
    return base * (0.5 / row.study.retention) * (1 + 0.01 * row.study.seed)


def filled(row: Row, run: str = "") -> Answer:
    """An answer with numbers of the right kind for a row."""
    if row.reads == "perplexity":
        texts = row.study.evaluation.texts
        results = [Value("perplexity", t, level(row) * (1 + i), 1.0, 48, 128) for i, t in enumerate(texts)]
        retained = 1.0 if row.method == "dense" else row.study.retention
        return Answer(row, run, tuple(results), retention=retained, parameters=1000)
    if row.reads == "agreement":
        return Answer(row, run, (Value("ARI", "", 0.5, 0.1), Value("matched overlap", "", 0.7, 0.1)))
    if row.reads == "drift":
        numbers = Value("rank correlation", "", 0.8), Value("median drift", "", 0.1)
        return Answer(row, run, numbers)
    if row.reads == "speed":
        clocked = (Value("whole tokens/s", "", 100.0, 1.0), Value("whole ratio", "", 1.2, 0.01))
        return Answer(row, run, clocked, retention=row.study.retention, parameters=1000)
    names = ("mean drift", "retained, GPrune", "retained, FLAP", "difference", "Jaccard", "Jaccard by chance")
    return Answer(row, run, tuple(Value(name, "", 0.1 * (int(row.item) + 1)) for name in names))


def write_tables(root: Path, *names: str, fill: Fill = filled, model: str = "demo", scale: Any = None) -> Path:
    """Writes reproduced tables in their true form, from answers made by hand."""
    size = scale or choose(model, "demo")
    series = Series(model, size)
    answers: Any = Answers(fill)
    created = [assembly.assemble(tables.TABLES[name], series, answers) for name in names]
    folder = root / "reproductions" / catalogue.folder_name(model, size)
    catalogue.write(folder, series, created, f"python -m gprune reproduce {' '.join(names)} --model {model}")
    return folder
