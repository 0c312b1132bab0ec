"""Models that a run leaves, made from the dense one and the run's masks."""

from __future__ import annotations

from typing import Any

from gprune import stages
from gprune.errors import ModelError, SettingsError
from gprune.models import identity
from gprune.stages import Work
from gprune.views.frame.loaders import Run


def tokenizer(run: Run, trusted: bool) -> Any:
    """The tokenizer of a run's model.

    Args:
        run: the run.
        trusted: whether code that comes with the model may be run.

    Raises:
        SettingsError: it would have to be, and may not.
        ModelError: the model is not there, or has no tokenizer that can be read.
    """
    from gprune.models.loading import load_tokenizer

    _require_trust(run, trusted)
    return load_tokenizer(run.study.model, run.study.trust_remote_code)


def cut(run: Run, method: str, trusted: bool) -> Any:
    """The model of a method, in evaluation mode, as `from_pretrained` would give it.

    Args:
        run: the run.
        method: one of its methods.
        trusted: whether code that comes with the model may be run.

    Raises:
        SettingsError: it would have to be, and may not.
        ModelError: the dense model is not on this machine, or is another one now.
        StoreError: the run has no masks of the method, or a result is damaged.
    """
    _require_trust(run, trusted)
    needs = stages.resolve(stages.pruned(run.graph, method), run.read)
    _require_same(run)
    work = Work(run.study, run.graph.inputs, run.results.store.texts)
    with work.within_memory(f"the model of {method}"):
        # a stage freezes its model; whoever asks for one here may go on training it
        return work.pruned(**needs).requires_grad_(True)


def _require_trust(run: Run, trusted: bool) -> None:
    """Checks that code which comes with a model is run by the word of whoever calls, not of a record alone.

    Raises:
        SettingsError: it would be.
    """
    if run.study.trust_remote_code and not trusted:
        raise SettingsError(
            f"the run {run.name} has trust_remote_code on, so that its model's own Python code would run "
            "with your rights: use gprune.open(..., trust_remote_code=True) only if you trust its author"
        )


def _require_same(run: Run) -> None:
    """Checks that the model which is here is the one that was run.

    Raises:
        ModelError: it is not.
    """
    folder = identity.locate(run.study.model)
    if identity.fingerprint(str(folder)) != run.graph.inputs.model:
        raise ModelError(
            f"{run.study.model!r} is another model now than the one that the run {run.name} has read: "
            "run the study again"
        )
