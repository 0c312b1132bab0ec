"""Models that a run leaves, made from the dense one and the run's masks."""

from __future__ import annotations

from typing import Any

from gprune import stages
from gprune.errors import ModelError
from gprune.models import identity
from gprune.stages import Work
from gprune.views.frame.loaders import Run


def cut(run: Run, method: str) -> Any:
    """The model of a method, in evaluation mode, as `from_pretrained` would give it.

    Args:
        run: the run.
        method: one of its methods.

    Raises:
        ModelError: the dense model is not on this machine, or is another one now.
        StoreError: the run has no masks of the method, or a result is damaged.
    """
    needs = stages.resolve(stages.pruned(run.graph, method), run.read)
    _require_same(run)
    work = Work(run.study, run.graph.inputs, run.results.store.texts)
    with work.within_memory(f"the model of {method}"):
        # a stage freezes its model; whoever asks for one here may go on training it
        return work.pruned(**needs).requires_grad_(True)


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
