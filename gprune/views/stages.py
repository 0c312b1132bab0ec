"""What the stages of a run are called, and which of them a study will go through."""

from __future__ import annotations

from gprune.study import Study
from gprune.views.charts.style import METHOD_LABELS

_TITLES = {
    "model": "loading the model",
    "tokens_primary": "drawing calibration text A",
    "tokens_auxiliary": "drawing calibration text B",
    "tokens_substitute": "drawing calibration text C",
    "norms": "weight norms",
    "statistics_primary": "activation statistics on A",
    "statistics_auxiliary": "activation statistics on B",
    "statistics_substitute": "activation statistics on C",
    "scores_primary": "importance scores on A",
    "scores_auxiliary": "importance scores on B",
    "scores_substitute": "importance scores on C",
    "drift": "rank drift",
    "partition": "modules",
    "modules": "module statistics",
    "adapted": "score adaptation",
    "masks_gprune": "learning the sparsity (GPrune)",
    "masks_flap": "masks of FLAP",
    "masks_wanda_sp": "masks of Wanda-sp",
    "history": "learning history",
    "checkpoint": "writing the pruned model",
    "agreement": "module agreement",
}
_AGREEMENT = (
    "tokens_substitute",
    "statistics_substitute",
    "scores_substitute",
    "partition_ac",
    "partition_bc",
    "partition_ab_other_seed",
    "partition_ab_initialization",
    "partition_ac_initialization",
    "agreement",
)
_BEFORE_MASKS = (
    "tokens_primary",
    "tokens_auxiliary",
    "norms",
    "statistics_primary",
    "statistics_auxiliary",
    "scores_primary",
    "scores_auxiliary",
    "drift",
    "partition",
    "modules",
    "adapted",
)


def title(stage: str) -> str:
    """What a stage does, in words."""
    if stage in _TITLES:
        return _TITLES[stage]
    kind, _, rest = stage.partition(".")
    if kind == "perplexity":
        method, _, index = rest.partition(".")
        number = int(index) + 1 if index.isdigit() else index
        return f"perplexity of {METHOD_LABELS.get(method, method)}, text {number}"
    if stage.startswith("partition_"):
        return f"modules for the agreement ({stage.removeprefix('partition_').replace('_', ' ')})"
    return stage.replace("_", " ")


def expected(study: Study) -> tuple[str, ...]:
    """Every stage that a whole run of a study goes through, in order."""
    scores = () if study.metric == "flap" else ("scores_flap_primary",)
    masks = ("history", "masks_gprune", "masks_flap", "masks_wanda_sp", "checkpoint")
    texts = range(len(study.evaluation.texts))
    measured = tuple(f"perplexity.{method}.{index}" for method in METHOD_LABELS for index in texts)
    return (*_BEFORE_MASKS, *scores, *masks, *measured, *(_AGREEMENT if study.substitute else ()))


def share(study: Study, present: set[str]) -> float:
    """Finished share of a run's stages, in [0, 1]."""
    wanted = expected(study)
    return sum(stage in present for stage in wanted) / len(wanted)


def step(study: Study, present: set[str]) -> tuple[int, int]:
    """Where a run stands: the number of the present step, from 1, and how many there are."""
    wanted = expected(study)
    done = sum(stage in present for stage in wanted)
    return min(done + 1, len(wanted)), len(wanted)
