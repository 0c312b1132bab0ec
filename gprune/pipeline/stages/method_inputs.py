"""What every method of a study was given: texts, passes of the dense model, steps of learning.

The facts follow from the graph, whose needs say which texts and which learning some masks rest on, and from
what is kept beside each result, which says how often the dense model ran. Nothing is said of a method twice.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gprune.evaluation import holdout
from gprune.evaluation.holdout import HoldoutStatus
from gprune.pipeline.stages.baselines import scored_on
from gprune.pipeline.stages.choices_made import carried_out, made
from gprune.pipeline.stages.evaluation import overlap
from gprune.pipeline.stages.graph import LEARNING, LETTERS, Graph, every_need
from gprune.pipeline.stages.inputs import GRADIENT
from gprune.pipeline.stages.pruned_models import pruned, repair_texts
from gprune.pipeline.stages.pruning import fixed_attention, repairs
from gprune.pipeline.stages.results import Results
from gprune.pipeline.stages.stage_order import order
from gprune.records import Repair, TextOverlap
from gprune.records.repairs import AUTO, LEARNED, WORDS, labels
from gprune.study import Study
from gprune.study.choice import OWN, with_word
from gprune.study.methods import METHODS
from gprune.study.recovery import LINEAR_MAPS
from gprune.system.errors import StoreError
from gprune.system.units import listed

NAN = float("nan")


@dataclass(frozen=True, slots=True)
class MethodInputs:
    """What a method was given before it was measured."""

    method: str
    """its name, one of gprune.study.methods.METHODS"""
    texts: tuple[str, ...]
    """the letters of the calibration texts it has read"""
    forward: float
    """forward passes of the dense model, in calibration sets; NaN where none is recorded"""
    backward: float
    """backward passes"""
    steps: int
    """steps of learning behind its decisions; 0 where nothing was learned"""
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
        """Its repair and the texts of it in words; empty where nothing was repaired."""
        return _described(self.repairs, self.repaired_on, self.scaled_on)

    @property
    def learned(self) -> bool:
        """Whether anything was learned."""
        return self.steps > 0

    @property
    def means(self) -> str:
        """Its texts and its learning in words that follow a *has*."""
        texts = listed(self.texts) or "no text"
        return f"{texts} and {f'{self.steps} steps of learning' if self.learned else 'nothing learned'}"

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        values = {"texts": list(self.texts), "forward passes": self.forward, "backward passes": self.backward}
        values |= {"steps": self.steps, "attention of GPrune": self.attention}
        return values | {"repair": self.repaired_with}


def repair_label(study: Study) -> str:
    """The repair that a study gives every method, in words; empty where each has its own."""
    chosen = study.repair
    if chosen.kind == "none":
        return "no repair"
    if chosen.kind == AUTO.word:
        return AUTO.label
    repairs_ = [WORDS[word] for word in (chosen.base, "scales" * chosen.scaled) if word in WORDS]
    letters = ([LETTERS[role] for role in roles] for roles in (chosen.roles, study.scales.roles))
    return _described(repairs_, *letters)


def recovery_label(graph: Graph) -> str:
    """How a study trains every pruned model on, in words; empty where it does not."""
    chosen = graph.study.recovery
    if chosen.kind == "none":
        return ""
    weights = {
        "distillation": chosen.distillation_weight,
        "cross-entropy": chosen.cross_entropy_weight,
    }
    losses = [name if weight == 1 else f"{weight:g} × {name}" for name, weight in weights.items() if weight]
    texts = listed([graph.letters[role] for role in chosen.roles])
    maps = "every linear map" if set(chosen.targets) == set(LINEAR_MAPS) else listed(chosen.targets)
    return (
        f"LoRA of rank {chosen.rank} on {maps}, {chosen.steps} steps of {chosen.batch} sequences of {texts}, "
        f"{' and '.join(losses)}, learning rate {chosen.learning_rate:g}"
    )


def repair_given(graph: Graph, method: str) -> str:
    """What is done to the weights that a method keeps in a study, with the texts of it; empty for nothing."""
    letters = [graph.letters[role] for role in repair_texts(graph, METHODS[method])]
    return _described(repairs(graph, method), letters, _scale_letters(graph))


def repaired_alike(given: Mapping[str, str]) -> str:
    """In one line who is repaired how, from names and what `repair_given` says of them."""
    groups: dict[str, list[str]] = {}
    for name, repair in given.items():
        groups.setdefault(repair, []).append(name)
    if not groups:
        return ""
    bare = bool(groups.pop("", []))
    parts = [f"{listed(names)} by {repair}" for repair, names in groups.items()]
    if len(groups) == 1 and not bare:
        parts = [f"every method by {repair}" for repair in groups]
    others = ["the others not at all" if groups else "none, in any method"] if bare else []
    return f"Repair of the kept weights: {'; '.join([*parts, *others])}"


def _described(repairs: Sequence[Repair], letters: Sequence[str], scaled_on: Sequence[str]) -> str:
    """Repairs and the texts that they are made from, learned scales last; empty for none."""
    scales = [repair for repair in repairs if LEARNED in repair.needs.values()]
    others = [repair for repair in repairs if repair not in scales]
    parts = [(others, letters), (scales, scaled_on)]
    return ", then ".join(f"{labels(part)} on {listed(texts)}" for part, texts in parts if part)


def _scale_letters(graph: Graph) -> tuple[str, ...]:
    return tuple(graph.letters[role] for role in graph.study.scales.roles)


def given(results: Results, method: str) -> MethodInputs | None:
    """What a method was given; None for the dense model, and where its masks are not there.

    Raises StoreError where a record of its learning is damaged.
    """
    graph, known = results.graph, METHODS[method]
    needs = pruned(graph, method)
    if not needs or not results.there(needs["masks"].stage):
        return None
    behind = order(every_need(needs), results.holds)
    read = {stage.id.texts[0] for stage in behind if stage.kind == "tokens"}
    passes = [found for stage in behind if (found := results.details(stage).get("passes"))]
    return MethodInputs(
        method=method,
        texts=tuple(word for role, word in {**LETTERS, GRADIENT: "its own text"}.items() if role in read),
        forward=_sum(passes, "forward"),
        backward=_sum(passes, "backward"),
        steps=sum(len(results.record(stage).steps) for stage in behind if stage.kind in (*LEARNING, LEARNED)),
        attention=bool(fixed_attention(graph, known)),
        repairs=carried_out(results, method),
        repaired_on=tuple(graph.letters[role] for role in _repair_texts(results, method)),
        scaled_on=_scale_letters(graph),
    )


def _repair_texts(results: Results, method: str) -> tuple[str, ...]:
    """The roles of the texts that a method's repair is made from; where it was chosen, of the choice."""
    known, found = METHODS[method], made(results, method)
    if found is None:
        return repair_texts(results.graph, known)
    if found.repair == OWN:
        return scored_on(known)
    return with_word(results.graph.study.repair, found.repair).roles if ":" in found.repair else ()


