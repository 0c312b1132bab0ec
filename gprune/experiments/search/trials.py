"""Has the configurations of a search run, one by one in this process; nothing is run twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gprune import pipeline
from gprune.experiments.search.halving import Losses
from gprune.experiments.search.plan import Configuration, Plan, Rung
from gprune.pipeline import Listener
from gprune.pipeline.stages import perplexity
from gprune.store import Store
from gprune.study import Study
from gprune.system import safe_parsing
from gprune.system.errors import MethodError, NumericsError


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial that has ended."""

    configuration: Configuration
    rung: Rung
    seed: int
    losses: Losses | None
    reason: str
    """why it could not be run; empty where it could"""
    reused: bool
    """whether it was in the cache already"""


class Trials:
    """Runs trials through a store."""

    def __init__(
        self,
        plan: Plan,
        store: Store,
        listener: Listener,
        ended: Callable[[Trial], None] = lambda _: None,
    ) -> None:
        """Nothing is run yet.

        Args:
            plan: the search.
            store: where results are kept.
            listener: told of every stage's progress; may raise Cancelled.
            ended: told of every trial.
        """
        self.plan, self.store, self.listener, self.ended = plan, store, listener, ended

    def measure(self, configuration: Configuration, rung: Rung, seed: int) -> Losses | None:
        """The losses of GPrune's model under a configuration.

        Returns:
            Of each evaluation text (windows,); None where the method cannot run under it.

        Raises:
            GpruneError: the model, a text or the cache cannot be used.
        """
        study = self.plan.trial(configuration, rung, seed)
        reason, losses = "", self._there(study)
        reused = losses is not None
        if losses is None:
            try:
                pipeline.run(study, self.store, self.listener, "perplexity")
                losses = self._there(study)
                reason = "" if losses else "its run ended without a finite perplexity"
            except (MethodError, NumericsError) as error:
                reason = safe_parsing.sentence(error)
        self.ended(Trial(configuration, rung, seed, losses, reason, reused))
        return losses

    def _there(self, study: Study) -> Losses | None:
        """The losses that the cache has of a study."""
        results = pipeline.opened(study, self.store)
        texts = study.evaluation.texts
        if not all(results.has(perplexity, "gprune", text) for text in texts):
            return None
        found = tuple(results.get(perplexity, "gprune", text).losses for text in texts)
        if not all(np.isfinite(losses).all() for losses in found):
            return None
        return found
