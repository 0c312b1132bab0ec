"""Answers: which configurations go on to the next round, and does the winner beat the study's own settings?

A configuration's objective is the mean loss of the method's model over texts and seeds, nats per token: the
logarithm of the geometric mean of its perplexities.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gprune import pipeline
from gprune.analysis.paired_test import Difference, over_both, over_texts
from gprune.experiments.search.plan import Configuration, Plan, Rung
from gprune.pipeline import Listener
from gprune.pipeline.stages import perplexity
from gprune.records import Array
from gprune.store import Store
from gprune.study import Study
from gprune.system import safe_parsing
from gprune.system.errors import MethodError, NumericsError

Losses = tuple[Array, ...]
"""of each text (windows,) mean loss of every window, nats per token"""
Measure = Callable[[Configuration, Rung, int], "Losses | None"]
"""the losses of a configuration under a seed in a round; None where it could not be run"""


@dataclass(frozen=True, slots=True, eq=False)
class Score:
    """What one configuration reached in one round."""

    configuration: Configuration
    losses: tuple[Losses | None, ...]
    """of each seed"""

    @property
    def objective(self) -> float:
        """Mean loss over seeds and texts, nats per token; infinite where a seed could not be run."""
        return float(np.mean(self.by_text())) if None not in self.losses else float("inf")

    def by_text(self) -> Array:
        """(seeds, texts) mean losses, nats per token; infinite where a seed could not be run."""
        count = max((len(run) for run in self.losses if run is not None), default=1)
        rows = [[np.inf] * count if run is None else [text.mean() for text in run] for run in self.losses]
        return np.array(rows, float)


CLEARLY = 2.0
"""standard errors by which a configuration must beat the study's own to be recommended"""


@dataclass(frozen=True, slots=True)
class Round:
    """A round that has ended."""

    rung: Rung
    scores: tuple[Score, ...]
    """the study's own settings first, then the drawn ones, the best first"""


def gain(score: Score, other: Score) -> Difference:
    """Compares two configurations of one round on the windows that both read, texts weighing the same.

    Both have the same seeds. The difference of their objectives, negative where the first is better; its
    error is infinite where one of them could not be run.
    """
    pairs = list(zip(score.losses, other.losses, strict=True))
    whole = [(one, two) for one, two in pairs if one is not None and two is not None]
    if len(whole) < len(pairs):
        return Difference(score.objective - other.objective, np.inf, False)
    # of each seed and text (windows,), turned into one stack of seeds a text
    differences = [[a - b for a, b in zip(one, two, strict=True)] for one, two in whole]
    return over_texts([over_both(np.stack(text)) for text in zip(*differences, strict=True)])


def search(plan: Plan, measure: Measure, ended: Callable[[Round], None] = lambda _: None) -> list[Round]:
    """Goes through the rounds and tells `ended` of each; the study's own settings take part in all."""
    rounds: list[Round] = []
    taking_part = plan.configurations()
    for rung in plan.rungs:
        taking_part = taking_part[: rung.configurations + 1]
        scores = [Score(one, tuple(measure(one, rung, seed) for seed in rung.seeds)) for one in taking_part]
        own = scores[0]
        drawn = sorted(scores[1:], key=lambda score: (score.objective, score.configuration.number))
        rounds.append(Round(rung, (own, *drawn)))
        ended(rounds[-1])
        taking_part = [own.configuration, *(score.configuration for score in drawn)]
    return rounds


def winner(last: Round) -> Score:
    """The configuration to recommend: the best of the last round where it clearly beats the study's own."""
    own, best = last.scores[0], last.scores[1]
    if not np.isfinite(own.objective):
        return min(own, best, key=lambda score: score.objective)
    found = gain(best, own)
    return best if found.nats < -CLEARLY * found.nats_error else own


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

        The listener is told of every stage's progress and may raise Cancelled; `ended` is told of every
        trial.
        """
        self.plan, self.store, self.listener, self.ended = plan, store, listener, ended

    def measure(self, configuration: Configuration, rung: Rung, seed: int) -> Losses | None:
        """The (windows,) losses of the method's model under a configuration on each evaluation text.

        None where the method cannot run under it. Raises GpruneError where the model, a text or the cache
        cannot be used.
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
        if not all(results.has(perplexity, self.plan.method, text) for text in texts):
            return None
        found = tuple(results.get(perplexity, self.plan.method, text).losses for text in texts)
        return found if all(np.isfinite(losses).all() for losses in found) else None
