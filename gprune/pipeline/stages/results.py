"""The results of a study: which ones a run needs, which ones a store has, and the inputs of each method.

The inputs of a method are texts, passes of the dense model, and steps of learning. Texts and learning follow from the
needs in the graph, and the numbers of passes from the details of each result.
"""

import contextlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from gprune.data.texts.holdout import HoldoutStatus
from gprune.evaluation import protocol
from gprune.evaluation.tasks import needs_index
from gprune.pipeline.stages import evaluation as measure
from gprune.pipeline.stages.baselines import scored_on
from gprune.pipeline.stages.calibration import positions, size
from gprune.pipeline.stages.experts import adapted_experts, drifts_of_experts, expert_shape
from gprune.pipeline.stages.graph import KINDS, LEARNING, LETTERS, Graph, Stage, every_need, once, order
from gprune.pipeline.stages.inputs import GRADIENT
from gprune.pipeline.stages.pruned_models import checkpoint, choice, masks, model_inputs, repair_texts
from gprune.pipeline.stages.pruning import chosen_repairs, fixed_attention, repairs
from gprune.pipeline.stages.rasa import adapted_scores, agreements, modules
from gprune.pipeline.stages.scoring import drift, partition
from gprune.records import Choice, Repair, TextOverlap
from gprune.records.repairs import AUTO, LEARNED, REPAIR_BY_WORD, ROUTERS, labels
from gprune.store import Store
from gprune.study import Study
from gprune.study.methods import EXPERT_METHODS, METHODS, RECOMMENDED
from gprune.study.settings import LINEAR_MAPS, OWN, with_word
from gprune.system.errors import DamagedError, StoreError
from gprune.system.units import join_words

UNTIL = ("drift", "adapted", "agreement", "masks", "perplexity", "all")
"""possible ends of a run: agreement needs no masks, perplexity writes no model folder, all runs every stage"""

WRITTEN = ("gprune", RECOMMENDED)
"""methods whose pruned models a complete run writes to folders, if the study has these methods"""
R = TypeVar("R")
P = ParamSpec("P")
Declaration = Callable[Concatenate[Graph, P], Stage[R]]
"""A function of gprune.pipeline.stages that declares a stage, such as `drift` or `masks`."""
NAN = float("nan")


def goal_stages(graph: Graph, until: str = "all") -> list[Stage[Any]]:
    """Return the final stages of a run up to `until`, without the stages that they need, in order of execution.

    Masks and perplexities of the methods with the fewest stages come first, so that a page can show them early.
    """
    study = graph.study
    prunes, measures = until in ("masks", "perplexity", "all"), until in ("perplexity", "all")
    goals = essential_stages(graph, until)
    if study.prunes_experts:
        # the pages name the layers of the mixtures
        goals.append(expert_shape(graph))
    elif until in ("adapted", "agreement"):
        goals[1:1] = [partition(graph), modules(graph)]
    if prunes:
        texts = study.evaluation.texts if measures else ()
        goals += [] if study.prunes_experts else [size(graph)]
        goals += [measure.overlap(graph, text) for text in texts]
        by_method = [_list_method_stages(graph, name, texts) for name in study.methods]
        goals += itertools.chain.from_iterable(sorted(by_method, key=lambda stages: len(order(stages))))
    if measures:
        goals += _list_measurements(graph)
    if until == "all":
        exported = exported_methods(study)
        # the model without recovery and, if the study has it, the model with recovery
        recovery_options = (False, True)[: 1 + recovers(study)]
        goals += [checkpoint(graph, name, recovery=option) for name in exported for option in recovery_options]
    if until in ("agreement", "all") and not study.prunes_experts:
        goals += agreements(graph).values()
    return goals


def essential_stages(graph: Graph, until: str) -> list[Stage[Any]]:
    """Return the stages without which a run up to `until` fails: rank drift and, if it ends there, adapted scores."""
    adapts = until in ("adapted", "agreement")
    if not graph.study.prunes_experts:
        return [drift(graph), *([adapted_scores(graph)] if adapts else [])]
    drifts = drifts_of_experts(graph)
    return [*drifts, *(adapted_experts(graph, stage.id.metric) for stage in drifts if adapts)]


