"""Records of mixture-of-experts models, in which the unit is the expert.

An *expert* is one gated FFN of a layer's mixture. It is removed with its row of the router and its entries of the
router's biases. Layers without a mixture are not counted on the axis `layers`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from gprune.records.base import Array, Record, booleans, integers, real
from gprune.records.calibration import Tokens
from gprune.system.errors import SettingsError

LEAST_TOKENS = 16
"""tokens below which an expert is cold: its count is reported, but it has no rank"""
STRONGEST = 12
"""tokens that are recorded for every expert: those with the largest g * ||f(x)||"""
_LEAST_IN_GROUP = 2
"""experts that every router group keeps, because a group is selected by its two best experts"""


@dataclass(frozen=True, slots=True)
class ExpertShape:
    """Sizes of the mixtures of a model, from which the parameters of an expert follow."""

    layers: tuple[int, ...]
    """indices of the decoder layers that have a mixture"""
    experts: int
    """experts of each mixture"""
    top_k: int
    """experts that process a token"""
    groups: int
    """groups of the router; 1 if it has none"""
    top_groups: int
    """groups from which a token's experts are selected"""
    expert_parameters: int
    """parameters of an expert, with its row of the router and its entries of the router's biases"""
    parameters: int
    """parameters of the dense model; tied tensors count once"""

    def kept_experts(self, retention: float) -> int:
        """Return the number of experts per mixture at a retention of the parameters of experts and routers.

        It is the largest multiple of the number of groups within the budget. Raises SettingsError if the router then
        could not select `top_k` experts.
        """
        return kept_experts(self.experts, self.top_k, self.groups, self.top_groups, retention)

    def pruned_parameters(self, count: int) -> int:
        """Return the parameters of the model with `count` experts in every mixture."""
        return self.parameters - len(self.layers) * (self.experts - count) * self.expert_parameters


def kept_experts(experts: int, top_k: int, groups: int, top_groups: int, retention: float) -> int:
    """Return the number of experts per mixture; see `ExpertShape` for the arguments and `ExpertShape.kept_experts`."""
    # the tolerance keeps rounding errors from removing an expert
    in_group = math.floor((retention * experts + 1e-6) / groups)
    needed = math.ceil(top_k / top_groups)
    if groups > 1:
        needed = max(needed, _LEAST_IN_GROUP)
    if in_group < needed:
        in_groups = f" in each of its {groups} groups" if groups > 1 else ""
        raise SettingsError(
            f"retention {retention:g} keeps {in_group} of {experts // groups} experts{in_groups}, but the router needs "
            f"{needed}: choose a retention of at least {math.ceil(needed * groups / experts * 1e4) / 1e4:g}"
        )
    return in_group * groups


@dataclass(frozen=True, slots=True, eq=False)
class ExpertStatistics(Record):
    """Sums over the tokens that a router sends to an expert, per shard of disjoint sequences of a calibration set.

    f(x) is the output of the expert, and g the router's weight of the token. The *strongest* tokens of an expert have
    the largest g * ||f(x)||, the norm of what it adds to the hidden state.
    """

    text: str
    """name of the text in the study"""
    fingerprint: str
    """SHA-256 of the tokens"""
    shard_tokens: Annotated[Array, integers("shards")]
    """(shards,) int64 tokens of each shard"""
    routed: Annotated[Array, integers("shards", "layers", "experts")]
    """(shards, layers, experts) int64 tokens that the expert processes"""
    weights: Annotated[Array, real("shards", "layers", "experts", finite=True)]
    """(shards, layers, experts) float64 sum of g"""
    weighted_norms: Annotated[Array, real("shards", "layers", "experts", finite=True)]
    """(shards, layers, experts) float64 sum of g * ||f(x)||"""
    norms: Annotated[Array, real("shards", "layers", "experts", finite=True)]
    """(shards, layers, experts) float64 sum of ||f(x)||"""
    positions: Annotated[Array, integers("layers", "experts", "kept")]
    """(layers, experts, kept) int64 flat indices of the strongest tokens in the (samples, length) tokens, the strongest
    first and the earlier first at a tie; -1 in slots without a token"""
    strengths: Annotated[Array, real("layers", "experts", "kept", finite=True)]
    """(layers, experts, kept) float32 g * ||f(x)|| of these tokens; 0 in slots without a token"""

    @classmethod
    def of(
        cls, tokens: Tokens, shard_tokens: Array, sums: Array, positions: Array, strengths: Array
    ) -> ExpertStatistics:
        """Build the record from (4, shards, layers, experts) sums in the order of the fields.

        The strength of a slot without a token is -inf, and its position has no meaning.
        """
        routed, weights, weighted_norms, norms = sums
        counts, is_empty = np.rint(routed).astype(np.int64), np.isneginf(strengths)
        strongest = np.where(is_empty, -1, positions), np.where(is_empty, 0, strengths)
        return cls(tokens.text, tokens.fingerprint, shard_tokens, counts, weights, weighted_norms, norms, *strongest)


@dataclass(frozen=True, slots=True, eq=False)
class ExpertScores(Record):
    """Importance scores of experts on one text, or on two; a higher score is more important."""

    criterion: str
    """name in `gprune.study.methods.EXPERT_CRITERIA`"""
    text: str
    """name of the calibration text in the study"""
    values: Annotated[Array, real("layers", "experts", finite=True)]
    """(layers, experts) float64, >= 0"""
    tokens: Annotated[Array, integers("layers", "experts")]
    """(layers, experts) int64 tokens from which the score is computed"""

    @property
    def is_cold(self) -> Array:
        """Return (layers, experts) bool, True for an expert with fewer than LEAST_TOKENS tokens."""
        return self.tokens < LEAST_TOKENS


