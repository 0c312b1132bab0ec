"""The graph of stages: what a result is, what it needs, under which key it is kept.

A stage is declared once, by an ordinary function of a graph: `drift(graph)` asks `scores(graph, "primary")`
for its handle, and so the calls between these functions are the dependency graph. Nothing is registered, and
nothing is loaded: keys follow from the study and the digests of what it reads.

A key is the SHA-256 of the kind of result, the version of its formula, the slice of settings it uses, and the
keys of the results it is made from. A changed RASA quantile therefore changes the keys of RASA and of what
follows, and of nothing before it. Settings that change speed but no result (batch sizes) are in no key.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

from gprune import records
from gprune.pipeline.stages.inputs import CHECK, FRESH, ROLES, SAMPLED, Inputs
from gprune.study import Study, methods, run_name
from gprune.study.pruning_method import Method
from gprune.system.errors import StoreError

R = TypeVar("R")
P = ParamSpec("P")
PAIR = ROLES[:2]
"""the roles of A and B"""
LETTERS = dict(zip((*ROLES, SAMPLED, FRESH, CHECK), (*"ABC", "self", "fresh", "check"), strict=True))
"""what the texts of these roles are called on pages and in titles"""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of result: the folder of the store that keeps it."""

    record: type | None
    """class of its records; None where the result is a folder"""
    version: int = 1
    """raised when the formula changes: old results are then left alone and computed anew"""
    seconds: float = 0.1
    """what a result of this kind takes on the bundled demo on two cores, before a cache knows better"""
    holds_text: bool = False
    """whether a text that was read can be had back from its records, as from token ids"""
    on_pages: bool = True
    """whether a page reads it; the others are steps between results"""
    extra: bool = False
    """whether a run is whole without it"""
    on_demand: bool = False
    """whether it is made when somebody asks for it, in no study's course"""


KINDS: dict[str, Kind] = {
    "shape": Kind(records.ModelShape),
    "size": Kind(records.ModelSize),
    "norms": Kind(records.WeightNorms),
    "weighed": Kind(records.WeightFacts, on_pages=False),
    "sampled": Kind(records.SampledText, seconds=6.0, holds_text=True),
    "tokens": Kind(records.Tokens, seconds=1.5, holds_text=True),
    "statistics": Kind(records.ActivationStatistics, seconds=2.2),
    # they show a text beside its tokens and nothing without them: they go where the tokens go
    "positions": Kind(records.StrongestPositions, seconds=2.0, holds_text=True, extra=True),
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
    "answers": Kind(records.Answers, seconds=4.0, extra=True),
    "questions": Kind(records.Questions, seconds=0.5, holds_text=True, extra=True),
    "speed": Kind(records.Throughput, seconds=30.0),
    "agreement": Kind(records.PartitionAgreement),
    "components": Kind(records.Components, seconds=2.0, on_demand=True),
    "map": Kind(records.NeuronMap, seconds=20.0, on_demand=True),
}


FORMAT = 2
"""raised when the layout of results on disk changes: old caches are then left alone"""
LEARNING = ("learning", "gates")
"""the kinds of stage that learn which units stay, step by step"""


def content_key(kind: str, settings: Mapping[str, Any], needs: Mapping[str, str]) -> str:
    """Key of one result, 32 hexadecimal digits; its needs are told by name, as keys or digests."""
    content = {"format": FORMAT, "kind": kind, "version": KINDS[kind].version, "settings": settings, "needs": needs}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]


