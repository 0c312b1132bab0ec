"""Requests to the preview and their identities.

A question is resolved here, without torch: which masks, which results behind its repairs, which losses are
in the store already. Its identity is a hash of all that its numbers depend on, so that two sessions never get
each other's numbers, and get the same ones where they ask the same.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from gprune.app.preview.worker.messages import packed
from gprune.data import texts
from gprune.pipeline import stages
from gprune.pipeline.stages import Graph, Results
from gprune.records import ModelShape, PruningMasks
from gprune.records.repairs import AUTO, LEARNED, WORDS
from gprune.store import Store
from gprune.study import RepairSettings, Study
from gprune.study.methods import METHODS
from gprune.study.settings import SCALED
from gprune.system import machine
from gprune.system.errors import SettingsError

DENSE, FOREIGN = "dense", "foreign"
"""a model without masks, and the kind of weights that are fitted to masks of no run"""


@dataclass(frozen=True, slots=True)
class Question:
    """A request for the losses of a model on the windows of a text."""

    text: str
    """evaluation text, one of those of the study; empty where `role` says which text it is"""
    method: str = "gprune"
    """whose repairs it has, one of gprune.study.methods.METHODS; `dense` has no masks"""
    masks: PruningMasks | None = None
    """units that are kept; None means those that the run has decided on for this method"""
    fitted: bool = True
    """whether weights that were fitted to the run's masks take part, where these are the masks; not where one
    plays with masks, so that all figures on the way are alike"""
    repair: RepairSettings | None = None
    """fitted to these very masks, in place of what the run does to the weights that they keep; None leaves
    these as the run has them, see `fitted`"""
    role: str = ""
    """calibration text, primary, auxiliary or substitute, whose windows are the sequences that were drawn"""
    neuron: tuple[int, int] | None = None
    """layer and place of the one neuron that is silent where the method is `dense`"""


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
        asked = self.graph.study.device
        if asked != "auto":
            return asked
        return "cuda" if machine.has_gpu() else "cpu"

    @property
    def model(self) -> dict[str, Any]:
        """The model that a worker loads; runs with equal values share a worker."""
        study, inputs = self.graph.study, self.graph.inputs
        return {
            "root": str(Path(self.root).resolve()),
            "model": study.model,
            "device": self.device,
            "precision": inputs.precision,
            "trust_remote_code": study.trust_remote_code,
            "fingerprint": inputs.model,
            "tokenizer": inputs.tokenizer,
        }


@dataclass(frozen=True, slots=True, eq=False)
class Resolved:
    """A question with everything that its answer depends on."""

    identity: str
    """equal for questions whose answers are the same numbers"""
    question: Question
    model: dict[str, Any]
    """see Source.model"""
    text: dict[str, Any]
    """the text, its digest, the length and the most windows that the run measures, its batch"""
    pruned: dict[str, Any] | None
    """what is left of the model, see `silent`; None for the dense model"""
    losses: np.ndarray | None
    """(windows,) losses that the run has stored; None where they have to be measured"""

    @property
    def model_key(self) -> str:
        """Equal for questions that one worker can answer."""
        return key_of(self.model)

    @property
    def text_key(self) -> str:
        """Equal for questions about the same windows."""
        return json.dumps([self.model, {**self.text, "batch": 0}], sort_keys=True)


def key_of(model: dict[str, Any]) -> str:
    """A model as one word."""
    return json.dumps(model, sort_keys=True)


def resolve(source: Source, question: Question) -> Resolved:
    """Finds what a question means for a run; nothing heavy is loaded.

    Raises SettingsError where the study does not measure the text or there is no such method, StoreError
    where the run lacks the masks or the results that are needed, or they are damaged.
    """
    text = drawn_of(source, question.role) if question.role else text_of(source, question.text)
    pruned, own = silent(source, question)
    identity = digest([source.model, {**text, "batch": 0}, pruned])
    losses = None
    if own and not question.role and (question.fitted or question.repair or not _fits(source, question)):
        losses = _stored(_repaired_as(source, question), question)
    return Resolved(identity, question, source.model, text, pruned, losses)


def against(source: Source, question: Question, base: Question | None) -> Question:
    """What a question is compared with, the dense model where left out, given what the question is given.

    Weights that are fitted to masks are there for the run's own alone: where other masks are asked for, the
    base does without them as well. Where the question names a repair, the base is what it says. Errors as
    `resolve`.
    """
    base = base or Question(question.text, DENSE, role=question.role)
    if question.repair is not None:
        return base
    if not _fits(source, question) or (question.fitted and _masks(source, question)[1]):
        return base
    return replace(base, fitted=False)


def left_out(graph: Graph, method: str) -> str:
    """That live figures of other masks lack a repair, for people; empty where they lack none."""
    names = " and ".join(one.label for one in stages.repairs(graph, method) if one.fitted)
    if not names:
        return ""
    return (
        f"Live figures of other masks leave {names} out, here and in what they are compared with: it is "
        "fitted to the run's own masks. “Repair the kept weights” fits it to these."
    )


def repair_of(study: Study, scaled: bool = False) -> RepairSettings:
    """Return the repair of live figures: that of the run, or least squares with a bias on A and B.

    A repair that the run chose by measurement is fitted to the run's own masks and is not used. `scaled` adds
    learned scales.
    """
    kind = study.repair.base
    fits = kind != AUTO.word and kind in WORDS and WORDS[kind].fitted
    repair = study.repair if fits else RepairSettings("least_squares_bias", "both")
    return replace(repair, kind=cast(Any, repair.base + SCALED * scaled))


def scale_roles(source: Source) -> tuple[str, ...]:
    """Return the calibration texts of live scales: those of the study that the run has drawn.

    The graph of `source` has a repair with scales.
    """
    tokens = {role: stages.tokens(source.graph, role) for role in source.graph.study.scales.roles}
    return tuple(role for role, stage in tokens.items() if source.results.there(stage))


def _fits(source: Source, question: Question) -> bool:
    """Return True if a repair of the method is fitted to its masks."""
    return any(one.fitted for one in stages.carried_out(source.results, question.method))


def digest(content: Any) -> str:
    """Plain values as one word."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def text_of(source: Source, text: str) -> dict[str, Any]:
    """An evaluation text as a worker is told of it.

    Raises SettingsError where the study does not measure it, StoreError where the run does not say what it
    has read, or has not drawn it yet.
    """
    evaluation, inputs = source.graph.study.evaluation, source.graph.inputs
    source.graph.require_known()
    if text not in evaluation.texts:
        raise SettingsError(f"the run does not measure {text!r}: choose one of {', '.join(evaluation.texts)}")
    told: dict[str, Any] = {
        "name": text,
        "digest": inputs.evaluation[text],
        "length": evaluation.length,
        "windows": evaluation.windows,
        "batch": evaluation.batch,
    }
    return told | _written(source, text)


