"""Build the pruned models of a run from the dense model and the run's masks."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gprune.evaluation import protocol
from gprune.models import identity
from gprune.models.export.model_card import Figure
from gprune.pipeline import computing, stages
from gprune.pipeline.runs.opened import Run
from gprune.pipeline.stages import RunContext, pruned_models
from gprune.pipeline.stages.inputs import SAMPLED
from gprune.records.experts import PrunedExperts
from gprune.records.repairs import FITTED, LEARNED, ROUTERS
from gprune.study.settings import require
from gprune.system.errors import SettingsError
from gprune.system.progress import Progress, silent

_STEPS = 3
"""number of steps of an export, for progress"""


def tokenizer(run: Run, trusted: bool) -> Any:
    """Return the tokenizer of a run's model; code that comes with the model runs only if `trusted`.

    Raises:
        SettingsError: the model needs code that is not trusted.
        ModelError: the model is missing, or has no readable tokenizer.
    """
    from gprune.models.loading import load_tokenizer

    _require_trust(run, trusted)
    return load_tokenizer(run.study.model, run.study.trust_remote_code)


def build_model(
    run: Run, method: str, trusted: bool, repair: str | Mapping[str, Any] | None = None, recovered: bool = False
) -> Any:
    """Return the model of a method in evaluation mode, like `from_pretrained`; see `Run.model`.

    Code that comes with the model runs only if `trusted`. `recovered` selects the model after recovery training.

    Raises:
        SettingsError: the model needs code that is not trusted, or the repair is unknown.
        ModelError: the dense model is not on this machine, or has changed.
        StoreError: masks or inputs of the repair are missing or damaged.
    """
    from gprune.pruning.origin import remember_origin

    results, pruned = _load_pruned(run, method, trusted, repair, recovered)
    graph = results.graph
    context = RunContext(graph.study, graph.inputs, results.store.texts)
    with context.within_memory(f"the model of {method}"):
        # stages freeze their models; the caller may train this one
        model = context.prune(pruned).requires_grad_(True)
        if pruned is None or isinstance(pruned, PrunedExperts):
            return model
        figures = _card_figures(results, method, recovered)
        return remember_origin(model, pruned, figures, context.passage(), **graph.origin, trained=recovered)


def export(
    run: Run,
    method: str,
    folder: Path,
    trusted: bool,
    repair: str | Mapping[str, Any] | None = None,
    recovered: bool = False,
    on_progress: Progress = silent,
) -> Path:
    """Write the model of a method as a folder; see `Run.export`, and `build_model` for errors.

    Raises CheckpointError if the folder is not empty, the disk is full, or the model differs when read back.
    """
    from gprune.models.export import checkpoint
    from gprune.models.export.expert_folder import save_experts

    require(method != "dense", "method", method, "a pruned method, because the dense model is a folder already")
    on_progress(0, _STEPS, "checking the dense model")
    results, pruned = _load_pruned(run, method, trusted, repair, recovered)
    graph = results.graph
    # rows and columns are copied, so the CPU gives the same bits as the run's device
    study = replace(graph.study, device="cpu", offload=False)
    context = RunContext(study, graph.inputs, results.store.texts)
    on_progress(1, _STEPS, "reading the dense model and cutting")
    with context.within_memory(f"the model of {method}"):
        is_expert_model = isinstance(pruned, PrunedExperts)
        model = context.prune(pruned if is_expert_model else replace(pruned, recovered=None))
        save = save_experts if is_expert_model else checkpoint.save
        on_progress(2, _STEPS, "writing and reading back")
        figures = _card_figures(results, method, recovered)
        save(
            model,
            context.tokenizer,
            folder,
            pruned,
            **graph.origin,
            figures=figures,
            ids=context.passage(),
            accept=_loss_check(results, method, recovered, context),
        )
    on_progress(_STEPS, _STEPS, "exported")
    return folder.absolute()


def _load_pruned(
    run: Run, method: str, trusted: bool, repair: str | Mapping[str, Any] | None, recovered: bool
) -> tuple[stages.Results, Any]:
    # returns the results with the requested repair in their study, and the PrunedModel, or None for the dense model
    _require_trust(run, trusted)
    if recovered:
        _require_recovery(run, method, repair)
    settings = {"kind": repair} if isinstance(repair, str) else repair
    graph = run.graph if settings is None else stages.with_repair(run.graph, settings)
    results = stages.Results(run.results.store, graph)
    model_needs = pruned_models.recovered_from(graph, method) if recovered else stages.model_inputs(graph, method)
    needs = stages.resolve(model_needs, lambda stage: _load_or_compute(results, stage))
    identity.require_same(run.study.model, graph.inputs.model)
    return results, pruned_models.pruned_model(graph, method, **needs)


def _loss_check(results: stages.Results, method: str, recovered: bool, context: RunContext) -> Callable[[Any], None]:
    # the returned function raises CheckpointError if the loss of the first window differs from the measured one
    from gprune.evaluation.perplexity import require_measured

    declare = stages.recovered_perplexity if recovered else stages.perplexity

    def accept(model: Any) -> None:
        for text in results.graph.study.evaluation.texts:
            stage = declare(results.graph, method, text)
            if results.holds(stage) and (window := context.first_window(text)).size:
                measured = float(results.record(stage).losses[0])
                return require_measured(model, window, measured, text, results.graph.inputs.precision)

    return accept


def _card_figures(results: stages.Results, method: str, recovered: bool) -> tuple[Figure, ...]:
    graph, figures = results.graph, []
    declare = stages.recovered_perplexity if recovered else stages.perplexity
    for text in graph.study.evaluation.texts:
        stage, dense = declare(graph, method, text), stages.perplexity(graph, "dense", text)
        if not results.holds(stage):
            continue
        record, details = results.record(stage), results.details(stage)
        stamp = protocol.of_perplexity(record, details, graph.inputs.precision, graph.study.evaluation.windows)
        base = float(results.record(dense).perplexity) if results.holds(dense) else None
        figures.append(Figure(text, float(record.perplexity), float(record.standard_error), base, stamp.line))
    return tuple(figures)


def _load_or_compute(results: stages.Results, stage: stages.Stage[Any]) -> Any:
    # repaired weights and sampled text are computed if they are missing
    def is_on_demand(needed: stages.Stage[Any]) -> bool:
        return needed.kind in (FITTED, LEARNED, ROUTERS) or SAMPLED in needed.id.texts

    if is_on_demand(stage):
        return computing.compute_result(results, stage, lambda *_: None, is_on_demand)
    return results.record(stage)


def _require_recovery(run: Run, method: str, repair: object) -> None:
    require(method != "dense", "method", method, "a pruned method if recovered, because the dense model is not trained")
    kind = run.study.recovery.kind
    require(kind != "none", "recovery.kind", kind, "lora in a run whose recovered model is requested")
    require(repair is None, "repair", repair, "omitted if recovered, because the run trained its own repair")


def _require_trust(run: Run, trusted: bool) -> None:
    # opening a run must not execute the Python code of its model
    if run.study.trust_remote_code and not trusted:
        raise SettingsError(
            f"the run {run.name} has trust_remote_code on, so its model's own Python code would run "
            "with your rights: use gprune.open(..., trust_remote_code=True) only if you trust its author"
        )
