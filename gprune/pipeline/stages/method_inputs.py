"""The inputs of every method of a study: texts, passes of the dense model, steps of learning.

The facts follow from the graph, whose needs say which texts and which learning some masks rest on, and from
what is kept beside each result, which says how often the dense model ran. Nothing is said of a method twice.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gprune.evaluation import protocol
from gprune.evaluation.protocol import HoldoutStatus
from gprune.pipeline.stages.baselines import scored_on
from gprune.pipeline.stages.evaluation import overlap
from gprune.pipeline.stages.graph import LEARNING, LETTERS, Graph, every_need, order
from gprune.pipeline.stages.inputs import GRADIENT
from gprune.pipeline.stages.pruned_models import model_inputs, repair_texts
from gprune.pipeline.stages.pruning import fixed_attention
from gprune.pipeline.stages.results import Results, applied_repairs, find_choice
from gprune.records import Repair, TextOverlap
from gprune.records.repairs import AUTO, LEARNED, WORDS, labels
from gprune.study import Study
from gprune.study.methods import METHODS
from gprune.study.settings import LINEAR_MAPS, OWN, with_word
from gprune.system.errors import StoreError
from gprune.system.units import join_words

NAN = float("nan")


@dataclass(frozen=True, slots=True)
class MethodInputs:
    """The inputs of a method."""

    method: str
    """its name, one of gprune.study.methods.METHODS"""
    texts: tuple[str, ...]
    """the letters of the calibration texts it has read"""
    forward: float
    """forward passes of the dense model, in calibration sets, or NaN if none is recorded"""
    backward: float
    """backward passes"""
    steps: int
    """steps of learning behind its decisions; 0 if nothing was learned"""
    attention: bool
    """whether its key/value groups are those of GPrune"""
    repairs: tuple[Repair, ...]
    """what was done to the weights that it keeps"""
    repaired_on: tuple[str, ...]
    """the letters of the texts that this was made from, learned scales apart"""
    scaled_on: tuple[str, ...] = ()
    """the letters of the texts that scales are learned on, where they are"""

    @property
    def repaired_with(self) -> str:
        """Return the repairs and their texts in words; empty if nothing was repaired."""
        return _describe_repairs(self.repairs, self.repaired_on, self.scaled_on)

    @property
    def means(self) -> str:
        """Return its texts and its learning steps in words that follow "has"."""
        steps = f"{self.steps} steps of learning" if self.steps else "nothing learned"
        return f"{join_words(self.texts) or 'no text'} and {steps}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        values = {"texts": list(self.texts), "forward passes": self.forward, "backward passes": self.backward}
        values |= {"steps": self.steps, "attention of GPrune": self.attention}
        return values | {"repair": self.repaired_with}


def repair_label(study: Study) -> str:
    """Describe the repair that a study gives every method; empty if each has its own."""
    settings = study.repair
    if settings.kind == "none":
        return "no repair"
    if settings.kind == AUTO.word:
        return AUTO.label
    repairs = [WORDS[name] for name in (settings.base, "scales" * settings.scaled) if name in WORDS]
    letters = ([LETTERS[role] for role in roles] for roles in (settings.roles, study.scales.roles))
    return _describe_repairs(repairs, *letters)


def recovery_label(graph: Graph) -> str:
    """Describe the training of pruned models in a study; empty without one."""
    settings = graph.study.recovery
    if settings.kind == "none":
        return ""
    weights = {"distillation": settings.distillation_weight, "cross-entropy": settings.cross_entropy_weight}
    losses = [name if weight == 1 else f"{weight:g} × {name}" for name, weight in weights.items() if weight]
    texts = join_words([graph.letters[role] for role in settings.roles])
    maps = "every linear map" if set(settings.targets) == set(LINEAR_MAPS) else join_words(settings.targets)
    return (
        f"LoRA of rank {settings.rank} on {maps}, {settings.steps} steps of {settings.batch} sequences of {texts}, "
        f"{' and '.join(losses)}, learning rate {settings.learning_rate:g}"
    )


def _describe_repairs(repairs: Sequence[Repair], letters: Sequence[str], scaled_on: Sequence[str]) -> str:
    """Describe repairs and the texts they are made from, learned scales last; empty for none."""
    scales = [repair for repair in repairs if LEARNED in repair.needs.values()]
    fits = [repair for repair in repairs if repair not in scales]
    repairs_and_letters = [(fits, letters), (scales, scaled_on)]
    return ", then ".join(f"{labels(part)} on {join_words(texts)}" for part, texts in repairs_and_letters if part)


def method_inputs(results: Results, method: str) -> MethodInputs | None:
    """Return the inputs of a method; None for the dense model, or without masks.

    Raises StoreError if a record of its learning is damaged.
    """
    graph, settings = results.graph, METHODS[method]
    needs = model_inputs(graph, method)
    if not needs or not results.holds(needs["masks"].stage):
        return None
    required = order(every_need(needs))
    read_roles = {stage.id.texts[0] for stage in required if stage.kind == "tokens"}
    passes = [counts for stage in required if (counts := results.details(stage).get("passes"))]
    return MethodInputs(
        method=method,
        texts=tuple(label for role, label in {**LETTERS, GRADIENT: "its own text"}.items() if role in read_roles),
        forward=_sum_passes(passes, "forward"),
        backward=_sum_passes(passes, "backward"),
        steps=sum(len(results.record(stage).steps) for stage in required if stage.kind in (*LEARNING, LEARNED)),
        attention=bool(fixed_attention(graph, settings)),
        repairs=applied_repairs(results, method),
        repaired_on=tuple(graph.letters[role] for role in _repair_texts(results, method)),
        scaled_on=tuple(graph.letters[role] for role in graph.study.scales.roles),
    )


def _repair_texts(results: Results, method: str) -> tuple[str, ...]:
    """Return the roles of the texts that a method's repair, or its chosen repair, is made from."""
    settings, selection = METHODS[method], find_choice(results, method)
    if selection is None:
        return repair_texts(results.graph, settings)
    if selection.repair == OWN:
        return scored_on(settings)
    return with_word(results.graph.study.repair, selection.repair).roles if ":" in selection.repair else ()


def _sum_passes(passes: list[Any], direction: str) -> float:
    return float(sum(counts.get(direction, 0.0) for counts in passes)) if passes else NAN


def holdout_statuses(graph: Graph, get_record: Callable[..., TextOverlap]) -> dict[str, HoldoutStatus]:
    """Return how the evaluation texts relate to the calibration texts; unknown if an overlap is corrupt.

    `get_record` returns the record of a declaration and its arguments, as `Results.get`.
    """
    overlaps = {}
    for text in graph.study.evaluation.texts:
        with contextlib.suppress(StoreError):
            overlaps[text] = get_record(overlap, text)
    return protocol.holdout_statuses(graph.study, graph.inputs.calibration, graph.inputs.evaluation, overlaps)