def main_drift(graph: Graph) -> Stage[Any]:
    """Declare the rank drift of the headline: of neurons, or of experts by the first criterion of the study."""
    return essential_stages(graph, "drift")[0]


def exported_methods(study: Study) -> list[str]:
    """Return the methods whose pruned models a complete run writes: those of WRITTEN, or the first of experts."""
    if study.prunes_experts:
        return [next(name for name in study.methods if name in EXPERT_METHODS)]
    return [name for name in WRITTEN if name in study.methods]


def _list_method_stages(graph: Graph, name: str, texts: Sequence[str]) -> list[Stage[Any]]:
    """Return the stages of a method's masks and of its perplexities on `texts`."""
    method = graph.methods[name]
    masked = [masks(graph, method.masks)] if method.decision != "none" else []
    return [*masked, *(measure.perplexity(graph, name, text) for text in texts)]


def measurable(graph: Graph) -> list[str]:
    """Return the tasks of a study whose data is available here."""
    return [task for task in graph.study.evaluation.tasks if task in graph.inputs.tasks]


def _list_measurements(graph: Graph) -> list[Stage[Any]]:
    """Return the stages of accuracies, speed and perplexities after recovery."""
    study, texts = graph.study, graph.study.evaluation.texts
    measurements: list[Stage[Any]] = [
        measure.accuracy(graph, name, task) for name in study.methods for task in measurable(graph)
    ]
    is_open = study.evaluation.open_questions
    open_tasks = [task for task in measurable(graph) if is_open and not measure.has_prompts(graph, task)]
    measurements += [measure.open_answers(graph, name, task) for name in study.methods for task in open_tasks]
    measurements += [measure.speed(graph)] if study.evaluation.speed != "none" else []
    recovered = [name for name in study.methods if METHODS[name].decision != "none"] if recovers(study) else []
    return measurements + [measure.recovered_perplexity(graph, name, text) for name in recovered for text in texts]


def recovers(study: Study) -> bool:
    """Return True if the study trains pruned models further (recovery)."""
    return study.recovery.kind != "none"


def execution_plan(graph: Graph, until: str = "all") -> tuple[Stage[Any], ...]:
    """Return the stages of a run up to `until`, one of UNTIL, in order of execution; see `order`."""
    return _add_by_products(graph, order(goal_stages(graph, until)))


def all_stages(graph: Graph) -> tuple[Stage[Any], ...]:
    """Return every stage that a run of the study can compute, whichever end of UNTIL it has."""
    return _add_by_products(graph, order([*goal_stages(graph, "adapted"), *goal_stages(graph)]))


def _add_by_products(graph: Graph, stages: tuple[Stage[Any], ...]) -> tuple[Stage[Any], ...]:
    """Return the stages and, after each, those whose records it computes as well if they are missing."""
    ordered: dict[Stage[Any], None] = {}
    for stage in stages:
        products: tuple[Stage[Any], ...] = ()
        if stage.kind == "statistics" and graph.study.calibration.positions:
            products = (positions(graph, stage.id.texts[0]),)
        elif stage.kind == "accuracy":
            task = graph.study.evaluation.tasks[stage.id.item or 0]
            products = measure.answers(graph, stage.id.method, task), measure.questions(graph, task)
            if measure.has_prompts(graph, task) or needs_index(task):
                products += (measure.generated_answers(graph, stage.id.method, task),)
        ordered[stage] = None
        ordered |= dict.fromkeys(product for product in products if product not in stages)
    return tuple(ordered)


@once
def stages_by_name(graph: Graph) -> dict[str, Stage[Any]]:
    """Return the stages of `all_stages` and all other declared stages, by name."""
    run_stages = {stage.name: stage for stage in all_stages(graph)}
    return {stage.name: stage for stage in graph.declared_stages()} | run_stages


