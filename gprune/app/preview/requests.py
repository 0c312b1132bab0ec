"""Requests to the live worker: a question together with everything that its answer depends on.

A question is resolved here, without torch: its masks, the results that its repairs need, and losses that the store
has already. The identity of a request is a hash of everything that its numbers depend on, so sessions share an answer
exactly if their requests are equal.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from gprune.app.preview.questions import Neuron, Passage, Prompt, Question, TokenQuestion, WindowLosses
from gprune.pipeline import stages
from gprune.pipeline.stages import Graph, Results
from gprune.records import Array, ModelShape, PruningMasks
from gprune.records.repairs import AUTO, LEARNED, REPAIR_BY_WORD
from gprune.store import Store
from gprune.study import RepairSettings, ScaleSettings, Study
from gprune.study.methods import METHODS
from gprune.study.settings import SCALED
from gprune.system import machine
from gprune.system.errors import ModelError, SettingsError

DENSE = "dense"
"""the method that has no masks"""
MOST_CHARACTERS = 200_000
"""maximum length of a typed passage; the rest is not sent"""
ResultKey = tuple[str, str]
"""kind and key of a result in the store"""


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """The model that a worker loads; runs with equal values share a worker."""

    root: str
    """the cache folder"""
    model: str
    device: str
    precision: str
    trust_remote_code: bool
    fingerprint: str
    tokenizer: str
    experts: bool = False
    """True if the run prunes experts"""


@dataclass(frozen=True, slots=True)
class Source:
    """A run: the cache it lives in, its study, and the digests of what it has read."""

    root: str
    """the cache folder"""
    graph: Graph
    """stages of the run, with keys"""

    @property
    def results(self) -> Results:
        """The results of the run in the cache."""
        return Results(Store(Path(self.root)), self.graph)

    @property
    def device(self) -> str:
        """The device of the run's model: cpu, cuda or cuda:1."""
        device = self.graph.study.device
        if device != "auto":
            return device
        return "cuda" if machine.has_gpu() else "cpu"

    @property
    def model(self) -> ModelSpec:
        """The model of the run."""
        study, inputs = self.graph.study, self.graph.inputs
        root = str(Path(self.root).resolve())
        trusts, experts = study.trust_remote_code, study.prunes_experts
        digests = inputs.model, inputs.tokenizer
        return ModelSpec(root, study.model, self.device, inputs.precision, trusts, *digests, experts)


@dataclass(frozen=True, slots=True)
class Text:
    """The windows of an evaluation text, or the sequences that a run has drawn from a calibration text."""

    name: str
    length: int
    """tokens of a window"""
    batch: int
    """maximum number of windows per batch"""
    windows: int | None = None
    """maximum number of windows that the run measures"""
    digest: str = ""
    """digest of the evaluation text that the run read"""
    sampled: str = ""
    """key of the tokens of a text that the model has written"""
    tokens: ResultKey | None = None
    """result with the sequences of a calibration text; None for an evaluation text"""