def drawn_of(source: Source, role: str) -> dict[str, Any]:
    """The sequences that a run has drawn of a calibration text, as a worker is told of a text's windows.

    Raises StoreError where the run does not say what it has read, or the sequences are gone.
    """
    source.graph.require_known()
    drawn = source.graph.study.calibration
    return {
        "name": str(getattr(source.graph.study, role)),
        "tokens": place_of(source.results, stages.tokens(source.graph, role)),
        "length": drawn.length,
        "windows": None,
        "batch": drawn.batch,
    }


def silent(source: Source, question: Question) -> tuple[dict[str, Any] | None, bool]:
    """What is left of the model, in the form of `worker.messages`, and whether its masks are the run's.

    Errors as `resolve`.
    """
    source.graph.require_known()
    if question.method not in METHODS:
        raise SettingsError(f"there is no method {question.method!r}: choose one of {', '.join(METHODS)}")
    if question.neuron is not None:
        shape = source.results.get(stages.shape)
        return {"masks": packed(_all_but(shape, *question.neuron)), "repairs": [], "inputs": {}}, False
    masks, own = _masks(source, question)
    if masks is None:
        return None, own
    if question.repair is None or (own and question.repair == source.graph.study.repair):
        repairs, inputs = _repairs(source, question.method, own and bool(question.fitted or question.repair))
        return {"masks": packed(masks), "repairs": repairs, "inputs": inputs}, own
    return {"masks": packed(masks)} | _to_fit(_repaired_as(source, question), question, masks, own), own


