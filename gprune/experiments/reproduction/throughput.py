"""The rows of the table of inference speed (appendix), and the figures of a run's measurement in each.

Ratios are to the dense model of the same run and repetition; tokens a
second of different runs are not comparable.
"""

from dataclasses import replace

from gprune.experiments.reproduction.figures import Measure
from gprune.experiments.reproduction.grid import Row, Series
from gprune.records import Throughput

SPEED_NOTE = (
    "ratios are to the dense model of the same run: a run has GPrune on one metric, so that three runs make "
    "the table, each with the dense model beside; the row `dense` is that of the first. Whole is all new "
    "tokens in the time of prompt and decoding (the paper's measure), graph a decoding by captured CUDA "
    "graph; ± is the interquartile range over the repetitions"
)
_PHASES = ("whole", "prefill", "decode")
_PARTS = {"flap": ("dense", "llm_pruner", "flap"), "wanda_sp": ("wanda_sp",), "twflap": ("fang",)}
"""base metric: the methods that the paper's table compares with GPrune on it"""
_ORDER = ("dense", "llm_pruner", "wanda_sp", "gprune:wanda_sp", "flap", "gprune:flap", "fang", "gprune:twflap")


def speed_rows(series: Series) -> list[Row]:
    """Return the dense model and all methods at the table's retention, in the order of the paper's table."""
    rows = []
    for metric, names in _PARTS.items():
        methods = tuple(dict.fromkeys(("dense", *names, "gprune")))
        study = series.study(metric=metric, methods=methods, changes={"evaluation.speed": series.scale.speed})
        for name in (*names, "gprune"):
            where = {"retention": 1.0 if name == "dense" else study.retention}
            row = series.row(name, first=where, metric=metric)
            rows.append(replace(row, study=study, reads="speed"))
    return sorted(rows, key=lambda row: _ORDER.index(row.method_id))


def speed_measures(record: Throughput, method: str) -> list[Measure]:
    """Return the figures of one method in a measurement of models side by side, the dense one first.

    Tokens a second and ratio of every phase, each with its interquartile range, and memory in MiB; those of a
    captured graph under names with `graph`. Nothing where the method was not measured beside the dense model.
    """
    if not record.rows or record.rows[0]["model"] != "dense":
        return []
    rows = [row for row in record.rows if row["model"] == method]
    figures: list[Measure] = []
    for mode, prefix in (("eager", ""), ("graph", "graph ")):
        phases = {row["phase"]: row for row in rows if row["mode"] == mode}
        for phase in (name for name in _PHASES if name in phases):
            row, name = phases[phase], f"{phase} {prefix}"
            figures.append((f"{name}tokens/s", float(row["tokens_per_second"]), float(row["spread"])))
            figures.append((f"{name}ratio", float(row["ratio"]), float(row["ratio_spread"])))
        if phases:
            largest = max(int(row["peak_bytes"]) for row in phases.values())
            figures.append((f"{prefix}memory MiB", largest / 2**20, float("nan")))
    return figures
