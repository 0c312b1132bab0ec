"""Answers: which rows does a comparison need that is fair to every method?

Every baseline in every form, the controls that say where a gain comes from, and GPrune under both profiles,
at each retention under each seed, on the same texts and windows; beside them the price of equal widths, and
what the recommended recipe chooses.
"""

from dataclasses import replace
from typing import Any

from gprune.analysis.claims import RECOMMENDED, equal, repaired
from gprune.experiments.reproduction.grid import Row, Series, label, together
from gprune.records import REPAIRS
from gprune.records.repairs import COMPENSATION
from gprune.study import profiles
from gprune.study.methods import BUILT_IN, METHODS
from gprune.study.methods import RECOMMENDED as RECIPE

FAIR = "study"
"""name of the table"""
_AT_EQUAL_WIDTHS = ("gprune", "flap")
"""what is also measured with as many units in every layer"""


def fair_rows(series: Series) -> list[Row]:
    """One row a retention, seed and method; the dense model once."""
    scale = series.scale
    rows = []
    for retention in scale.retentions:
        for seed in scale.seeds:
            rows += _rows(series, retention, seed)
    first = replace(rows[0].study, methods=("dense",))
    return [Row({"retention": 1.0, "seed": scale.seed, "method": "dense"}, first, "dense"), *rows]


def compared() -> tuple[str, ...]:
    """Every method but those that are the same as another by definition or chosen among them, and dense."""
    left = {METHODS[name].same_as for name in BUILT_IN} | {"dense", RECIPE}
    return together(name for name in BUILT_IN if name not in left)


def _rows(series: Series, retention: float, seed: int) -> list[Row]:
    study = series.study(methods=compared(), retention=retention, seed=seed)
    labels = {"retention": retention, "seed": seed}
    rows = []
    for name in compared():
        row = Row(labels, replace(study, methods=(name,)), name, extra=METHODS[name].control)
        rows.append(replace(row, labels=labels | {"method": label(row)}))
    for name, method, words, changes in _variants():
        changed = series.study(methods=(method,), retention=retention, seed=seed, changes=changes)
        # the settings one by one would be no name
        row = Row(labels, changed.renamed(f"{study.name} {words}"), method, item=name)
        called = f"{label(row)}, {words}" if words else label(row)
        rows.append(replace(row, labels=labels | {"method": called}))
    return rows


def _variants() -> list[tuple[str, str, str, dict[str, Any]]]:
    """Id, method, words and settings of what is compared besides; what changes nothing is left out."""
    compensation = REPAIRS[COMPENSATION]
    found: list[tuple[str, str, str, dict[str, Any]]] = [
        (repaired(compensation), "gprune", compensation.label, {f"sparsity.{COMPENSATION}": True})
    ]
    recommended = dict(profiles.profile("recommended").settings)
    found += [(RECOMMENDED, "gprune", "recommended profile", recommended)] * bool(recommended)
    found += [(equal(name), name, "equal widths", {"sparsity.widths": "equal"}) for name in _AT_EQUAL_WIDTHS]
    return [*found, (RECIPE, RECIPE, "", {})]


def identifier(row: Row) -> str:
    """What tells a row's method from the others of its retention and seed."""
    return str(row.item) or row.method
