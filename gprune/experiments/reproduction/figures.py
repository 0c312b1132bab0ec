"""Rows of the paper's figures and of its speed table, and their numbers from a run's records.

These are Figs. 1 and 3 and the tables of module agreement and of inference speed (appendix). Their numbers come from
records other than perplexities. Tokens per second of different runs are not comparable.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gprune.analysis import agreement, decisions, drift
from gprune.experiments.reproduction.grid import Row, Series, order_methods
from gprune.pipeline import stages
from gprune.pipeline.stages.rasa import COMPARISONS, CONTROL, SUBSTITUTION, Comparison, list_comparisons
from gprune.records import Throughput
from gprune.study import Study, short
from gprune.system.errors import MethodError

BINS = 5
HISTOGRAM_BINS = 50
OVERLAP_NOTE = (
    "mean over layers; ± is over layers, or over seeds if there are several. The shared k-means seed alone makes "
    "partitions agree, so controls use another seed"
)
SWAP_NOTE = (
    "mean over layers; ± is over layers, or over seeds if there are several. The size of the drift is the same in "
    "both orders of the texts, so a swap only tests direction-aware profiles and groups from one text"
)
RETAINED_NOTE = "fraction of kept neurons in each of five bins of modules, in ascending order of mean rank drift"
JACCARD_NOTE = (
    "agreement of the kept neurons with FLAP's in five bins of modules, in ascending order of mean rank drift; chance "
    "is the agreement of independent choices of the same sizes"
)
_CURVES = {
    drift.CROSS: "the texts switched",
    drift.FLOOR_PRIMARY: "A resampled",
    drift.FLOOR_AUXILIARY: "B resampled",
    drift.HALVES: "the texts switched, half of each",
}

Measure = tuple[str, float, float]
"""name, value and standard deviation (NaN if there is none)"""


def module_overlap(series: Series) -> list[Row]:
    """Return the rows of module agreement when each text is replaced, with two controls."""
    study = series.study(substitute=series.scale.substitute)

    def label(comparison: Comparison) -> str:
        if comparison.kind != SUBSTITUTION:
            return comparison.title
        side_texts = (comparison.first.texts, comparison.second.texts)
        return " vs. ".join("–".join(short(getattr(series.scale, role)) for role in texts) for texts in side_texts)

    return [
        _agreement_row(study, comparison, {"comparison": label(comparison)}) for comparison in list_comparisons(study)
    ]


def figure_1b(series: Series) -> list[Row]:
    """Return the rows of twFLAP's modules and FANG's groups when texts are swapped or replaced."""
    study = series.study(metric="twflap", substitute=series.scale.substitute)

    def labels(comparison: Comparison) -> dict[str, str]:
        title = comparison.title
        if comparison.kind != CONTROL:
            title = title.removeprefix(f"{comparison.kind}: ")
        return {"method": "FANG" if comparison.fang else "GPrune (twFLAP)", "comparison": title}

    # the paper only has the rows of A and B
    rows = [_agreement_row(study, item, labels(item), "substitute" in item.texts) for item in list_comparisons(study)]
    return sorted(rows, key=lambda row: (row.extra, row.method == "fang"))


def _agreement_row(study: Study, comparison: Comparison, labels: dict[str, str], extra: bool = False) -> Row:
    method = "fang" if comparison.fang else "gprune"
    extra = extra or comparison.kind == CONTROL
    return Row(labels, study, method, "agreement", comparison.name, extra)


def figure_1a(series: Series) -> list[Row]:
    """Return the rows of the rank correlation between texts, and of its reference under resampling."""
    study = series.study()
    return [
        Row({"comparison": label}, study, reads="drift", item=curve, extra=curve == drift.HALVES)
        for curve, label in _CURVES.items()
    ]


def figure_3(series: Series) -> list[Row]:
    """Return the rows of GPrune and FLAP in five bins of modules, in ascending order of rank drift."""
    study = series.study(methods=("gprune", "flap"))
    return [
        Row({"drift bin": name}, study, reads="bins", item=index)
        for index, name in enumerate(decisions.bin_names(BINS))
    ]


def sources(row: Row, graph: stages.Graph) -> tuple[stages.Stage, ...]:
    """Return the stages of a row without perplexity. Raises MethodError if the row's study lacks the comparison."""
    if row.reads == "speed":
        # one speed measurement has all methods of the row's study
        study = replace(row.study, methods=order_methods(row.study.methods))
        return (stages.speed(stages.Graph(study, graph.inputs, failures=graph.failures)),)
    if row.reads == "agreement":
        comparisons = stages.agreements(graph)
        if row.item not in comparisons:
            raise MethodError(f"the study has no comparison {COMPARISONS[str(row.item)].title!r}")
        return (comparisons[str(row.item)],)
    if row.reads == "drift":
        return (stages.drift(graph),)
    own_masks, base = stages.masks(graph, "gprune"), stages.masks(graph, "flap")
    return stages.drift(graph), stages.partition(graph), own_masks, base


