"""Answers: which rows does a comparison need that is fair to every method?

Every baseline in every form, the controls that say where a gain comes from, and GPrune under both profiles,
at each retention under each seed, on the same texts and windows.
"""

from __future__ import annotations

from dataclasses import replace

from gprune import profiles
from gprune.analysis.claims import RECOMMENDED
from gprune.methods import METHODS
from gprune.reproduction.series import Row, Series, label, together

FAIR = "study"
"""name of the table"""


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
    """Every method but those that are the same as another by definition, and the dense model."""
    same = {method.same_as for method in METHODS.values()}
    return together(name for name in METHODS if name != "dense" and name not in same)


def _rows(series: Series, retention: float, seed: int) -> list[Row]:
    study = series.study(methods=compared(), retention=retention, seed=seed)
    labels = {"retention": retention, "seed": seed}
    rows = []
    for name in compared():
        row = Row(labels, replace(study, methods=(name,)), name, extra=METHODS[name].control)
        rows.append(replace(row, labels=labels | {"method": label(row)}))
    settings = dict(profiles.profile("recommended").settings)
    if settings:
        other = series.study(retention=retention, seed=seed, changes=settings)
        # the settings one by one would be no name
        other = other.renamed(f"{study.name} recommended profile")
        rows.append(Row(labels | {"method": "GPrune (FLAP), recommended profile"}, other))
    return rows


def identifier(row: Row) -> str:
    """What tells a row's method from the others of its retention and seed."""
    recommended = dict(profiles.profile("recommended").settings)
    changed = bool(recommended) and row.study == row.study.with_settings(recommended)
    return RECOMMENDED if row.method == "gprune" and changed else row.method
