"""Reads the published data files, wherever the package lies, and turns their rows into figures.

One function a file; every number is the file's own, parsed and not rounded.
"""

import csv
import io
import re
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

DENSE = "dense"
METHODS = {
    "dense": DENSE,
    "LLM-Pruner": "llm_pruner",
    "Wanda-sp": "wanda_sp",
    "FLAP": "flap",
    "FANG": "fang",
    "GPrune-LLM (Wanda-sp)": "gprune:wanda_sp",
    "GPrune-LLM (FLAP)": "gprune:flap",
    "GPrune-LLM (twFLAP)": "gprune:twflap",
}
"""the paper's name of a method: our id"""
TASKS = ("boolq", "piqa", "hellaswag", "winogrande", "arc_easy", "arc_challenge", "openbookqa")
"""the seven zero-shot tasks, by their names in the evaluation harness"""
SCORES = ("wikitext2_ppl", "ptb_ppl", *TASKS, "mean_accuracy")

_STRUCTURE = {
    "module_agreement_ari": ("module-overlap", "ari"),
    "module_agreement_overlap": ("module-overlap", "overlap"),
    "figure1a_median_rank_correlation": ("figure-1a", "rank_correlation"),
    "figure1b_partition_ari": ("figure-1b", "ari"),
    "figure3a_retention": ("figure-3a", "kept"),
    "figure3a_retention_gain_low": ("figure-3a", "gain_lowest"),
    "figure3a_retention_gain_high": ("figure-3a", "gain_highest"),
    "figure3b_jaccard": ("figure-3b", "jaccard"),
    "cost": ("cost", "minutes"),
}
_SUBJECTS = {
    "BCM under a calibration swap (twFLAP)": ("gprune:twflap", "WikiText2 <-> PTB"),
    "FANG under a calibration swap": ("fang", "WikiText2 <-> PTB"),
    "FLAP in the most unstable drift bin (80-100%)": ("flap", "80-100%"),
    "GPrune-LLM in the most unstable drift bin (80-100%)": ("gprune:flap", "80-100%"),
    "GPrune-LLM minus FLAP in the first four bins (min)": ("gprune:flap", "0-80%"),
    "GPrune-LLM minus FLAP in the first four bins (max)": ("gprune:flap", "0-80%"),
    "most stable drift bin (0-20%)": ("gprune:flap", "0-20%"),
    "most unstable drift bin (80-100%)": ("gprune:flap", "80-100%"),
}
_RETENTIONS = {"figure-3a": 0.5, "figure-3b": 0.5}
_UNNAMED_METRIC = "the paper does not name the importance metric behind it"
_SWEEP = (
    "not published: the paper sweeps each quantile over 0.80, 0.85 and 0.90 and reports only the choice, "
    "drift_quantile {drift_quantile} and score_quantile {score_quantile} (appendix, detailed settings)"
)


@dataclass(frozen=True, slots=True)
class Figure:
    """One published row: a method in one setting, with every number given for it."""

    table: str
    """one of TABLES"""
    model: str
    """one of MODELS"""
    retention: float | None
    """target retention, 1 for the dense model; None where it plays no part"""
    method: str
    """id of the method, a value of METHODS; empty where the paper names none"""
    variant: str
    """what distinguishes the row within its table, in the paper's words; empty where nothing does"""
    seed: int | None
    """random seed; None where nothing is drawn or the paper does not say"""
    rule: str
    """which accuracy of a task counts, max or fixed; empty where no accuracy is involved"""
    values: dict[str, float]
    """perplexities (windows of 128 tokens), accuracies in points, and what the table is about"""
    note: str = ""
    """what a reader of this row must know; empty where nothing"""


@cache
def read(name: str) -> tuple[dict[str, str], ...]:
    """Reads one data file of the package: a mapping from column to text for every row."""
    text = resources.files(__package__).joinpath(f"{name}.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(io.StringIO(text)))


def main_rows() -> list[Figure]:
    """The main tables: every model, retention and method under both rules for accuracy."""
    figures = []
    for row in read("main_results"):
        method = METHODS[row["method"]]
        seed = None if method == DENSE else 0
        values = {name: float(row[name]) for name in SCORES}
        retention, rule = float(row["retention"]), row["accuracy_protocol"]
        figures.append(Figure("main", row["model"], retention, method, "", seed, rule, values))
    return figures


def other_rows() -> list[Figure]:
    """Ablations, calibration pairs, multi-dataset scoring, sample numbers and seeds."""
    return [_other(row) for row in read("other_results")]


def _other(row: dict[str, str]) -> Figure:
    variant, seed = row["variant"], 0
    values = {name: float(row[name]) for name in ("wikitext2_ppl", "ptb_ppl", "mean_accuracy")}
    if seeded := re.fullmatch(r"seed (\d+)", variant):
        variant, seed = "", int(seeded[1])
    if sampled := re.fullmatch(r"(\d+) samples (\d+) epochs", variant):
        values |= {"samples": float(sampled[1]), "epochs": float(sampled[2])}
    table, retention = row["table"].replace("_", "-"), float(row["retention"])
    return Figure(table, row["model"], retention, METHODS[row["method"]], variant, seed, "max", values)


def structure_rows() -> list[Figure]:
    """Throughput, module agreement, costs, and what the text and captions say of the figures."""
    figures: dict[tuple[str, ...], Figure] = {}
    for row in read("speed_and_structure"):
        figure = _speed(row) if row["quantity"] == "decode_throughput" else _structure(row)
        key = (figure.table, figure.model, figure.method, figure.variant)
        known = figures.get(key, figure)
        figures[key] = replace(known, values=known.values | figure.values)
    return list(figures.values())


def _structure(row: dict[str, str]) -> Figure:
    table, quantity = _STRUCTURE[row["quantity"]]
    values = {quantity: float(row["value"])}
    if row["spread"]:
        values[f"{quantity}_std"] = float(row["spread"])
    unnamed = "gprune:flap" if table == "module-overlap" else ""
    method, variant = _SUBJECTS.get(row["subject"], (unnamed, row["subject"]))
    note = "" if method else _UNNAMED_METRIC
    return Figure(table, row["model"], _RETENTIONS.get(table), method, variant, None, "", values, note)


def _speed(row: dict[str, str]) -> Figure:
    name, billions = row["subject"].removesuffix("B params)").rsplit(" (", 1)
    method = METHODS[name]
    values = {"tokens_per_second": float(row["value"]), "parameters": float(round(float(billions) * 1e9))}
    retention = 1.0 if method == DENSE else 0.5
    return Figure("speed", row["model"], retention, method, "", None, "", values)


def quantile_rows() -> list[Figure]:
    """RASA's quantiles: only the choice is published, so the rows carry a note and no values."""
    figures = []
    for row in read("quantiles"):
        variant = f"drift_quantile {row['drift_quantile']}, score_quantile {row['score_quantile']}"
        note = _SWEEP.format(**row)
        figures.append(Figure("quantile-sweep", row["model"], None, "", variant, None, "", {}, note))
    return figures
