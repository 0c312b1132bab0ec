"""Test the claims of the paper on measured losses.

A case is a model, a retention and a text. In every case, a claim compares two methods on the same windows. Published
numbers, and models on which settings were chosen, are not used.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gprune.analysis.paired_test import BETTER, NOISE, WORSE, Difference, over_seeds_and_windows
from gprune.records import REPAIRS, Array, Repair
from gprune.records.repairs import COMPENSATION
from gprune.study.methods import BUILT_IN, METHODS
from gprune.study.methods import RECOMMENDED as RECIPE

VERDICTS = "Which claims hold here"
"""heading of the claims in a document"""
RECOMMENDED = "gprune recommended"
"""id of GPrune with the settings of the recommended profile"""
IN_DOMAIN: Literal["in_domain"] = "in_domain"
UNSEEN: Literal["unseen"] = "unseen"
HOLDS, MIXED, FAILS, UNKNOWN = "holds", "mixed", "does not hold", "not measured"
JOINT = tuple(name for name in BUILT_IN if METHODS[name].scoring != "single")
"""baselines that use the scores of both texts"""
BASELINES = tuple(
    name
    for name, method in ((name, METHODS[name]) for name in BUILT_IN)
    if not (method.control or method.learns or method.decision in ("none", "chosen")) and name != "wanda_sp_dense"
)
"""competing published methods"""
BASES = {"twflap": ("fang", "twflap")}
"""baselines of a metric in order of preference, if not the method of the same name (the paper uses FANG)"""


def repaired_id(repair: Repair) -> str:
    """Return the id of GPrune with a study's repair, for example `gprune compensated`."""
    return f"gprune {repair.attribute}"


