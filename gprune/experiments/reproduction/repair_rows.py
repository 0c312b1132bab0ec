"""The rows of a comparison of repairs that gives every method the same.

Baselines as they are published; then masks times repairs, all fitted to the same texts; the other texts and
targets of least squares; and the choice of `repair.kind auto` for every method.
"""

from dataclasses import dataclass, replace
from typing import Any

from gprune.analysis.claims import BASELINES
from gprune.experiments.reproduction.grid import Row, Series
from gprune.pipeline.stages.method_inputs import repair_label
from gprune.study.methods import METHODS, RECOMMENDED

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
        """As a study has it; what does not matter to the kind is left as it is."""
        settings = {"repair.kind": self.kind}
        if self.kind not in ("own", "none", "auto"):
            settings["repair.texts"] = self.texts
        if self.kind not in ("own", "none", "auto", "bias"):
            settings["repair.target"] = self.target
        return settings

    def of(self, method: str) -> str:
        """Return what tells a method with this treatment from every other."""
        return " ".join((method, *self.settings.values()))


OWN, UNREPAIRED, AUTO = Treatment("own"), Treatment("none"), Treatment("auto")


def compared() -> list[tuple[str, Treatment]]:
    """Return every method with its treatment, in the order of the table."""
    texts = {KINDS[-1]: "both_and_sampled"}
    crossed = [(method, Treatment(kind, texts.get(kind, TEXTS))) for kind in KINDS for method in MASKS]
    others = [Treatment(kind, other) for kind in KINDS[3:5] for other in _OTHER_TEXTS]
    others += [Treatment(KINDS[4], target=target) for target in _TARGETS]
    return [
        *((method, OWN) for method in BASELINES),
        *crossed,
        *((method, treatment) for treatment in others for method in OTHERS),
        *((method, AUTO) for method in CHOSEN),
    ]


def repair_rows(series: Series) -> list[Row]:
    """Return one row a retention, seed, method and treatment; the dense model once."""
    scale = series.scale
    rows = [
        _row(series, method, treatment, retention=retention, seed=seed)
        for retention in scale.retentions
        for seed in scale.seeds
        for method, treatment in compared()
    ]
    dense = replace(rows[0].study, methods=("dense",))
    labels = {"retention": 1.0, "seed": scale.seed, "method": "dense", "repair": ""}
    return [Row(labels, dense, "dense"), *rows]


def _row(series: Series, method: str, treatment: Treatment, **where: Any) -> Row:
    row = series.row(method, first=where, extra=METHODS[method].control, changes=treatment.settings, **where)
    words = "as published" if treatment == OWN else repair_label(row.study)
    if treatment.target != TARGET:
        words += f", towards {_TARGETS[treatment.target]}"
    return replace(row, item=treatment.of(method), labels=row.labels | {"repair": words})
