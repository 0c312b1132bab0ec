"""What the stages of a run are called, and which of them a study will go through."""

from __future__ import annotations

from gprune.methods import METHODS, Method
from gprune.plan import PAIR
from gprune.study import Study
from gprune.views.frame.chart_style import METHOD_LABELS

_TEXTS = {"primary": "A", "auxiliary": "B", "substitute": "C"}
_TITLES = {
    "model": "loading the model",
    "norms": "weight norms",
    "drift": "rank drift",
    "clusters": "clusters of the neurons' parameters",
    "partition": "modules",
    "modules": "module statistics",
    "adapted": "score adaptation",
    "masks_gprune": "learning the sparsity (GPrune)",
    "history": "learning history",
    "pad": "padding to an ordinary folder",
    "gguf": "writing the GGUF file",
    "speed": "measuring tokens a second",
    "checkpoint": "writing the pruned model",
    "agreement": "module agreement",
    "first_partition": "first modules of token-weighted FLAP",
    "first_drift_partition": "rank drift under the first modules",
}
_BY_TEXT = {
    "tokens": "drawing calibration text {}",
    "statistics": "activation statistics on {}",
    "context_statistics": "statistics by context on {}",
    "contexts": "contexts of {}",
    "groups": "FANG’s functional groups on {}",
    "scores": "importance scores on {}",
    "first_scores_partition": "importance scores under the first modules on {}",
}
_METRICS = {"flap": "FLAP", "wanda_sp": "Wanda-sp", "twflap": "token-weighted FLAP"}
_FIRST = {
    "first_partition": "first modules for the agreement",
    "first_scores_partition": "scores under the first modules for the agreement",
    "first_drift_partition": "drift under the first modules for the agreement",
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
)
_INPUTS = (
    "tokens_primary",
    "tokens_auxiliary",
    "norms",
    "statistics_primary",
    "statistics_auxiliary",
)
_COUPLED = (
    "scores_flap_primary",
    "scores_flap_auxiliary",
    "drift_flap",
    "first_partition",
    "contexts_primary",
    "context_statistics_primary",
    "context_statistics_auxiliary",
    "first_scores_partition_primary",
    "first_scores_partition_auxiliary",
    "first_drift_partition",
    "partition",
)
"""what the scores of token-weighted FLAP need first: they depend on the modules (appendix)"""


def title(stage: str) -> str:
    """What a stage does, in words."""
    if stage in _TITLES:
        return _TITLES[stage]
    kind, _, rest = stage.partition(".")
    if kind in ("perplexity", "accuracy"):
        return _measured_title(kind, rest)
    if stage.startswith("masks_"):
        method = stage.removeprefix("masks_")
        return f"masks of {METHOD_LABELS.get(method, method.replace('_', ' '))}"
    if stage.startswith("drift_"):
        return _drift_title(stage.removeprefix("drift_"))
    for start, words in {**_FIRST, "partition": "modules for the agreement"}.items():
        if stage.startswith(f"{start}_") and stage.removeprefix(f"{start}_") not in _TEXTS:
            return f"{words} ({stage.removeprefix(f'{start}_').replace('_', ' ')})"
    return _title_by_text(stage) or stage.replace("_", " ")


def _measured_title(kind: str, rest: str) -> str:
    method, _, part = rest.partition(".")
    unit = "text" if kind == "perplexity" else "task"
    which = f"{unit} {int(part) + 1}" if part.isdigit() else part.replace("_", " ")
    return f"{kind} of {METHOD_LABELS.get(method, method)}, {which}"


def _drift_title(rest: str) -> str:
    metric = next((name for name in _METRICS if rest == name or rest.startswith(f"{name}_")), "")
    texts = [_TEXTS[word] for word in rest.removeprefix(metric).strip("_").split("_") if word in _TEXTS]
    between = f" between {' and '.join(texts)}" if texts else ""
    return "rank drift" + (f" of {_METRICS[metric]}" if metric else "") + between


