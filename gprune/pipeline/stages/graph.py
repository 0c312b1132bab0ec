"""The graph of stages: results, their needs, and their keys in the store.

An ordinary function of a graph declares each stage once. `drift(graph)` calls `scores(graph, "primary")`, so the calls
between these functions form the dependency graph. Nothing is registered or loaded: keys follow from the study and the
digests of its inputs.

A key is the SHA-256 of the kind of result, the version of its formula, the settings that it uses, and the keys of its
needs. A changed RASA quantile therefore changes the keys of RASA and of all later results, but no earlier key. Settings
that only change speed, such as batch sizes, are in no key. A stage with optional needs, such as a choice among
candidates, is declared without the needs that failed.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

from gprune import records
from gprune.pipeline.stages.inputs import CHECK, FRESH, ROLES, SAMPLED, Inputs
from gprune.records import experts
from gprune.study import Study, methods, run_name
from gprune.study.methods import Method
from gprune.system.errors import StoreError

R = TypeVar("R")
P = ParamSpec("P")
PAIR = ROLES[:2]
"""the roles of A and B"""
LETTERS = dict(zip((*ROLES, SAMPLED, FRESH, CHECK), (*"ABC", "self", "fresh", "check"), strict=True))
"""names of the texts of these roles on pages and in titles"""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of result, and the name of its folder in the store."""

    record: type | None
    """class of its records, or None if the result is a folder"""
    version: int = 1
    """incremented when the formula changes; older results are then ignored and computed again"""
    seconds: float = 0.1
    """seconds of a result on the bundled demo with two cores, used until a cache has measured values"""
    holds_text: bool = False
    """whether a text can be reconstructed from its records, such as token ids"""
    on_pages: bool = True
    """whether a page reads it; the other kinds are intermediate results"""
    on_demand: bool = False
    """whether it is only computed on demand, not by a run"""


KINDS: dict[str, Kind] = {
    "shape": Kind(records.ModelShape),
    "size": Kind(records.ModelSize),
    "norms": Kind(records.WeightNorms),
    "weighed": Kind(records.WeightFacts, on_pages=False),
    "sampled": Kind(records.SampledText, seconds=6.0, holds_text=True),
    "tokens": Kind(records.Tokens, seconds=1.5, holds_text=True),
    "statistics": Kind(records.ActivationStatistics, seconds=2.2),
    # texts are useless without their tokens, so they are stored with the tokens
    "positions": Kind(records.StrongestPositions, holds_text=True),
    "contexts": Kind(records.Contexts, version=2, seconds=1.2, on_pages=False),
    "context_statistics": Kind(records.ContextStatistics, seconds=4.7, on_pages=False),
    "groups": Kind(records.Partition),
    "scores": Kind(records.UnitScores),
    "drift": Kind(records.RankDrift),
    "clusters": Kind(records.Partition, version=2, seconds=0.7),
    "partition": Kind(records.Partition, seconds=3.5),
    "modules": Kind(records.ModuleStatistics),
    "adapted": Kind(records.AdaptedScores),
    "learning": Kind(records.Learning, seconds=36.0),
    "gates": Kind(records.GateLearning, seconds=36.0),
    "masks": Kind(records.PruningMasks, seconds=0.5),
    "repaired": Kind(records.RepairedWeights, seconds=12.0, on_pages=False),
    "scales": Kind(records.LearnedScales, seconds=10.0),
    "recovered": Kind(records.RecoveredWeights, seconds=40.0),
    "candidate": Kind(records.CandidateFigures, seconds=2.0, on_pages=False),
    "choice": Kind(records.Choice),
    "chosen": Kind(records.RepairedWeights, on_pages=False),
    "checkpoint": Kind(None, seconds=0.2),
    "overlap": Kind(records.TextOverlap, seconds=0.3),
    "perplexity": Kind(records.Perplexity, seconds=0.8),
    "recovered_perplexity": Kind(records.Perplexity, seconds=0.8),
    "accuracy": Kind(records.Accuracy, seconds=4.0),
    "answers": Kind(records.Answers),
    "questions": Kind(records.Questions, holds_text=True),
    "generated_answers": Kind(records.GeneratedAnswers, holds_text=True),
    "open_answers": Kind(records.GeneratedAnswers, seconds=12.0, holds_text=True),
    "speed": Kind(records.Throughput, seconds=30.0),
    "agreement": Kind(records.PartitionAgreement),
    "expert_shape": Kind(experts.ExpertShape),
    "expert_statistics": Kind(experts.ExpertStatistics, version=2, seconds=2.2),
    "expert_scores": Kind(experts.ExpertScores),
    "expert_drift": Kind(experts.ExpertDrift),
    "expert_adaptation": Kind(experts.AdaptedExperts),
    "expert_masks": Kind(experts.ExpertMasks),
    "routers": Kind(experts.RouterWeights, seconds=30.0),
    "components": Kind(records.Components, seconds=2.0, on_demand=True),
    "map": Kind(records.NeuronMap, seconds=20.0, on_demand=True),
}


