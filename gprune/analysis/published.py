"""Published results of the paper, which the app displays next to a run with the same setting.

Every result states the model, texts and metric of its setting. The numbers come from `gprune.data.published`.
"""

from dataclasses import dataclass

import pandas as pd

from gprune.data import published
from gprune.models.sources import is_random
from gprune.study import Study

MODEL = "LLaMA2-7B"
SWAPPED = "WikiText2 <-> PTB"
RESAMPLED = "resample of the same distribution"
STABLE, UNSTABLE, FIRST_FOUR = "0-20%", "80-100%", "0-80%"


@dataclass(frozen=True, slots=True)
class Published:
    """A published result."""

    claim: str
    """the result with its numbers, as a phrase"""
    setting: str
    """model, texts, metric and retention"""
    model: str
    """model name as in the names of folders and hub models, in lower case"""
    metric: str
    """name of the base metric"""


def _look_up(table: str, variant: str, name: str, method: str | None = None) -> float:
    """Return the value `name` of the first row of a published table with this variant, and method if it is not None."""
    rows = published.table(table, MODEL)
    return next(row.values[name] for row in rows if row.variant == variant and method in (None, row.method))


def _build_claim(claim: str, setting: str, metric: str = "flap") -> Published:
    return Published(claim, f"{MODEL}, {setting}", "llama-2-7b", metric)


def _build_jaccard_claim() -> Published:
    stable, unstable = (_look_up("figure-3b", variant, "jaccard") for variant in (STABLE, UNSTABLE))
    # the share of neurons that two independent masks with these retentions both keep
    shared = _FLAP * _GPRUNE
    chance = shared / (_FLAP + _GPRUNE - shared)
    return _build_claim(
        f"a Jaccard index of {stable:.3f} in the most stable bin and {unstable:.3f} in the most unstable (Fig. 3b)",
        f"overlap with FLAP, 50% retention; the chance level of the last bin is then {chance:.3f}",
    )


# retentions in the most unstable bin
_FLAP, _GPRUNE = (_look_up("figure-3a", UNSTABLE, "kept", method) for method in ("flap", "gprune:flap"))
DRIFT = _build_claim(
    f"a median rank correlation of {_look_up('figure-1a', SWAPPED, 'rank_correlation'):.2f} when the text changes, "
    f"{_look_up('figure-1a', RESAMPLED, 'rank_correlation'):.2f} when it is resampled (Fig. 1a)",
    "WikiText2 against PTB, 2048 samples of 128 tokens per text",
)
SWAP = _build_claim(
    f"a mean ARI of {_look_up('figure-1b', SWAPPED, 'ari', 'gprune:twflap'):.2f} for GPrune and "
    f"{_look_up('figure-1b', SWAPPED, 'ari', 'fang'):.2f} for FANG when the two texts are swapped (Fig. 1b)",
    "WikiText2 against PTB, token-weighted FLAP",
    "twflap",
)
RETENTION = _build_claim(
    f"that retention in the most unstable bin falls from {_FLAP:.3f} to {_GPRUNE:.3f} and the other four gain "
    f"{_look_up('figure-3a', FIRST_FOUR, 'gain_lowest', 'gprune:flap'):.3f} to "
    f"{_look_up('figure-3a', FIRST_FOUR, 'gain_highest', 'gprune:flap'):.3f} (Fig. 3a)",
    "FLAP, 50% retention",
)
JACCARD = _build_jaccard_claim()


def substitution() -> pd.DataFrame:
    """Return the published module agreement after a text is replaced (appendix).

    The values are mean and standard deviation (s.d.) over 32 layers.
    """
    rows = [
        {
            "comparison": row.variant.replace("-", "–").replace(" vs ", " against "),
            "mean ARI": row.values["ari"],
            "s.d. of ARI": row.values["ari_std"],
            "mean overlap": row.values["overlap"],
            "s.d. of overlap": row.values["overlap_std"],
        }
        for row in published.table("module-overlap", MODEL)
    ]
    return pd.DataFrame(rows)


def main_frame(model: str = MODEL, rule: str = "max") -> pd.DataFrame:
    """Return the published main table of a model as a frame for `analysis.tables`.

    `model` is one of `gprune.data.published.MODELS`, `rule` the accuracy rule, max or fixed.
    """
    return published.frame(published.table("main", model, rule))


def same_setting(claim: Published, study: Study) -> bool:
    """Return True if a study has the model, texts and metric of a published result."""
    model = study.model.lower().replace("llama2", "llama-2").replace("_", "-")
    texts = {study.primary.lower().split(":")[0], study.auxiliary.lower().split(":")[0]}
    is_same_model = claim.model in model and not is_random(study.model)
    return is_same_model and texts == {"wikitext2", "ptb"} and study.metric == claim.metric