@dataclass(frozen=True, slots=True, eq=False)
class Scaling:
    """Settings to learn scales of fitted weights."""

    settings: ScaleSettings
    seed: int
    texts: list[ResultKey]
    """results with the tokens of the calibration texts"""


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """Settings to fit weights to masks."""

    settings: RepairSettings
    texts: list[ResultKey]
    """results with the tokens of the calibration texts"""
    batch: int
    """sequences per forward pass"""
    scaling: Scaling | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Pruning:
    """Masks and their repairs, with the stored results or the fit that the repairs need."""

    masks: PruningMasks
    repairs: tuple[str, ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """kind and key of the stored results that the repairs need, by parameter"""
    fit: Fit | None = None
    """settings to fit the parameter `weights` if no result has it"""

    @property
    def key(self) -> str:
        """Hash that is equal for equal models."""
        return digest(self)


@dataclass(frozen=True, slots=True, eq=False)
class WorkerRequest:
    """One task of a worker, for one model."""

    identity: str
    """equal for requests whose answers are the same numbers"""
    model: ModelSpec
    task: Literal["losses", "read", "write", "neuron"]
    arguments: dict[str, Any]
    """arguments of the task's function, see gprune.app.preview.worker.loop"""
    question: Any
    stored: WindowLosses | None = None
    """the answer, if the run has stored it"""


def missing_model(name: str) -> ModelError:
    """Return the error that the model of a run is missing."""
    from gprune.models.identity import resolve

    folder = resolve(name)
    return ModelError(f"the model folder {folder!r} is missing or incomplete: restore it, or choose another run")


def digest(*content: Any) -> str:
    """Return a hash of plain values, dataclasses and masks."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=_to_plain).encode()).hexdigest()[:32]


def _to_plain(value: Any) -> Any:
    if isinstance(value, PruningMasks):
        # the name of the method and the retention do not affect a loss
        return [value.ffn, value.heads]
    if isinstance(value, np.ndarray):
        return [value.shape, hashlib.sha256(np.packbits(value).tobytes()).hexdigest()]
    return {item.name: getattr(value, item.name) for item in fields(value)}


def resolve(source: Source, question: Question) -> WorkerRequest:
    """Return the request of a question about a run; no model is loaded.

    Raises SettingsError if the study does not measure the text or there is no such method, StoreError
    if masks or results that are needed are missing or damaged.
    """
    text = drawn_text(source, question.role) if question.role else evaluation_text(source, question.text)
    pruning, is_own = resolve_pruning(source, question)
    stored = None
    if is_own and not question.role and (question.fitted or question.repair or not _is_fitted(source, question)):
        stored = _stored_losses(_apply_repair(source, question), question)
    # the batch size does not affect a loss
    identity = digest(source.model, replace(text, batch=0), pruning)
    return WorkerRequest(identity, source.model, "losses", {"text": text, "pruning": pruning}, question, stored)


def resolve_tokens(source: Source, question: TokenQuestion, models: Sequence[Question]) -> tuple[WorkerRequest, ...]:
    """Return the requests of a question that is answered token by token, one for each model.

    Raises SettingsError if there is no such text or method, StoreError if the run lacks masks or
    statistics.
    """
    arguments: dict[str, Any]
    match question:
        case Passage():
            task, text = "read", evaluation_text(source, question.text) if question.text else None
            arguments = {"passage": replace(question, typed=question.typed[:MOST_CHARACTERS]), "text": text}
        case Prompt():
            task, arguments = "write", {"prompt": replace(question, typed=question.typed[:MOST_CHARACTERS])}
        case Neuron():
            tokens = _tokens_key(source, question.role) if question.role else None
            task, arguments = "neuron", {"question": question, "tokens": tokens}
    requests = []
    for model in models:
        # a neuron's activations and tokens are those of the dense model
        pruning = {} if task == "neuron" else {"pruning": resolve_pruning(source, model)[0]}
        identity = digest(source.model, task, arguments, pruning)
        requests.append(WorkerRequest(identity, source.model, cast(Any, task), arguments | pruning, question))
    return tuple(requests)


def base_question(source: Source, question: Question, base: Question | None) -> Question:
    """Return the question to compare with: `base`, by default the dense model, with the same kind of repairs.

    Stored weights are fitted to the run's own masks. If the question has other masks and therefore no fitted
    weights, its base has none either, unless the question names a repair. Raises the errors of `resolve`.
    """
    base = base or Question(question.text, DENSE, role=question.role)
    if question.repair is not None:
        return base
    if not _is_fitted(source, question) or (question.fitted and _masks(source, question)[1]):
        return base
    return replace(base, fitted=False)


def describe_left_out(graph: Graph, method: str) -> str:
    """Return a sentence on the fitted repairs that live values of other masks lack; empty if there are none."""
    names = " and ".join(repair.label for repair in stages.repairs(graph, method) if repair.fitted)
    if not names:
        return ""
    return (
        f"Live values of other masks, and of their reference, lack {names}, which is fitted to the run's own masks. "
        "“Repair the kept weights” fits it to these masks."
    )


def repair_of(study: Study, scaled: bool = False) -> RepairSettings:
    """Return the repair of live values: that of the run, or least squares with a bias on A and B.

    A repair that the run chose by measurement is fitted to the run's own masks and is not used. `scaled` adds
    learned scales.
    """
    kind = study.repair.base
    fits = kind != AUTO.word and kind in REPAIR_BY_WORD and REPAIR_BY_WORD[kind].fitted
    repair = study.repair if fits else RepairSettings("least_squares_bias", "both")
    return replace(repair, kind=cast(Any, repair.base + SCALED * scaled))


def scale_roles(source: Source) -> tuple[str, ...]:
    """Return the roles of the texts on which live scales are learned: those in the settings that the run has drawn.

    The study of `source` must have a repair with scales.
    """
    tokens = {role: stages.tokens(source.graph, role) for role in source.graph.study.scales.roles}
    return tuple(role for role, stage in tokens.items() if source.results.holds(stage))


def evaluation_text(source: Source, text: str) -> Text:
    """Return an evaluation text of a run.

    Raises SettingsError if the study does not measure it, StoreError if the run has not recorded its inputs, or has not
    sampled the text yet.
    """
    evaluation, inputs = source.graph.study.evaluation, source.graph.inputs
    source.graph.require_known()
    if text not in evaluation.texts:
        raise SettingsError(f"the run does not measure {text!r}: choose one of {', '.join(evaluation.texts)}")
    from gprune.data.texts import is_sampled

    sampled = ""
    if is_sampled(text):
        # the worker reads the text that the run has sampled
        sampled = _result_key(source.results, stages.sampled_text(source.graph, text))[1]
    return Text(text, evaluation.length, evaluation.batch, evaluation.windows, inputs.evaluation[text], sampled)


def drawn_text(source: Source, role: str) -> Text:
    """Return the sequences that a run has drawn from a calibration text. Raises StoreError if they are missing."""
    calibration = source.graph.study.calibration
    name = str(getattr(source.graph.study, role))
    return Text(name, calibration.length, calibration.batch, tokens=_tokens_key(source, role))


def resolve_pruning(source: Source, question: Question) -> tuple[Pruning | Array | None, bool]:
    """Return the pruning of a question, None for the dense model, and True if its masks are the run's.

    The pruning of a run that prunes experts is (mixtures, experts) bool, True for the experts that are kept. Raises the
    errors of `resolve`.
    """
    source.graph.require_known()
    experts = source.graph.study.prunes_experts
    methods: Iterable[str] = source.graph.study.methods if experts else METHODS
    if question.method not in {DENSE, *methods}:
        raise SettingsError(f"unknown method {question.method!r}: choose one of {', '.join(methods)}")
    if experts:
        return _reverse_expert(source, question)
    if question.neuron is not None:
        return Pruning(_silence_neuron(source.results.get(stages.shape), *question.neuron)), False
    masks, is_own = _masks(source, question)
    if masks is None:
        return None, is_own
    # the worker receives plain arrays, not views of files
    masks = replace(masks, ffn=np.array(masks.ffn), heads=np.array(masks.heads))
    if question.repair is None or (is_own and question.repair == source.graph.study.repair):
        fitted = is_own and bool(question.fitted or question.repair)
        return Pruning(masks, *_repairs(source, question.method, fitted)), is_own
    return _prepare_fit(_apply_repair(source, question), question.method, masks, is_own), is_own


def _reverse_expert(source: Source, question: Question) -> tuple[Array | None, bool]:
    """Return the masks of a method with the decision on the question's expert reversed; see `resolve_pruning`."""
    shape, is_dense = source.results.get(stages.expert_shape), question.method == DENSE
    if question.expert is None and is_dense:
        return None, True
    # a copy: the worker receives a plain array, not a view of a file
    masks = np.ones((len(shape.layers), shape.experts), dtype=bool)
    if not is_dense:
        masks[:] = source.results.get(stages.expert_masks, question.method).experts
    if question.expert is not None:
        mixture, expert = question.expert
        if not (0 <= mixture < len(shape.layers) and 0 <= expert < shape.experts):
            raise SettingsError(f"the model has no expert {expert} in mixture {mixture}: choose another one")
        masks[mixture, expert] ^= True
    return masks, question.expert is None


def _silence_neuron(shape: ModelShape, layer: int, neuron: int) -> PruningMasks:
    """Return masks that remove a single neuron of the dense model."""
    if not (0 <= layer < shape.layers and 0 <= neuron < shape.neurons):
        raise SettingsError(f"the model has no neuron {neuron} in layer {layer}: choose another one")
    ffn = np.ones((shape.layers, shape.neurons), dtype=bool)
    ffn[layer, neuron] = False
    heads = np.ones((shape.layers, shape.kv_heads), dtype=bool)
    return PruningMasks(DENSE, ffn, heads, float("nan"), float("nan"))


def _apply_repair(source: Source, question: Question) -> Source:
    """Return the run with the repair of the question in its study, if the question has one."""
    if question.repair is None:
        return source
    return replace(source, graph=stages.with_repair(source.graph, asdict(question.repair)))


def _is_fitted(source: Source, question: Question) -> bool:
    """Return True if the run fits weights to the masks of the question's method."""
    return any(repair.fitted for repair in stages.applied_repairs(source.results, question.method))


def _prepare_fit(source: Source, method: str, masks: PruningMasks, is_own: bool) -> Pruning:
    """Return masks with the repair of the source's study; the worker fits its weights if no result has them.

    Raises SettingsError if the repair is not fitted to masks, StoreError if the tokens of a
    text are missing.
    """
    graph, results, settings = source.graph, source.results, source.graph.study.repair
    if AUTO in stages.repairs(graph, method):
        # the run chose this repair for the recipe's own masks, so it is fitted to these masks like to any others
        method, is_own = "gprune", False
    repairs = [repair for repair in stages.repairs(graph, method) if LEARNED not in repair.needs.values()]
    if not all(repair.fitted for repair in repairs):
        raise SettingsError(f"repair.kind {settings.kind!r} is not fitted to masks: choose least_squares_bias")
    names = tuple(repair.name for repair in repairs)
    weights = stages.model_inputs(graph, method)["weights"]
    if is_own and not settings.scaled and results.holds(weights):
        return Pruning(masks, names, {"weights": _result_key(results, weights)})
    scaling = None
    if settings.scaled:
        tokens = [_tokens_key(source, role) for role in scale_roles(source)]
        scaling = Scaling(graph.study.scales, graph.study.seed, tokens)
    texts = stages.resolve(weights.needs["texts"], lambda stage: _result_key(results, stage))
    kind = cast(Any, settings.base)
    return Pruning(masks, names, {}, Fit(replace(settings, kind=kind), texts, graph.study.calibration.batch, scaling))


def _masks(source: Source, question: Question) -> tuple[PruningMasks | None, bool]:
    """Return the masks of a question, and True if they are the run's own."""
    if METHODS[question.method].decision == "none":
        return None, True
    results, name = source.results, METHODS[question.method].masks
    if question.masks is None:
        return results.get(stages.masks, name), True
    if not results.has(stages.masks, name):
        return question.masks, False
    run_masks = results.get(stages.masks, name)
    pairs = (run_masks.ffn, question.masks.ffn), (run_masks.heads, question.masks.heads)
    return question.masks, all(np.array_equal(*pair) for pair in pairs)


def _repairs(source: Source, method: str, fitted: bool) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return a method's repairs, without those that are fitted to masks unless `fitted`, and their inputs."""
    results = source.results
    repairs = [repair for repair in stages.applied_repairs(results, method) if fitted or not repair.fitted]
    needs = stages.model_inputs(source.graph, method)
    inputs = {
        name: stages.resolve(needs[name], lambda stage: _result_key(results, stage))
        for repair in repairs
        for name in repair.needs
    }
    return tuple(repair.name for repair in repairs), inputs


def _tokens_key(source: Source, role: str) -> ResultKey:
    source.graph.require_known()
    return _result_key(source.results, stages.tokens(source.graph, role))


def _result_key(results: Results, stage: stages.Stage[Any]) -> ResultKey:
    """Return kind and key of a result. Raises StoreError if it is missing, before a worker is started."""
    results.record(stage)
    return stage.kind, stage.key


def _stored_losses(source: Source, question: Question) -> WindowLosses | None:
    """Return the losses that the run has measured, or None."""
    if not source.results.has(stages.perplexity, question.method, question.text):
        return None
    losses = source.results.get(stages.perplexity, question.method, question.text).losses
    return WindowLosses(np.array(losses, dtype=np.float64))