def figure_measures(row: Row, records: Sequence[Any]) -> list[Measure]:
    """Return the numbers of a row from the records of its `sources`; none if its method was not measured.

    Raises MethodError if the row is not possible for the model.
    """
    if row.reads == "speed":
        return speed_measures(records[0], row.method)
    if row.reads == "drift":
        curves = drift.distributions(records[0], HISTOGRAM_BINS)
        curve = next(curve for curve in curves if curve.name == str(row.item))
        return [("rank correlation", curve.correlation, np.nan), ("median drift", curve.median, np.nan)]
    if row.reads == "agreement":
        (record,) = records
        return [("ARI", *agreement.mean_std(record.ari)), ("matched overlap", *agreement.mean_std(record.overlap))]
    drift_record, partition, own_masks, base = records
    return _measure_bin(decisions.compare(drift_record.magnitude, partition, own_masks, base, BINS), int(row.item))


def _measure_bin(bins: decisions.Bins, index: int) -> list[Measure]:
    """Return the measures of one bin. Raises MethodError if there are fewer modules than bins."""
    if len(bins.names) < BINS:
        raise MethodError(f"the model has only {len(bins.names)} modules, too few for {BINS} bins")
    columns = {
        "mean drift": bins.drift,
        "retained, GPrune": bins.gprune,
        "retained, FLAP": bins.base,
        "difference": bins.gprune - bins.base,
        "Jaccard": bins.jaccard,
        "Jaccard by chance": bins.chance,
    }
    return [(name, float(values[index]), np.nan) for name, values in columns.items()]


SHOWN = {
    "figure-3a": ("mean drift", "retained, GPrune", "retained, FLAP", "difference"),
    "figure-3b": ("mean drift", "Jaccard", "Jaccard by chance"),
}
"""measures of the bins that each of the two tables shows"""


# inference speed (appendix): ratios are relative to the dense model of the same run and repetition

SPEED_NOTE = (
    "ratios are relative to the dense model of the same run. A run has GPrune on one metric, so the table combines "
    "three runs; the row `dense` is from the first. Whole: new tokens per second of prompt and decoding (the "
    "paper's measure); graph: decoding with a captured CUDA graph; ± is the interquartile range over the "
    "repetitions"
)
_PHASES = ("whole", "prefill", "decode")
_COMPARED_METHODS = {"flap": ("dense", "llm_pruner", "flap"), "wanda_sp": ("wanda_sp",), "twflap": ("fang",)}
"""methods that the paper's speed table compares with GPrune on a base metric, by metric"""
_ROW_ORDER = ("dense", "llm_pruner", "wanda_sp", "gprune:wanda_sp", "flap", "gprune:flap", "fang", "gprune:twflap")


def speed_rows(series: Series) -> list[Row]:
    """Return the rows of the dense model and of all methods at the table's retention, in the paper's order."""
    rows = []
    for metric, names in _COMPARED_METHODS.items():
        methods = tuple(dict.fromkeys(("dense", *names, "gprune")))
        study = series.study(metric=metric, methods=methods, changes={"evaluation.speed": series.scale.speed})
        for name in (*names, "gprune"):
            labels = {"retention": 1.0 if name == "dense" else study.retention}
            row = series.row(name, first=labels, metric=metric)
            rows.append(replace(row, study=study, reads="speed"))
    return sorted(rows, key=lambda row: _ROW_ORDER.index(row.method_id))


def speed_measures(record: Throughput, method: str) -> list[Measure]:
    """Return the numbers of one method in a speed measurement, whose first model is the dense one.

    These are tokens per second and ratio of every phase, each with its interquartile range, and memory in MiB. Names of
    numbers with a captured graph contain `graph`. The result is empty if the method was not measured together with the
    dense model.
    """
    if not record.rows or record.rows[0]["model"] != "dense":
        return []
    rows = [row for row in record.rows if row["model"] == method]
    measures: list[Measure] = []
    for mode, prefix in (("eager", ""), ("graph", "graph ")):
        phases = {row["phase"]: row for row in rows if row["mode"] == mode}
        for phase in (name for name in _PHASES if name in phases):
            row, name = phases[phase], f"{phase} {prefix}"
            measures.append((f"{name}tokens/s", float(row["tokens_per_second"]), float(row["spread"])))
            measures.append((f"{name}ratio", float(row["ratio"]), float(row["ratio_spread"])))
        if phases:
            largest = max(int(row["peak_bytes"]) for row in phases.values())
            measures.append((f"{prefix}memory MiB", largest / 2**20, float("nan")))
    return measures