def _title_by_text(stage: str) -> str:
    """The title of a stage of one text; empty where it is none."""
    for start, words in _BY_TEXT.items():
        rest = stage.removeprefix(f"{start}_")
        if rest == stage:
            continue
        rest, _, other = rest.partition("_by_")
        metric = next((name for name in _METRICS if rest.startswith(f"{name}_")), "")
        text, _, more = rest.removeprefix(f"{metric}_").partition("_")
        if text in _TEXTS:
            made = words.replace("scores", f"scores of {_METRICS[metric]}" if metric else "scores")
            contexts = f"contexts of {_TEXTS[other]}" if other in _TEXTS else ""
            return ", ".join(filter(None, (made.format(_TEXTS[text]), contexts, more.replace("_", " "))))
    return ""


def expected(study: Study) -> tuple[str, ...]:
    """Every stage that a whole run of a study goes through, about in the order of the pipeline."""
    methods = [METHODS[name] for name in study.methods]
    wanted = [*_INPUTS, *_drift_stages(study)]
    if "gprune" in study.methods:
        wanted += ["partition", "modules", "adapted", "masks_gprune", "history"]
    for method in methods:
        wanted += _mask_stages(study, method)
    evaluation = study.evaluation
    for method in methods:
        wanted += [f"perplexity.{method.name}.{index}" for index in range(len(evaluation.texts))]
        wanted += [f"accuracy.{method.name}.{index}" for index in range(len(evaluation.tasks))]
    if evaluation.speed != "none":
        wanted.append("speed")
    if "gprune" in study.methods:
        wanted.append("checkpoint")
    return tuple(dict.fromkeys(wanted + _agreement_stages(study)))


def _drift_stages(study: Study) -> list[str]:
    own = ["scores_primary", "scores_auxiliary", "drift"]
    return [*_COUPLED, *own] if study.metric == "twflap" else own


def _scores(study: Study, role: str, metric: str) -> str:
    return f"scores_{role}" if metric == study.metric else f"scores_{metric}_{role}"


def _mask_stages(study: Study, method: Method) -> list[str]:
    """The masks of a method and the results that only it needs."""
    if method.decision in ("none", "learned"):
        return []
    roles = PAIR[:1] if method.scoring == "single" else PAIR
    needs = []
    if method.decision == "fang":
        needs = ["contexts_primary", *(f"context_statistics_{role}" for role in roles), "groups_primary"]
    if method.decision != "llm_pruner":
        metric = "flap" if method.decision == "fang" else method.metric
        needs += [_scores(study, role, metric) for role in roles]
    return [*needs, f"masks_{method.masks}"]


def _agreement_stages(study: Study) -> list[str]:
    coupled, grouped = study.metric == "twflap", "fang" in study.methods or study.metric == "twflap"
    if not (study.substitute or grouped):
        return []
    wanted = list(_AGREEMENT) if study.substitute else []
    if coupled and study.substitute:
        wanted[wanted.index("scores_substitute")] = "scores_flap_substitute"
    if coupled:
        wanted.append("partition_ba")
    if grouped:
        roles = (*PAIR, *(("substitute",) if study.substitute else ()))
        wanted += [stage for role in roles for stage in _group_stages(role)]
    return [*wanted, "agreement"]


def _group_stages(role: str) -> list[str]:
    by = "" if role == "primary" else f"_by_{role}"
    return [f"contexts_{role}", f"context_statistics_{role}{by}", f"groups_{role}"]


def share(study: Study, present: set[str]) -> float:
    """Finished share of a run's stages, in [0, 1]."""
    wanted = expected(study)
    return sum(stage in present for stage in wanted) / len(wanted)


def step(study: Study, present: set[str]) -> tuple[int, int]:
    """Where a run stands: the number of the present step, from 1, and how many there are."""
    wanted = expected(study)
    done = sum(stage in present for stage in wanted)
    return min(done + 1, len(wanted)), len(wanted)