def equal_width_id(method: str) -> str:
    """Return the id of a method with equal widths, for example `flap equal widths`."""
    return f"{method} equal widths"


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """Losses of all methods on one text, for one model and one retention."""

    model: str
    retention: float
    text: str
    unseen: bool
    """whether no method was calibrated on the text's corpus"""
    losses: Mapping[str, Mapping[int, Array]]
    """(windows,) mean losses in nats per token by method and seed"""
    missing: frozenset[str] = frozenset()
    """methods with missing seeds, which are not compared"""

    def loss(self, method: str) -> float:
        """Return the mean loss over seeds in nats per token, or NaN if not measured."""
        runs = self.losses.get(method, {}).values()
        return float(np.mean([losses.mean() for losses in runs])) if runs else math.nan

    def best(self, methods: Sequence[str]) -> str:
        """Return the method with the lowest mean loss; empty if none is measured."""
        return min((name for name in methods if math.isfinite(self.loss(name))), key=self.loss, default="")

    def difference(self, first: str, second: str) -> Difference | None:
        """Return the loss of the first method minus that of the second on common seeds.

        Returns None if there is no common seed, or if a seed of one of the methods is missing.
        """
        if self.missing & {first, second}:
            return None
        runs, other_runs = self.losses.get(first, {}), self.losses.get(second, {})
        differences = [runs[seed] - other_runs[seed] for seed in runs if seed in other_runs]
        return over_seeds_and_windows(np.stack(differences)) if differences else None


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of the paper, or an additional check."""

    sentence: str
    source: str
    """place of the claim in the paper; empty for an additional check"""
    first: str
    """method that should be better"""
    rivals: tuple[str, ...]
    """methods to compare with; in each case, only the best of them is used"""
    where: Literal["", "in_domain", "unseen"] = ""
    """restricts the claim to texts from the corpora of A and B (in_domain) or from other corpora (unseen)"""


_MAIN, _NO_RASA, _UNIFORM = "main table", "gprune_no_rasa", ("flap_uniform",)
_MODULES, _SETTINGS = "behavior-consistent modules", "the settings chosen on the development model"
_COMPENSATED = repaired_id(REPAIRS[COMPENSATION])
CLAIMS = (
    Claim("GPrune is better than its base metric FLAP", _MAIN, "gprune", ("flap",)),
    Claim("GPrune is better than FLAP without bias compensation", "", "gprune", ("flap_no_bias",)),
    Claim("GPrune with bias compensation is better than FLAP", "", _COMPENSATED, ("flap",)),
    Claim("GPrune is better than the best baseline", _MAIN, "gprune", BASELINES),
    Claim("GPrune is better than the best baseline on unseen text", _MAIN, "gprune", BASELINES, UNSEEN),
    Claim("GPrune uses two texts better than joint scoring", "multi-dataset table", "gprune", JOINT),
    Claim(f"{_MODULES} are better than random modules", "ablation", _NO_RASA, ("msl_random",)),
    Claim(f"{_MODULES} are better than shuffled modules of the same sizes", "", _NO_RASA, ("msl_shuffled",)),
    Claim("RASA improves the model", "ablation", "gprune", (_NO_RASA,)),
    Claim("learned thresholds per module are better than one per layer", "", "gprune", ("msl_layers",)),
    Claim("one learned threshold per layer is better than the same ratio in every layer", "", "msl_layers", _UNIFORM),
    Claim("a gate per unit is better than a threshold per module, with the same steps", "", "gates", ("gprune",)),
    Claim(f"{_SETTINGS} are better, with the same passes and steps", "", RECOMMENDED, ("gprune",)),
    Claim("GPrune with these settings is better than the best baseline", "", RECOMMENDED, BASELINES),
    Claim("the recommended recipe is better than the best baseline", "", RECIPE, BASELINES),
    Claim("the recommended recipe is better than GPrune", "", RECIPE, ("gprune",)),
    Claim("GPrune with free widths is better than with equal widths", "", "gprune", (equal_width_id("gprune"),)),
    Claim("FLAP with free widths is better than with equal widths", "", "flap", (equal_width_id("flap"),)),
    Claim("with equal widths GPrune is better than FLAP", "", equal_width_id("gprune"), (equal_width_id("flap"),)),
)


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """A claim with its measured cases."""

    claim: Claim
    cases: tuple[tuple[Case, str, Difference], ...]
    """case, compared method and difference of each testable case"""

    def count(self, verdict: str) -> int:
        """Return the number of cases in which the first method was BETTER, WORSE or NOISE."""
        return sum(difference.verdict == verdict for _, _, difference in self.cases)

    @property
    def outcome(self) -> str:
        """Return HOLDS if better in most cases and worse in none, FAILS if worse at least as often as better.

        Else MIXED, and UNKNOWN without cases. Cases within noise count as neither better nor worse.
        """
        better, worse = self.count(BETTER), self.count(WORSE)
        if not self.cases:
            return UNKNOWN
        if worse == 0 and 2 * better > len(self.cases):
            return HOLDS
        return FAILS if worse >= better else MIXED

    @property
    def change(self) -> float:
        """Return the geometric mean of the change of perplexity over the cases."""
        nats = [difference.nats for _, _, difference in self.cases]
        return math.expm1(float(np.mean(nats))) if nats else math.nan

    @property
    def seeds(self) -> str:
        """Return the number of common seeds in which the mean over the cases is in favor, such as `2 of 3`."""
        pairs = [(case.losses[self.claim.first], case.losses[rival]) for case, rival, _ in self.cases]
        seeds = set.intersection(*(runs.keys() & rival_runs.keys() for runs, rival_runs in pairs))
        sums = [sum(runs[seed].mean() - rival_runs[seed].mean() for runs, rival_runs in pairs) for seed in seeds]
        return f"{sum(value < 0 for value in sums)} of {len(seeds)}"

    @property
    def counts(self) -> str:
        """Return the counts in the form `7 better, 2 within noise, 3 worse`."""
        return ", ".join(f"{self.count(verdict)} {verdict}" for verdict in (BETTER, NOISE, WORSE))


def judge_claim(claim: Claim, cases: Sequence[Case]) -> ClaimVerdict:
    """Return the verdict on a claim over the cases to which it applies; without cases if a method has missing seeds."""
    judged = []
    for case in cases:
        if claim.where and case.unseen != (claim.where == UNSEEN):
            continue
        if case.missing & {claim.first, *claim.rivals}:
            return ClaimVerdict(claim, ())
        best_other = case.best(claim.rivals)
        difference = case.difference(claim.first, best_other) if best_other else None
        if difference is not None and math.isfinite(difference.nats):
            judged.append((case, best_other, difference))
    return ClaimVerdict(claim, tuple(judged))