class Results:
    """The results of a study in a store. A result exists if the store has its key, whichever run computed it."""

    def __init__(self, store: Store, graph: Graph) -> None:
        """Bind a graph to a store; nothing is read."""
        self.store, self.graph = store, graph

    def holds(self, stage: Stage[Any]) -> bool:
        """Return True if the result of a stage exists."""
        return bool(stage.key) and self.store.has(stage.kind, stage.key, KINDS[stage.kind].record)

    def record(self, stage: Stage[R]) -> R:
        """Return the record of a stage with read-only arrays, or the path of a folder; all its files are checked.

        Raises StoreError if the result is absent or damaged.
        """
        kind, key, record_type = stage.kind, stage.key, KINDS[stage.kind].record
        record: Any = self.store.check(kind, key) if record_type is None else self.store.get(kind, key, record_type)
        return record

    def is_intact(self, stage: Stage[Any]) -> bool:
        """Return True if the result of a stage exists and is intact; all its files are read.

        Raises StoreError if an existing result cannot be read.
        """
        try:
            return self.holds(stage) and bool(self.store.check(stage.kind, stage.key, KINDS[stage.kind].record))
        except DamagedError:
            return False

    def plan(self, until: str) -> tuple[Stage[Any], ...]:
        """Return the stages of a run up to `until`, one of UNTIL, in order."""
        return execution_plan(self.graph, until)

    def missing_keys(self, until: str) -> frozenset[str]:
        """Return the keys of the stages of a run up to `until` that have no result."""
        return frozenset(stage.key for stage in self.plan(until) if not self.holds(stage))

    def set_aside(self, stage: Stage[Any]) -> str:
        """Quarantine a damaged result, and return a notice about it; empty if the result is absent or intact.

        Raises StoreError if the cache cannot be written.
        """
        return self.store.set_aside(stage.kind, stage.key, KINDS[stage.kind].record)

    def has(self, declare: Declaration[P, Any], *args: P.args, **kwargs: P.kwargs) -> bool:
        """Return True if the result of a declaration exists: `results.has(drift)`."""
        return self.holds(declare(self.graph, *args, **kwargs))

    def get(self, declare: Declaration[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Return the record of a declared stage: `results.get(scores, "auxiliary")`.

        Raises StoreError if the result is absent or damaged.
        """
        return self.record(declare(self.graph, *args, **kwargs))

    def details(self, stage: Stage[Any]) -> dict[str, Any]:
        """Return the details of a result: seconds, passes, versions; empty if it is absent."""
        return self.store.manifest(stage.kind, stage.key, KINDS[stage.kind].record) or {}

    def model_folder(self, stage: Stage[Any]) -> Path:
        """Return the folder of a pruned model written by a checkpoint stage."""
        return self.store.folder(stage.kind, stage.key) / "model"


def find_choice(results: Results, method: str) -> Choice | None:
    """Return the choice of a method's repair (and masks); None if it has no choice, or the choice is not computed yet.

    Raises StoreError if the record is damaged.
    """
    if AUTO not in repairs(results.graph, method):
        return None
    stage = choice(results.graph, METHODS[method].masks)
    return results.record(stage) if results.holds(stage) else None


def applied_repairs(results: Results, method: str) -> tuple[Repair, ...]:
    """Return the repairs of a method's kept weights; AUTO if a choice among repairs is not computed yet."""
    selection = find_choice(results, method)
    if selection is None:
        return repairs(results.graph, method)
    return chosen_repairs(results.graph, method, selection.repair.partition(":")[0])


@dataclass(frozen=True, slots=True)
class MethodInputs:
    """The texts, passes, learning and repairs that a method used."""

    method: str
    """name of the method, one of gprune.study.methods.ALL_METHODS"""
    texts: tuple[str, ...]
    """names of its calibration texts (A, B, C, self ..., see `graph.LETTERS`)"""
    forward: float
    """forward passes of the dense model, in calibration sets, or NaN if not recorded"""
    backward: float
    """backward passes of the dense model, in the same unit"""
    steps: int
    """steps of learning behind its masks; 0 if nothing was learned"""
    attention: bool
    """whether it adopts the key/value groups of GPrune"""
    repairs: tuple[Repair, ...]
    """repairs of its kept weights"""
    repaired_on: tuple[str, ...]
    """names of the texts to which these repairs are fitted, except for learned scales"""
    scaled_on: tuple[str, ...] = ()
    """names of the texts on which the study learns scales"""

    @property
    def repaired_with(self) -> str:
        """Return the repairs and their texts as a phrase; empty without repairs."""
        return _describe_repairs(self.repairs, self.repaired_on, self.scaled_on)

    @property
    def means(self) -> str:
        """Return its texts and learning steps as a phrase that follows "has"."""
        steps = f"{self.steps} steps of learning" if self.steps else "nothing learned"
        return f"{join_words(self.texts) or 'no text'} and {steps}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        values = {"texts": list(self.texts), "forward passes": self.forward, "backward passes": self.backward}
        values |= {"steps": self.steps, "attention of GPrune": self.attention}
        return values | {"repair": self.repaired_with}


def repair_label(study: Study) -> str:
    """Return the repair of a study as a phrase; empty if it leaves the repair to each method."""
    settings = study.repair
    if settings.kind == "none":
        return "no repair"
    if settings.kind == AUTO.word:
        return AUTO.label
    repairs = [REPAIR_BY_WORD[name] for name in (settings.base, "scales" * settings.scaled) if name in REPAIR_BY_WORD]
    letters = ([LETTERS[role] for role in roles] for roles in (settings.roles, study.scales.roles))
    return _describe_repairs(repairs, *letters)


def recovery_label(graph: Graph) -> str:
    """Return the recovery settings of a study as a phrase; empty without recovery."""
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
    """Return repairs and the names of their texts as a phrase, learned scales last; empty without repairs.

    `scaled_on` are the texts of the learned scales, `letters` those of the other repairs.
    """
    scales = [repair for repair in repairs if LEARNED in repair.needs.values()]
    fits = [repair for repair in repairs if repair not in scales]
    repairs_and_letters = [(fits, letters), (scales, scaled_on)]
    return ", then ".join(f"{labels(part)} on {join_words(texts)}" for part, texts in repairs_and_letters if part)


def method_inputs(results: Results, method: str) -> MethodInputs | None:
    """Return the inputs of a method; None for the dense model, or if its masks are not computed yet.

    Raises StoreError if a record of its learning is damaged.
    """
    graph, settings = results.graph, results.graph.methods[method]
    needs = model_inputs(graph, method)
    if not needs or not results.holds(needs["masks"].stage):
        return None
    required = order(every_need(needs))
    roles = {stage.id.texts[0] for stage in required if stage.kind == "tokens"}
    learned = [stage for stage in required if stage.kind in (*LEARNING, LEARNED)]
    # a run that ends with the masks has no routers
    learned += [stage for stage in required if stage.kind == ROUTERS and results.holds(stage)]
    passes = [counts for stage in required if (counts := results.details(stage).get("passes"))]
    return MethodInputs(
        method=method,
        texts=tuple(label for role, label in {**LETTERS, GRADIENT: "its own text"}.items() if role in roles),
        forward=_sum_passes(passes, "forward"),
        backward=_sum_passes(passes, "backward"),
        steps=sum(len(results.record(stage).steps) for stage in learned),
        attention=bool(fixed_attention(graph, settings)),
        repairs=applied_repairs(results, method),
        repaired_on=tuple(graph.letters[role] for role in _list_repair_texts(results, method)),
        scaled_on=tuple(graph.letters[role] for role in graph.study.scales.roles),
    )


def _list_repair_texts(results: Results, method: str) -> tuple[str, ...]:
    """Return the roles of the texts of a method's repair, or of its chosen repair."""
    settings, selection = results.graph.methods[method], find_choice(results, method)
    if selection is None:
        return repair_texts(results.graph, settings)
    if selection.repair == OWN:
        return scored_on(settings)
    return with_word(results.graph.study.repair, selection.repair).roles if ":" in selection.repair else ()


def _sum_passes(passes: list[Any], direction: str) -> float:
    """Return the passes in one direction, forward or backward, over all stages; NaN if no stage has recorded any."""
    return float(sum(counts.get(direction, 0.0) for counts in passes)) if passes else NAN


def holdout_statuses(graph: Graph, get_record: Callable[..., TextOverlap]) -> dict[str, HoldoutStatus]:
    """Return the relation of each evaluation text to the calibration texts, by evaluation text.

    `get_record` returns the record of a declaration and its arguments, like `Results.get`. A missing or damaged record
    of the overlap counts as not measured.
    """
    overlaps = {}
    for text in graph.study.evaluation.texts:
        with contextlib.suppress(StoreError):
            overlaps[text] = get_record(measure.overlap, text)
    return protocol.holdout_statuses(graph.study, graph.inputs.calibration, graph.inputs.evaluation, overlaps)
