"""The rows of the tables of inference speed, and the figures of a run's measurement in each.

The throughput table of the appendix, and beside it a table of ours: what widths in multiples of 8 to 64 cost
in perplexity and bring in speed. Ratios are to the dense model of the same run and repetition; tokens a
second of different runs are not comparable.
"""

from dataclasses import replace

from gprune.experiments.reproduction.figures import Measure
from gprune.experiments.reproduction.grid import Row, Series
from gprune.records import Throughput

ALIGNMENTS = (1, 8, 16, 32, 64)
SPEED_NOTE = (
    "ratios are to the dense model of the same run: a run has GPrune on one metric, so that three runs make "
    "the table, each with the dense model beside; the row `dense` is that of the first. Whole is all new "
    "tokens in the time of prompt and decoding (the paper's measure), graph a decoding by captured CUDA "
    "graph; ± is the interquartile range over the repetitions"
)
ALIGNMENT_NOTE = "not in the paper: GPrune on FLAP with FFN widths in multiples of a number; 1 is any width"
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
        before = series.study(metric=metric)
        for name in (*names, "gprune"):
            labels = {"retention": 1.0 if name == "dense" else study.retention}
            row = series.row(name, first=labels, metric=metric)
            rows.append(replace(row, study=study, reads="speed", before=before))
    return sorted(rows, key=lambda row: _ORDER.index(row.method_id))


def alignment(series: Series) -> list[Row]:
    """Return the dense model, then GPrune with every alignment."""
    rows = []
    for multiple in ALIGNMENTS:
        change = {"sparsity.alignment": multiple}
        study = series.study(methods=("dense", "gprune"), changes=change | {"evaluation.speed": series.scale.speed})
        before = series.study(changes=change)
        for name in ("dense", "gprune") if multiple == 1 else ("gprune",):
            row = series.row(name, {"alignment": multiple if name == "gprune" else ""}, extra=True)
            rows.append(replace(row, study=study, reads="alignment", before=before))
    return rows


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


def has_column(table: str, measure: str) -> bool:
    """Return True if the short form of a table has a column for a measure; next to perplexities ratios are enough."""
    return table != "alignment" or measure.endswith("ratio") or measure.startswith("ppl:")