@dataclass(frozen=True, slots=True, eq=False)
class ExpertDrift(Record):
    """Rank drift of experts between two texts (Eq. 1, with the expert as unit) and its resampling control.

    Experts that are cold in one of the compared sets have no rank, and their drift is NaN.
    """

    criterion: str
    """name in `gprune.study.methods.EXPERT_CRITERIA`"""
    signed: Annotated[Array, real("layers", "experts")]
    """(layers, experts) in [-1, 1]: (rank on A - rank on B) / (N - 1), N the ranked experts of the layer"""
    resample_primary: Annotated[Array, real("layers", "experts")]
    """(layers, experts) in [0, 1]: drift between two token-disjoint halves (even and odd shards) of A"""
    resample_auxiliary: Annotated[Array, real("layers", "experts")]
    """(layers, experts) in [0, 1]: drift between two token-disjoint halves of B"""
    half: Annotated[Array, real("layers", "experts")]
    """(layers, experts) in [0, 1]: drift between a half of A and a half of B, as large as those of the control"""
    tokens_primary: Annotated[Array, integers("layers", "experts")]
    """(layers, experts) int64 tokens on A"""
    tokens_auxiliary: Annotated[Array, integers("layers", "experts")]
    """(layers, experts) int64 tokens on B"""

    @property
    def magnitude(self) -> Array:
        """Return (layers, experts) rank drift in [0, 1], NaN for cold experts."""
        return np.abs(self.signed)

    @property
    def summary(self) -> dict[str, float]:
        """Return the means over ranked experts of the drift and of its controls, and the number of cold experts.

        A mean is NaN if no expert has a rank.
        """
        fields = {"drift": self.magnitude, "half": self.half}
        fields |= {"resample_primary": self.resample_primary, "resample_auxiliary": self.resample_auxiliary}
        ranked = {name: values[np.isfinite(values)] for name, values in fields.items()}
        means = {name: float(values.mean()) if values.size else np.nan for name, values in ranked.items()}
        return means | {"cold": int(np.isnan(self.signed).sum())}


@dataclass(frozen=True, slots=True, eq=False)
class AdaptedExperts(Record):
    """The result of RASA with the expert as module (section 3.2): scores, and the evidence for each decision."""

    criterion: str
    """name in `gprune.study.methods.EXPERT_CRITERIA`"""
    values: Annotated[Array, real("layers", "experts", finite=True)]
    """(layers, experts) float64 score on B for experts with `from_auxiliary`, else on A"""
    tokens: Annotated[Array, integers("layers", "experts")]
    """(layers, experts) int64 tokens on the text of the score"""
    adapted: Annotated[Array, booleans("layers", "experts")]
    """(layers, experts) bool, True if the expert's rank shifts more than resampling explains and its score is weak"""
    from_auxiliary: Annotated[Array, booleans("layers", "experts")]
    """(layers, experts) bool, True for adapted experts that B ranks more repeatably"""
    drift: Annotated[Array, real("layers", "experts")]
    """(layers, experts) rank drift between A and B in [0, 1], NaN for experts that are cold on one of them"""
    u_primary: Annotated[Array, real("layers", "experts")]
    """(layers, experts) mean rank drift between balanced halves of A, NaN without two warm halves"""
    u_auxiliary: Annotated[Array, real("layers", "experts")]
    """(layers, experts) mean rank drift between balanced halves of B"""
    drift_threshold: float
    """quantile of the drift of all ranked experts; NaN if there is none"""
    score_threshold: float
    """quantile of their scores on A; NaN if there is none"""

    @property
    def scores(self) -> ExpertScores:
        """Return the adapted scores."""
        return ExpertScores(self.criterion, "A, adapted to B", self.values, self.tokens)


@dataclass(frozen=True, slots=True, eq=False)
class ExpertMasks(Record):
    """Experts that a method keeps, the same number in every mixture."""

    method: str
    """name in `gprune.study.methods.EXPERT_METHODS`"""
    experts: Annotated[Array, booleans("layers", "experts")]
    """(layers, experts) bool, True = kept"""
    retention: float
    """kept fraction of the parameters of experts and routers"""
    target: float
    """requested retention"""

    def check(self) -> None:
        """Check that every mixture keeps the same number of experts."""
        if len(set(self.experts.sum(axis=1).tolist())) != 1:
            raise ValueError("a stock model has the same number of experts in every mixture")

    @property
    def count(self) -> int:
        """Return the number of experts that every mixture keeps."""
        return int(self.experts[0].sum())


@dataclass(frozen=True, slots=True, eq=False)
class RouterWeights(Record):
    """Weights of the routers of a pruned model, refitted by distillation from the dense model."""

    method: str
    """name in `gprune.study.methods.EXPERT_METHODS`"""
    weights: Annotated[Array, real("layers", "experts", "hidden", finite=True)]
    """(layers, kept experts, hidden) float32"""
    biases: Annotated[Array, real("layers", "biases", finite=True)]
    """(layers, kept experts) float32; (layers, 0) in families without a bias"""
    steps: Annotated[Array, real("steps", "columns")]
    """(steps, columns) float64, one row per step, columns named in `columns`"""
    columns: tuple[str, ...]
    """names of the columns of `steps`"""


@dataclass(frozen=True, slots=True, eq=False)
class PrunedExperts:
    """A model without some of its experts, as masks and refitted routers of a dense model."""

    masks: ExpertMasks
    routers: RouterWeights | None = None
    """None if the routers keep the dense model's rows"""