def _all_but(shape: ModelShape, layer: int, neuron: int) -> PruningMasks:
    """Masks that keep every unit but one neuron; SettingsError where the model has no such neuron."""
    if not (0 <= layer < shape.layers and 0 <= neuron < shape.neurons):
        raise SettingsError(f"the model has no neuron {neuron} of layer {layer}: choose another one")
    ffn = np.ones((shape.layers, shape.neurons), dtype=bool)
    ffn[layer, neuron] = False
    heads = np.ones((shape.layers, shape.kv_heads), dtype=bool)
    return PruningMasks(DENSE, ffn, heads, float("nan"), float("nan"))


def _repaired_as(source: Source, question: Question) -> Source:
    """The run, with the repair that a question names."""
    if question.repair is None:
        return source
    return replace(source, graph=stages.with_repair(source.graph, asdict(question.repair)))


def _to_fit(source: Source, question: Question, masks: PruningMasks, own: bool) -> dict[str, Any]:
    """The repair that masks get, the place of its weights, and what they are fitted with if not there.

    Raises SettingsError where the repair is none that is fitted to masks, StoreError where the tokens of a
    text are missing.
    """
    graph, asked, method = source.graph, source.graph.study.repair, question.method
    if AUTO in stages.repairs(graph, method):
        # what was chosen with the recipe's own masks: these are fitted as any others
        method, own = "gprune", False
    repairs = [repair for repair in stages.repairs(graph, method) if LEARNED not in repair.needs.values()]
    if not all(repair.fitted for repair in repairs):
        raise SettingsError(f"repair.kind {asked.kind!r} is not fitted to masks: choose least_squares_bias")
    weights = stages.pruned(graph, method)["weights"]
    fit: dict[str, Any] = {
        "settings": asdict(asked) | {"kind": asked.base},
        "texts": stages.resolve(weights.needs["texts"], lambda stage: place_of(source.results, stage)),
        "batch": graph.study.calibration.batch,
    }
    if asked.scaled:
        places = [place_of(source.results, stages.tokens(graph, role)) for role in scale_roles(source)]
        fit["scales"] = {"settings": asdict(graph.study.scales), "seed": graph.study.seed, "texts": places}
    # no result of the run is fitted to other masks than its own
    place = (
        [weights.kind, weights.key]
        if own and not asked.scaled
        else [FOREIGN, digest([source.model, fit, packed(masks)])]
    )
    return {"repairs": [repair.name for repair in repairs], "inputs": {"weights": place}, "fit": fit}


def _written(source: Source, text: str) -> dict[str, str]:
    """Where the tokens are of a text that the model has written: the worker reads what the run has drawn."""
    if not texts.is_sampled(text):
        return {}
    stage = stages.sampled(source.graph, text)
    # says that it is missing, before a process is started for it
    source.results.record(stage)
    return {"sampled": stage.key}


def _masks(source: Source, question: Question) -> tuple[PruningMasks | None, bool]:
    """The masks that are meant, and whether they are the run's own."""
    if METHODS[question.method].decision == "none":
        return None, True
    results, name = source.results, METHODS[question.method].masks
    if question.masks is None:
        return results.get(stages.masks, name), True
    if not results.has(stages.masks, name):
        return question.masks, False
    own = results.get(stages.masks, name)
    same = np.array_equal(own.ffn, question.masks.ffn) and np.array_equal(own.heads, question.masks.heads)
    return question.masks, same


def _repairs(source: Source, method: str, fitted: bool) -> tuple[list[str], dict[str, Any]]:
    """Names of a method's repairs, and kinds and keys of the records that they need, by parameter.

    Those that are fitted to its masks are left out unless `fitted`.
    """
    results = source.results
    repairs = [one for one in stages.carried_out(results, method) if fitted or not one.fitted]
    needs = stages.pruned(source.graph, method)
    inputs = {
        name: stages.resolve(needs[name], lambda stage: place_of(results, stage))
        for one in repairs
        for name in one.needs
    }
    return [repair.name for repair in repairs], inputs


def place_of(results: Results, stage: stages.Stage[Any]) -> list[str]:
    """Kind and key of a result; StoreError says that it is missing, before a process is started for it."""
    found = stages.served(stage, results.holds)
    results.record(found)
    return [found.kind, found.key]


def _stored(source: Source, question: Question) -> np.ndarray | None:
    results = source.results
    if not results.has(stages.perplexity, question.method, question.text):
        return None
    return np.array(results.get(stages.perplexity, question.method, question.text).losses)
