"""Answers: which rows does a comparison of repairs need that gives every method the same?

What people would otherwise use as it is published; then masks times repairs, all fitted to the same texts;
the other texts and targets of least squares; and what the choice of `repair.kind auto` comes to for every
method.
"""

from dataclasses import dataclass, replace
from typing import Any

from gprune.analysis.claims import BASELINES
from gprune.experiments.reproduction.grid import Row, Series, label
from gprune.pipeline.stages.method_inputs import repair_label
from gprune.study.methods import METHODS, RECOMMENDED

REPAIR = "repair"
"""name of the table"""
MASKS = ("flap", "wanda_sp_uniform", "gprune", "msl_layers", "msl_random", "gates", "osscar")
"""whose masks every repair is fitted to: among them those that the recommended recipe is chosen from"""
KINDS = ("none", "bias", "affine", "least_squares", "least_squares_bias", "least_squares+scales")
TEXTS, TARGET = "both", "residual_stream"
"""what repairs of every method are fitted to: the texts that did best on the development model with every
masks (docs/method.md), and the target that studies have; others stand beside it for the masks of
OTHERS. Scales follow what was fixed on the development models (docs/repair.md)"""
OTHERS = ("gprune", "gates")
"""whose masks stand for all where texts and targets differ"""
_OTHER_TEXTS = ("primary", "auxiliary", "both_and_sampled", "sampled")
_TARGETS = {
    "dense_inputs": "what the projection gives in the dense model",
    "own_inputs": "what the dense projection gives for the same inputs",
}
"""the other targets, in words"""
CHOSEN = (RECOMMENDED, "gprune", "gates", "flap", "fang", "wanda_sp", "llm_pruner", "osscar", "slimllm")
"""what `repair.kind auto` is given to"""


@dataclass(frozen=True, slots=True)
class Treatment:
    """What is done to the weights that a method keeps."""

    kind: str
    """one of `repair.kind`"""
    texts: str = TEXTS
    target: str = TARGET

    @property
    def settings(self) -> dict[str, Any]:
        """As a study has it; what does not matter to the kind is left as it is."""
        found = {"repair.kind": self.kind}
        if self.kind not in ("own", "none", "auto"):
            found["repair.texts"] = self.texts
        if self.kind not in ("own", "none", "auto", "bias"):
            found["repair.target"] = self.target
        return found

    def of(self, method: str) -> str:
        """What tells a method with this treatment from every other."""
        return " ".join((method, *self.settings.values()))


OWN, UNREPAIRED, AUTO = Treatment("own"), Treatment("none"), Treatment("auto")


def crossed() -> list[tuple[str, Treatment]]:
    """The masks times the repairs."""
    texts = {KINDS[-1]: "both_and_sampled"}
    return [(method, Treatment(kind, texts.get(kind, TEXTS))) for kind in KINDS for method in MASKS]


def others() -> list[tuple[str, Treatment]]:
    """Least squares on other texts and, with a bias, towards other targets."""
    found = [Treatment(kind, texts) for kind in KINDS[3:5] for texts in _OTHER_TEXTS]
    found += [Treatment(KINDS[4], target=target) for target in _TARGETS]
    return [(method, one) for one in found for method in OTHERS]


def compared() -> list[tuple[str, Treatment]]:
    """Every method with what is done to its weights, in the order of the table."""
    published = [(method, OWN) for method in BASELINES]
    return [*published, *crossed(), *others(), *((method, AUTO) for method in CHOSEN)]


def repair_rows(series: Series) -> list[Row]:
    """One row a retention, seed, method and treatment; the dense model once."""
    scale = series.scale
    rows = [
        _row(series, retention, seed, method, treatment)
        for retention in scale.retentions
        for seed in scale.seeds
        for method, treatment in compared()
    ]
    dense = replace(rows[0].study, methods=("dense",))
    labels = {"retention": 1.0, "seed": scale.seed, "method": "dense", "repair": ""}
    return [Row(labels, dense, "dense"), *rows]


def _row(series: Series, retention: float, seed: int, method: str, treatment: Treatment) -> Row:
    study = series.study(methods=(method,), retention=retention, seed=seed, changes=treatment.settings)
    row = Row({}, study, method, item=treatment.of(method), extra=METHODS[method].control)
    words = "as published" if treatment == OWN else repair_label(study)
    if treatment.target != TARGET:
        words += f", towards {_TARGETS[treatment.target]}"
    return replace(row, labels={"retention": retention, "seed": seed, "method": label(row), "repair": words})