def _sum(passes: list[Any], way: str) -> float:
    return float(sum(found.get(way, 0.0) for found in passes)) if passes else NAN


def unequal(compared: Iterable[MethodInputs]) -> str:
    """That methods were not given the same, in one line; empty where all of them were."""
    groups: dict[str, list[str]] = {}
    for one in sorted(compared, key=lambda one: -one.steps):
        groups.setdefault(one.means, []).append(METHODS[one.method].label)
    if len(groups) < 2:
        return ""
    parts = [f"{_called(names)} {means}" for means, names in groups.items()]
    return f"Not given the same: {'; '.join(parts)}"


def _called(names: list[str]) -> str:
    """One method by its name, several by their number: labels hold commas."""
    own = list(dict.fromkeys(names))
    return f"{own[0]} has" if len(own) == 1 else f"{len(own)} methods have"


def standings(graph: Graph, read: Callable[..., TextOverlap]) -> dict[str, HoldoutStatus]:
    """What the evaluation texts of a study are to its calibration texts; a damaged overlap is not known.

    `read` gives the record that a declaration speaks of, as `Results.get`.
    """
    found = {}
    for text in graph.study.evaluation.texts:
        with contextlib.suppress(StoreError):
            found[text] = read(overlap, text)
    inputs = graph.inputs
    return holdout.standings(graph.study, inputs.calibration, inputs.evaluation, found)