def settings_of(section: object, *, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """A section of the settings as plain values, without some."""
    return {f.name: getattr(section, f.name) for f in fields(section) if f.name not in without}  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class StageId:
    """What a result is, within its study."""

    kind: str
    """one of KINDS"""
    texts: tuple[str, ...] = ()
    """the roles of the texts it is of; none for the study's own pair, and where it is of no text"""
    metric: str = ""
    """importance metric; empty for the study's own"""
    method: str = ""
    """name of masks, or of the method that is measured"""
    variant: tuple[str, ...] = ()
    """what sets it apart from the usual one, as other_seed"""
    item: int | None = None
    """number of the evaluation text or task"""

    @property
    def name(self) -> str:
        """The one form in which it is written down: in run.json, events and logs. Nothing reads it apart."""
        if self.item is not None:
            return ".".join(filter(None, (self.kind, self.method, str(self.item))))
        return "_".join(filter(None, (self.kind, self.metric, self.method, *self.texts, *self.variant)))


@dataclass(frozen=True, slots=True, eq=False)
class Stage(Generic[R]):
    """A handle of one result: knows its key and what it needs, holds no data."""

    id: StageId
    title: str
    """what it does, in words"""
    key: str
    """content key; empty where the digests of what the study reads are not known"""
    needs: Mapping[str, Any]
    """handles by the parameter of `make` that takes their records; lists and mappings of them are allowed"""
    make: Callable[..., R]
    """computes the record from a RunContext (`run_context`) and the records of its needs; a folder's stage
    gets the folder to fill as well"""
    optional: bool = False
    """whether it does with those of its needs that can be had"""
    served_by: Stage[R] | None = None
    """a result that says all that this one says, and more: where it is there, this one is not made"""
    beside: tuple[Stage[Any], ...] = ()
    """extra results that its own work can make on the way: `make` is given the identities of those that are
    missing as `also`, and returns their records after its own. It does not depend on them"""
    joined: tuple[Stage[Any], ...] = ()
    """results of the same work on other needs: where a run wants such a one and lacks it, `make` is given its
    needs as one of `joined` and returns its record after its own"""

    @property
    def kind(self) -> str:
        """Folder of the store that keeps it."""
        return self.id.kind

    @property
    def name(self) -> str:
        """The identity as it is written down."""
        return self.id.name

    @property
    def stage(self) -> Stage[R]:
        """Itself: a need is a stage, or a part of one."""
        return self


@dataclass(frozen=True, slots=True, eq=False)
class FieldSubset(Generic[R]):
    """A need of some fields of a record only: settings that change the other fields do not change its key."""

    stage: Stage[R]
    key: str


Need = Stage[Any] | FieldSubset[Any]


class Graph:
    """The stages of one study, each made when it is first asked for."""

    def __init__(self, study: Study, inputs: Inputs | None = None, letters: Mapping[str, str] = LETTERS) -> None:
        """Binds a study to digests of what it reads; nothing is loaded.

        Without them stages have names and titles, but no keys. `letters` are what titles call its texts, by
        role.
        """
        self.study, self.letters = study, letters
        self.known = inputs is not None
        self.inputs = inputs or Inputs.unknown(study)
        recorded = methods.recorded_plugins(self.inputs.plugins)
        self.plugins = ChainMap({plugin.id: plugin for plugin in recorded}, methods.PLUGINS)
        """plug-ins by id, as they were when its inputs were read"""
        self.methods: Mapping[str, Method] = ChainMap(methods.methods_of(recorded), cast(Any, methods.METHODS))
        """methods by name, likewise"""
        self._stages: dict[StageId, Stage[Any]] = {}
        self._names: dict[str, Stage[Any]] = {}
        self.asked: dict[Any, Any] = {}
        """what the declarations of this graph have given, see `once`"""
        self.lock = threading.RLock()
        """held while something is declared: the pages of several people share the graph of a run"""

    def require_known(self) -> None:
        """Raises StoreError where a run does not say what it has read."""
        if not self.known:
            raise StoreError("the run does not say what it has read: run the study again, finished stages are kept")

    def stage(
        self,
        identity: StageId,
        title: str,
        make: Callable[..., Any],
        *,
        needs: Mapping[str, Any] | None = None,
        reads: Mapping[str, str] | None = None,
        settings: Mapping[str, Any] | None = None,
        **about: Any,
    ) -> Stage[Any]:
        """The handle of a result; the same one whenever it is asked for.

        `title` says what it does; `make` computes it, see Stage; `needs` are handles of what it is made from,
        `reads` digests of what it reads from outside, `settings` the slice of the study that it depends on;
        `about` is what else a Stage says of itself: optional, served_by, beside, joined.
        """
        with self.lock:
            if identity not in self._stages:
                needs = needs or {}
                key = self._key(identity.kind, settings or {}, needs, reads or {})
                made: Stage[Any] = Stage(identity, title, key, needs, make, **about)
                if self._names.setdefault(made.name, made) is not made:
                    raise RuntimeError(f"two stages are called {made.name!r}: {identity}")
                self._stages[identity] = made
            return self._stages[identity]

    def part(self, stage: Stage[R], settings: Mapping[str, Any], needs: Mapping[str, Any]) -> FieldSubset[R]:
        """A need of some fields of a stage's record: with the settings and needs that change these fields."""
        return FieldSubset(stage, self._key(stage.kind, settings, needs, {}))

    def _key(self, kind: str, settings: Mapping[str, Any], needs: Mapping[str, Any], reads: Mapping[str, str]) -> str:
        keys = {name: need.key for name, need in _named(needs)} | dict(reads)
        return content_key(kind, settings, keys) if self.known else ""

    def made(self) -> tuple[Stage[Any], ...]:
        """Every handle that has been asked for."""
        return tuple(self._stages.values())

    @property
    def model(self) -> dict[str, str]:
        """What a stage reads that runs the dense model."""
        return {"model": self.inputs.model, "precision": self.inputs.precision}

    @property
    def tokenizer(self) -> dict[str, str]:
        """What a stage reads that tokenizes a text: the same files give other tokens under other libraries."""
        libraries = self.inputs.tokenizing
        return {"tokenizer": self.inputs.tokenizer} | ({"libraries": libraries} if libraries else {})

    @property
    def origin(self) -> dict[str, Any]:
        """What ``pruning.json`` says of where a pruned model comes from."""
        study = self.study
        facts = {"source": study.model, "fingerprint": self.inputs.model, "run": run_name(study)}
        return facts | {"study": study.to_dict()}


def once(declare: Callable[Concatenate[Graph, P], R]) -> Callable[Concatenate[Graph, P], R]:
    """Has a declaration made once a graph for the same arguments, however many stages ask for it."""

    @wraps(declare)
    def asked(graph: Graph, /, *args: P.args, **kwargs: P.kwargs) -> R:
        question = (declare, args, tuple(sorted(kwargs.items())))
        with graph.lock:
            if question not in graph.asked:
                graph.asked[question] = declare(graph, *args, **kwargs)
            found: R = graph.asked[question]
        return found

    return asked


def _named(needs: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Need]]:
    """Every handle among some needs, under its place."""
    for name, need in needs.items():
        if isinstance(need, Stage | FieldSubset):
            yield before + name, need
        else:
            inner = need if isinstance(need, Mapping) else dict(enumerate(need))
            yield from _named({str(key): value for key, value in inner.items()}, f"{before}{name}.")


def every_need(needs: Mapping[str, Any]) -> tuple[Stage[Any], ...]:
    """The stages behind some needs, in their order."""
    return tuple(need.stage for _, need in _named(needs))


def needed(stage: Stage[Any]) -> tuple[Stage[Any], ...]:
    """The stages that a stage is made from."""
    return every_need(stage.needs)
