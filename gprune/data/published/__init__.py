"""Published results of the paper by table, model and accuracy rule.

`figures.jsonl` has the numbers in the paper's tables and text (Liu et al., GPrune-LLM); README.md in the same folder
lists their tables and units. None of these numbers was measured by this project, and they must not be mixed with
measured ones.

Tables have the names of the `reproduce` command. The accuracy rule `max` reports the higher of raw and
length-normalized accuracy per task. The rule `fixed` reports the length-normalized accuracy if the task has one, else
the raw one (appendix, robustness to the evaluation protocol). Perplexities do not depend on the rule.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

import pandas as pd

MODELS = ("LLaMA2-7B", "Vicuna1.5-7B", "LLaMA2-13B")
RULES = ("max", "fixed")
TABLES = {
    "main": "comparison on each model (section 4 and appendix)",
    "ablation": "ablation of the components (section 4)",
    "calibration-pair": "ablation of the calibration datasets (section 4)",
    "multi-dataset": "multi-dataset scoring (section 4 for FANG, appendix for all base metrics)",
    "fine-grained": "fine-grained ablations of BCM, RASA and MSL (appendix)",
    "module-overlap": "module agreement under substitution of a text (appendix)",
    "calibration-samples": "effect of the calibration sample number (appendix)",
    "seeds": "seed repeatability (appendix)",
    "quantile-sweep": "the chosen quantiles of RASA (appendix, detailed settings)",
    "figure-1a": "rank correlation under resampling and under a swap of the text (Fig. 1a)",
    "figure-1b": "agreement of the partitions under a swap of the text (Fig. 1b)",
    "figure-3a": "retention by bin of rank drift (Fig. 3a)",
    "figure-3b": "agreement of the kept neurons with FLAP's (Fig. 3b)",
    "speed": "decoding throughput at 50% retention (appendix)",
    "cost": "time of BCM and of one epoch of MSL on an A6000 (section 4)",
}
"""description and place in the paper of each table"""

METHODS = {
    "dense": "dense",
    "LLM-Pruner": "llm_pruner",
    "Wanda-sp": "wanda_sp",
    "FLAP": "flap",
    "FANG": "fang",
    "GPrune-LLM (Wanda-sp)": "gprune:wanda_sp",
    "GPrune-LLM (FLAP)": "gprune:flap",
    "GPrune-LLM (twFLAP)": "gprune:twflap",
}
"""id of each method by its name in the paper"""
TASKS = ("boolq", "piqa", "hellaswag", "winogrande", "arc_easy", "arc_challenge", "openbookqa")
"""the seven zero-shot tasks, by their names in the evaluation harness"""

# column of `frame` for each value of a row; other values keep their names
_COLUMNS = {
    "wikitext2_ppl": "ppl:wikitext2",
    "ptb_ppl": "ppl:ptb",
    "mean_accuracy": "accuracy",
    **{task: f"accuracy:{task}" for task in TASKS},
}
_MAX_ONLY = "the paper gives the accuracy of this table under max only"


@dataclass(frozen=True, slots=True)
class Figure:
    """One published row: the numbers of a method in one setting."""

    table: str
    """one of TABLES"""
    model: str
    """one of MODELS"""
    retention: float | None
    """target retention, 1 for the dense model, or None if not applicable"""
    method: str
    """id of the method, a value of METHODS; empty if the paper names none"""
    variant: str
    """the paper's label of the row within its table; may be empty"""
    seed: int | None
    """random seed, or None if not applicable or not stated"""
    rule: str
    """accuracy rule, max or fixed; empty without accuracies"""
    values: dict[str, float]
    """by name: perplexities (windows of 128 tokens), accuracies in percent, and other numbers of the table"""
    note: str = ""
    """note for the reader; may be empty"""


def table(name: str, model: str | None = MODELS[0], rule: str = "max") -> list[Figure]:
    """Return the published rows of a table for one of MODELS, or for all with None, in the paper's order.

    `rule` is the accuracy rule, max or fixed. Outside the main tables, accuracies are published for max only; with
    fixed, these rows have no accuracy. The result is empty if the paper has no rows for the model.
    """
    rows = [row for row in _published_rows() if row.table == name and model in (None, row.model)]
    if name == "main":
        rows = [row for row in rows if row.rule == rule]
    elif rule == "fixed":
        rows = [_without_accuracy(row) for row in rows]
    return rows


def frame(figures: Iterable[Figure]) -> pd.DataFrame:
    """Return published rows as a data frame for gprune.analysis.tables.

    The columns are table, model, protocol (the accuracy rule), variant, method, retention and seed, then `ppl:<text>`,
    `accuracy` and `accuracy:<task>` in percent, and the other values by name.
    """
    names = ("table", "model", "rule", "variant", "method", "retention", "seed")
    rows = []
    for figure in figures:
        row = {name: getattr(figure, name) for name in names}
        rows.append(row | {_COLUMNS.get(key, key): value for key, value in figure.values.items()})
    data_frame = pd.DataFrame(rows, columns=None if rows else list(names)).rename(columns={"rule": "protocol"})
    return data_frame.astype({"retention": float, "seed": "Int64"})


def paper_name(method: str) -> str:
    """Return the paper's name of a method id, with GPrune-LLM shortened to GPrune, as in GPrune (FLAP)."""
    names = {identifier: name for name, identifier in METHODS.items()}
    return names[method].replace("GPrune-LLM", "GPrune")


@cache
def _published_rows() -> tuple[Figure, ...]:
    text = resources.files(__package__).joinpath("figures.jsonl").read_text(encoding="utf-8")
    return tuple(Figure(**json.loads(line)) for line in text.splitlines())


def _without_accuracy(figure: Figure) -> Figure:
    if "mean_accuracy" not in figure.values:
        return figure
    values = {key: value for key, value in figure.values.items() if key != "mean_accuracy"}
    return replace(figure, values=values, rule="fixed", note=_MAX_ONLY)
