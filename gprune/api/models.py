"""Models that a run leaves, made from the dense one and the run's masks."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gprune.models import identity
from gprune.pipeline import lazy_results, stages
from gprune.pipeline.runs.opened import Run
from gprune.pipeline.stages import RunContext
from gprune.pipeline.stages.inputs import CHECK, FRESH, SAMPLED, content_of, roles
from gprune.records.repairs import FITTED
from gprune.system.errors import SettingsError


def tokenizer(run: Run, trusted: bool) -> Any:
    """The tokenizer of a run's model; code that comes with the model is run only where it is `trusted`.

    Raises SettingsError where it would have to be and may not, ModelError where the model is not there or has
    no tokenizer that can be read.
    """
    from gprune.models.loading import load_tokenizer

    _require_trust(run, trusted)
    return load_tokenizer(run.study.model, run.study.trust_remote_code)


def cut(run: Run, method: str, trusted: bool, repair: str | Mapping[str, Any] | None = None) -> Any:
    """The model of a method, in evaluation mode, as `from_pretrained` would give it.

    Code that comes with the model is run only where it is `trusted`. For `repair` see `Run.model`. Raises
    SettingsError where code would have to be run and may not or the repair is none, ModelError where the
    dense model is not on this machine or is another one now, StoreError where the run has no masks of the
    method, lacks what the repair needs, or a result is damaged.
    """
    _require_trust(run, trusted)
    graph = run.graph if repair is None else _repaired(run, repair)
    results = stages.Results(run.results.store, graph)
    needs = stages.resolve(stages.pruned(graph, method), lambda stage: _record(results, stage))
    identity.require_same(run.study.model, graph.inputs.model)
    work = RunContext(graph.study, graph.inputs, results.store.texts)
    with work.within_memory(f"the model of {method}"):
        # a stage freezes its model; whoever asks for one here may go on training it
        return work.pruned(stages.pruned_model(graph, method, **needs)).requires_grad_(True)


def _repaired(run: Run, repair: str | Mapping[str, Any]) -> stages.Graph:
    """The run's graph with another repair; SettingsError where there is none such."""
    settings = {"kind": repair} if isinstance(repair, str) else repair
    changes = {f"repair.{name}": value for name, value in settings.items()}
    study = run.study.with_settings(changes | {"sparsity.bias_compensation": False})
    inputs = run.graph.inputs
    known = {role: text for role, text in roles(study).items() if role in (SAMPLED, FRESH, CHECK)}
    told = {
        role: content_of(study, inputs.model, inputs.precision, text, role) for role, text in known.items()
    }
    return stages.Graph(study, replace(inputs, calibration=inputs.calibration | told))


def _record(results: stages.Results, stage: stages.Stage[Any]) -> Any:
    """A record of the run; weights are fitted, and text of the model is sampled, where they are not there."""

    def made(one: stages.Stage[Any]) -> bool:
        return one.kind == FITTED or SAMPLED in one.id.texts

    if made(stage):
        return lazy_results.made(results, stage, lambda *_: None, made)
    return results.record(stage)


def _require_trust(run: Run, trusted: bool) -> None:
    """Raises SettingsError where code of a model would run by a record's word alone, not by the caller's."""
    if run.study.trust_remote_code and not trusted:
        raise SettingsError(
            f"the run {run.name} has trust_remote_code on, so that its model's own Python code would run "
            "with your rights: use gprune.open(..., trust_remote_code=True) only if you trust its author"
        )