FORMAT = 2
"""incremented when the layout of results on disk changes; older results are then ignored"""
LEARNING = ("learning", "gates")
"""the kinds of stage that learn step by step"""
_TRAINED = (*LEARNING, "scales", "recovered", "routers")
"""the kinds of stage that train parameters"""


def content_key(kind: str, settings: Mapping[str, Any], needs: Mapping[str, str]) -> str:
    """Return the key of a result, 32 hexadecimal digits; `needs` are the keys of needs and digests, by name."""
    content = {"format": FORMAT, "kind": kind, "version": KINDS[kind].version, "settings": settings, "needs": needs}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]


def settings_of(section: object, *, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a section of the study's settings as plain values by name, without the fields in `without`."""
    return {f.name: getattr(section, f.name) for f in fields(section) if f.name not in without}  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class StageId:
    """The identity of a result within its study."""

    kind: str
    """one of KINDS"""
    texts: tuple[str, ...] = ()
    """roles of its calibration texts; empty for the study's A and B, and for a result without such a text"""
    metric: str = ""
    """importance metric; empty for the study's metric"""
    method: str = ""
    """name of the masks, or of the measured method"""
    variant: tuple[str, ...] = ()
    """difference from the default variant, such as other_seed"""
    item: int | None = None
    """index of the evaluation text or task"""

    @property
    def has_backward(self) -> bool:
        """Return True if the stage runs backward passes, which rule out offload."""
        has_gradient = self.kind == "context_statistics" and "forward" not in self.variant
        return has_gradient or self.kind in _TRAINED or (self.kind, self.metric) == ("scores", "llm_pruner")

    @property
    def name(self) -> str:
        """Name in run.json, events and logs; only its kind is parsed (`pipeline.eta`)."""
        if self.item is not None:
            return ".".join(filter(None, (self.kind, self.method, str(self.item))))
        return "_".join(filter(None, (self.kind, self.metric, self.method, *self.texts, *self.variant)))


@dataclass(frozen=True, slots=True, eq=False)
class Stage(Generic[R]):
    """The declaration of one result: it has the key and the needs of the result, but no data."""

    id: StageId
    title: str
    """description of the computation"""
    key: str
    """content key; empty if the digests of the study's inputs are unknown"""
    needs: Mapping[str, Any]
    """needs by the parameter of `make` that receives their records; a value may be a list or mapping of needs"""
    make: Callable[..., R]
    """computes the record from a RunContext (`run_context`) and the records of the needs; for a folder, it also
    receives the path of the folder to fill
    """

    @property
    def kind(self) -> str:
        """Return the kind of the result, which is also the folder of the store with such results."""
        return self.id.kind

    @property
    def name(self) -> str:
        """Name in run.json, events and logs."""
        return self.id.name

    @property
    def stage(self) -> Stage[R]:
        """Return the stage itself; a need is either a stage or a FieldSubset."""
        return self


@dataclass(frozen=True, slots=True, eq=False)
class FieldSubset(Generic[R]):
    """A need for only some fields of a record; settings that change the other fields do not change its key."""

    stage: Stage[R]
    key: str


Need = Stage[Any] | FieldSubset[Any]


class Graph:
    """The stages of one study, each created on first use."""

    def __init__(
        self,
        study: Study,
        inputs: Inputs | None = None,
        letters: Mapping[str, str] = LETTERS,
        failures: Mapping[str, str] | None = None,
    ) -> None:
        """Bind a study to digests of its inputs; nothing is loaded.

        Without digests, stages have names and titles, but no keys. `letters` are the names of the texts in titles, by
        role. `failures` are the reasons why a run could not compute some stages, by their keys.
        """
        self.study, self.letters, self.failures = study, letters, dict(failures or {})
        self.has_inputs = inputs is not None
        self.inputs = inputs or Inputs.unknown(study)
        recorded = methods.recorded_plugins(self.inputs.plugins)
        self.plugins = ChainMap({plugin.id: plugin for plugin in recorded}, methods.PLUGINS)
        """plug-ins by id, as they were when the inputs were read"""
        self.methods: Mapping[str, Method] = ChainMap(methods.methods_of(recorded), cast(Any, methods.ALL_METHODS))
        """methods by name, as they were when the inputs were read"""
        self._stages: dict[StageId, Stage[Any]] = {}
        self._names: dict[str, StageId] = {}
        self.declarations: dict[Any, Any] = {}
        """results of declaring functions by function and arguments, see `once`"""
        self.lock = threading.RLock()
        """held during a declaration, because the pages of several users share the graph of a run"""

    def require_known(self) -> None:
        """Raise StoreError if the run has not recorded digests of its inputs."""
        if not self.has_inputs:
            raise StoreError("the run has no digests of its inputs: run the study again, finished stages are kept")

    def record_failure(self, stage: Stage[Any], reason: str) -> None:
        """Record that a stage cannot be computed; stages that are declared later omit it if they need it optionally."""
        with self.lock:
            self.failures[stage.key] = reason
            self.declarations.clear()

    def failure(self, *stages: Stage[Any]) -> str:
        """Return the reason why a stage, or one that it needs, could not be computed; empty if none failed."""
        needed_stages = order(stages) if self.failures else ()
        return next((self.failures[stage.key] for stage in needed_stages if stage.key in self.failures), "")

    def without_failed(self, stages: Mapping[str, Stage[R]]) -> dict[str, Stage[R]]:
        """Return the stages for which no failure is recorded."""
        return {name: stage for name, stage in stages.items() if not self.failure(stage)}

    def stage(
        self,
        identity: StageId,
        title: str,
        make: Callable[..., Any],
        *,
        needs: Mapping[str, Any] | None = None,
        reads: Mapping[str, str] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Stage[Any]:
        """Declare a stage; another declaration with the same identity and key returns the same object.

        `title` describes the computation, and `make` computes the record (see Stage). `needs` are the stages whose
        records `make` receives, by parameter. `reads` are digests of inputs and `settings` are values; both only enter
        the key.
        """
        with self.lock:
            stage = self._stages.get(identity)
            # a failure changes the keys of stages for which the failed stage is an optional need
            if stage is None or self.failures:
                needs = needs or {}
                key = self._key(identity.kind, settings or {}, needs, reads or {})
                if stage is None or stage.key != key:
                    stage = self._stages[identity] = Stage(identity, title, key, needs, make)
                if self._names.setdefault(stage.name, identity) != identity:
                    raise RuntimeError(f"two stages are called {stage.name!r}: {identity}")
            return stage

    def part(self, stage: Stage[R], settings: Mapping[str, Any], needs: Mapping[str, Any]) -> FieldSubset[R]:
        """Return a need for some fields of a record; `settings` and `needs` are those that change these fields."""
        return FieldSubset(stage, self._key(stage.kind, settings, needs, {}))

    def _key(self, kind: str, settings: Mapping[str, Any], needs: Mapping[str, Any], reads: Mapping[str, str]) -> str:
        """Return the key of a result, or an empty string if the digests of the inputs are unknown."""
        keys = {name: need.key for name, need in _flatten_needs(needs)} | dict(reads)
        return content_key(kind, settings, keys) if self.has_inputs else ""

    def declared_stages(self) -> tuple[Stage[Any], ...]:
        """Return every stage that was declared, with its last key."""
        return tuple(self._stages.values())

    @property
    def model_digests(self) -> dict[str, str]:
        """Return the digests on which the key of every stage that reads the dense model depends."""
        return {"model": self.inputs.model, "precision": self.inputs.precision}

    @property
    def tokenizer_digests(self) -> dict[str, str]:
        """Return the digests on which the key of every stage that tokenizes a text depends.

        They are those of the tokenizer's files and, if recorded, of the tokenizer libraries.
        """
        libraries = self.inputs.tokenizing
        return {"tokenizer": self.inputs.tokenizer} | ({"libraries": libraries} if libraries else {})

    @property
    def origin(self) -> dict[str, Any]:
        """Return the dense model, run and study of a pruned model, for its ``pruning.json``."""
        values = {"source": self.study.model, "fingerprint": self.inputs.model, "run": run_name(self.study)}
        return values | {"study": self.study.to_dict()}


def once(declare: Callable[Concatenate[Graph, P], R]) -> Callable[Concatenate[Graph, P], R]:
    """Decorate a function that declares stages, so that each graph calls it once per arguments."""

    @wraps(declare)
    def declare_once(graph: Graph, /, *args: P.args, **kwargs: P.kwargs) -> R:
        call = (declare, args, tuple(sorted(kwargs.items())))
        with graph.lock:
            if call not in graph.declarations:
                graph.declarations[call] = declare(graph, *args, **kwargs)
            declaration: R = graph.declarations[call]
        return declaration

    return declare_once


def _flatten_needs(needs: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Need]]:
    """Yield every need in nested mappings and lists with its path, such as texts.0."""
    for name, need in needs.items():
        if isinstance(need, Stage | FieldSubset):
            yield prefix + name, need
        else:
            inner = need if isinstance(need, Mapping) else dict(enumerate(need))
            yield from _flatten_needs({str(key): value for key, value in inner.items()}, f"{prefix}{name}.")


def every_need(needs: Mapping[str, Any]) -> tuple[Stage[Any], ...]:
    """Return the stages in a mapping of needs, which may contain lists and mappings, in order."""
    return tuple(need.stage for _, need in _flatten_needs(needs))


def required_stages(stage: Stage[Any]) -> tuple[Stage[Any], ...]:
    """Return the stages that a stage needs directly."""
    return every_need(stage.needs)


def resolve(needs: Any, load: Callable[[Stage[Any]], Any]) -> Any:
    """Return the records of needs in the structure of `needs`, which may contain lists and mappings."""
    if isinstance(needs, Stage | FieldSubset):
        return load(needs.stage)
    if isinstance(needs, Mapping):
        return {name: resolve(need, load) for name, need in needs.items()}
    return [resolve(need, load) for need in needs]


def order(goals: Iterable[Stage[Any]]) -> tuple[Stage[Any], ...]:
    """Return some stages and all their needs, each stage after its needs."""
    ordered: dict[Stage[Any], None] = {}

    def add(stage: Stage[Any]) -> None:
        if stage not in ordered:
            for need in required_stages(stage):
                add(need)
            ordered[stage] = None

    for goal in goals:
        add(goal)
    return tuple(ordered)
