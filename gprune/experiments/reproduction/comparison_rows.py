"""The rows of the tables `study` and `repair`, which compare methods under equal conditions.

`study` has every baseline in every form, the controls that say where a gain comes from, and GPrune under both
profiles; beside them the price of equal widths and the choice of the recommended recipe. `repair` has baselines
as published, masks times repairs fitted to the same texts, other texts and targets of least squares, and the
choice of `repair.kind auto` for every method.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from gprune.analysis.claims import BASELINES, equal, repaired_id
from gprune.analysis.claims import RECOMMENDED as RECOMMENDED_PROFILE
from gprune.experiments.reproduction.grid import Row, Series, label, order_methods
from gprune.pipeline.stages.method_inputs import repair_label
from gprune.records import REPAIRS
from gprune.records.repairs import COMPENSATION
from gprune.study import profiles
from gprune.study.methods import BUILT_IN, METHODS, RECOMMENDED

FAIR = "study"
"""name of the table"""
_AT_EQUAL_WIDTHS = ("gprune", "flap")


def fair_rows(series: Series) -> list[Row]:
    """Return one row a retention, seed and method; the dense model once."""
    return _at_every_point(series, _fair_rows)


def _at_every_point(series: Series, rows_of: Callable[..., list[Row]], **labels: str) -> list[Row]:
    """Return a row of the dense model with `labels`, and the rows of every retention and seed."""
    scale = series.scale
    points = [{"retention": retention, "seed": seed} for retention in scale.retentions for seed in scale.seeds]
    rows = [row for point in points for row in rows_of(series, **point)]
    dense = replace(rows[0].study, methods=("dense",))
    return [Row({"retention": 1.0, "seed": scale.seed, "method": "dense"} | labels, dense, "dense"), *rows]


def _fair_rows(series: Series, **where: Any) -> list[Row]:
    # a method that equals another by definition, or is chosen among them, has no row
    excluded = {METHODS[name].same_as for name in BUILT_IN} | {"dense", RECOMMENDED}
    methods = order_methods(name for name in BUILT_IN if name not in excluded)
    study = series.study(methods=methods, **where)
    rows = [Row({}, replace(study, methods=(name,)), name, extra=METHODS[name].control, item=name) for name in methods]
    for identity, method, variant, changes in _variants():
        changed = series.study(methods=(method,), changes=changes, **where)
        rows.append(Row({"words": variant}, changed.renamed(f"{study.name} {variant}"), method, item=identity))
    return [
        replace(row, labels=where | {"method": ", ".join(filter(None, (label(row), row.labels.get("words"))))})
        for row in rows
    ]


def _variants() -> list[tuple[str, str, str, dict[str, Any]]]:
    """Return id, method, words and settings of further rows; a profile that changes nothing is left out."""
    compensation = REPAIRS[COMPENSATION]
    recommended = dict(profiles.profile("recommended").settings)
    return [
        (repaired_id(compensation), "gprune", compensation.label, {f"sparsity.{COMPENSATION}": True}),
        *([(RECOMMENDED_PROFILE, "gprune", "recommended profile", recommended)] if recommended else []),
        *((equal(name), name, "equal widths", {"sparsity.widths": "equal"}) for name in _AT_EQUAL_WIDTHS),
        (RECOMMENDED, RECOMMENDED, "", {}),
    ]


def identifier(row: Row) -> str:
    """Return an identifier of a row's method that is unique within its retention and seed."""
    return str(row.item) or row.method


REPAIR = "repair"
"""name of the table"""
MASKS = ("flap", "wanda_sp_uniform", "gprune", "msl_layers", "msl_random", "gates", "osscar")
"""masks that every repair is fitted to: among them the candidates of the recommended recipe"""
KINDS = ("none", "bias", "affine", "least_squares", "least_squares_bias", "least_squares+scales")
TEXTS, TARGET = "both", "residual_stream"
"""texts and target of every repair: the texts that did best on the development model with every
masks (docs/method.md), and the target that studies have; others stand beside it for the masks of
OTHERS. Scales follow what was fixed on the development models (docs/repair.md)"""
OTHERS = ("gprune", "gates")
_OTHER_TEXTS = ("primary", "auxiliary", "both_and_sampled", "sampled")
_TARGETS = {
    "dense_inputs": "what the projection gives in the dense model",
    "own_inputs": "what the dense projection gives for the same inputs",
}
CHOSEN = (RECOMMENDED, "gprune", "gates", "flap", "fang", "wanda_sp", "llm_pruner", "osscar", "slimllm")
"""methods that `repair.kind auto` is given to"""


@dataclass(frozen=True, slots=True)
class Treatment:
    """A treatment of the weights that a method keeps."""

    kind: str
    """one of `repair.kind`"""
    texts: str = TEXTS
    target: str = TARGET

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings of a study; fields that do not matter to the kind keep their defaults."""
        settings = {"repair.kind": self.kind}
        if self.kind not in ("own", "none", "auto"):
            settings["repair.texts"] = self.texts
        if self.kind not in ("own", "none", "auto", "bias"):
            settings["repair.target"] = self.target
        return settings

    def of(self, method: str) -> str:
        """Return a unique identifier of a method with this treatment."""
        return " ".join((method, *self.settings.values()))


OWN, UNREPAIRED, AUTO = Treatment("own"), Treatment("none"), Treatment("auto")


def list_treatments() -> list[tuple[str, Treatment]]:
    """Return every method with its treatment, in the order of the table."""
    texts = {KINDS[-1]: "both_and_sampled"}
    crossed = [(method, Treatment(kind, texts.get(kind, TEXTS))) for kind in KINDS for method in MASKS]
    further = [Treatment(kind, other_texts) for kind in KINDS[3:5] for other_texts in _OTHER_TEXTS]
    further += [Treatment(KINDS[4], target=target) for target in _TARGETS]
    return [
        *((method, OWN) for method in BASELINES),
        *crossed,
        *((method, treatment) for treatment in further for method in OTHERS),
        *((method, AUTO) for method in CHOSEN),
    ]


def repair_rows(series: Series) -> list[Row]:
    """Return one row a retention, seed, method and treatment; the dense model once."""
    return _at_every_point(series, _repair_rows, repair="")


def _repair_rows(series: Series, **where: Any) -> list[Row]:
    rows = []
    for method, treatment in list_treatments():
        row = series.row(method, first=where, extra=METHODS[method].control, changes=treatment.settings, **where)
        label = "as published" if treatment == OWN else repair_label(row.study)
        if treatment.target != TARGET:
            label += f", towards {_TARGETS[treatment.target]}"
        rows.append(replace(row, item=treatment.of(method), labels=row.labels | {"repair": label}))
    return rows
